"""The sequence of the rows of a key: by place in the total order, and within one place by content.

Rows that come from one record, such as the lines of an invoice, have one place. Then their columns decide, from the
first to the last, so that no sequence depends on how Spark happens to move rows. A column that was computed along a
sequence, such as a running total, is not content: it is marked with the columns that decided the sequence. Later
operators on that key use the same sequence, whichever columns are left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa.operators.frames import with_metadata
from kappa.operators.keys import Key, by_content, in_sql
from kappa.topology import ORDER, RECORD_COLUMNS
from kappa.topology.ddl import names_of, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: In the metadata of a column that was computed along a sequence: the key, and the columns that decided.
_ALONG = "kappa.along"
#: Columns that are equal in all rows of one record.
_OF_RECORD = frozenset({*RECORD_COLUMNS, "_frontier", "_is_released"})


def in_order(rows: DataFrame, key: Key) -> str:
    """SQL of a window over the rows of a key in their sequence.

    SQL, because Spark's functions would need a call to the JVM for each word.

    Args:
        rows: rows with the key and the order columns.
        key: column or columns.
    """
    keys = ", ".join(in_sql(name, rows.columns) for name in names_of(key))
    return f"PARTITION BY {keys} ORDER BY {', '.join([*ORDER, *_deciding(rows, key)])}"


def along(rows: DataFrame, key: Key, name: str, rows_before: DataFrame) -> DataFrame:
    """The rows with a column marked as computed along the sequence of a key.

    Args:
        rows: the rows with the column.
        key: the key.
        name: the column.
        rows_before: the rows before the column was added, whose columns decided the sequence.
    """
    return with_metadata(rows, name, {_ALONG: {"key": list(names_of(key)), "by": _deciding(rows_before, key)}})


def content(rows: DataFrame) -> list[str]:
    """SQL of the order of rows with one place: by their columns; columns with maps, which have no order, last and as
    text.
    """
    kinds = {
        field.name: field.dataType.jsonValue()
        for field in rows.schema
        if field.name not in _OF_RECORD and _ALONG not in field.metadata
    }
    # Spark keeps a sequence by plain columns, but would sort again by texts of maps.
    return sorted(by_content(kinds), key=lambda term: not term.startswith("`"))


def _deciding(rows: DataFrame, key: Key) -> list[str]:
    """The order of rows with one key and place: that of a sequence along this key, otherwise their whole content."""
    keys, there = [quote(name) for name in names_of(key)], {quote(name) for name in rows.columns}
    for field in rows.schema:
        mark = field.metadata.get(_ALONG)
        if mark and mark["key"] == list(names_of(key)):
            # Only columns that are left: Spark then need not sort again, and keeps the sequence of equal rows.
            presence = [by in there for by in mark["by"]]
            return list(mark["by"][: (presence.index(False) if False in presence else len(presence))])
    return [term for term in content(rows) if term not in keys]
