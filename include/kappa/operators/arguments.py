"""The types of the arguments with which operators are declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from decimal import Decimal
from inspect import Signature
from typing import Any

from kappa.operators.agg import Aggregate
from kappa.topology.earlier_code import refuse
from kappa.topology.members.descriptions import described
from kappa.topology.operator import label


def check_arguments(operator: str, signature: Signature, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of other types than the operator's function declares.

    Args:
        operator: the name of the function.
        signature: its signature, with annotations as text.
        arguments: the arguments that its caller gave, by name.

    Raises:
        TopologyError: one has another type.
    """
    table = arguments.get("table")
    what = label(operator, table) if isinstance(table, str) else operator
    for name, value in arguments.items():
        kind = str(signature.parameters[name].annotation)
        if kind in KINDS and not KINDS[kind](value):
            example = _EXAMPLES_OF_KIND.get(kind) or _EXAMPLES.get(name) or "'amount'"
            refuse(f"{what} has {name}={_shown(value)}, which is not {_WORDS[kind]}. Write {name}={example}.")


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{described(name)}: {_shown(one)}' for name, one in value.items())}}}"
    if isinstance(value, list | tuple):
        text = ", ".join(map(_shown, value))
        return f"[{text}]" if isinstance(value, list) else f"({text}{',' * (len(value) == 1)})"
    return f"agg.{value.text}" if isinstance(value, Aggregate) else described(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, Sequence) and all(map(_is_text, value))


def _is_key(value: object) -> bool:
    return _is_text(value) or _is_texts(value)


def _is_number(value: object) -> bool:
    if isinstance(value, Decimal):
        return value.is_finite()
    return isinstance(value, int) and not isinstance(value, bool)


def _is_pair(value: object) -> bool:
    return isinstance(value, list | tuple) and _is_texts(value) and len(value) == 2


def _or_none(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or check(value)


def _mapping(check: Callable[[object], bool]) -> Callable[[object], bool]:
    def is_mapping(value: object) -> bool:
        return isinstance(value, Mapping) and all(map(_is_text, value)) and all(map(check, value.values()))

    return is_mapping


_is_aggregates = _mapping(lambda value: isinstance(value, Aggregate))
#: Annotation of a parameter -> whether a value has that type. Others are checked where they are read.
KINDS: dict[str, Callable[[object], bool]] = {
    "str": _is_text,
    "str | None": _or_none(_is_text),
    "bool": lambda value: isinstance(value, bool),
    "int | None": lambda value: value is None or (isinstance(value, int) and not isinstance(value, bool)),
    "Key": _is_key,
    "JoinKey": lambda value: _is_key(value) or _mapping(_is_text)(value),
    "Mapping[str, Aggregate]": _is_aggregates,
    "Mapping[str, Mapping[str, Aggregate]]": _mapping(_is_aggregates),
    "Mapping[str, Reads]": _mapping(lambda value: True),
    "Mapping[str, str] | None": _or_none(_mapping(_is_text)),
    "Sequence[Number]": lambda value: isinstance(value, Sequence | Set) and all(map(_is_number, value)),
    "Number | None": _or_none(_is_number),
    "tuple[str, str]": _is_pair,
    "tuple[str, str] | str": _is_key,
}
#: Annotation -> what a value of that type is.
_WORDS = {
    "str": "a text",
    "str | None": "a text",
    "bool": "True or False",
    "int | None": "an integer",
    "Key": "a column, or a list of columns",
    "JoinKey": "a column, a list of columns, or a dict from left to right columns",
    "Mapping[str, Aggregate]": "a dict from names to aggregates",
    "Mapping[str, Mapping[str, Aggregate]]": "a dict from streams to dicts of aggregates",
    "Mapping[str, Reads]": "a dict from names to streams",
    "Mapping[str, str] | None": "a dict from streams to their rows",
    "Sequence[Number]": "a list of int or Decimal",
    "Number | None": "an int or a Decimal",
    "tuple[str, str]": "the names of two tables",
    "tuple[str, str] | str": "the name of a table, or of two",
}
_EXAMPLES_OF_KIND = {
    "bool": "True",
    "int | None": "16",
    "Mapping[str, Aggregate]": "{'rows': agg.count()}",
    "Mapping[str, Mapping[str, Aggregate]]": "{'orders': {'rows': agg.count()}}",
    "Mapping[str, Reads]": "{'orders': orders}",
    "Mapping[str, str] | None": "{'orders': 'id STRING, amount BIGINT'}",
    "Sequence[Number]": "[100, 1000]",
    "Number | None": "100",
    "tuple[str, str]": "('waiting_orders', 'waiting_payments')",
    "tuple[str, str] | str": "('waiting_orders', 'prices')",
}
#: Name of a parameter -> what to write.
_EXAMPLES = {
    **dict.fromkeys(("key", "foreign_key"), "'id'"),
    **dict.fromkeys(("size", "every", "gap", "within", "keep", "before", "after"), "'10 minutes'"),
    **dict.fromkeys(("rows", "left_rows", "right_rows", "table_rows", "version_rows"), "'id STRING, amount BIGINT'"),
    **dict.fromkeys(("table", "deletions"), "'spending'"),
    "zone": "'Europe/Berlin'",
    "week_begins": "'monday'",
    "total": "'spent'",
    "since": "'login'",
    "parts": "'part'",
}
