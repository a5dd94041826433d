"""Options of an Avro source: record types by name, and defaults of fields that a writer does not have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kappa.errors import TopologyError

if TYPE_CHECKING:
    from kappa.topology.members import Source

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def check_record(source: Source) -> None:
    """Check that record types and defaults are only used with Avro, and that defaults are for columns.

    Raises:
        TopologyError: they are not.
    """
    what = f"Source {source.topic!r}"
    options = [name for name, value in (("record", source.record), ("defaults", source.defaults)) if value]
    if options and source.format != "avro":
        raise TopologyError(
            f"{what} has {' and '.join(options)}, but format={source.format!r} has neither record types nor writer "
            "schemas. Omit them, or declare format='avro'."
        )
    odd = [name for name in source.record if not _NAME.fullmatch(name)]
    if odd:
        raise TopologyError(
            f"{what}: record {odd} is not a name of an Avro record, like OrderPlaced or shop.OrderPlaced."
        )
    columns = [column.name for column in source.value_columns]
    unknown = sorted(set(source.defaults) - set(columns))
    if unknown:
        raise TopologyError(f"{what}: defaults are given for {unknown}, which are not in its schema: {columns}.")
