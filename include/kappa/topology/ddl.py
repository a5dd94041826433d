"""Spark DDL, read without a JVM: column names, types and nullability, and the same as Delta schema JSON."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kappa.errors import TopologyError

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

    def ddl(self) -> str:
        """The column as Spark DDL."""
        return f"{quote(self.name)} {self.type}" + ("" if self.nullable else " NOT NULL")


@lru_cache(maxsize=256)
def columns_of(ddl: str, what: str) -> tuple[Column, ...]:
    """Columns of a Spark DDL schema.

    Raises:
        TopologyError: the DDL does not parse, names a column twice, or uses a type that Delta cannot keep.
    """
    import sqlglot  # 0.1 s: only a process that defines a topology needs it
    from sqlglot import expressions
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", read="spark")
    except SqlglotError as error:
        raise TopologyError(f"The schema of {what} is not Spark DDL: {ddl!r}.", ddl=ddl) from error
    columns = []
    for item in tree.this.expressions:
        if not isinstance(item, expressions.ColumnDef) or item.kind is None:
            raise TopologyError(f"The schema of {what} has a part without a type: {item.sql('spark')!r}.", ddl=ddl)
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
    return tuple(columns)


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
        raise TopologyError(f"The schema of {what} names {twice} more than once (case does not count).", ddl=ddl)
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
        size = [part.name for part in inner] + ["10", "0"][len(inner) :]
        return f"decimal({size[0]},{size[1]})"
    if name == "ARRAY":
        return {"type": "array", "elementType": _delta(inner[0], what), "containsNull": True}
    if name == "MAP":
        return {
            "type": "map",
            "keyType": _delta(inner[0], what),
            "valueType": _delta(inner[1], what),
            "valueContainsNull": True,
        }
    if name == "STRUCT":
        _check_names([part.name for part in inner], what, kind.sql("spark"))
        return {"type": "struct", "fields": [_field(part.name, _delta(part.kind, what)) for part in inner]}
    if name in _PRIMITIVES:
        return _PRIMITIVES[name]
    raise TopologyError(
        f"The schema of {what} uses type {kind.sql('spark')}, which Kappa does not keep in Delta.",
        type=kind.sql("spark"),
    )


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


def column_names(what: str, argument: str, names: object) -> tuple[str, ...]:
    """One column's name, or those of several, as an author gave them.

    Args:
        what: the member, for messages.
        argument: its argument.
        names: the names.

    Raises:
        TopologyError: they are not names.
    """
    each = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Iterable) else (names,)
    if not all(isinstance(name, str) for name in each):
        raise TopologyError(
            f"{what} has {argument}={names!r}, which does not name columns. Write {argument}='id', or "
            f"{argument}=['id', 'day']."
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
