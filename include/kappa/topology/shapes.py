"""The shape of tables and append outputs: keys and columns, as a ledger and a marker keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kappa.topology import Append, Table, Topology


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Key and columns of a table, or columns of an append output.

    Attributes:
        columns: column -> its type as Spark DDL.
        required: columns that may not be null.
        key: key columns; none for an append output.
        made_by: the operator whose state it is, with its parameters; empty for a table of the author's own.
    """

    columns: Mapping[str, str]
    required: tuple[str, ...]
    key: tuple[str, ...] = ()
    made_by: str = ""

    @classmethod
    def of(cls, item: Table | Append) -> Shape:
        """The shape that a topology declares."""
        return cls(
            columns={column.name: column.type for column in item.columns},
            required=tuple(column.name for column in item.columns if not column.nullable),
            key=tuple(item.key) if isinstance(item, Table) else (),
            made_by=item.made_by if isinstance(item, Table) else "",
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Shape:
        """Read what :func:`shapes_as_dict` gave."""
        return cls(
            columns=values["columns"],
            required=tuple(values["required"]),
            key=tuple(values["key"]),
            made_by=values.get("made_by", ""),
        )


def shapes_of(topology: Topology) -> dict[str, Shape]:
    """Shapes by place: ``tables/<name>`` and ``outputs/<name>``."""
    return {f"tables/{table.name}": Shape.of(table) for table in topology.tables} | {
        f"outputs/{append.name}": Shape.of(append) for append in topology.appends
    }


def shapes_as_dict(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Shapes as JSON values."""
    return {place: asdict(shape) for place, shape in shapes.items()}


def shapes_from_dict(values: Mapping[str, Any]) -> dict[str, Shape]:
    """Read what :func:`shapes_as_dict` gave."""
    return {place: Shape.from_dict(shape) for place, shape in values.items()}


def masked_of(topology: Topology) -> dict[str, tuple[str, ...]]:
    """Columns whose values no reader gets without a right of its own, by place; only of places that have some."""
    found = {f"tables/{table.name}": tuple(table.masked) for table in topology.tables}
    found |= {f"outputs/{append.name}": tuple(append.masked) for append in topology.appends}
    return {place: columns for place, columns in found.items() if columns}


def tables_only(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Those of tables."""
    return {place: shape for place, shape in shapes.items() if place.startswith("tables/")}
