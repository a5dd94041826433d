"""What a real epoch writes has no field that its kind does not declare."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from kappa.delta.append_log import AppendLog
from kappa.record import detail_schema


@contextmanager
def declared_details() -> Iterator[None]:
    """Within, an event or a ledger row with a field that its kind does not declare is not written."""
    kinds = {*detail_schema.ROWS, *detail_schema.ARCHIVE_ROWS}
    rows = {kind: {**detail_schema.ROWS.get(kind, {}), **detail_schema.ARCHIVE_ROWS.get(kind, {})} for kind in kinds}
    append, replace = AppendLog.append, AppendLog.replace

    def check(records: Sequence[Mapping[str, Any]]) -> None:
        for record in records:
            declared = rows.get(record["kind"]) if "kind" in record else detail_schema.EVENTS.get(record["event"])
            unknown = detail_schema.undeclared(declared, json.loads(record["detail"]))
            assert not unknown, f"{record} has {unknown}: declare them in kappa.record.detail_schema"

    def checked_append(log: AppendLog, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        check(records)
        return append(log, records)

    def checked_replace(log: AppendLog, kept_rows: Any, records: Sequence[Mapping[str, Any]], floor: int) -> None:
        check(records)
        replace(log, kept_rows, records, floor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AppendLog, "append", checked_append)
        patch.setattr(AppendLog, "replace", checked_replace)
        yield
