"""Values of a URL as SQL of the query engine. Pure.

A value is parsed as its column's type and written again from the result: a caller's text never becomes SQL.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation

from kappa.delta.queries import quoted_name
from kappa.wire.json import json_scalars
from kappa_web.problems import Problem

_INTEGERS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
_DECIMAL = re.compile(r"DECIMAL\((\d+), (\d+)\)")


def literal(text: str, kind: str, name: str) -> str:
    """A value as SQL.

    Args:
        text: decoded text from the URL: the JSON form of its type, without quotes.
        kind: the column's type, as :class:`~kappa.topology.shapes.Shape` has it.
        name: the column, for messages.

    Raises:
        Problem: 400, the text is not a value of that type, or values of that type cannot be compared.

    Examples:
        >>> from kappa_web.literals import literal
        >>> literal("O'Neill", "STRING", "customer")
        "'O''Neill'"
        >>> literal("2026-03-01T00:00:00Z", "TIMESTAMP", "window_start")
        'arrow_cast(1772323200000000, \\'Timestamp(Microsecond, Some("UTC"))\\')'
    """
    sized = _DECIMAL.fullmatch(kind)
    if sized:
        return _decimal(text, int(sized[1]), int(sized[2]), name)
    if kind in _INTEGERS:
        return _integer(text, kind, name)
    form = _FORMS.get(kind)
    if form is None:
        raise Problem(400, "malformed", f"Column {name!r} is {kind}, whose values cannot be queried.", column=name)
    try:
        return form(text)
    except (ValueError, OverflowError) as error:
        raise _wrong(text, kind, name) from error


def equal(name: str, sql: str) -> str:
    """The condition that a column has a value."""
    return f"{quoted_name(name)} = {sql}"


def _wrong(text: str, kind: str, name: str) -> Problem:
    shown = text if len(text) <= 80 else f"{text[:80]}…"
    return Problem(
        400, "malformed", f"{shown!r} is not a value of type {kind}, which column {name!r} has.", column=name
    )


def _integer(text: str, kind: str, name: str) -> str:
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise _wrong(text, kind, name)
    value, bits = int(text), _INTEGERS[kind]
    if not -(1 << bits) <= value < 1 << bits:
        raise _wrong(text, kind, name)
    return f"CAST('{value}' AS {kind})"


def _decimal(text: str, precision: int, scale: int, name: str) -> str:
    kind = f"DECIMAL({precision}, {scale})"
    # A context for this column: that of the process has 28 digits. Only values with more digits and non-numbers raise.
    exact = Context(prec=precision, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation, Inexact])
    try:
        if len(text) > 100:
            raise _wrong(text, kind, name)
        value = Decimal(text).quantize(Decimal((0, (1,), -scale)), context=exact)
    except (InvalidOperation, Inexact) as error:
        raise _wrong(text, kind, name) from error
    if not value.is_finite():
        raise _wrong(text, kind, name)
    return f"CAST('{value:f}' AS {kind})"


def _text(text: str) -> str:
    text.encode()  # a lone surrogate is not text
    return "'" + text.replace("'", "''") + "'"


def _boolean(text: str) -> str:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text.upper()


def _date(text: str) -> str:
    return f"arrow_cast({json_scalars.days(text)}, 'Date32')"


def _timestamp(text: str) -> str:
    return f"arrow_cast({json_scalars.micros(text)}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


def _number(text: str, kind: str) -> str:
    value = float(text)
    if not math.isfinite(value):
        return f"arrow_cast('{value}', '{kind}')"
    return f"arrow_cast({value!r}, '{kind}')"


def _bytes(text: str) -> str:
    return f"arrow_cast(X'{json_scalars.content(text).hex()}', 'Binary')"


_FORMS: dict[str, Callable[[str], str]] = {
    "STRING": _text,
    "BOOLEAN": _boolean,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
    "DOUBLE": lambda text: _number(text, "Float64"),
    "FLOAT": lambda text: _number(text, "Float32"),
    "BINARY": _bytes,
}
