"""JSON values that are right, almost right and wrong, thousands a second: drawn from a seed, not by Hypothesis's own
strategies, which take longer over one value than Spark takes over a hundred."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from random import Random

SCHEMA = """
    n BIGINT, i INT, s SMALLINT, t TINYINT, b BOOLEAN, text STRING, f DOUBLE,
    money DECIMAL(5,2), whole DECIMAL(3,0), big DECIMAL(28,10), place STRUCT<x: INT, y: STRING, z: ARRAY<DOUBLE>>,
    list ARRAY<BIGINT>, lines ARRAY<STRUCT<k: STRING, v: DECIMAL(12,2)>>
"""

_Token = Callable[[Random], str]

_EDGES = [
    str(sign * 2**bits + step) for bits in (7, 8, 15, 16, 31, 32, 63, 64) for sign in (-1, 1) for step in (-1, 0, 1)
]
_STRANGE_INTEGERS = [
    "-0",
    "00",
    "01",
    "-01",
    "+1",
    "1.0",
    "1e2",
    "1E0",
    "0x1",
    "1_0",
    "1.",
    "- 1",
    "9" * 39,
    "1" * 1001,
]
_STRANGE_NUMBERS = [
    "-0",
    "-0.0",
    "0.0",
    "-0e5",
    "1e400",
    "-1e400",
    "1e-400",
    "4.9e-324",
    "2.4703282292062327e-324",
    "1.7976931348623159e308",
    "NaN",
    "-Infinity",
    "+INF",
    "INF",
    "nan",
    ".5",
    "5.",
    "1e",
    "1e+5",
    "1E+05",
    "9007199254740993",
    "0.1" + "0" * 60 + "1",
    "123456789012345678901234567890",
]
_STRANGE_MONEY = [
    "999.99",
    "999.994",
    "999.995",
    "999",
    "1000",
    "1234.5",
    "12345",
    "0.005",
    "-0.005",
    "0.004999",
    "1e2",
    "1E-2",
    "1e-9",
    "1e3",
    "1e38",
    "1e40",
    "12e1",
    "-0",
    "0.00",
    "9" * 28,
    "9" * 29,
    "9" * 38,
    "9" * 39,
    "0." + "9" * 38,
    "0." + "0" * 40 + "1",
    "000.5",
    "99.9e1",
]
_PIECES = [
    r"\n",
    r"\"",
    r"\\",
    r"\/",
    r"\u0041",
    r"\u0000",
    r"\uD83D\uDE00",
    r"\ud83d",
    r"\ude00",
    r"\ude00\ud83d",
    r"\uFFFF",
    r"\u12",
    r"\x41",
    r"\'",
    r"\b",
    "\t",
    "\n",
    "\r",
    "\x00",
    "\x1f",
    "\x7f",
    "\x85",
    "é",
    "漢",
    "😀",
    "\u2028",
    "\ufeff",
    "\ufffe",
    "a",
    " ",
    "'",
    "/",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
]
_STRANGE_STRINGS = ["", " 1.5", "1.5 ", "٣", "+1", "true", "null", "1_000", "1e5", "１", "0x1", "1.5d", "1,5", "-", "."]
_SPACES = [" ", "\t", "  ", "\n", "\r\n", "\f", "\xa0", "/**/"]
_BROKEN = [
    "",
    " ",
    "null",
    "[]",
    "{}",
    '""',
    "5",
    "{",
    "}",
    "\x00",
    "\ufeff",
    '{"n":1}{"n":2}',
    '{"n":1} x',
    '{"n":1},"i":0',
    '{"n":1},"x":{"n":2}',
    '{"n":1},"v":{"n":2}',
    '{"n":1}}{"i":1,"v":{"n":2}',
    '{"n":1}}\t{"i":0,"v":{"n":2}',
    '1,"x":2',
    'null,"v":{}',
    "{'n':1}",
    "{n:1}",
    '{"n":1,}',
    '[{"n":1}]',
    '{"n":1}//',
    '{"x":' + "[" * 998 + "]" * 998 + "}",
    '{"x":' + "[" * 1001 + "]" * 1001 + "}",
    '{"x":' + "[" * 100_000 + "]" * 100_000 + "}",
    '{"x":' + "1" * 999 + "}",
    '{"x":' + "1" * 1001 + "}",
    '{"x":0.' + "1" * 1001 + "}",
    '{"' + "k" * 50_001 + '":1}',
    '{"text":"' + "x" * 45_000 + '"}',
]
_NO_TEXTS = [
    b"\xff",
    b'{"text":"\xff"}',
    b'{"text":"\xed\xa0\x80"}',
    b'{"text":"\xc0\x80"}',
    b'{"\xe9":1}',
    b'{"n":1}\xc3',
]


def value(random: Random) -> bytes | None:
    """One record's value; three in four are objects that at least somebody reads.

    None has an exponent of five digits: ``from_json``, with which they are compared, would not come back.
    """
    while True:
        text = _value(random)
        if text is None or not re.search(rb"[0-9.][eE][+-]?0*[1-9][0-9]{4}", text):
            return text


def _value(random: Random) -> bytes | None:
    kind = random.random()
    if kind < 0.75:
        return _bytes(_fields(random))
    if kind < 0.97:
        text = _fields(random)
        place = random.randint(0, len(text))
        middle = random.choice(["", _any(random), random.choice(_PIECES), random.choice(_BROKEN)])
        return _bytes(text[:place] + middle + random.choice([text[place:], ""]))
    return random.choice([None, *_NO_TEXTS]) if kind < 0.98 else _bytes(random.choice(_BROKEN))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _some(random: Random, *choices: tuple[float, _Token]) -> str:
    return random.choices([token for _, token in choices], [weight for weight, _ in choices])[0](random)


def _integer(random: Random) -> str:
    return _some(
        random,
        (6, lambda r: str(r.randint(-100, 100))),
        (2, lambda r: str(r.randint(-(2 ** r.randint(1, 64)), 2 ** r.randint(1, 64)))),
        (1, lambda r: r.choice(_EDGES)),
        (0.4, lambda r: r.choice(_STRANGE_INTEGERS)),
    )


def _number(random: Random) -> str:
    return _some(
        random,
        (4, lambda r: repr(r.uniform(-1000, 1000))),
        (2, lambda r: repr(struct.unpack("d", r.randbytes(8))[0])),
        (2, lambda r: f"{r.uniform(-1, 1):.{r.randint(0, 40)}e}"),
        (1, lambda r: f"{r.randint(0, 10 ** r.randint(1, 25))}e{r.randint(-340, 310)}"),
        (1, _integer),
        (0.5, lambda r: r.choice(_STRANGE_NUMBERS)),
    )


def _money(random: Random) -> str:
    return _some(
        random,
        (5, lambda r: f"{r.uniform(-999, 999):.2f}"),
        (2, lambda r: f"{r.uniform(-2000, 2000):.{r.randint(0, 3)}f}"),
        (
            1,
            lambda r: (
                f"{r.randint(-(10 ** r.randint(1, 30)), 10 ** r.randint(1, 30))}.{r.randint(0, 10 ** r.randint(1, 12))}"
            ),
        ),
        (1, lambda r: f"{r.randint(0, 10**5)}e{r.randint(-6, 6)}"),
        (1, lambda r: r.choice(_STRANGE_MONEY)),
        (0.5, _number),
    )


def _string(random: Random) -> str:
    inner = _some(
        random,
        (4, lambda r: "".join(r.choices("abc éß漢😀/:{}[],'", k=r.randint(0, 6)))),
        (
            2,
            lambda r: json.dumps(
                "".join(
                    chr(r.choice([r.randint(0, 0x7F), r.randint(0, 0xD7FF), r.randint(0xE000, 0x10FFFF)]))
                    for _ in range(3)
                )
            )[1:-1],
        ),
        (2, lambda r: "".join(r.choices(_PIECES, k=r.randint(1, 3)))),
        (1, lambda r: r.choice(_STRANGE_STRINGS)),
        (0.5, _money),
    )
    return f'"{inner}"'


def _boolean(random: Random) -> str:
    return random.choice(["true", "false", "true", "false", "True", "0"])


def _any(random: Random, depth: int = 0) -> str:
    plain: tuple[tuple[float, _Token], ...] = (
        (2, _number),
        (2, _string),
        (2, lambda r: r.choice(["null", "true", "false"])),
        (0.3, lambda r: r.choice(["nul", "undefined", "'a'", "True"])),
    )
    if depth > 2:
        return _some(random, *plain)
    nested: _Token = lambda r: _any(r, depth + 1)  # noqa: E731
    return _some(
        random, *plain, (1, lambda r: _list(r, nested)), (1, lambda r: _object(r, dict.fromkeys("xyki", nested)))
    )


def _list(random: Random, item: _Token) -> str:
    return "[" + f",{_space(random)}".join(item(random) for _ in range(random.randint(0, 3))) + _space(random) + "]"


def _object(random: Random, tokens: dict[str, _Token]) -> str:
    fields = []
    for key in random.choices(sorted(tokens), k=random.choice([0, 1, 1, 2, 2, 3, 4])):
        spelled = "".join(f"\\u{ord(letter):04x}" for letter in key) if random.random() < 0.05 else key
        token = _some(random, (12, tokens[key]), (1, lambda _: "null"), (0.5, _any))
        fields.append(f'"{spelled}"{_space(random)}:{_space(random)}{token}')
    return _space(random) + "{" + f",{_space(random)}".join(fields) + "}" + _space(random)


def _space(random: Random) -> str:
    return random.choice(_SPACES) if random.random() < 0.01 else ""


def _fields(random: Random) -> str:
    return _object(random, _TOKENS)


_TOKENS: dict[str, _Token] = {
    "n": _integer,
    "i": _integer,
    "s": _integer,
    "t": _integer,
    "b": _boolean,
    "text": _string,
    "f": _number,
    "money": _money,
    "whole": _money,
    "big": lambda r: _some(r, (3, _money), (1, lambda r: f'"{_money(r)}"')),
    "place": lambda r: _object(r, {"x": _integer, "y": _string, "z": lambda r: _list(r, _number), "other": _any}),
    "list": lambda r: _list(r, _integer),
    "lines": lambda r: _list(
        r, lambda r: _some(r, (4, lambda r: _object(r, {"k": _string, "v": _money})), (1, lambda _: "null"))
    ),
    "N": _any,
    "other": _any,
    "": _any,
    "v": _any,
}
