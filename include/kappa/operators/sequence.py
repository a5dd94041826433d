"""The sequence of the rows of a key: by place in the total order, and of one place by content.

Rows that are spread from one record, as the lines of an invoice are, have one place. Their columns decide then, from
the first to the last, so that no sequence follows from how Spark happens to move rows. What was computed along a
sequence, as a running total is, is no content: its column says which ones the sequence was made by, and whatever
follows that key later takes the same sequence, whichever columns are left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kappa.operators.keys import Key, in_sql
from kappa.topology import ORDER, RECORD_COLUMNS
from kappa.topology.ddl import names_of, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: In the metadata of a column that was computed along a sequence: the key, and the columns that decided.
_ALONG = "kappa.along"
#: Equal in all rows of one record.
_OF_RECORD = frozenset({*RECORD_COLUMNS, "_frontier", "_is_released"})


def in_order(rows: DataFrame, key: Key) -> str:
    """SQL of a window over the rows of a key in their sequence.

    Made with Spark's functions it takes a call for each word.

    Args:
        rows: rows with the key and the order columns.
        key: column or columns.
    """
    keys = ", ".join(column(rows, name) for name in names_of(key))
    return f"PARTITION BY {keys} ORDER BY {', '.join([*ORDER, *_deciding(rows, key)])}"


def along(rows: DataFrame, key: Key, name: str, given: DataFrame) -> DataFrame:
    """The rows with a column marked as computed along the sequence of a key.

    Args:
        rows: the rows with the column.
        key: the key.
        name: the column.
        given: the rows before: their columns decided.
    """
    return rows.withMetadata(name, {_ALONG: {"key": list(names_of(key)), "by": _deciding(given, key)}})


def column(rows: DataFrame, name: str) -> str:
    """SQL of a column, or of a field of one: ``a.b`` is a column of that name where there is one."""
    return quote(name) if name in rows.columns else in_sql(name)


def content(rows: DataFrame) -> list[str]:
    """SQL of what orders rows of one place: their columns; those with maps, which have no order, last and as text."""
    plain, mapped = [], []
    for field in rows.schema:
        if field.name in _OF_RECORD or _ALONG in field.metadata:
            continue
        if _has_order(field.dataType.jsonValue()):
            plain.append(quote(field.name))
        else:
            mapped.append(f"TO_JSON(STRUCT({quote(field.name)}))")
    return [*plain, *mapped]


def _deciding(rows: DataFrame, key: Key) -> list[str]:
    """What orders rows of one key and place: what a sequence along this key was made by, else all content."""
    keys, there = [quote(name) for name in names_of(key)], {quote(name) for name in rows.columns}
    for field in rows.schema:
        told = field.metadata.get(_ALONG)
        if told and told["key"] == list(names_of(key)):
            # As far as columns are left: Spark then need not sort anew, and of equals keeps the sequence.
            kept = [by in there for by in told["by"]]
            return list(told["by"][: (kept.index(False) if False in kept else len(kept))])
    return [term for term in content(rows) if term not in keys]


def _has_order(kind: Any) -> bool:
    """Whether Spark can sort by a type, given as JSON."""
    if isinstance(kind, str):
        return kind != "variant" and "interval" not in kind
    if kind["type"] == "struct":
        return all(_has_order(field["type"]) for field in kind["fields"])
    return kind["type"] == "array" and _has_order(kind["elementType"])
