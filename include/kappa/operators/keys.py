"""The columns that an operator tells histories apart by, as SQL and with their types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.topology.ddl import Column, columns_of, names_of, quote, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A column, or several.
Key = str | Sequence[str]

#: Setting of a session: the state is so large beside a slice that its rows are sought by the slice's keys.
BY_KEYS = "kappa.stateByKeys"


def in_sql(name: str) -> str:
    """A column, or a field of one, as SQL takes the name that Spark's functions take."""
    return name if "`" in name else ".".join(map(quote, name.split(".")))


def is_present(key: Key) -> str:
    """SQL: whether no column of the key is null."""
    return " AND ".join(f"{in_sql(name)} IS NOT NULL" for name in names_of(key))


def quoted_names(columns: Iterable[Column]) -> list[str]:
    """Names of columns as SQL."""
    return quoted(column.name for column in columns)


def with_key(rows: DataFrame, columns: Iterable[Column]) -> DataFrame:
    """The rows that have a key; one without has no history."""
    return rows.where(is_present(quoted_names(columns)))


def of_keys(before: DataFrame, rows: DataFrame, key: Key) -> DataFrame:
    """The rows of a state whose keys are among those of some rows, where the session asks for that; else all of them.

    A join of a slice with its state makes a hash of the state, or sorts it. Where the state has a thousand keys for one
    of the slice, one pass over it that keeps the slice's keys is several times as fast.

    Args:
        before: a state; at most one row a key.
        rows: the slice's rows.
        key: column or columns that both have.
    """
    from pyspark.sql import functions as F

    if rows.sparkSession.conf.get(BY_KEYS, "false") != "true":
        return before
    names = list(names_of(key))
    return F.broadcast(before.join(F.broadcast(rows.select(*map(in_sql, names))), on=names, how="left_semi"))


def key_columns(rows: str, key: Key, operator: str) -> tuple[Column, ...]:
    """The key's columns with their types, in the key's order.

    Args:
        rows: Spark DDL of the rows that go into the operator.
        key: the key.
        operator: whose key it is, for messages.

    Raises:
        TopologyError: the key has no column, or one that the rows lack.
    """
    known = {column.name: column for column in columns_of(rows, f"the rows of {operator}")}
    names = names_of(key)
    if not names or len(set(names)) < len(names):
        raise TopologyError(f"{operator}: key={key!r} names no column, or one twice. Name each column once: key='id'.")
    missing = [name for name in names if name not in known]
    if missing:
        raise TopologyError(
            f"{operator}: key columns {missing} are not among its rows, which have {sorted(known)}. Correct key= or "
            "rows=."
        )
    return tuple(known[name] for name in names)


def key_ddl(columns: Sequence[Column]) -> str:
    """Key columns as a state table declares them: never null."""
    return ", ".join(f"{quote(column.name)} {column.type} NOT NULL" for column in columns)
