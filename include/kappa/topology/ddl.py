"""Spark DDL, read without a JVM: column names, types and nullability, and the same as Delta schema JSON."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kappa.errors import TopologyError
from kappa.topology.earlier_code import refuse

#: Spark's SQL type names -> the names in a Delta schema (Delta protocol, "Primitive Types").
_PRIMITIVES = {
    "STRING": "string",
    "TEXT": "string",
    "BIGINT": "long",
    "INT": "integer",
    "SMALLINT": "short",
    "TINYINT": "byte",
    "BOOLEAN": "boolean",
    "DOUBLE": "double",
    "FLOAT": "float",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp",
}

#: The names that a message proposes.
_NAMES = ("STRING", "BIGINT", "INT", "SMALLINT", "TINYINT", "BOOLEAN", "DOUBLE", "FLOAT", "BINARY", "DATE", "TIMESTAMP")
#: Types with types or numbers within them -> how many; a DECIMAL may have fewer.
_PARTS = {"ARRAY": 1, "MAP": 2, "STRUCT": 1, "DECIMAL": 2}
_WHOLE = {"ARRAY": "ARRAY<STRING>", "MAP": "MAP<STRING, BIGINT>", "STRUCT": "STRUCT<id: STRING>", "TEXT": "STRING"}
_MOST_DIGITS = 38
#: Digits of a DECIMAL, all of them or those after the point.
_SIZE = re.compile(r"\d{1,2}", re.ASCII)
_WRITE = "Write names and types: 'id STRING NOT NULL, amount BIGINT'."

#: The way from a column to a field within it: a name for the field of a STRUCT, None for each element of an ARRAY or
#: value of a MAP.
Path = tuple[str | None, ...]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a schema.

    Attributes:
        name: its name, in its own case.
        type: its type as Spark DDL.
        nullable: whether it may be null.
        delta: its type as in a Delta schema: a name or a nested object.
        required: the places of NOT NULL fields within it, which Delta's schema does not record.
    """

    name: str
    type: str
    nullable: bool
    delta: Any
    required: tuple[Path, ...] = ()

    @property
    def is_key(self) -> bool:
        """Whether equal values are equal on every path, in Spark, Arrow, Delta and JSON, so that they can be keys."""
        return isinstance(self.delta, str) and self.delta not in ("double", "float")

    @property
    def has_map(self) -> bool:
        """Whether it is a MAP or holds one: such values have no order, and cannot be compared."""
        return "MAP<" in self.type

    def ddl(self) -> str:
        """The column as Spark DDL."""
        return f"{quote(self.name)} {self.type}" + ("" if self.nullable else " NOT NULL")


def columns_of(ddl: str, what: str) -> tuple[Column, ...]:
    """Columns of a Spark DDL schema.

    Raises:
        TopologyError: the DDL does not parse, names a column twice, uses a type that Delta cannot keep, or has more
            than names, types, ``NOT NULL`` and comments.
    """
    if not isinstance(ddl, str):
        raise TopologyError(f"The schema of {what} is {ddl!r}, which is not a text. {_WRITE}", ddl=repr(ddl))
    columns, dropped = _parsed(ddl, what)
    if dropped:
        refuse(
            f"The schema of {what} has {', '.join(map(repr, dropped))}, which a schema of Kappa does not keep. Write "
            "only names, types, NOT NULL and COMMENT.",
            ddl=ddl,
        )
    return columns


