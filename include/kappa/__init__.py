"""Kappa: change the code of a running stream and recompute its history safely.

What a topology is written with is here: ``from kappa import Append, Source, Topology``, beside :mod:`kappa.operators`,
:mod:`kappa.testing` and :mod:`kappa.serving`. Everything else is inside and may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kappa.topology import Append, Check, Effects, Schedule, Slice, Source, Table, Threshold, Topic, Topology

__version__ = "0.2.0.dev0"

__all__ = ["Append", "Check", "Effects", "Schedule", "Slice", "Source", "Table", "Threshold", "Topic", "Topology"]


def __getattr__(name: str) -> Any:
    """The words of a topology, imported when they are asked for: most of the platform does without them."""
    if name not in __all__:
        raise AttributeError(f"module 'kappa' has no attribute {name!r}")
    from kappa import topology

    return getattr(topology, name)
