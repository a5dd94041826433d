"""Values that the partition columns of an output may hold.

Delta keeps a partition's value as text, in its log and in the name of a folder. An empty text means null there, and so
does the name that Hive gives null. What one of both writers cannot write, or writes as another value, is refused on
both: docs/decisions/partition-columns-hold-what-both-writers-keep.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa.topology.ddl import Column, literal, quote

if TYPE_CHECKING:
    import pyarrow as pa

#: Texts that Delta keeps as null.
NULLS = ("", "__HIVE_DEFAULT_PARTITION__")
#: Most bytes in the name of a folder, by Linux and macOS.
_LONGEST = 255
#: Bytes that stand in the name of a folder as they are; each other one takes three.
_PLAIN = "[A-Za-z0-9._-]"
#: Microseconds of a day.
_DAY = 86_400_000_000
#: The first day of year 1, and the last of year 9999. Of earlier times Spark writes others, by another calendar; with
#: years outside, pyarrow and polars open no row of the table.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


def is_null(sql: str) -> str:
    """SQL: whether a text is null as a partition's value."""
    return f"({sql} IS NULL OR {sql} IN ({', '.join(map(literal, NULLS))}))"


def as_kept(column: Column) -> str:
    """SQL of a column as Delta keeps it."""
    sql = quote(column.name)
    return f"IF({is_null(sql)}, NULL, {sql}) AS {sql}" if column.delta == "string" else sql


def has_limits(column: Column) -> bool:
    """Whether there are values of its type that no partition can have."""
    return column.delta in ("string", "timestamp", "date")


def limits(column: Column) -> str:
    """What those are, for people."""
    if column.delta != "string":
        return f"a {'time' if column.delta == 'timestamp' else 'date'} before year 1 or after year 9999"
    return f"U+0000, or more than {_room(column)} bytes, of which each that is not a plain letter or digit counts three"


def is_refused(column: Column) -> str:
    """SQL: whether no partition can have the column's value."""
    sql = quote(column.name)
    if column.delta == "timestamp":
        return f"UNIX_MICROS({sql}) < {_FIRST_DAY * _DAY}L OR UNIX_MICROS({sql}) >= {(_LAST_DAY + 1) * _DAY}L"
    if column.delta == "date":
        return f"UNIX_DATE({sql}) NOT BETWEEN {_FIRST_DAY} AND {_LAST_DAY}"
    plain = f"LENGTH({sql}) - LENGTH(REGEXP_REPLACE({sql}, '{_PLAIN}', ''))"
    return f"3 * OCTET_LENGTH({sql}) - 2 * ({plain}) > {_room(column)} OR CONTAINS({sql}, CHAR(0))"


def refused(column: Column, rows: pa.Table) -> pa.ChunkedArray | None:
    """Which rows have a value that no partition can have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = rows[column.name]
    if column.delta == "timestamp":
        micros = values.cast(pa.int64())
        return pc.or_(pc.less(micros, _FIRST_DAY * _DAY), pc.greater_equal(micros, (_LAST_DAY + 1) * _DAY))
    if column.delta == "date":
        days = values.cast(pa.int32())
        return pc.or_(pc.less(days, _FIRST_DAY), pc.greater(days, _LAST_DAY))
    texts = values.unique()
    plain = pc.binary_length(pc.replace_substring_regex(texts, f"[^{_PLAIN[1:]}", ""))
    size = pc.subtract(pc.multiply(pc.binary_length(texts), 3), pc.multiply(plain, 2))
    odd = texts.filter(pc.or_(pc.greater(size, _room(column)), pc.match_substring(texts, "\0")))
    return pc.is_in(values, value_set=odd) if len(odd) else None


def _room(column: Column) -> int:
    """Most bytes of a value beside the column's name."""
    name = column.name.encode()
    plain = sum(chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "._-") for byte in name)
    return _LONGEST - (3 * len(name) - 2 * plain) - len("=")