@lru_cache(maxsize=256)
def _parsed(ddl: str, what: str) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """Columns of a schema, and its parts that no column keeps."""
    import sqlglot  # 0.1 s: only a process that defines a topology needs it
    from sqlglot import expressions
    from sqlglot.errors import SqlglotError

    try:
        # The end is on a line of its own, where no comment hides it.
        (tree,) = sqlglot.parse(f"CREATE TABLE t (\n{ddl}\n)", read="spark")
    except (SqlglotError, ValueError) as error:  # it does not parse, or is several statements
        raise TopologyError(f"The schema of {what} is not Spark DDL: {ddl!r}. {_WRITE}", ddl=ddl) from error
    schema = tree.this if tree is not None else None
    further = [] if tree is None else [part for part in ("properties", "expression") if tree.args.get(part)]
    if not isinstance(tree, expressions.Create) or not isinstance(schema, expressions.Schema) or further:
        raise TopologyError(f"The schema of {what} has more than columns: {ddl!r}. {_WRITE}", ddl=ddl)
    columns = []
    for item in schema.expressions:
        if not isinstance(item, expressions.ColumnDef) or item.kind is None:
            raise TopologyError(
                f"The schema of {what} has a part without a type: {item.sql('spark')!r}. {_WRITE}", ddl=ddl
            )
        columns.append(
            Column(
                name=item.name,
                type=item.kind.sql("spark"),
                nullable=not _is_required(item),
                delta=_delta(item.kind, what),
                required=tuple(_required(item.kind)),
            )
        )
    _check_names([column.name for column in columns], what, ddl)
    return tuple(columns), tuple(_dropped(schema))


def _dropped(schema: Any) -> list[str]:
    """What a schema says about its columns besides NOT NULL and comments, as text."""
    from sqlglot import expressions

    dropped = []
    for constraint in schema.find_all(expressions.ColumnConstraint):
        kind = constraint.kind
        is_null = isinstance(kind, expressions.NotNullColumnConstraint) and kind.args.get("allow_null")
        if is_null or not isinstance(kind, expressions.NotNullColumnConstraint | expressions.CommentColumnConstraint):
            dropped.append("NULL" if is_null else kind.sql("spark"))
    return dropped


def keyed_otherwise(kind: Any) -> bool:
    """Whether a type of a Delta schema contains a MAP whose keys are not STRING: those are not names in JSON."""
    if not isinstance(kind, dict):
        return False
    if kind["type"] == "struct":
        return any(keyed_otherwise(field["type"]) for field in kind["fields"])
    if kind["type"] == "map" and kind["keyType"] != "string":
        return True
    return any(keyed_otherwise(kind[part]) for part in ("elementType", "valueType") if part in kind)


def plain_type(kind: Any) -> Any:
    """A Spark or Delta type without nullability and metadata, for comparison."""
    if isinstance(kind, dict):
        return {
            k: plain_type(v)
            for k, v in kind.items()
            if k not in ("nullable", "containsNull", "valueContainsNull", "metadata")
        }
    return [plain_type(item) for item in kind] if isinstance(kind, list) else kind


def is_numeric(column: Column) -> bool:
    """Whether values of a column are numbers."""
    kind = str(column.delta)
    return kind in ("long", "integer", "short", "byte", "double", "float") or kind.startswith("decimal(")


def ddl_of(columns: Iterable[Column]) -> str:
    """Columns as one Spark DDL schema."""
    return ", ".join(column.ddl() for column in columns)


def delta_schema(columns: Iterable[Column]) -> str:
    """Columns as the JSON of a Delta table's schema.

    Source: Delta protocol, "Schema Serialization Format".
    """
    return json.dumps({"type": "struct", "fields": [_field(c.name, c.delta, c.nullable) for c in columns]})


