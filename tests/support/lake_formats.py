"""The number of a lake's format, for records that a test writes by hand."""

from __future__ import annotations

import json
from pathlib import Path

from kappa.delta.damage import entry_of
from kappa.delta.log_state import state_of
from kappa.replay.stored import LAKE_FORMAT, LAKE_FORMAT_PROPERTY


def number(path: str) -> None:
    """Give a record of epochs the present number; without one its lake is of the first format."""
    state = state_of(path)
    assert state is not None
    metadata = {**state.metadata, "configuration": {LAKE_FORMAT_PROPERTY: str(LAKE_FORMAT)}}
    Path(entry_of(path, state.version + 1)).write_text(json.dumps({"metaData": metadata}))
