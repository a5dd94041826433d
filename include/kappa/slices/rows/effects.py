"""The result of a step, checked against its topology's declaration, and held in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from kappa.delta import tables
from kappa.errors import TopologyError
from kappa.operators.records import is_deleted
from kappa.slices.rows import partition_values
from kappa.spark.session import frame_of, is_part
from kappa.topology import Append, Table, Topology
from kappa.topology.ddl import Column, delta_schema, plain_type, quote, quoted
from kappa.topology.times.event_time import LATE_RECORDS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from kappa.topology.emission import Emission


def conformed(topology: Topology, effects: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Effects in the columns that the topology declares.

    Returns:
        Name of table or append output -> rows in the declared columns; outputs with lineage columns, table changes with
        ``_deleted``.

    Raises:
        TopologyError: the columns of an effect differ from the schema.
    """
    members: list[Table | Append] = [*topology.appends, *topology.tables]
    frames = {member.name: conform(effects[member.name], member, topology.name) for member in members}
    if topology.is_sensitive and LATE_RECORDS in frames:
        frames[LATE_RECORDS] = frames[LATE_RECORDS].selectExpr("* EXCEPT (record)", "CAST(NULL AS STRING) AS record")
    return frames


def conform(frame: DataFrame, member: Table | Append, topology: str) -> DataFrame:
    """The declared columns of an effect, types compared, and the platform's own."""
    if not hasattr(frame, "schema"):
        raise TopologyError(
            f"Effect {member.name!r} of {topology!r} is a {type(frame).__name__}; the step has to return a DataFrame "
            "for it."
        )
    from pyspark.sql import functions as F

    types = {f.name: f.dataType for f in frame.schema.fields}
    # What operators tell each other in the metadata of columns is written nowhere: a cast hands none on.
    marked = {f.name for f in frame.schema.fields if f.metadata}
    expressions = []
    for column in member.columns:
        if column.name not in types:
            raise TopologyError(
                f"Effect {member.name!r} of {topology!r} lacks column {column.name!r}; it has {sorted(types)}."
            )
        if plain_type(types[column.name].jsonValue()) != plain_type(column.delta):
            raise TopologyError(
                f"Effect {member.name!r} of {topology!r}: column {column.name!r} is "
                f"{types[column.name].simpleString()}, declared is {column.type}. Cast it in the step."
            )
        is_part = isinstance(member, Append) and column.name in member.partition_by
        plain = F.col(quote(column.name))
        own = plain.cast(stored_type([column])[0].dataType).alias(column.name) if column.name in marked else plain
        expressions.append(F.expr(partition_values.as_kept(column)) if is_part else own)
    if isinstance(member, Table):
        expressions.append(F.expr(f"{is_deleted(frame)} AS _deleted"))
    else:
        expressions.extend(
            F.expr(f"CAST({c.name if c.name in types else 'NULL'} AS {c.type}) AS {c.name}") for c in tables.LINEAGE
        )
    return frame.select(*expressions)


def stored_type(columns: Iterable[Column]) -> StructType:
    """The type of rows as Delta has it: whatever is within their values may be null.

    Spark casts nothing that may be null to a field that is NOT NULL.
    """
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(delta_schema(columns)))


def held(topology: Topology, session: SparkSession) -> Callable[[Emission, DataFrame], DataFrame]:
    """Brings rows that an operator emits into memory where another operator reads them, for slices that are small.

    A reader uses its rows several times, and its own readers use what it makes of them several times: a plan of all of
    it would have what the first operator does as often as the product of that
    (docs/decisions/small-slices-are-one-task.md).
    """
    read = {of for operator in topology.operators for one in operator.streams for of in one.of}

    def hold(emits: Emission, rows: DataFrame) -> DataFrame:
        if emits not in read:
            return rows
        plain = _relaxed(rows)
        return frame_of(session, plain.toArrow(), plain.schema)

    return hold


def shared(frames: Sequence[DataFrame]) -> list[DataFrame]:
    """The frames that another one is made of."""
    return [part for part in frames if any(is_part(part, whole) for whole in frames if whole is not part)]


def collect(frames: Mapping[str, DataFrame], *, in_one_job: bool = True) -> dict[str, pa.Table]:
    """Rows of several DataFrames, in columns that may be null: that none is there is known of one slice's plan only.

    Args:
        frames: by name.
        in_one_job: compute them in one Spark job: they share what they are made of, and a job has a price. Rows then
            travel as structs, which costs more than a job where there are many; those that others are made of had
            better be kept then.
    """
    if not in_one_job or len(frames) == 1:
        return {name: _arrow(_relaxed(frame)) for name, frame in frames.items()}
    return _collect_tagged(frames)


def _arrow(frame: DataFrame) -> pa.Table:
    import pyarrow as pa

    rows = frame.toArrow()
    return pa.Table.from_arrays(rows.columns, names=rows.column_names)


def _relaxed(frame: DataFrame) -> DataFrame:
    """The rows with nested types that Arrow takes where a struct itself is null, as in a change that removes a key."""
    from pyspark.sql import functions as F

    kinds = {field.name: kind for field in frame.schema if (kind := nullable(field.dataType)) != field.dataType}
    return frame.withColumns({name: F.col(quote(name)).cast(kind) for name, kind in kinds.items()}) if kinds else frame


def _collect_tagged(frames: Mapping[str, DataFrame]) -> dict[str, pa.Table]:
    """Rows of all frames as rows of one: a column per frame, and one with the number of the row's frame."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import functions as F

    # Null where the row is another effect's: no field may be NOT NULL there.
    empty = {name: F.lit(None).cast(nullable(frame.schema)) for name, frame in frames.items()}
    tagged = [
        frame.select(
            F.lit(index).alias("_effect"),
            *(
                (F.expr(f"STRUCT({', '.join(quoted(frame.columns))})") if other is frame else empty[name]).alias(name)
                for name, other in frames.items()
            ),
        )
        for index, frame in enumerate(frames.values())
    ]
    rows = reduce(lambda rows, other: rows.union(other), tagged).toArrow()
    effects = {}
    for index, name in enumerate(frames):
        own_rows = rows.filter(pc.equal(rows["_effect"], index)).column(name).combine_chunks()
        effects[name] = pa.Table.from_arrays(own_rows.flatten(), names=frames[name].columns)
    return effects


def nullable(kind: DataType) -> DataType:
    """A type whose fields, elements and values may be null, at every depth; keys of a map never are.

    Arrow has a value for each field of a struct that is null, and refuses a null in one that is declared without.
    """
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(kind, StructType):
        return StructType([StructField(f.name, nullable(f.dataType)) for f in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, nullable(kind.valueType))
    return kind


def with_seq(rows: pa.Table, seq: int) -> pa.Table:
    """Rows with the slice's number in column ``_seq``."""
    import numpy as np
    import pyarrow as pa

    return rows.append_column(pa.field("_seq", pa.int64(), nullable=False), pa.array(np.full(rows.num_rows, seq)))
