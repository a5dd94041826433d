"""What becomes of a JSON value in a column of each type: a reading of docs/json.md, written apart from the reader.

Nothing here imports the reader. Each literal stands with what a row then holds, or with why there is no row.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

#: A value that makes its record a dead letter.
DEAD = object()
#: Bytes that are not a value of any schema.
HOSTILE = (
    b"",
    b" ",
    b"null",
    b"[]",
    b'"text"',
    b"{",
    b'{"k":',
    b'{"k":"a"}{}',
    b'{"k":"a"} x',
    b"\xff\xfe{}",
    b"\xef\xbb\xbf{}",
    b"\0\0\0\0\1{}",
    b'{"k":NaN}',
    b"{'k':'a'}",
    b'{"k":"a",}',
    b'{"deep":' + b"[" * 300 + b"]" * 300 + b"}",
    b'{"other":"\xff"}',
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A literal, and what a column holds of it.

    Attributes:
        text: as JSON has it.
        value: what the row holds; None for null; :data:`DEAD` where there is no row.
    """

    text: str
    value: Any


def _both(texts: dict[str, Any], *dead: str) -> list[Outcome]:
    return [*(Outcome(text=t, value=v) for t, v in texts.items()), *(Outcome(text=t, value=DEAD) for t in dead)]


def _integers(bits: int) -> list[Outcome]:
    most = (1 << bits - 1) - 1
    right = {"0": 0, "-1": -1, "-0": 0, str(most): most, str(-most - 1): -most - 1}
    return _both(right, str(most + 1), "1.0", "1e2", '"1"', "true", "[]", "{}", "1" * 30)


_TIMES = {
    '"2026-03-01"': datetime(2026, 3, 1, tzinfo=UTC),
    '"2026-03-01T08:15:00Z"': datetime(2026, 3, 1, 8, 15, tzinfo=UTC),
    '"2026-03-01 08:15:00.123456789"': datetime(2026, 3, 1, 8, 15, 0, 123456, tzinfo=UTC),
    '"2026-03-01T08:15:00+05:30"': datetime(2026, 3, 1, 2, 45, tzinfo=UTC),
    '"1969-12-31T23:59:59.5Z"': datetime(1969, 12, 31, 23, 59, 59, 500000, tzinfo=UTC),
}
_NO_TIMES = (
    '"08:15"',
    '"T08:15"',
    '"20260301"',
    '"2026-W01-1"',
    '"2026-02-30"',
    '"2026-03-01T24:00:00Z"',
    '"2026-03-01T08:15:60Z"',
    '"2026-03-01T08:15:00[Europe/Berlin]"',
    '"now"',
    '""',
    "1772323200000",
    "1.5",
    '"1772323200000"',
    "true",
    "{}",
)

#: Type -> literals with their outcomes; right ones, nearly right ones, hostile ones.
LITERALS: dict[str, list[Outcome]] = {
    "BOOLEAN": _both({"true": True, "false": False}, '"true"', "1", "0", "[]"),
    "TINYINT": _integers(8),
    "SMALLINT": _integers(16),
    "INT": _integers(32),
    "BIGINT": _integers(64),
    "DOUBLE": _both({"0": 0.0, "1.5": 1.5, "-2e3": -2000.0, "5e-324": 5e-324}, '"1.5"', "1e999", "true", "{}"),
    "DECIMAL(10,2)": _both(
        {
            "0": Decimal("0.00"),
            "1.005": Decimal("1.01"),
            "-99999999.99": Decimal("-99999999.99"),
            "1e2": Decimal("100.00"),
            "1e-214748364": Decimal("0.00"),
            '"12.5"': Decimal("12.50"),
        },
        "100000000",
        "1e9",
        '"1e99999999"',
        '"x"',
        '"NaN"',
        "true",
        "[]",
    ),
    "STRING": _both(
        {'""': "", '"a"': "a", '"Größe 🙂"': "Größe 🙂", '"\\u00e9\\n"': "é\n", '"2026"': "2026"}, '"\\ud800"'
    ),
    "BINARY": _both({'""': b"", '"AP8="': b"\0\xff"}, '"AP8"', '"A P8="', '"%"', "1", "{}"),
    "DATE": _both(
        {'"2026-03-01"': date(2026, 3, 1), '"1582-10-10"': date(1582, 10, 10), '"2024-02-29"': date(2024, 2, 29)},
        '"2026-02-29"',
        '"20260301"',
        '"08:15"',
        "1",
        "true",
    ),
    "TIMESTAMP": _both(_TIMES, *_NO_TIMES),
}
SIMPLE = tuple(LITERALS)


def drawn_type(chance: random.Random, depth: int = 0) -> str:
    """A type, nested at times."""
    kind = chance.choice(["simple"] * 6 + ["array", "struct", "map"]) if depth < 2 else "simple"
    if kind == "simple":
        return chance.choice(SIMPLE)
    if kind == "array":
        return f"ARRAY<{drawn_type(chance, depth + 1)}>"
    if kind == "map":
        return f"MAP<STRING, {drawn_type(chance, depth + 1)}>"
    return f"STRUCT<a: {drawn_type(chance, depth + 1)}, b: {drawn_type(chance, depth + 1)}>"


def drawn_value(chance: random.Random, kind: str, bad: float) -> Outcome:
    """A literal of a type; null, or one that does not fit, at times.

    Args:
        bad: share of simple values that do not fit.
    """
    if chance.random() < 0.1:
        return Outcome(text="null", value=None)
    if kind.startswith("ARRAY<"):
        items = [drawn_value(chance, kind[6:-1], bad) for _ in range(chance.randrange(3))]
        return _whole(f"[{', '.join(item.text for item in items)}]", items, [item.value for item in items])
    if kind.startswith("MAP<STRING, "):
        values = {name: drawn_value(chance, kind[12:-1], bad) for name in chance.sample(["x", "y z", ""], 2)}
        text = ", ".join(f"{json.dumps(name)}: {item.text}" for name, item in values.items())
        return _whole(f"{{{text}}}", values.values(), [(name, item.value) for name, item in values.items()])
    if kind.startswith("STRUCT<"):
        fields = {name: drawn_value(chance, part, bad) for name, part in _fields(kind).items()}
        sent = [name for name in fields if chance.random() < 0.9]
        text = ", ".join(f'"{name}": {fields[name].text}' for name in [*sent])
        row = {name: fields[name].value if name in sent else None for name in fields}
        return _whole(f"{{{text}}}", [fields[name] for name in sent], row)
    wrong = chance.random() < bad
    return chance.choice([one for one in LITERALS[kind] if (one.value is DEAD) == wrong])


def _whole(text: str, parts: Any, value: Any) -> Outcome:
    return Outcome(text=text, value=DEAD if any(part.value is DEAD for part in parts) else value)


def _fields(kind: str) -> dict[str, str]:
    """The fields of a STRUCT of two."""
    depth = 0
    inner = kind[len("STRUCT<a: ") : -1]
    for place, letter in enumerate(inner):
        depth += (letter in "<(") - (letter in ">)")
        if depth == 0 and inner[place:].startswith(", b: "):
            return {"a": inner[:place], "b": inner[place + len(", b: ") :]}
    raise ValueError(kind)
