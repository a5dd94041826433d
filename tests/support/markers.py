"""Markers of slices, as a driver sends them."""

from __future__ import annotations

from typing import Any

from kappa.kafka.markers import Marker
from kappa.offsets.vector import Offsets


def slice_marker(seq: int, end: int, **values: Any) -> Marker:
    """That of a live slice which ends at an offset of partition 0 of topic ``pos``."""
    return Marker(
        seq=seq,
        end=Offsets({"pos": {0: end}}),
        max_timestamps={},
        topic_ids={},
        shapes={},
        code="c",
        topology_version="1",
        sends="live",
        **values,
    )
