"""The keys of a source's records, and those of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.topology.schemas.wire_schemas import KEY_FORMATS, TIMESTAMPS

if TYPE_CHECKING:
    from kappa.topology.members import Source, Table

#: Key formats of one column -> the types that it may have; None for any.
_SINGLE = {"text": None, "int": ("INT", "BIGINT"), "long": ("BIGINT",)}
_NESTED_KEY = "Key the table by columns of plain types; for a STRUCT use its fields, each as a column of its own."
_NUMBER_KEY = "NaN, and -0 beside 0, are not keys: cast it to a DECIMAL or to STRING in the step."


def check_key(source: Source) -> None:
    """Check that the key's format supports its columns, and that null values have the key that they delete.

    Raises:
        TopologyError: it does not, or they do not.
    """
    what = f"Source {source.topic!r}"
    if source.key_format not in KEY_FORMATS:
        raise TopologyError(f"{what}: key_format {source.key_format!r} is not one of {', '.join(KEY_FORMATS)}.")
    if source.timestamps not in TIMESTAMPS:
        raise TopologyError(f"{what}: timestamps {source.timestamps!r} is not one of {', '.join(TIMESTAMPS)}.")
    if not source.key_schema:
        if source.tombstones or source.key_format != "text":
            cause = "tombstones=True" if source.tombstones else f"key_format={source.key_format!r}"
            raise TopologyError(
                f"{what} has {cause} and no key_schema. Name the columns of the record's key: key_schema='id BIGINT'."
            )
        return
    columns = source.key_columns
    if source.key_format in _SINGLE:
        types = _SINGLE[source.key_format]
        if len(columns) != 1 or (types is not None and columns[0].type not in types):
            needed = f"one column of type {' or '.join(types)}" if types else "one column"
            raise TopologyError(
                f"{what}: key_schema {source.key_schema!r} does not fit key_format={source.key_format!r}, which has "
                f"{needed}. Use another key_format, or change key_schema."
            )
    values = {column.name: column for column in source.value_columns}
    for column in columns:
        other = values.get(column.name)
        if other is not None and other.type != column.type:
            raise TopologyError(
                f"{what}: column {column.name!r} is {other.type} in schema and {column.type} in key_schema. Give both "
                "the same type."
            )


def check_table_key(table: Table) -> None:
    """Check that a table's key has columns of the table, each once, never null, and of types whose values can be keys.

    Raises:
        TopologyError: it is not.
    """
    columns = {column.name: column for column in table.columns}
    if not table.key:
        raise TopologyError(f"Table {table.name!r} has no key. Name at least one column: key=['id'].")
    for key in table.key:
        if key not in columns:
            raise TopologyError(
                f"Table {table.name!r}: key column {key!r} is not in its schema, which has {sorted(columns)}."
            )
        if columns[key].nullable:
            raise TopologyError(f"Table {table.name!r}: key column {key!r} may be null. Declare it NOT NULL.")
        if not columns[key].is_key:
            remedy = _NUMBER_KEY if isinstance(columns[key].delta, str) else _NESTED_KEY
            raise TopologyError(
                f"Table {table.name!r}: key column {key!r} is {columns[key].type}, whose values cannot be keys. "
                f"{remedy}"
            )
    if len(set(table.key)) < len(table.key):
        raise TopologyError(f"Table {table.name!r}: key {list(table.key)} names a column twice. Name each once.")
