"""What a real epoch writes has no field that its kind does not declare."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kappa.record import detail_schema, epochs, ledger


@contextmanager
def declared_details() -> Iterator[None]:
    """Within, an event or a ledger row with a field that its kind does not declare is not written."""
    kinds = {*detail_schema.ROWS, *detail_schema.ARCHIVE_ROWS}
    rows = {kind: {**detail_schema.ROWS.get(kind, {}), **detail_schema.ARCHIVE_ROWS.get(kind, {})} for kind in kinds}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            epochs, "_to_record", _checked(epochs._to_record, lambda event: detail_schema.EVENTS.get(event.event))
        )
        patch.setattr(ledger, "_to_record", _checked(ledger._to_record, lambda row: rows.get(row.kind)))
        yield


def _checked(write: Callable[[Any], Any], declared: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def to_record(value: Any) -> Any:
        unknown = detail_schema.undeclared(declared(value), value.detail)
        assert not unknown, f"{value} has {unknown}: declare them in kappa.record.detail_schema"
        return write(value)

    return to_record
