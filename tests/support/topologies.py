"""The shipped topologies, by name."""

from __future__ import annotations

from pathlib import Path

from kappa.topology import Topology
from kappa.topology.registry import load

_FOLDER = Path(__file__).resolve().parents[2] / "include" / "topologies"


def shipped(name: str) -> Topology:
    """As it is deployed."""
    return load(_FOLDER, name)


def first_version(name: str) -> Topology:
    """As it was before the change that a replay shows."""
    return load(_FOLDER / "versions", name)
