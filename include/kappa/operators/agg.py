"""Aggregates that merge.

Authors name ``count``, ``sum``, ``min``, ``max``, ``avg``, ``first``, ``last``, ``distinct``, ``top`` and ``collect``;
:func:`parts_of` gives the columns that an operator keeps for them (:mod:`kappa.operators.parts` merges them). Each
result is a function of the set of rows, so it does not depend on how a log is cut. All of them except ``count()``
ignore nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kappa.errors import TopologyError
from kappa.operators import origin, sums
from kappa.operators.parts import (
    CHANGED,
    ORIGIN,
    Part,
    Types,
    ddl_of,
    derived,
    internal,
    lifted,
    merged,
    revision,
    revision_of_values,
    value_sql,
    values,
    with_nulls,
)
from kappa.topology import ORDER
from kappa.topology.ddl import Column, columns_of, quote
from kappa.topology.members.descriptions import described
from kappa.topology.reserved import is_reserved
from kappa.topology.shapes import plain_kind

__all__ = [
    "CHANGED",
    "ORIGIN",
    "Aggregate",
    "Part",
    "avg",
    "collect",
    "count",
    "ddl_of",
    "derived",
    "distinct",
    "first",
    "internal",
    "last",
    "lifted",
    "max",
    "merged",
    "min",
    "parts_of",
    "read_columns",
    "revision",
    "stddev",
    "sum",
    "text_of",
    "top",
    "values",
    "variance",
]


#: Most elements of an array in Java.
_MOST_VALUES = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """An aggregate of a column, as an author declares it.

    Attributes:
        text: the aggregate with all its parameters, the same text for the same aggregate; part of a table's shape.
        parts: function of its name and the rows' columns that gives the columns it keeps; the first one is its value.
        columns: names of the columns that it reads.
        is_ordered: whether it uses the order columns of the rows.
    """

    text: str
    parts: Callable[[str, Types], tuple[Part, ...]] = field(compare=False, repr=False)
    columns: tuple[str, ...] = ()
    is_ordered: bool = False

    def __post_init__(self) -> None:
        odd = [column for column in self.columns if not isinstance(column, str)]
        if odd:
            function = self.text.partition("(")[0]
            raise TopologyError(
                f"agg.{function} has {described(odd[0])} for a column. Write the name of one: agg.{function}('amount')."
            )


def count(column: str | None = None) -> Aggregate:
    """The number of rows, or of those with a value in a column: BIGINT, never null."""

    def parts(name: str, types: Types) -> tuple[Part, ...]:
        if column is None:
            return (sums.added(name, "BIGINT", "1L", "-1L", is_value=True),)
        sql = value_sql(types, column, "count")
        return (sums.counted(name, sql, is_value=True),)

    if column is None:
        return Aggregate(text="count()", parts=parts)
    return Aggregate(text=f"count({column})", parts=parts, columns=(column,))


def sum(column: str) -> Aggregate:
    """The sum of a column: BIGINT of integers, DECIMAL(min(38, p + 10), s) of DECIMAL(p, s); 0 without any value.

    A sum that does not fit its type fails the slice. DOUBLE and FLOAT are refused: their sums depend on the order.
    """

    def parts(name: str, types: Types) -> tuple[Part, ...]:
        return (sums.summed(name, types, column, "sum", is_value=True),)

    return Aggregate(text=f"sum({column})", parts=parts, columns=(column,))


def min(column: str) -> Aggregate:
    """The least value of a column, in its type; null without any value."""
    return _least("min", column)


def max(column: str) -> Aggregate:
    """The greatest value of a column, in its type; null without any value."""
    return _least("max", column)


def avg(column: str) -> Aggregate:
    """The mean of a column: DECIMAL(24, 4) of integers, DECIMAL(p + 4, min(37, s + 4)) of DECIMAL(p, s).

    Past 34 digits it is DECIMAL(38, min(37, s + 38 - p)), so that each value of the column fits. Sum and count are kept
    and divided, rounded half up; null without any value. Past 24 digits of the column the last digits of the quotient
    are zeros. A sum that does not fit min(38, p + 10) digits fails the slice. DOUBLE and FLOAT are refused, as by
    :func:`sum`.
    """

    def parts(name: str, types: Types) -> tuple[Part, ...]:
        return sums.mean(name, types, column)

    return Aggregate(text=f"avg({column})", parts=parts, columns=(column,))


def variance(column: str) -> Aggregate:
    """The variance of a sample, DOUBLE; null with fewer than two values.

    Count, sum and sum of squares are kept as integers or DECIMAL, so that the value does not depend on order or cuts.
    It is exact to the digits of a DOUBLE; of integers and of values with up to three digits after the point while the
    number of values times their sum of squares, the points left out, fits 38 digits.

    The sum of squares has 38 digits, and one that does not fit fails the slice: a hundred of the largest values of
    DECIMAL(18, s) have room. DOUBLE and FLOAT are refused, as by :func:`sum`, and DECIMAL of more than 18 digits.
    """
    return _spread("variance", column, "{0}")


def stddev(column: str) -> Aggregate:
    """The standard deviation of a sample, the root of :func:`variance`."""
    return _spread("stddev", column, "SQRT({0})")


def first(column: str) -> Aggregate:
    """The first value of a column in the total order, in its type; the least value if one record has several rows."""
    return _at_an_end("first", "MIN", column)


def last(column: str) -> Aggregate:
    """The last value of a column in the total order, in its type; the greatest value if one record has several rows."""
    return _at_an_end("last", "MAX", column)


def distinct(column: str, k: int = 1024) -> Aggregate:
    """The number of different values of a column: BIGINT, exact below ``k`` and about ``1 / sqrt(k)`` off above.

    The ``k`` smallest 64-bit hashes are kept. Unlike a HyperLogLog's, the estimate does not depend on the order of
    merging. A hash depends on the type: state of one type does not go on under another.

    Raises:
        TopologyError: ``k`` is below 2.
    """
    _at_least(2, k, f"agg.distinct({column!r}): k")

    def parts(name: str, types: Types) -> tuple[Part, ...]:
        sql, hashes = value_sql(types, column, "distinct"), f"{name}__hashes"
        quoted_hashes, count = quote(hashes), f"SIZE({quote(hashes)})"
        # Hashes are signed: the k-th smallest lies at (h + 2^63) / 2^64 of the way.
        reached = f"((ELEMENT_AT({quoted_hashes}, {k}) + 9223372036854775808D) / 18446744073709551616D)"
        estimate = f"GREATEST({k}L, CAST(ROUND({k - 1} / {reached}) AS BIGINT))"
        return (
            Part(
                name=name,
                type="BIGINT",
                derived=f"CASE WHEN {count} < {k} THEN CAST({count} AS BIGINT) ELSE {estimate} END",
                is_value=True,
                hashed=plain_kind(types[column].type),
            ),
            Part(
                name=hashes,
                type="ARRAY<BIGINT>",
                of_row=_listed(f"{sql} IS NULL", f"XXHASH64({with_nulls(sql, types[column].delta)})", "BIGINT"),
                of_parts=f"SLICE(SORT_ARRAY(ARRAY_DISTINCT(FLATTEN(COLLECT_SET({quoted_hashes})))), 1, {k})",
                # Hashes of revision 1 knew no nulls within a value.
                revision=2 if isinstance(types[column].delta, dict) else 1,
            ),
        )

    return Aggregate(text=f"distinct({column}, k={k})", parts=parts, columns=(column,))


def top(column: str, n: int, *, by: str) -> Aggregate:
    """The ``n`` values of a column that reach the greatest ``by``: ARRAY<STRUCT<by, value>>, the greatest first.

    A value counts once, with the greatest ``by`` of its rows; with equal ``by``, the greater value comes first. A row
    with a null in either column is ignored.

    Raises:
        TopologyError: ``n`` is below 1.
    """
    _at_least(1, n, f"agg.top({column!r}): n")

    def parts(name: str, types: Types) -> tuple[Part, ...]:
        sql, rank, own = value_sql(types, column, "top"), value_sql(types, by, "top"), quote(name)
        pair = f"STRUCT<by: {types[by].type}, value: {types[column].type}>"
        is_known = "EXISTS(_kept, _other -> _other.value = _one.value)"
        return (
            Part(
                name=name,
                type=f"ARRAY<{pair}>",
                of_row=_listed(f"({sql} IS NULL OR {rank} IS NULL)", f"STRUCT({rank} AS by, {sql} AS value)", pair),
                of_parts=f"SORT_ARRAY(FLATTEN(COLLECT_SET({own})), FALSE)",
                derived=f"AGGREGATE({own}, CAST(ARRAY() AS ARRAY<{pair}>), (_kept, _one) -> "
                f"IF(SIZE(_kept) >= {n} OR {is_known}, _kept, CONCAT(_kept, ARRAY(_one))))",
                is_value=True,
                revision=revision_of_values(types, column, by),
            ),
        )

    return Aggregate(text=f"top({column}, n={n}, by={by})", parts=parts, columns=(column, by))


def collect(column: str, most: int = 100) -> Aggregate:
    """The first values of a column in the total order, at most this many: ARRAY, empty without any value.

    Several rows of one record are ordered by value.

    Raises:
        TopologyError: ``most`` is below 1.
    """
    _at_least(1, most, f"agg.collect({column!r}): most")

    def parts(name: str, types: Types) -> tuple[Part, ...]:
        sql, rows = value_sql(types, column, "collect"), f"{name}__rows"
        kind = _placed(types[column].type)
        sorted_rows = f"SORT_ARRAY(FLATTEN(COLLECT_LIST({quote(rows)})))"
        return (
            Part(name=name, type=f"ARRAY<{types[column].type}>", derived=f"{quote(rows)}.value", is_value=True),
            Part(
                name=rows,
                type=f"ARRAY<{kind}>",
                of_row=_listed(f"{sql} IS NULL", _place(sql), kind),
                of_parts=f"SLICE({sorted_rows}, 1, {most})",
                revision=revision_of_values(types, column),
            ),
        )

    return Aggregate(text=f"collect({column}, most={most})", parts=parts, columns=(column,), is_ordered=True)


def parts_of(
    aggregates: Mapping[str, Aggregate], *, rows: str, what: str, own_names: Iterable[str] = ()
) -> tuple[Part, ...]:
    """The columns that an operator keeps for its aggregates: the value of each, then the columns that it needs to
    merge.

    Args:
        aggregates: aggregates by the name of their column.
        rows: Spark DDL of the rows.
        what: the operator, for messages.
        own_names: columns of the operator's own.

    Raises:
        TopologyError: there are no aggregates; a name is taken or is not a name; a column is missing or has the wrong
            type.
    """
    types = {column.name: column for column in columns_of(rows, what)}
    reserved = {name.lower() for name in own_names}
    parts: list[Part] = []
    if not aggregates:
        raise TopologyError(f"{what} has no aggregate. Name one: aggregates={{'rows': agg.count()}}.")
    for name, aggregate in aggregates.items():
        if not name or is_reserved(name) or "__" in name or name.lower() in reserved:
            raise TopologyError(
                f"{what}: no aggregate can be called {name!r}: names with '__', and {sorted(own_names)}, belong to the "
                "operator, and some names that begin with '_' to the platform. Give it another name."
            )
        reserved.add(name.lower())
        try:
            parts.extend(aggregate.parts(name, types))
        except TopologyError as error:
            raise TopologyError(f"{what}: {name!r} = {error}", **error.data) from error
    return tuple(parts)


def read_columns(aggregates: Mapping[str, Aggregate], *, rows: str, what: str) -> tuple[Column, ...]:
    """The declared columns that aggregates read, each once.

    Args:
        aggregates: aggregates by the name of their column.
        rows: Spark DDL of the rows.
        what: the operator, for messages.
    """
    names = {name for aggregate in aggregates.values() for name in aggregate.columns}
    return tuple(column for column in columns_of(rows, what) if column.name in names)


def text_of(aggregates: Mapping[str, Aggregate], parts: Iterable[Part]) -> str:
    """Aggregates as one text, for :attr:`kappa.topology.Table.made_by`, with the types of hashed values.

    Args:
        aggregates: aggregates by the name of their column.
        parts: their columns.
    """
    hashed = {part.name: f" of {part.hashed})" for part in parts if part.hashed}
    texts = {name: one.text if name not in hashed else one.text[:-1] + hashed[name] for name, one in aggregates.items()}
    return ", ".join(f"{name}={texts[name]}" for name in sorted(texts))


def _spread(what: str, column: str, of_variance: str) -> Aggregate:
    def parts(name: str, types: Types) -> tuple[Part, ...]:
        return sums.spread(name, types, column, what, of_variance)

    return Aggregate(text=f"{what}({column})", parts=parts, columns=(column,))


def _least(what: str, column: str) -> Aggregate:
    def parts(name: str, types: Types) -> tuple[Part, ...]:
        sql = value_sql(types, column, what)
        own = f"{what.upper()}({quote(name)})"
        revised = revision_of_values(types, column)
        return (Part(name=name, type=types[column].type, of_row=sql, of_parts=own, is_value=True, revision=revised),)

    return Aggregate(text=f"{what}({column})", parts=parts, columns=(column,))


def _at_an_end(what: str, function: str, column: str) -> Aggregate:
    def parts(name: str, types: Types) -> tuple[Part, ...]:
        sql, row = value_sql(types, column, what), f"{name}__{what}"
        return (
            Part(name=name, type=types[column].type, derived=f"{quote(row)}.value", is_value=True),
            Part(
                name=row,
                type=_placed(types[column].type),
                of_row=f"IF({sql} IS NULL, NULL, {_place(sql)})",
                of_parts=f"{function}({quote(row)})",
                revision=revision_of_values(types, column),
            ),
        )

    return Aggregate(text=f"{what}({column})", parts=parts, columns=(column,), is_ordered=True)


def _place(sql: str) -> str:
    """A value after its place in the total order: structs compare by their fields, in this order."""
    return f"STRUCT({', '.join(ORDER)}, {sql} AS value)"


def _placed(kind: str) -> str:
    return f"{origin.ORIGIN_TYPE.removesuffix('>')}, value: {kind}>"


def _listed(is_left_out: str, sql: str, kind: str) -> str:
    return f"IF({is_left_out}, CAST(ARRAY() AS ARRAY<{kind}>), ARRAY({sql}))"


def _at_least(least: int, value: int, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TopologyError(f"{what}={value!r} is not an integer. Write one of at least {least}.")
    if value < least:
        raise TopologyError(f"{what}={value} is too small. Use at least {least}.")
    if value > _MOST_VALUES:
        raise TopologyError(f"{what}={value} is more than an array holds. Use at most {_MOST_VALUES:,}.")
