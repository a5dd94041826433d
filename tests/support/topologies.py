"""The shipped topologies, by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kappa.topology import Topology
from kappa.topology.registry import declared, load

FOLDER = Path(__file__).resolve().parents[2] / "include" / "topologies"


def shipped(name: str) -> Topology:
    """As it is deployed."""
    return load(FOLDER, name)


def first_version(name: str) -> Topology:
    """As it was before the change that a replay shows."""
    return load(FOLDER / "versions", name)


def renamed(name: str, names: Mapping[str, str], folder: str = "") -> str:
    """The file of a topology with other names in it.

    Args:
        name: the topology.
        names: a name as the file quotes it -> another one; each is there.
        folder: ``versions`` for the version before.
    """
    (file,) = [found.file for found in declared(FOLDER / folder) if found.name == name]
    text = file.read_text()
    for old, new in names.items():
        assert f'"{old}"' in text, old
        text = text.replace(f'"{old}"', f'"{new}"')
    return text
