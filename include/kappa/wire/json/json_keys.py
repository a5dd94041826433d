"""Keys of records as rows of their declared columns: JSON of any kind, and the text of one column.

A producer of one column sends its value, and one of several an object, or an array in their order. Kappa's own topics
have such keys: a text as it is, the JSON of another column, an array of several.
"""

from __future__ import annotations

import re
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kappa.wire.json import json_scalars, json_values
from kappa.wire.json.json_converter import NO_OBJECT, Convert, Timestamps, UnfitError, any_tree, convert

#: Reason of dead letters, with the number of columns.
OTHER_LENGTH = "the value is not an array of {} values"
#: Without its leading zeros; each zero is looked at once, however many there are.
_NUMBER = re.compile(r"(?:\+|(-))?(?>(?:0+(?=[0-9]))?)([0-9][0-9.eE+-]*+)", re.ASCII)
_WORDS = ("true", "false")
_BASE64 = re.compile(rb'"([A-Za-z0-9+/]*={0,2})"')


def of_json(keys: pa.BinaryArray, kind: pa.StructType, timestamps: Timestamps) -> tuple[pa.StructArray, pa.StringArray]:
    """A row for each key, and why it is a dead letter; rows of those, and of nulls, are null.

    Args:
        keys: JSON of any kind.
        kind: the key's columns, all nullable.
        timestamps: meaning of numbers in TIMESTAMP columns.
    """
    rows, texts = json_values.decoded(keys, kind, timestamps)
    reasons = pa.array(texts, pa.string())
    is_other = pc.fill_null(pc.equal(reasons, NO_OBJECT), False)
    if not pc.any(is_other).as_py():
        return rows, reasons
    row_of = convert(kind, timestamps)
    others, of_others = json_values.built(
        pc.if_else(is_other, keys, pa.scalar(None, keys.type)), kind, lambda key: _row(key, kind, row_of)
    )
    return pc.if_else(is_other, others, rows), pc.if_else(is_other, of_others, reasons)


def of_text(keys: pa.BinaryArray, column: pa.Field, timestamps: Timestamps) -> tuple[pa.StructArray, list[str | None]]:
    """The same for keys that are the text of one column, neither STRING nor BINARY.

    Args:
        keys: UTF-8.
        column: the column.
        timestamps: meaning of numbers in a TIMESTAMP column.
    """
    wrapped = [None if key is None else _wrapped(column, key.decode()) for key in keys.to_pylist()]
    return json_values.decoded(pa.array(wrapped, pa.binary()), pa.struct([column]), timestamps)


def of_bytes(keys: pa.BinaryArray) -> pa.BinaryArray:
    """Keys of one BINARY column: base64 in quotation marks, as Kappa writes it, and all others as they are."""
    if not pc.any(pc.starts_with(keys, b'"')).as_py():
        return keys
    return pa.array([None if key is None else _content(key) for key in keys.to_pylist()], keys.type)


def _row(key: bytes, kind: pa.StructType, row_of: Convert) -> Any:
    """The row of a key that is not an object."""
    value, names = any_tree(key), [column.name for column in kind]
    if len(names) == 1:
        return row_of({names[0]: value})
    if type(value) is not list:
        raise UnfitError(NO_OBJECT)
    if len(value) != len(names):
        raise UnfitError(OTHER_LENGTH.format(len(names)))
    return row_of(dict(zip(names, value, strict=True)))


def _wrapped(column: pa.Field, text: str) -> bytes:
    """A JSON object with a key's text as its only field."""
    value = orjson.dumps(text)
    is_time, is_quoted = pa.types.is_temporal(column.type), len(text) > 2 and text[0] == text[-1] == '"'
    if is_quoted and (is_time or pa.types.is_floating(column.type)):
        value = orjson.dumps(text[1:-1])
    elif text in _WORDS and not is_time:
        value = text.encode()
    elif (number := _NUMBER.fullmatch(text)) and not is_time:
        value = "".join(number.groups("")).encode()
    return b"{" + orjson.dumps(column.name) + b":" + value + b"}"


def _content(key: bytes) -> bytes:
    text = _BASE64.fullmatch(key)
    try:
        return key if text is None else json_scalars.content(text[1].decode())
    except ValueError:
        return key