def _field(name: str, delta: Any, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": delta, "nullable": nullable, "metadata": {}}


def _check_names(names: Sequence[str], what: str, ddl: str) -> None:
    """Refuse names of columns, or of a STRUCT's fields, that Spark and Delta do not distinguish or keep."""
    lower = [name.lower() for name in names]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    if twice:
        raise TopologyError(
            f"The schema of {what} names {twice} more than once (case does not count). Rename one.", ddl=ddl
        )
    odd = [name for name in names if not name or any(unicodedata.category(char) in ("Cc", "Cs") for char in name)]
    if odd:
        raise TopologyError(
            f"The schema of {what} has names {odd}: a name has at least one character, and no control characters. "
            "Rename them.",
            ddl=ddl,
        )


def _delta(kind: Any, what: str) -> Any:
    name = kind.this.name
    inner = kind.expressions
    if name == "DECIMAL":
        return _decimal(kind, what)
    if name == "STRUCT" and inner:
        _check_names([part.name for part in inner], what, kind.sql("spark"))
        return {"type": "struct", "fields": [_field(part.name, _delta(part.kind, what)) for part in inner]}
    if name in (*_PARTS, *_PRIMITIVES) and len(inner) != _PARTS.get(name, 0):
        raise TopologyError(
            f"The schema of {what} uses type {kind.sql('spark')} with {len(inner)} parts. Write it like "
            f"{_WHOLE.get(name, name)}.",
            type=kind.sql("spark"),
        )
    if name == "ARRAY":
        return {"type": "array", "elementType": _delta(inner[0], what), "containsNull": True}
    if name == "MAP":
        return {
            "type": "map",
            "keyType": _delta(inner[0], what),
            "valueType": _delta(inner[1], what),
            "valueContainsNull": True,
        }
    if name in _PRIMITIVES:
        return _PRIMITIVES[name]
    raise TopologyError(
        f"The schema of {what} uses type {kind.sql('spark')}, which Kappa does not keep in Delta. Use another one: "
        f"DECIMAL, ARRAY, MAP, STRUCT, {', '.join(_NAMES)}.",
        type=kind.sql("spark"),
    )


def _decimal(kind: Any, what: str) -> str:
    size = [part.name for part in kind.expressions]
    digits, scale = (*size, *("10", "0")[len(size) :])[:2]
    is_size = len(size) <= _PARTS["DECIMAL"] and _SIZE.fullmatch(digits) and _SIZE.fullmatch(scale)
    if not is_size or not 1 <= int(digits) <= _MOST_DIGITS or int(scale) > int(digits):
        raise TopologyError(
            f"The schema of {what} uses type {kind.sql('spark')}. A DECIMAL has 1 to {_MOST_DIGITS} digits, and at "
            "most all of them after the point: write it like DECIMAL(12,2).",
            type=kind.sql("spark"),
        )
    return f"decimal({digits},{scale})"


def _is_required(item: Any) -> bool:
    """Whether a column or a field of a STRUCT is NOT NULL."""
    from sqlglot import expressions

    return any(
        isinstance(part.kind, expressions.NotNullColumnConstraint) for part in item.args.get("constraints") or ()
    )


def _required(kind: Any) -> Iterator[Path]:
    """The places of NOT NULL fields within a type."""
    name, inner = kind.this.name, kind.expressions
    if name == "STRUCT":
        for part in inner:
            if _is_required(part):
                yield (part.name,)
            yield from ((part.name, *path) for path in _required(part.kind))
    elif name in ("ARRAY", "MAP"):
        yield from ((None, *path) for path in _required(inner[-1]))


def names_of(names: str | Iterable[str]) -> tuple[str, ...]:
    """One column's name, or those of several, always as several."""
    return (names,) if isinstance(names, str) else tuple(names)


def column_names(what: str, argument: str, names: object, example: str = "id") -> tuple[str, ...]:
    """One name of a column, or several, as an author gave them.

    Args:
        what: the member, for messages.
        argument: its argument.
        names: the names.
        example: such a name.

    Raises:
        TopologyError: they are not names.
    """
    each = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Iterable) else (names,)
    if not all(isinstance(name, str) for name in each):
        raise TopologyError(
            f"{what} has {argument}={names!r}, which is not a name or a list of names. Write {argument}={example!r}."
        )
    return each


def quote(name: str) -> str:
    """A name in Spark's SQL, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text in Spark's SQL, whatever characters it has."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def quoted(names: Iterable[str]) -> list[str]:
    """Names in Spark's SQL, whatever characters they have."""
    return [quote(name) for name in names]
