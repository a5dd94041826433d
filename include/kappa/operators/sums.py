"""Parts that add up, and can be taken out again: counts and sums, and means and variances of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kappa.errors import TopologyError
from kappa.operators.parts import Part, Types, value_sql
from kappa.topology.ddl import Column, is_numeric, quote

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
#: Decimals have at most this many digits.
_DIGITS = 38
#: A quotient of decimals has at least six digits after the point, so at most this many before it.
_DIGITS_OF_QUOTIENTS = _DIGITS - 6
#: The longest DECIMAL whose squares leave room for their sum.
_DIGITS_OF_ROOTS = 18
#: Digits after the point up to which Spark multiplies sums without rounding them.
_EXACT_SCALE = 3
#: The greatest number of 32 binary digits.
_LOW = (1 << 32) - 1
#: Digits of integers, by type.
_DIGITS_OF = {"byte": 3, "short": 5, "integer": 10, "long": 19}


def added(name: str, kind: str, of_row: str, undone: str, *, is_value: bool = False) -> Part:
    """A part that adds up over rows."""
    own = quote(name)
    total = whole([f"SUM({part})" for part in split(own, kind)])
    return Part(
        name=name,
        type=kind,
        of_row=of_row,
        of_parts=f"CAST(COALESCE({total}, 0) AS {kind})",
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
    longest = min(_DIGITS - 1, scale + 4)
    # Digits before the point come first: a mean has as many as the values.
    of_mean = min(longest, _DIGITS - digits + scale)
    kind = f"DECIMAL({min(_DIGITS, digits + 4)}, {of_mean})"
    dividend = f"CAST({quote(total.name)} AS DECIMAL(20, 0))" if size is None else quote(total.name)
    # A divisor of 20 digits: Spark gives a quotient as many integer digits as the dividend has, whatever the
    # divisor.
    divisor = f"CAST(NULLIF({quote(many.name)}, 0L) AS DECIMAL(20, 0))"
    quotient = f"CAST({dividend} / {divisor} AS {kind})"
    if min(_DIGITS, digits + 10) - scale > _DIGITS_OF_QUOTIENTS:
        # A sum of more digits is divided six places further right, where its quotient has room.
        moved = _moved(_moved(dividend, -6, f"DECIMAL({_DIGITS}, {scale + 6})") + f" / {divisor}", 6, kind)
        quotient = f"COALESCE(CAST(TRY_DIVIDE({dividend}, {divisor}) AS {kind}), {moved})"
    revision = 1 if of_mean == longest else 2
    value = Part(name=name, type=kind, derived=quotient, is_value=True, revision=revision)
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
    if size is not None and digits > _DIGITS_OF_ROOTS:
        raise TopologyError(
            f"agg.{what}({column!r}): the column is {types[column].type}, and no DECIMAL has room for the sum of its "
            f"squares. Cast it to at most {_DIGITS_OF_ROOTS} digits.",
            column=column,
        )
    kind = f"DECIMAL({_DIGITS}, {2 * scale})"
    narrow = f"CAST({sql} AS DECIMAL({digits}, {scale}))"
    square = f"COALESCE(CAST({narrow} * {narrow} AS {kind}), 0)"
    squares = added(f"{name}__squares", kind, f"CAST({square} AS {kind})", f"CAST(-{square} AS {kind})")
    n, s, q = (quote(part.name) for part in (many, total, squares))
    is_exact = scale <= _EXACT_SCALE
    quotient = _variance(n, s, q, scale) if is_exact else _variance_of_digits(n, s, q, scale)
    value = Part(
        name=name,
        type="DOUBLE",
        derived=f"IF({n} < 2L, NULL, {of_variance.format(quotient)})",
        is_value=True,
        revision=1 if is_exact else 2,
    )
    return value, many, total, squares


def split(sql: str, kind: str) -> tuple[str, ...]:
    """SQL of the parts of a number, each of which is added up by itself.

    Those of a BIGINT have 32 binary digits, and the higher one the sign. A sum of the numbers themselves would fail in
    an order in which it leaves what a BIGINT can be and comes back.
    """
    return (f"SHIFTRIGHT(CAST({sql} AS BIGINT), 32)", f"({sql} & {_LOW}L)") if kind == "BIGINT" else (sql,)


def whole(sums: Sequence[str]) -> str:
    """SQL of the number from sums of its parts; it fails where no BIGINT is that number."""
    if len(sums) == 1:
        return sums[0]
    high, low = sums
    return f"(({high} + SHIFTRIGHT({low}, 32)) * {_LOW + 1}L + ({low} & {_LOW}L))"


def type_of_sum(column: Column) -> str:
    """The type of a sum of integers or of DECIMAL: that of :func:`kappa.operators.agg.sum`."""
    size = _DECIMAL.fullmatch(str(column.delta))
    return "BIGINT" if size is None else f"DECIMAL({min(_DIGITS, int(size[1]) + 10)}, {size[2]})"


def _variance(n: str, s: str, q: str, scale: int) -> str:
    """SQL of a variance from number, sum and sum of squares."""
    total = f"CAST({s} AS DECIMAL({_DIGITS}, {scale}))"
    exact = f"TRY_SUBTRACT(TRY_MULTIPLY(CAST({n} AS DECIMAL(20, 0)), {q}), TRY_MULTIPLY({total}, {total}))"
    rounded = f"GREATEST({n} * CAST({q} AS DOUBLE) - CAST({s} AS DOUBLE) * CAST({s} AS DOUBLE), 0D)"
    return f"COALESCE(CAST({exact} AS DOUBLE), {rounded}) / (CAST({n} AS DOUBLE) * ({n} - 1L))"


def _variance_of_digits(n: str, s: str, q: str, scale: int) -> str:
    """The same from the digits without their point: Spark rounds products of decimals to six digits after it.

    With the mean ``m`` cut to an integer and the remainder ``r = s - m * n``, the squared distances from the true mean
    add up to ``q - m * (s + r) - r * r / n``. The first difference is an integer no greater than ``q + n``.
    """
    digits = f"DECIMAL({_DIGITS}, 0)"
    count, total, squares = f"CAST({n} AS DECIMAL(20, 0))", _moved(s, scale, digits), _moved(q, 2 * scale, digits)
    rest = f"CAST({total} % {count} AS DECIMAL(20, 0))"
    mean = f"CAST(({total} - {rest}) / {count} AS DECIMAL(20, 0))"
    around = f"({squares} - {mean} * ({total} + {rest}))"
    exact = f"CAST(TRY_SUBTRACT(TRY_MULTIPLY({around}, {count}), {rest} * {rest}) AS DOUBLE) / {n}"
    # Where that has no room, the distances are so large that nothing cancels out.
    rounded = f"CAST({around} AS DOUBLE) - CAST({rest} AS DOUBLE) * CAST({rest} AS DOUBLE) / {n}"
    return f"COALESCE({exact}, {rounded}) / ({n} - 1L) / 1E{2 * scale}D"


def _moved(sql: str, places: int, kind: str) -> str:
    """SQL of a decimal with its point moved to the right, exactly: a product would be rounded."""
    return f"CAST(CONCAT(CAST({sql} AS STRING), 'E{places}') AS {kind})"
