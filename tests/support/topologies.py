"""The shipped topologies, by name."""

from __future__ import annotations

import re
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


#: Where a file names a topic; an output or a column of that name keeps it.
_TOPIC = r'((?:topic=|Topic\(\s*name=|slice\[|frontier\()"){name}"'


def renamed(name: str, names: Mapping[str, str], topics: Mapping[str, str], folder: str = "") -> str:
    """The file of a topology with other names in it.

    Args:
        name: the topology.
        names: what the file quotes, a name or a version -> another one; each is there.
        topics: a topic that it reads or sends to -> another one; each is there.
        folder: ``versions`` for the version before.
    """
    (file,) = [declaration.file for declaration in declared(FOLDER / folder) if declaration.name == name]
    text = file.read_text()
    for old, new in names.items():
        assert f'"{old}"' in text, old
        text = text.replace(f'"{old}"', f'"{new}"')
    for old, new in topics.items():
        text, places = re.subn(_TOPIC.format(name=re.escape(old)), rf'\g<1>{new}"', text)
        assert places, old
    return text
