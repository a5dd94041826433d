"""JSON texts that are almost right, made by Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

SCHEMA = """
    n BIGINT, i INT, s SMALLINT, t TINYINT, b BOOLEAN, text STRING, f DOUBLE, money DECIMAL(5,2), whole DECIMAL(3,0), big DECIMAL(38,10),
    place STRUCT<x: INT, y: STRING, z: ARRAY<DOUBLE>>, list ARRAY<BIGINT>, lines ARRAY<STRUCT<k: STRING, v: DECIMAL(12,2)>>
"""

_KEYS = {
    "n": "integer", "i": "integer", "s": "integer", "t": "integer", "b": "boolean", "text": "string", "f": "number", "money": "money",
    "whole": "money", "big": "money", "place": "place", "list": "list", "lines": "lines", "N": "any", "other": "any", "": "any", "v": "any",
}  # fmt: skip

_EDGES = [sign * 2**bits + step for bits in (7, 8, 15, 16, 31, 32, 63, 64) for sign in (-1, 1) for step in (-1, 0, 1)]
_INTEGERS = st.one_of(
    st.integers(-130, 130).map(str),
    st.sampled_from([str(edge) for edge in _EDGES]),
    st.sampled_from(["0", "-0", "00", "01", "-01", "+1", "1.0", "1e2", "1E0", "0x1", "1_0", "1.", "- 1", "9" * 39, "1" * 1001]),
)
_NUMBERS = st.one_of(
    st.floats().map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: f"{number:.20e}"),
    st.sampled_from(
        ["-0", "-0.0", "0.0", "-0e5", "1e400", "-1e400", "1e-400", "4.9e-324", "2.4703282292062327e-324", "1.7976931348623159e308",
         "NaN", "-Infinity", "+INF", "INF", ".5", "5.", "1e", "1e+5", "9007199254740993", "0.1" + "0" * 60 + "1", "123456789012345678901234567890"]
    ),
    _INTEGERS,
)  # fmt: skip
_MONEY = st.one_of(
    st.decimals(-1000, 1000, places=2).map(str),
    st.decimals(-100000, 100000, places=3).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30).map(lambda number: f"{number:E}"),
    st.sampled_from(
        ["999.99", "999.994", "999.995", "1000", "1234.5", "12345", "0.005", "-0.005", "0.004999", "1e2", "1E-2", "1e-9", "1e3", "1e38", "1e40",
         "1e-2147483648", "1e2147483648", "-0", "0.00", "9" * 28, "9" * 29, "9" * 38, "9" * 39, "0." + "9" * 38, "0." + "0" * 40 + "1", "000.5"]
    ),
    _NUMBERS,
)  # fmt: skip
_PIECES = st.sampled_from(
    [r"\n", r"\"", r"\\", r"\/", r"\u0041", r"\u0000", r"\uD83D\uDE00", r"\ud83d", r"\ude00", r"\ude00\ud83d", r"\uFFFF", r"\u12", r"\x41", r"\'", r"\b",
     "\t", "\n", "\r", "\x00", "\x1f", "\x7f", "\x85", "é", "漢", "😀", "\u2028", "\ufeff", "\ufffe", "a", " ", "'", "/", "{", "}", "[", "]", ",", ":", '"']
)  # fmt: skip
_STRINGS = st.one_of(
    st.lists(_PIECES, max_size=4).map("".join),
    st.text(st.characters(codec="utf-8", exclude_characters='"\\'), max_size=8),
    st.one_of(_MONEY, _NUMBERS, st.sampled_from(["", " 1.5", "1.5 ", "٣", "+1", "true", "null", "1_000", "1e5", "１"])),
).map(lambda text: f'"{text}"')
_SPACE = st.sampled_from(["", "", "", "", " ", "\t", "  ", "\n", "\r\n", "\f", "\xa0", "/**/"])


def _object(fields: list[tuple[str, str]], space: str) -> str:
    return "{" + ",".join(f'"{key}"{space}:{value}' for key, value in fields) + space + "}"


def _array(items: list[str], space: str) -> str:
    return "[" + f"{space},".join(items) + "]"


def _of(fields: dict[str, st.SearchStrategy[str]]) -> st.SearchStrategy[str]:
    members = [st.tuples(st.just(key), value) for key, value in fields.items()]
    return st.builds(_object, st.lists(st.one_of(members), max_size=3), _SPACE)


def _list(items: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(_array, st.lists(items, max_size=3), _SPACE)


_ANY = st.recursive(
    st.one_of(_NUMBERS, _STRINGS, st.sampled_from(["null", "true", "false", "True", "nul", "undefined", "'a'"])),
    lambda inner: st.one_of(_list(inner), _of({"x": inner, "y": inner, "k": inner, "i": inner})),
    max_leaves=4,
)
_KINDS: dict[str, st.SearchStrategy[str]] = {
    "any": _ANY,
    "integer": _INTEGERS,
    "number": _NUMBERS,
    "money": st.one_of(_MONEY, _MONEY.map(lambda text: f'"{text}"')),
    "boolean": st.sampled_from(["true", "false", "True", "0"]),
    "string": _STRINGS,
    "place": _of({"x": _INTEGERS, "y": _STRINGS, "z": _list(_NUMBERS), "other": _ANY}),
    "list": _list(_INTEGERS),
    "lines": _list(st.one_of(_of({"k": _STRINGS, "v": _MONEY}), st.just("null"))),
}


@st.composite
def _fields(draw: st.DrawFn) -> list[tuple[str, str]]:
    keys = draw(st.lists(st.sampled_from(sorted(_KEYS)), max_size=4))
    fields = []
    for key in keys:
        kind = _KINDS[_KEYS[key]] if draw(st.integers(0, 9)) else _ANY
        spelled = "".join(f"\\u{ord(letter):04x}" for letter in key) if draw(st.integers(0, 19)) == 0 else key
        fields.append((spelled, "null" if draw(st.integers(0, 9)) == 0 else draw(kind)))
    return fields


_OBJECTS = st.builds(_object, _fields(), _SPACE)
_BROKEN = st.sampled_from(
    ["", " ", "null", "[]", "{}", '""', "5", "{", "}", "\x00", "\ufeff", '{"n":1}{"n":2}', '{"n":1} x', '{"n":1},"i":0', '{"n":1},"x":{"n":2}',
     '{"n":1},"v":{"n":2}', '{"n":1}}{"i":1,"v":{"n":2}', '{"n":1}}\t{"i":0,"v":{"n":2}', '1,"x":2', 'null,"v":{}', "{'n':1}", "{n:1}", '{"n":1,}',
     '[{"n":1}]', '{"n":1}//', '{"other":' + "[" * 1001 + "]" * 1001 + "}", '{"other":' + "[" * 100_000 + "]" * 100_000 + "}",
     '{"other":' + "1" * 1001 + "}", '{"other":0.' + "1" * 1001 + "}", '{"' + "k" * 50_001 + '":1}', '{"text":"' + "x" * 45_000 + '"}']
)  # fmt: skip


@st.composite
def _cut(draw: st.DrawFn) -> str:
    text = draw(_OBJECTS)
    place = draw(st.integers(0, len(text)))
    return text[:place] + draw(st.one_of(st.just(""), _PIECES, _BROKEN)) + draw(st.sampled_from([text[place:], ""]))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


VALUES: st.SearchStrategy[bytes | None] = st.one_of(
    _OBJECTS.map(_bytes),
    _OBJECTS.map(_bytes),
    _OBJECTS.map(_bytes),
    st.builds(lambda space, text: _bytes(space + text + space), _SPACE, _OBJECTS),
    _cut().map(_bytes),
    _BROKEN.map(_bytes),
    st.sampled_from([None, b"\xff", b'{"text":"\xff"}', b'{"text":"\xed\xa0\x80"}', b'{"text":"\xc0\x80"}', b'{"\xe9":1}', b'{"n":1}\xc3']),
)
