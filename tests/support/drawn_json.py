"""Schemas, and JSON records of them, drawn from a seed: right, nearly right, hostile and null, each with what the table
of types says it becomes.

For campaigns: :func:`drawn_kind` gives columns, :func:`schema` their DDL, :func:`drawn_record` one record's value.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

from support.json_oracle import DeadLetterError, expected
from support.json_tokens import Fields, Number, Token, written

#: Names that some part of a system may stumble over; all that are not ASCII or letters have to be quoted in DDL.
NAMES = ["n", "order id", "log.level", "@timestamp", "$v", "_id", "ключ", "名", "select", "a`b", 'q"q', "back\\slash"]
NAMES += ["Value", "value", "x-y", "1st", "é", "😀", "a/b", "100%"]
SCALARS = [pa.string(), pa.int64(), pa.int32(), pa.int16(), pa.int8(), pa.bool_(), pa.float64(), pa.float32()]
SCALARS += [pa.decimal128(12, 2), pa.decimal128(5, 0), pa.decimal128(38, 18), pa.decimal128(3, 3), pa.binary()]
SCALARS += [pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")]
TYPES = {"int64": "BIGINT", "int32": "INT", "int16": "SMALLINT", "int8": "TINYINT", "bool": "BOOLEAN"}
TYPES |= {"double": "DOUBLE", "float": "FLOAT", "string": "STRING", "binary": "BINARY", "date32[day]": "DATE"}
TYPES |= {"timestamp[us, tz=UTC]": "TIMESTAMP"}
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


@dataclass(frozen=True, kw_only=True)
class Record:
    """One record.

    Attributes:
        value: its bytes, or null.
        outcome: ``row``, ``null`` or ``dead``.
        row: what becomes of it, as :func:`support.plain_rows.plain_rows` gives it; None for a null and a dead letter.
    """

    value: bytes | None
    outcome: str
    row: dict[str, Any] | None


def drawn_kind(random: Random, columns: int = 6) -> pa.StructType:
    """Columns of all types, nested and with awkward names; no two names are one when case does not count."""
    names = [name for name in random.sample(NAMES, min(columns, len(NAMES))) if name != "Value"]
    return pa.struct([pa.field(name, _type(random, 0)) for name in names])


def _type(random: Random, depth: int) -> pa.DataType:
    kind = random.random()
    if depth > 2 or kind < 0.7:
        return random.choice(SCALARS)
    if kind < 0.8:
        return pa.list_(_type(random, depth + 1))
    if kind < 0.88:
        return pa.map_(pa.string(), _type(random, depth + 1))
    names = [name for name in random.sample(NAMES, random.randint(1, 3)) if name != "Value"] or ["x"]
    return pa.struct([pa.field(n, _type(random, depth + 1), nullable=random.random() < 0.8) for n in names])


def schema(kind: pa.StructType) -> str:
    """Columns as Spark DDL."""
    return ", ".join(f"{_quoted(field.name)} {ddl(field.type)}" for field in kind)


def ddl(kind: pa.DataType) -> str:
    """A type as Spark DDL."""
    if pa.types.is_struct(kind):
        fields = (f"{_quoted(f.name)}: {ddl(f.type)}{'' if f.nullable else ' NOT NULL'}" for f in kind)
        return f"STRUCT<{', '.join(fields)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{ddl(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{ddl(kind.key_type)}, {ddl(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return TYPES[str(kind)]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def drawn_record(random: Random, kind: pa.StructType, timestamps: str = "text") -> Record:
    """A record: a quarter null, a third right, and the others nearly right or hostile, most of which are dead."""
    sort = random.random()
    if sort < 0.24:
        return Record(value=None, outcome="null", row=None)
    spoiled = set(random.sample(range(kind.num_fields), random.choice([1, 1, 2]))) if 0.6 < sort < 0.85 else set()
    spoiled &= set(range(kind.num_fields))
    token = _object(random, kind, timestamps, spoiled)
    text = written(token, random, blanks=random.choice([0, 0.3]), escapes=random.choice([0, 0, 0.3]))
    if sort >= 0.85:
        return Record(value=_broken(text, random), outcome="dead", row=None)
    try:
        row = expected(kind, token, timestamps)
    except DeadLetterError:
        return Record(value=text.encode(), outcome="dead", row=None)
    return Record(value=text.encode(), outcome="row", row=row)


def _object(random: Random, kind: pa.StructType, timestamps: str, spoiled: set[int]) -> Fields:
    pairs: list[tuple[str, Token]] = []
    for place, field in enumerate(kind):
        if random.random() < 0.15 and field.nullable:
            continue
        draw = _near if place in spoiled else _right
        pairs.append((field.name, draw(random, field.type, timestamps)))
        if random.random() < 0.02:
            pairs.insert(0, (field.name, _any(random, 0)))  # the last one counts
    if random.random() < 0.3:
        pairs.insert(random.randint(0, len(pairs)), (random.choice(["other", "N", ""]), _ignored(random)))
    if random.random() < 0.2:
        random.shuffle(pairs)
    return Fields(tuple(pairs))


def _ignored(random: Random) -> Token:
    """What no column has."""
    odd: list[Token] = [Number("1" * 5000), Number("1e-214748364"), "\ud83d", Fields((("a", None), ("a", True))), "NaN"]
    deep: Token = None
    for _ in range(random.choice([3, 198])):
        deep = [deep]
    return random.choice([_any(random, 0), _any(random, 0), random.choice(odd), deep])


def _any(random: Random, depth: int) -> Token:
    sort = random.randint(0, 9 if depth < 3 else 7)
    if sort == 8:
        return [_any(random, depth + 1) for _ in range(random.randint(0, 3))]
    if sort == 9:
        return Fields(tuple((random.choice("abn"), _any(random, depth + 1)) for _ in range(random.randint(0, 3))))
    plain: list[Token] = [None, True, False, Number(str(random.randint(-300, 300))), Number("1.50"), "", "text", "1"]
    return plain[sort]


def _right(random: Random, kind: pa.DataType, timestamps: str) -> Token:
    """A value as a well-behaved producer writes it, or null."""
    if random.random() < 0.1:
        return None
    if pa.types.is_struct(kind):
        pairs = [(f.name, _present(random, f, timestamps)) for f in kind if not f.nullable or random.random() < 0.9]
        return Fields(tuple(pairs))
    if pa.types.is_list(kind):
        return [_right(random, kind.value_type, timestamps) for _ in range(random.randint(0, 3))]
    if pa.types.is_map(kind):
        names = random.choices(["a", "b", "é", "", "a b"], k=random.randint(0, 3))
        return Fields(tuple((name, _right(random, kind.item_type, timestamps)) for name in names))
    return _SCALARS[_sort(kind)](random, kind)


def _present(random: Random, field: pa.Field, timestamps: str) -> Token:
    token = _right(random, field.type, timestamps)
    while token is None and not field.nullable:
        token = _right(random, field.type, timestamps)
    return token


def _sort(kind: pa.DataType) -> str:
    name = str(kind).partition("[")[0].partition("(")[0]
    return "integer" if name in BITS else name


def _integer(random: Random, kind: pa.DataType) -> Token:
    bits = BITS[str(kind)] - 1
    return Number(str(random.choice([random.randint(-100, 100), random.randint(-(2**bits), 2**bits - 1)])))


def _decimal(random: Random, kind: pa.DataType) -> Token:
    digits = random.randint(1, kind.precision)
    number = str(random.randint(0, 10**digits - 1)).zfill(kind.scale + 1)
    whole, fraction = number[: len(number) - kind.scale], number[len(number) - kind.scale :]
    text = f"{random.choice(['', '-'])}{whole.lstrip('0') or '0'}{'.' if fraction else ''}{fraction}"
    return text if random.random() < 0.1 else Number(text)


def _double(random: Random, kind: pa.DataType) -> Token:
    names = ["NaN", "Infinity", "-Infinity"]
    numbers = [
        repr(random.uniform(-1e3, 1e3)),
        repr(random.uniform(-1, 1) * 10.0 ** random.randint(-30, 30)),
        "7",
        "-0",
    ]
    return random.choice(names) if random.random() < 0.05 else Number(random.choice(numbers))


def _string(random: Random, kind: pa.DataType) -> Token:
    letters = "abcXYZ 09é漢😀\u2028\"\\/\n\t\x00\x7f{}[]:,'`eE+-."
    return "".join(random.choices(letters, k=random.randint(0, 8)))


def _date(random: Random, kind: pa.DataType) -> Token:
    return f"{random.randint(1, 9999):04d}-{random.randint(1, 12):02d}-{random.randint(1, 28):02d}"


def _timestamp(random: Random, kind: pa.DataType) -> Token:
    clock = f"{random.randint(0, 23):02d}:{random.randint(0, 59):02d}:{random.randint(0, 59):02d}"
    fraction = random.choice(["", "", ".5", ".123", ".123456", ".123456789"])
    zone = random.choice(["Z", "Z", "Z", "", "+02:00", "-0530", " UTC"])
    return f"{_date(random, kind)}{random.choice('TT ')}{clock}{fraction}{zone}"


_SCALARS: dict[str, Callable[[Random, pa.DataType], Token]] = {
    "integer": _integer,
    "decimal128": _decimal,
    "double": _double,
    "float": _double,
    "string": _string,
    "date32": _date,
    "timestamp": _timestamp,
    "bool": lambda random, kind: random.random() < 0.5,
    "binary": lambda random, kind: base64.b64encode(random.randbytes(random.randint(0, 6))).decode(),
}


def _near(random: Random, kind: pa.DataType, timestamps: str) -> Token:
    """A value that is of another type, at an edge of its type, or written in an odd way."""
    sort = random.random()
    if sort < 0.25:
        return _any(random, 0)
    if pa.types.is_struct(kind) and sort < 0.9:
        return Fields(tuple((f.name, _near(random, f.type, timestamps)) for f in kind))
    if pa.types.is_list(kind) and sort < 0.9:
        return [_near(random, kind.value_type, timestamps) for _ in range(random.randint(1, 2))]
    if pa.types.is_map(kind) and sort < 0.9:
        return Fields(tuple((name, _near(random, kind.item_type, timestamps)) for name in random.choices("ab", k=2)))
    if pa.types.is_nested(kind):
        return random.choice([_any(random, 0), Fields((("\ud83d", None),)), []])
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _odd_time(random)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        odd: list[Token] = ["\ud83d", "a\ude00b", "AQI", "AQ==", "A QI=", "-_8=", "AR==", "=", "AQI=\n", "ÄÖ=="]
        return random.choice([*odd, _odd_number(random, kind), _any(random, 0)])
    return _odd_number(random, kind)


#: Numbers at the edges of types, and as few producers write them.
_ODD_NUMBERS = [
    "-0",
    "0.0",
    "-0.0",
    "1.0",
    "1e2",
    "1E+2",
    "1e-2",
    "12e1",
    "100e-2",
    "1e400",
    "-1e400",
    "1e-400",
    "1e40",
]
_ODD_NUMBERS += ["1e-214748364", "1e214748364", "0e99999999999", "1e-99", "1e-77", "5e-324", "1.7976931348623159e308"]
_ODD_NUMBERS += ["16777217", "16777217.0000001", "3.4028235677973366e38", "3.40282356779733661637539395458142568448e38"]
_ODD_NUMBERS += [
    "7.006492321624085e-46",
    "1.1754943508222875e-38",
    "8.589973e9",
    "0.1" + "0" * 60 + "1",
    "9" * 40,
    "1" * 5000,
]
_ODD_NUMBERS += ["0.005", "-0.005", "0.004999", "0.015", "999.5", "999.4999", "0.9995", "9999999999.995", "123456.7890"]
_ODD_NUMBERS += [str(s * 2**bits + step) for bits in (7, 8, 15, 31, 32, 63, 64) for s in (-1, 1) for step in (-1, 0, 1)]
_ODD_TEXTS = [
    "",
    " 1",
    "1 ",
    "+1",
    ".5",
    "5.",
    "1_0",
    "٣",
    "１",
    "0x1",
    "1e5",
    "1e-99",
    "1e-214748364",
    "-",
    ".",
    "nan",
    "INF",
]
_ODD_TEXTS += ["+INF", "+Infinity", "-INF", "infinity", "NaN", "00.50", "true", "null", "1,5", "1e", "9" * 1000]


def _odd_number(random: Random, kind: pa.DataType) -> Token:
    text = random.choice(_ODD_NUMBERS)
    if random.random() < 0.2:
        text = f"{random.uniform(-1, 1):.{random.randint(0, 40)}e}"
    return random.choice(_ODD_TEXTS) if random.random() < 0.25 else Number(text)


_ODD_DATES = [
    "2026-02-29",
    "2024-02-29",
    "1900-02-29",
    "2000-02-29",
    "2026-3-1",
    "2026-13-01",
    "2026-00-10",
    "2026-04-31",
]
_ODD_DATES += [
    "0000-01-01",
    "-0001-12-31",
    "+10000-01-01",
    "10000-01-01",
    "+294247-01-10",
    "-290308-12-21",
    "999-01-01",
]
_ODD_DATES += [
    "5881580-07-11",
    "5881580-07-12",
    "2026-03",
    "2026",
    "20260301",
    "2026-W01-1",
    "2026-060",
    "26-03-01",
    "",
]
_ODD_DATES += ["٢٠٢٦-03-01", "2026-03-1 ", " 2026-03-01", "2026/03/01", "+2026-03-01", "--2026-03-01", "12345678-01-01"]
_ODD_CLOCKS = ["", "T", "T12", "T12:3", "T12:30", "T1:2:3", "T12:30:15.", "T12:30:60", "T24:00", "T23:59:59.9999999"]
_ODD_CLOCKS += [
    "T12:30:15.123456789",
    "t12:30:15",
    " 12:30:15",
    "  12:30",
    "T12:30:15,5",
    "T12.5",
    "T-1:00",
    "T04:00:54.775807",
]
_ODD_CLOCKS += ["T04:00:54.775808", "T123000", "T12:30:15.5_0", "T12:30:15 ", "T25:00", "T12:60"]
_ODD_ZONES = ["", "Z", "z", " Z", "UTC", " GMT", "+2", "+02", "+2:30", "+02:30", "+0230", "+230", "+02:00:30", "-18:00"]
_ODD_ZONES += [
    "+18:01",
    "+02:60",
    "[Europe/Berlin]",
    "+01:00[Europe/Berlin]",
    " Europe/Berlin",
    "EST",
    "UTC+2",
    " +01:00",
]
_ODD_ZONES += ["-00:00", "+020030", "ZZ", "+٠٢:00"]


def _odd_time(random: Random) -> Token:
    sort = random.random()
    if sort < 0.15:
        return random.choice(
            ["08:15", "T08:15", "1772323200", "1772323200000", " 1772323200", "now", "today", "epoch", "null"]
        )
    if sort < 0.3:
        return Number(
            random.choice([*_ODD_NUMBERS, "1772323200", "1772323200000", "1772323200.1234567", "-1.5", "1.7e9"])
        )
    text = random.choice(_ODD_DATES) if random.random() < 0.5 else "2026-03-01"
    return text + random.choice(_ODD_CLOCKS) + (random.choice(_ODD_ZONES) if random.random() < 0.6 else "")


#: What cannot be a field's value.
_NO_VALUES = [
    "NaN",
    "Infinity",
    "-Infinity",
    "Inf",
    "nan",
    "undefined",
    "'a'",
    "01",
    "+1",
    "1.",
    ".5",
    "0x1",
    "1_0",
    "1e",
    "- 1",
]
_NO_VALUES += [
    "True",
    "nul",
    '"a\nb"',
    '"a\tb"',
    '"\x00"',
    r'"\x41"',
    r'"\u12"',
    r'"\'"',
    "[1,]",
    "{,}",
    '{"a"}',
    "٣",
    "",
    "[" * 20_000,
]
_NO_OBJECTS = [
    "",
    " ",
    "\n",
    "null",
    "5",
    '""',
    "[]",
    "true",
    "{",
    "}",
    "{'n':1}",
    "{n:1}",
    "\x00",
    "\ufeff",
    "//",
    "{}{}",
    "[{}]",
]


def _broken(text: str, random: Random) -> bytes:
    """A record that is not a JSON object of the text's columns, or no JSON object at all."""
    body = text.strip(" \t\r\n")
    inside = body[1:-1].strip(" \t\r\n")
    before = f'{{{inside}{"," if inside else ""}"other":'
    sort = random.randint(0, 9)
    if sort == 0:
        return random.choice(_NO_OBJECTS).encode()
    if sort == 1:
        return body[: random.randint(0, len(body) - 1)].encode()
    if sort == 2:
        return (
            body + random.choice(["x", "{}", "]", "}", "\x00", ",", '"', "\ufeff", "//", "\x0b", "\xa0", '\n{"n":1}'])
        ).encode()
    if sort == 3:
        return f"{before}{'[' * 200}{']' * 200}}}".encode()
    if sort == 4:
        return before.encode() + b'"' + random.choice([b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xe9"]) + b'"}'
    if sort == 5:
        return random.choice([b"\xef\xbb\xbf", b"\0\0\0\0\1", b"\0", b"x", b"\x0b"]) + body.encode()
    if sort == 6:
        return body.encode(random.choice(["utf-16", "utf-16-le", "utf-16-be", "utf-32"]))
    if sort == 7:
        return f"{body[:-1]},}}".encode() if random.random() < 0.5 else f"[{body}]".encode()
    return f"{before}{random.choice(_NO_VALUES)}}}".encode()
