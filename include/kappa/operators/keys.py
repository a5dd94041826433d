"""The columns by which an operator distinguishes histories, as SQL and with their types."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kappa.errors import TopologyError
from kappa.topology.ddl import Column, columns_of, names_of, quote, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A column, or several.
Key = str | Sequence[str]


def in_sql(name: str, columns: Collection[str] = ()) -> str:
    """SQL of a column, or of a field of one, whose name a user gave.

    Args:
        name: a column's exact name, whatever characters it has; otherwise a name for Spark's functions, with dots
            before fields.
        columns: the existing names.
    """
    if name in columns:
        return quote(name)
    return name if "`" in name else ".".join(map(quote, name.split(".")))


def by_content(columns: Mapping[str, Any], of: str = "") -> list[str]:
    """SQL of an order of rows by content, for rows of one record, which share one place.

    Args:
        columns: name -> type, as a Delta schema has it. A MAP has no order, but its JSON has one.
        of: prefix of the columns: the struct of which they are fields, and a dot.
    """
    values = {f"{of}{quote(name)}": kind for name, kind in columns.items()}
    return [f"TO_JSON(STRUCT({value}))" if _has_map(kind) else value for value, kind in values.items()]


def _has_map(kind: Any) -> bool:
    if not isinstance(kind, dict):
        return False
    if kind["type"] == "struct":
        return any(_has_map(field["type"]) for field in kind["fields"])
    return kind["type"] == "map" or _has_map(kind["elementType"])


def is_present(key: Key, rows: DataFrame | None = None) -> str:
    """SQL: whether no column of the key is null.

    Args:
        key: names of columns.
        rows: the rows, if a user gave the names, which may then be fields, see :func:`in_sql`.
    """
    return " AND ".join(f"{sql} IS NOT NULL" for sql in _in_sql(key, rows))


def _in_sql(key: Key, rows: DataFrame | None) -> list[str]:
    names = names_of(key)
    return quoted(names) if rows is None else [in_sql(name, rows.columns) for name in names]


def quoted_names(columns: Iterable[Column]) -> list[str]:
    """Names of columns as SQL."""
    return quoted(column.name for column in columns)


def with_key(rows: DataFrame, columns: Iterable[Column]) -> DataFrame:
    """The rows that have a key; one without has no history."""
    return rows.where(is_present([column.name for column in columns]))


def of_keys(before: DataFrame, rows: DataFrame, key: Key, *, seeks: bool) -> DataFrame:
    """The rows of a state whose keys are among those of some rows, if keys are sought; otherwise all rows.

    A join of a slice with its state hashes or sorts the state. If the state has a thousand keys per key of the slice,
    one pass over it that keeps the slice's keys is several times as fast.

    Args:
        before: a state; at most one row per key.
        rows: the slice's rows.
        key: column or columns that both have.
        seeks: whether keys are sought, see :meth:`kappa.topology.Slice.seeks`.
    """
    from pyspark.sql import functions as F

    if not seeks:
        return before
    names = list(names_of(key))
    return F.broadcast(before.join(F.broadcast(rows.select(*quoted(names))), on=names, how="left_semi"))


def key_columns(rows: str, key: Key, operator: str) -> tuple[Column, ...]:
    """The key's columns with their types, in the key's order.

    Args:
        rows: Spark DDL of the rows that go into the operator.
        key: the key.
        operator: the operator, for messages.

    Raises:
        TopologyError: the key has no column, or one that the rows lack.
    """
    columns = {column.name: column for column in columns_of(rows, f"the rows of {operator}")}
    names = names_of(key)
    if not names or len(set(names)) < len(names):
        raise TopologyError(f"{operator}: key={key!r} names no column, or one twice. Name each column once: key='id'.")
    missing = [name for name in names if name not in columns]
    if missing:
        raise TopologyError(
            f"{operator}: key columns {missing} are not among its rows, which have {sorted(columns)}. Correct key= or "
            "rows=."
        )
    return tuple(columns[name] for name in names)


def key_ddl(columns: Sequence[Column]) -> str:
    """Key columns in a state table's declaration: never null."""
    return ", ".join(f"{quote(column.name)} {column.type} NOT NULL" for column in columns)
