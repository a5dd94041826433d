"""Parts that add up, and can be taken out again: counts and sums, and means and variances of them."""

from __future__ import annotations

import re

from kappa.errors import TopologyError
from kappa.operators.parts import Part, Types, value_sql
from kappa.topology.ddl import Column, is_numeric, quote

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
#: Decimals have at most this many digits.
_DIGITS = 38
#: Digits of integers, by type.
_DIGITS_OF = {"byte": 3, "short": 5, "integer": 10, "long": 19}


def added(name: str, kind: str, of_row: str, undone: str, *, is_value: bool = False) -> Part:
    """A part that adds up over rows."""
    own = quote(name)
    return Part(
        name=name,
        type=kind,
        of_row=of_row,
        of_parts=f"CAST(COALESCE(SUM({own}), 0) AS {kind})",
        undone=undone,
        is_value=is_value,
    )


def counted(name: str, sql: str, *, is_value: bool = False) -> Part:
    """The number of rows in which a value is not null."""
    return added(name, "BIGINT", f"IF({sql} IS NULL, 0L, 1L)", f"IF({sql} IS NULL, 0L, -1L)", is_value=is_value)


def summed(name: str, types: Types, column: str, what: str, *, is_value: bool = False) -> Part:
    """The sum of a column.

    Raises:
        TopologyError: the column is not of integers or of DECIMAL.
    """
    sql = value_sql(types, column, what)
    operand = types[column]
    if not is_numeric(operand) or operand.delta in ("double", "float"):
        why = "whose sum depends on the order of addition" if is_numeric(operand) else "which has no sum"
        raise TopologyError(
            f"agg.{what}({column!r}): the column is {operand.type}, {why}. Name a column of integers or DECIMAL, or "
            "cast it before.",
            column=column,
        )
    kind = type_of_sum(operand)
    return added(
        name,
        kind,
        f"CAST(COALESCE({sql}, 0) AS {kind})",
        f"CAST(-COALESCE(CAST({sql} AS {kind}), 0) AS {kind})",
        is_value=is_value,
    )


def mean(name: str, types: Types, column: str) -> tuple[Part, ...]:
    """The mean of a column, with the sum and the number that it is the quotient of."""
    total = summed(f"{name}__sum", types, column, "avg")
    many = counted(f"{name}__count", value_sql(types, column, "avg"))
    size = _DECIMAL.fullmatch(str(types[column].delta))
    digits, scale = (20, 0) if size is None else (int(size[1]), int(size[2]))
    kind = f"DECIMAL({min(_DIGITS, digits + 4)}, {min(_DIGITS - 1, scale + 4)})"
    whole = f"CAST({quote(total.name)} AS DECIMAL(20, 0))" if size is None else quote(total.name)
    # A divisor of 20 digits: Spark gives a quotient as many integer digits as the dividend has, whatever the
    # divisor.
    divisor = f"CAST(NULLIF({quote(many.name)}, 0L) AS DECIMAL(20, 0))"
    value = Part(name=name, type=kind, derived=f"CAST({whole} / {divisor} AS {kind})", is_value=True)
    return value, total, many


def spread(name: str, types: Types, column: str, what: str, of_variance: str) -> tuple[Part, ...]:
    """A function of the variance of a column, with the count, the sum and the sum of squares that it follows from.

    Args:
        name: the column that holds it.
        types: the rows' columns.
        column: the column.
        what: the aggregate, for messages.
        of_variance: SQL of the function, with ``{0}`` for the variance.

    Raises:
        TopologyError: the column has no sum, or none holds its squares.
    """
    sql = value_sql(types, column, what)
    total = summed(f"{name}__sum", types, column, what)
    many = counted(f"{name}__count", sql)
    size = _DECIMAL.fullmatch(str(types[column].delta))
    digits, scale = (_DIGITS_OF[types[column].delta], 0) if size is None else map(int, size.groups())
    if 2 * digits > _DIGITS:
        raise TopologyError(
            f"agg.{what}({column!r}): the column is {types[column].type}, and its squares fit no DECIMAL. Cast it "
            "to at most 19 digits.",
            column=column,
        )
    kind = f"DECIMAL({_DIGITS}, {2 * scale})"
    narrow = f"CAST({sql} AS DECIMAL({digits}, {scale}))"
    square = f"COALESCE(CAST({narrow} * {narrow} AS {kind}), 0)"
    squares = added(f"{name}__squares", kind, f"CAST({square} AS {kind})", f"CAST(-{square} AS {kind})")
    n, s, q = (quote(part.name) for part in (many, total, squares))
    whole = f"CAST({s} AS DECIMAL({_DIGITS}, {scale}))"
    exact = f"TRY_SUBTRACT(TRY_MULTIPLY(CAST({n} AS DECIMAL(20, 0)), {q}), TRY_MULTIPLY({whole}, {whole}))"
    rounded = f"GREATEST({n} * CAST({q} AS DOUBLE) - CAST({s} AS DOUBLE) * CAST({s} AS DOUBLE), 0D)"
    quotient = f"COALESCE(CAST({exact} AS DOUBLE), {rounded}) / (CAST({n} AS DOUBLE) * ({n} - 1L))"
    value = Part(name=name, type="DOUBLE", derived=f"IF({n} < 2L, NULL, {of_variance.format(quotient)})", is_value=True)
    return value, many, total, squares


def type_of_sum(column: Column) -> str:
    """The type of a sum of integers or of DECIMAL: that of :func:`kappa.operators.agg.sum`."""
    size = _DECIMAL.fullmatch(str(column.delta))
    return "BIGINT" if size is None else f"DECIMAL({min(_DIGITS, int(size[1]) + 10)}, {size[2]})"
