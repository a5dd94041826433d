"""Aggregates per key, kept in a table: of one stream, and of several.

sums = {"invoices": agg.count(), "total": agg.sum("Amount")}
revenue = aggregate(INVOICES, key="StoreID", aggregates=sums, table="revenue")
Topology(sources=[INVOICES], operators=[revenue], ...)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.operators import agg
from kappa.operators.agg import Aggregate, Part
from kappa.operators.bound import TableOperator, declared_as
from kappa.operators.frames import check_rows
from kappa.operators.keys import Key, key_columns, key_ddl, quoted_names, with_key
from kappa.topology import Slice, Table
from kappa.topology.ddl import Column, quote
from kappa.topology.operator import Outcome, label
from kappa.topology.operator_inputs import Reads, rows_input
from kappa.topology.reserved import is_reserved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Aggregated:
    """The result of aggregating for a slice.

    Attributes:
        changes: rows of its table, at most one per key; rows to delete have ``_deleted``.
    """

    changes: DataFrame


@declared_as("aggregate(orders, key='customer', aggregates={'orders': agg.count()}, table='spending')")
def aggregate(
    of: Reads, *, key: Key, aggregates: Mapping[str, Aggregate], table: str, rows: str = ""
) -> TableOperator[Aggregated]:
    """Aggregates of all rows of each key (Kafka Streams: ``KGroupedStream.aggregate``, ``count``, ``reduce``).

    Columns of the table: the key and the aggregates. Internal columns, called ``<aggregate>__<what>``, hold what those
    need to merge. A row with a null key has no history and is ignored. Late and out-of-order rows count like any
    others; order matters only to ``first``, ``last`` and ``collect``, and for them it is the total order. State: one
    row per key, for ever. Class: any cut.

    Args:
        of: the source, or another operator's emission.
        key: column or columns.
        aggregates: aggregates by the name of their column.
        table: the name of its table.
        rows: Spark DDL of the rows, with what the step adds to them; empty for all columns of the input.

    Raises:
        TopologyError: a key, a name or an aggregate does not fit.

    Examples:
        >>> from kappa import Slice, Source
        >>> from kappa.operators import agg, aggregate
        >>> orders = Source(topic="orders", schema="id STRING, amount BIGINT")
        >>> spent = aggregate(orders, key="id", aggregates={"total": agg.sum("amount")}, table="spent")
        >>> before = spark.sql("SELECT 'a' AS id, 5L AS total")
        >>> rows = spark.sql("SELECT 'a' AS id, n AS amount FROM VALUES (1L), (2L) AS t(n)")
        >>> spent(Slice(seq=1, records={"orders": rows}, tables={"spent": before})).changes.collect()
        [Row(id='a', total=8)]
    """
    read_rows = rows_input(of, label("aggregate", table), rows=rows, is_timed=False)
    aggregates_of_keys = _aggregate(read_rows.rows, key, aggregates)

    def compute(slice: Slice, frames: tuple[DataFrame, ...]) -> Outcome[Aggregated]:
        result = aggregates_of_keys(frames[0], before=slice.table(table), seeks=slice.seeks(table))
        return Outcome(result=result, changes=(result.changes,))

    return TableOperator(
        name="aggregate",
        inputs=(read_rows,),
        tables=(aggregates_of_keys.table(table),),
        compute=compute,
        revision=agg.revision(aggregates_of_keys.parts),
    )


def _aggregate(rows: str, key: Key, aggregates: Mapping[str, Aggregate]) -> KeyAggregates:
    keys = keys_of(rows, key, "aggregate")
    parts = parts_beside(aggregates, rows=rows, what="aggregate", keys=keys)
    return KeyAggregates(
        keys=keys,
        parts=parts,
        reads=agg.read_columns(aggregates, rows=rows, what="aggregate"),
        made_by=made_by("aggregate", keys, aggregates, parts),
    )


@dataclass(frozen=True, kw_only=True)
class KeyAggregates:
    """The computation of :func:`aggregate`, before it is bound.

    Attributes:
        keys: key columns.
        parts: columns of the aggregates.
        reads: columns that the aggregates read.
        made_by: the operator with its parameters.
    """

    keys: tuple[Column, ...]
    parts: tuple[Part, ...]
    reads: tuple[Column, ...]
    made_by: str

    def table(self, name: str) -> Table:
        """The aggregates as a table of that name."""
        return table_of(name, self.keys, self.parts, self.made_by)

    def __call__(self, rows: DataFrame, *, before: DataFrame, seeks: bool = False) -> Aggregated:
        """The keys that a slice changes.

        Args:
            rows: its rows, with the order columns.
            before: the table before the slice.
            seeks: whether its keys are sought in that table, see :meth:`kappa.topology.Slice.seeks`.

        Raises:
            TopologyError: a column of the rows is missing or of another type.
        """
        check_rows(rows, (*self.keys, *self.reads), "aggregate")
        fresh = agg.lifted(with_key(rows, self.keys), quoted_names(self.keys), self.parts)
        return changed(fresh, before, self.keys, self.parts, seeks=seeks)


@declared_as(
    "cogroup({'views': views, 'orders': orders}, key='user', "
    "aggregates={'views': {'views': agg.count()}, 'orders': {'orders': agg.count()}}, table='profiles')"
)
def cogroup(
    of: Mapping[str, Reads],
    *,
    key: Key,
    aggregates: Mapping[str, Mapping[str, Aggregate]],
    table: str,
    rows: Mapping[str, str] | None = None,
) -> TableOperator[Aggregated]:
    """Aggregates per key over several streams (Kafka Streams: ``KGroupedStream.cogroup``).

        profiles = cogroup(
            {"views": views, "orders": orders},
            key="user",
            aggregates={
                "views": {"events": agg.count(), "page": agg.last("page")},
                "orders": {"events": agg.count(), "spent": agg.sum("amount")},
            },
            table="profiles",
        )

    An aggregate that several streams name is one aggregate over the rows of all of them: it must have the same kind and
    columns of one type. Columns, null keys, order, state and class are those of :func:`aggregate`. A key that only some
    of the streams have gets a row, without contributions of the others.

    Args:
        of: stream -> its source, or another operator's emission. A step passes rows in this order.
        key: column or columns, named and typed alike in all streams.
        aggregates: stream -> its aggregates, by the name of their column.
        table: the name of its table.
        rows: stream -> Spark DDL of its rows, with what the step adds to them; all columns for streams that are not
            named.

    Raises:
        TopologyError: the streams of ``of`` and ``aggregates`` differ, or keys or aggregates of the same name differ; a
            key, a name or an aggregate does not fit.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import agg, cogroup
        >>> views = Source(topic="views", schema="user STRING")
        >>> orders = Source(topic="orders", schema="user STRING, amount BIGINT")
        >>> profiles = cogroup(
        ...     {"views": views, "orders": orders},
        ...     key="user",
        ...     aggregates={"views": {"views": agg.count()}, "orders": {"spent": agg.sum("amount")}},
        ...     table="profiles",
        ... )
        >>> profiles.tables[0].schema
        '`user` STRING NOT NULL, `views` BIGINT, `spent` BIGINT'
    """
    shaped = rows or {}
    inputs = {
        name: rows_input(one, f"{label('cogroup', table)}: {name!r}", rows=shaped.get(name, ""), is_timed=False)
        for name, one in of.items()
    }
    group = _cogroup(key, {name: one.rows for name, one in inputs.items()}, aggregates)

    def compute(slice: Slice, frames: tuple[DataFrame, ...]) -> Outcome[Aggregated]:
        rows_by_stream = dict(zip(inputs, frames, strict=True))
        result = group(rows_by_stream, before=slice.table(table), seeks=slice.seeks(table))
        return Outcome(result=result, changes=(result.changes,))

    return TableOperator(
        name="cogroup",
        inputs=tuple(inputs.values()),
        tables=(group.table(table),),
        compute=compute,
        revision=agg.revision(group.parts),
    )


def _cogroup(key: Key, rows: Mapping[str, str], aggregates: Mapping[str, Mapping[str, Aggregate]]) -> Cogroup:
    if not rows or set(rows) != set(aggregates):
        raise TopologyError(
            f"cogroup: rows are declared for streams {sorted(rows)}, aggregates for {sorted(aggregates)}. Give both "
            "for each stream."
        )
    keys_by_stream = {name: keys_of(rows[name], key, f"cogroup: {name!r}") for name in rows}
    keys = next(iter(keys_by_stream.values()))
    for name, other in keys_by_stream.items():
        if [column.delta for column in other] != [column.delta for column in keys]:
            shown = ", ".join(f"{column.name} {column.type}" for column in other)
            raise TopologyError(
                f"cogroup: the key of {name!r} is {shown}; that of {next(iter(keys_by_stream))!r} is "
                f"{', '.join(f'{column.name} {column.type}' for column in keys)}. Cast one of them in the step."
            )
    streams = {
        name: parts_beside(aggregates[name], rows=rows[name], what=f"cogroup: {name!r}", keys=keys) for name in rows
    }
    text = "; ".join(f"{name}: {agg.text_of(aggregates[name], streams[name])}" for name in sorted(rows))
    names = [column.name for column in keys]
    return Cogroup(
        keys=keys,
        streams=streams,
        parts=_united(streams),
        reads={name: agg.read_columns(aggregates[name], rows=rows[name], what="cogroup") for name in rows},
        made_by=f"cogroup(key={names}, {text})",
    )


@dataclass(frozen=True, kw_only=True)
class Cogroup:
    """The computation of :func:`cogroup`, before it is bound.

    Attributes:
        keys: key columns.
        streams: stream -> columns of its aggregates.
        parts: columns of the aggregates of all streams.
        reads: stream -> columns that its aggregates read.
        made_by: the operator with its parameters.
    """

    keys: tuple[Column, ...]
    streams: Mapping[str, tuple[Part, ...]]
    parts: tuple[Part, ...]
    reads: Mapping[str, tuple[Column, ...]]
    made_by: str

    def table(self, name: str) -> Table:
        """The aggregates as a table of that name."""
        return table_of(name, self.keys, self.parts, self.made_by)

    def __call__(self, rows: Mapping[str, DataFrame], *, before: DataFrame, seeks: bool = False) -> Aggregated:
        """The keys that a slice changes.

        Args:
            rows: stream -> its rows, with the order columns.
            before: the table before the slice.
            seeks: whether its keys are sought in that table, see :meth:`kappa.topology.Slice.seeks`.

        Raises:
            TopologyError: a stream is missing, or unknown; a column of its rows is missing or of another type.
        """
        if set(rows) != set(self.streams):
            raise TopologyError(
                f"cogroup: the step gives rows of {sorted(rows)}; the streams are {sorted(self.streams)}. Give "
                "each once."
            )
        for name, frame in rows.items():
            check_rows(frame, (*self.keys, *self.reads[name]), f"cogroup: {name!r}")
        fresh = [self._lifted(with_key(rows[name], self.keys), parts) for name, parts in self.streams.items()]
        whole = reduce(lambda left, right: left.union(right), fresh)
        return changed(whole, before, self.keys, self.parts, seeks=seeks)

    def _lifted(self, rows: DataFrame, own: Sequence[Part]) -> DataFrame:
        """Rows of one stream as parts of the whole; null parts add nothing."""
        by_name = {part.name: part.of_row for part in own}
        return rows.selectExpr(
            *quoted_names(self.keys),
            *(
                f"CAST({by_name.get(part.name, 'NULL')} AS {part.type}) AS {quote(part.name)}"
                for part in self.parts
                if part.of_parts
            ),
        )


def changed(
    fresh: DataFrame, before: DataFrame, keys: Sequence[Column], parts: Sequence[Part], *, seeks: bool
) -> Aggregated:
    """The rows of a table of aggregates that change by parts of rows."""
    whole = agg.merged(fresh, before, [column.name for column in keys], parts, also="FALSE", seeks=seeks)
    return Aggregated(changes=whole.drop(agg.CHANGED))


def keys_of(rows: str, key: Key, what: str) -> tuple[Column, ...]:
    """Key columns of a table of aggregates.

    Raises:
        TopologyError: one is not a column of the rows, or has a name of the platform.
    """
    keys = key_columns(rows, key, what)
    odd = [column.name for column in keys if is_reserved(column.name)]
    if odd:
        raise TopologyError(f"{what}: key columns {odd} have names that the platform uses. Rename them in the step.")
    return keys


def parts_beside(
    aggregates: Mapping[str, Aggregate], *, rows: str, what: str, keys: Sequence[Column]
) -> tuple[Part, ...]:
    """The columns of aggregates, none with the name of a key column.

    Raises:
        TopologyError: a name or an aggregate does not fit.
    """
    return agg.parts_of(aggregates, rows=rows, what=what, own_names=[column.name for column in keys])


def table_of(name: str, keys: Sequence[Column], parts: Sequence[Part], by: str) -> Table:
    """A table of aggregates by key."""
    names = [column.name for column in keys]
    schema = f"{key_ddl(keys)}, {agg.ddl_of(parts)}"
    return Table(name=name, key=names, schema=schema, made_by=by, internal=agg.internal(parts))


def made_by(operator: str, keys: Sequence[Column], aggregates: Mapping[str, Aggregate], parts: Sequence[Part]) -> str:
    """An operator with its parameters, the same text for the same state."""
    return f"{operator}(key={[column.name for column in keys]}, {agg.text_of(aggregates, parts)})"


def _united(streams: Mapping[str, Sequence[Part]]) -> tuple[Part, ...]:
    """The columns of all streams, each name once."""
    columns: dict[str, tuple[str, Part]] = {}
    for stream, parts in streams.items():
        for part in parts:
            other, first = columns.setdefault(part.name.lower(), (stream, part))
            if _kind(first) != _kind(part):
                raise TopologyError(
                    f"cogroup: column {part.name!r} is another aggregate in {stream!r} ({part.hashed or part.type}) "
                    f"than in {other!r} ({first.hashed or first.type}). Give them different names, or the same kind "
                    "and type."
                )
    return tuple(part for _, part in columns.values())


def _kind(part: Part) -> tuple[str, ...]:
    """What parts of several streams need in common to be one."""
    return part.name, part.type, part.of_parts, part.derived, part.hashed
