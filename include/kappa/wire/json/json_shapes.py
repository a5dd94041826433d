"""The result of orjson for a value, compared with a type: whether Arrow may read it, and which parts are right as they
are.

orjson is fast, but loses the written form of numbers. So it decides nothing: a value that is not clearly right is left
to the converter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from kappa.wire.json.json_texts import UndecidedError

Read = Callable[[Any], Any]
Shape = Callable[[Any], bool]

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_PLAIN = {"string": str, "bool": bool, "double": float}
_NONE: type = type(None)
_NUMBER = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?", re.ASCII)


def shape_of(kind: pa.DataType) -> Shape:
    """A test whether a part, or null, may have a type that Arrow reads."""
    if pa.types.is_struct(kind):
        fields = [(field.name, shape_of(field.type)) for field in kind]
        return lambda part: part is None or (type(part) is dict and all(fits(part.get(name)) for name, fits in fields))
    if pa.types.is_list(kind):
        item = shape_of(kind.value_type)
        return lambda part: part is None or (type(part) is list and all(map(item, part)))
    if pa.types.is_decimal(kind):
        return _decimal_shape(kind)
    if str(kind) in _BITS:
        end = 1 << _BITS[str(kind)] - 1
        return lambda part: part is None or (type(part) is int and -end <= part < end)
    kinds: tuple[type, ...] = (bool, _NONE) if pa.types.is_boolean(kind) else (str, _NONE)
    if pa.types.is_floating(kind):
        kinds = (int, float, _NONE)
    return lambda part: type(part) in kinds


def _decimal_shape(kind: pa.DataType) -> Shape:
    def fits(part: Any) -> bool:
        if type(part) is float:
            whole, _, fraction = repr(part).partition(".")
            return len(fraction) <= max(1, kind.scale) and "e" not in fraction and "e" not in whole
        return part is None or type(part) is int or (type(part) is str and _NUMBER.fullmatch(part) is not None)

    return fits


@lru_cache(maxsize=64)
def reading(kind: pa.DataType) -> Read | None:
    """A reader that accepts a part of this type as it is, or raises ``UndecidedError``; None if orjson loses
    content.
    """
    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_list(kind):
        item = _nullable(reading(kind.value_type))
        return None if item is None else lambda part: [item(one) for one in _checked(part, list)]
    if pa.types.is_struct(kind):
        return _struct(kind)
    if str(kind) in _BITS:
        end = 1 << _BITS[str(kind)] - 1
        return lambda part: _integer(part, end)
    plain = _PLAIN.get(str(kind))
    return None if plain is None else lambda part: _checked(part, plain)


def _map(kind: pa.MapType) -> Read | None:
    item = _nullable(reading(kind.item_type))
    if item is None or not pa.types.is_string(kind.key_type):
        return None
    return lambda part: [(name, item(one)) for name, one in _checked(part, dict).items()]


def _struct(kind: pa.StructType) -> Read | None:
    fields = [(field.name, reading(field.type), field.nullable) for field in kind]

    def row(part: Any) -> dict[str, Any]:
        _checked(part, dict)
        values = {}
        for name, read, is_nullable in fields:
            one = part.get(name)
            if one is not None and read is not None:
                values[name] = read(one)
            elif not is_nullable:
                raise UndecidedError
        return values

    return None if any(read is None for _, read, _ in fields) else row


def _nullable(read: Read | None) -> Read | None:
    return None if read is None else lambda part: None if part is None else read(part)


def _checked(part: Any, kind: type) -> Any:
    if type(part) is not kind:
        raise UndecidedError
    return part


def _integer(part: Any, end: int) -> int:
    if type(part) is not int or not -end <= part < end:
        raise UndecidedError
    return part
