"""Rows of Delta tables, read without Spark, with the changes that are not in a table yet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

from kappa.delta.access import declared_schema, open_table, path_of
from kappa.delta.damage import damaged, is_elsewhere, is_parquet
from kappa.delta.table_files import files_of, present
from kappa.delta.tables import SEQ
from kappa.errors import DamagedTableError

#: Largest table that is small: its rows are taken into memory sooner than the reader of Spark has listed its files,
#: which takes it several jobs.
SMALL_ROWS = 50_000
#: The same in bytes of its files, compressed.
SMALL_BYTES = 8 << 20

#: The times of files that other programs wrote as INT96, as they are: the engine takes them for nanoseconds by itself,
#: and one before 1677 or after 2262 for another.
_MICROSECONDS = "SET datafusion.execution.parquet.coerce_int96 = 'us'"
_PATTERN = re.compile(r"[{}\[\]*?\\]")
#: What the engine says of a file that is not there, or is shorter than its log says, or has other bytes.
_DAMAGE = re.compile(r"(?i)not ?found|no such file|range|footer")


def rows_of(path: str, delta_version: int, seq: int) -> pa.Table:
    """Rows that one slice wrote, as of a Delta version."""
    return query(path, delta_version, where=f"_seq = {seq}")


def rows_in_order(
    path: str, delta_version: int, seq: int, order: Sequence[str] = (), rows: int = 50_000
) -> Iterator[pa.Table]:
    """Rows that one slice wrote, about this many at a time, in the order of some columns where the table has them.

    Rows that are equal in all of these come together, but for nulls. What is in memory does not grow with the slice,
    but for the sort, of which the engine keeps one copy.
    """
    import pyarrow as pa

    table = open_table(path, version=delta_version)
    schema = declared_schema(table)
    sql = f"SELECT {_listed(schema.names)} FROM t WHERE _seq = {seq}"
    is_ordered = bool(order) and set(order) <= set(schema.names)
    if is_ordered:
        sql += f" ORDER BY {_listed(order)}"
    held = schema.empty_table()
    for batch in execute(sql, {"t": table}):
        chunk = pa.Table.from_batches([batch]).cast(schema)
        for start in range(0, chunk.num_rows, rows):
            part = pa.concat_tables([held, chunk.slice(start, rows)])
            last = _last_run(part, order) if is_ordered else 0
            if last < part.num_rows:
                yield part.slice(0, part.num_rows - last)
            held = part.slice(part.num_rows - last)
    if held.num_rows:
        yield held


def _last_run(rows: pa.Table, order: Sequence[str]) -> int:
    """How many rows at the end are equal in these columns; none where one of them is null there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    same = pa.chunked_array([pa.array([True] * rows.num_rows, pa.bool_())])
    for name in order:
        column = rows[name]
        same = pc.and_(same, pc.fill_null(pc.equal(column, column[-1]), False))
    return int(pc.sum(same).as_py() or 0)


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Changes that are not in a table yet: per key the newest one counts, and its ``_deleted`` removes the key.

    Attributes:
        path: the Delta table of the changes.
        delta_version: its version.
        after: changes of this slice and of earlier ones are in the table.
        upto: changes of later slices do not count.
        key: the table's key.
    """

    path: str
    delta_version: int
    after: int
    upto: int
    key: tuple[str, ...]

    def newest(self) -> pa.Table:
        """The newest change per key, as the changes' table has it, without its slice."""
        delta_table = open_table(self.path, version=self.delta_version)
        names = [name for name in declared_schema(delta_table).names if name != SEQ.name]
        return _cast(
            _run(f"WITH {self._newest()} SELECT {_listed(names)} FROM _changes_newest", _changes=delta_table),
            delta_table,
        )

    def over(self, names: Sequence[str], *, table: str = "_table", changes: str = "_changes") -> str:
        """SQL of a table's rows with these changes brought in: a relation in brackets.

        Args:
            names: the columns.
            table: relation of the table.
            changes: relation of the changes.
        """
        newest = f"{changes}_newest"
        on = " AND ".join(f"_table.{quoted_name(name)} = {newest}.{quoted_name(name)}" for name in self.key)
        unchanged = f"SELECT {_listed(names, '_table.')} FROM {table} AS _table LEFT ANTI JOIN {newest} ON {on}"
        changed = f"SELECT {_listed(names)} FROM {newest} WHERE NOT _deleted"
        return f"(WITH {self._newest(changes)} {unchanged} UNION ALL {changed})"

    def _newest(self, changes: str = "_changes") -> str:
        rank = f"row_number() OVER (PARTITION BY {_listed(self.key)} ORDER BY _seq DESC) AS _rank"
        since = f"_seq > {self.after} AND _seq <= {self.upto}"
        ranked = f"SELECT *, {rank} FROM {changes} WHERE {since}"
        return f"{changes}_newest AS (SELECT * FROM ({ranked}) WHERE _rank = 1)"


def query(
    path: str,
    delta_version: int | None,
    *,
    select: str = "*",
    where: str | None = None,
    order_by: str | None = None,
    limit: int | None = None,
    over: Changes | None = None,
    without: Sequence[str] = (),
) -> pa.Table:
    """Rows of a table as of a Delta version (None: the newest), by an SQL condition, with the declared columns.

    The query engine of ``deltalake`` is used, not its Arrow dataset: that one may abort the process when it exits.

    Args:
        delta_version: its version.
        select: SQL of the columns.
        where: SQL condition, on the rows with the changes brought in.
        order_by: SQL order.
        limit: most rows.
        over: changes that are not in the table yet.
        without: columns that the rows do not have; SQL that names one is refused by the engine.
    """

    table = open_table(path, version=delta_version)
    relations, source = _source(table, over, without, is_limited=limit is not None and order_by is None)
    sql = f"SELECT {select} FROM {source}"
    sql += f" WHERE {where}" if where else ""
    sql += f" ORDER BY {order_by}" if order_by else ""
    sql += f" LIMIT {limit}" if limit is not None else ""
    return _cast(_run(sql, **relations), table)


def counted(path: str, delta_version: int, column: str, *, where: str) -> list[tuple[str, int]]:
    """The number of rows per value of a column as of a Delta version, the most frequent first.

    Args:
        where: SQL condition.
    """

    name = quoted_name(column)
    sql = f"SELECT {name} AS value, COUNT(*) AS rows FROM t WHERE {where} GROUP BY {name} ORDER BY rows DESC, value"
    groups = _run(sql, t=open_table(path, version=delta_version)).to_pylist()
    return [(row["value"], row["rows"]) for row in groups]


def small(path: str, delta_version: int) -> tuple[pa.Table, str] | None:
    """All rows of a table as of a version, and its schema as Spark's JSON; None where it is not a small one.

    Rows and bytes are those that its log states: nothing is read of a table that is not small.
    """

    table = open_table(path, version=delta_version)
    files = files_of(table)
    if files.num_rows and (
        sum(files["num_records"].to_pylist()) > SMALL_ROWS or sum(files["size_bytes"].to_pylist()) > SMALL_BYTES
    ):
        return None
    relations, source = _source(table, None)
    rows = _cast(_run(f"SELECT * FROM {source}", **relations), table)
    # Spark does not take a table without chunks where a column is nested.
    return rows if rows.num_rows else rows.schema.empty_table(), table.schema().to_json()


def chunks(
    path: str,
    delta_version: int | None,
    columns: Sequence[str],
    rows: int,
    *,
    where: str | None = None,
    over: Changes | None = None,
) -> Iterator[pa.Table]:
    """Rows of a table as of a version, unordered, about this many at a time: memory does not grow with the table."""
    import pyarrow as pa

    relations, source = _source(open_table(path, version=delta_version), over)
    batches: list[pa.RecordBatch] = []
    count = 0
    sql = f"SELECT {_listed(columns)} FROM {source}" + (f" WHERE {where}" if where else "")
    with _whole(relations):
        for batch in execute(sql, relations):
            batches.append(batch)
            count += batch.num_rows
            if count >= rows:
                yield pa.Table.from_batches(batches)
                batches, count = [], 0
    if batches:
        yield pa.Table.from_batches(batches)


def batches(
    path: str,
    delta_version: int,
    columns: Sequence[str] | None = None,
    *,
    where: str | None = None,
    limit: int | None = None,
    over: Changes | None = None,
    without: Sequence[str] = (),
) -> pa.RecordBatchReader:
    """Rows of a table as of a version as a stream, unordered, with the declared columns.

    The first batch is read already: what is not there is an error here, and not in the middle of another engine.
    """
    import pyarrow as pa

    table = open_table(path, version=delta_version)
    declared = declared_schema(table)
    names = [name for name in declared.names if name not in without] if columns is None else columns
    schema = pa.schema([declared.field(name) for name in names])
    relations, source = _source(table, over)
    sql = f"SELECT {_listed(schema.names)} FROM {source}" + (f" WHERE {where}" if where else "")
    sql += f" LIMIT {limit}" if limit is not None else ""
    with _whole(relations):
        stream = execute(sql, relations)
        first = next(stream, None)

    def rest() -> Iterator[pa.RecordBatch]:
        for batch in chain([] if first is None else [first], stream):
            yield batch.cast(schema)

    return pa.RecordBatchReader.from_batches(schema, rest())


def _source(
    table: DeltaTable, over: Changes | None, without: Sequence[str] = (), *, is_limited: bool = False
) -> tuple[dict[str, DeltaTable], str]:
    """Relations by name, and the SQL of the rows that a query is made of: a relation ``t``."""
    if over is None and not without and not is_limited:
        return {"t": table}, "t"
    relations = {"_table": table}
    if over is not None:
        relations["_changes"] = open_table(over.path, version=over.delta_version)
    return relations, f"{relation(table, over, without, is_limited=is_limited)} AS t"


def relation(
    table: DeltaTable,
    over: Changes | None,
    without: Sequence[str] = (),
    *,
    base: str = "_table",
    changes: str = "_changes",
    is_limited: bool = False,
) -> str:
    """SQL of a table's rows with changes brought in: the name of a relation, or a query in brackets.

    Args:
        table: the table.
        over: the changes; None for none.
        without: columns that the rows do not have.
        base: relation of the table.
        changes: relation of the changes.
        is_limited: whether the query has a limit.
    """
    names = [name for name in declared_schema(table).names if name not in without]
    if over is not None:
        return over.over(names, table=base, changes=changes)
    if is_limited:  # the engine passes over a limit of rows of which it reads no column, unless something filters them
        return f"(SELECT {_listed(names)} FROM {base} WHERE random() >= 0)"
    return f"(SELECT {_listed(names)} FROM {base})" if without else base


def execute(sql: str, relations: Mapping[str, DeltaTable]) -> pa.RecordBatchReader:
    """Run a query of the engine of ``deltalake``; its rows come as they are read.

    Arrow reads them: the engine's own reader stops all threads of the process while it computes, or waits for a store.
    """
    import pyarrow as pa
    from deltalake import QueryBuilder

    builder = QueryBuilder()
    builder.execute(_MICROSECONDS)
    for name, table in relations.items():
        builder.register(name, table)
    return pa.RecordBatchReader.from_stream(builder.execute(sql))


def _run(sql: str, **relations: DeltaTable) -> pa.Table:
    with _whole(relations):
        return execute(sql, relations).read_all()


@contextmanager
def _whole(relations: Mapping[str, DeltaTable]) -> Iterator[None]:
    """Within, an error for a file that is missing or torn is that of :func:`lost`."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        why = lost(relations, error)
        if why is None:
            raise
        raise why from error


def lost(relations: Mapping[str, DeltaTable], error: Exception) -> DamagedTableError | None:
    """The damage of the first table whose newest version names a file that is not there or is torn; None where none
    does, or the error of the engine says nothing of it.

    A file that only an older version names may have been cleaned up.
    """
    if not _DAMAGE.search(str(error)):
        return None
    for table in relations.values():
        path = path_of(table)
        if problems := list(_problems(path, with_footers="footer" in str(error))):
            return damaged(path, problems)
    return None


def _problems(path: str, *, with_footers: bool) -> Iterator[str]:
    """What is wrong with the data files of a table's newest version.

    Args:
        path: the table.
        with_footers: whether to read the end of each file that has its length.
    """
    files = files_of(open_table(path))
    named = zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True) if files.num_rows else ()
    sizes = sorted((unquote(name), size) for name, size in named)
    stored = present(path, dict(sizes))
    for name, size in sizes:
        file = stored.get(name)
        if file is None:
            yield f"{name} is missing"
        elif file.size != size or (with_footers and not is_parquet(f"{path}/{name}")):
            yield f"{name} is torn"


def _cast(rows: pa.Table, table: DeltaTable) -> pa.Table:
    """Columns as the table declares them, where it does."""
    import pyarrow as pa

    declared = declared_schema(table)
    return rows.cast(
        pa.schema([declared.field(n) if n in declared.names else rows.schema.field(n) for n in rows.schema.names])
    )


def quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _listed(names: Sequence[str], of: str = "") -> str:
    return ", ".join(f"{of}{quoted_name(name)}" for name in names)


def files(path: str) -> pa.Table | None:
    """The data files of a table's newest version: their ``path``, and what the log says of each.

    Returns:
        None where the files alone are not the table: deletion vectors, columns under other names, files of another
        table; or where Spark would take the path for a pattern.
    """
    import pyarrow as pa

    table = open_table(path)
    if table.protocol().min_reader_version > 1 or _PATTERN.search(path):
        return None
    actions = pa.table(table.get_add_actions(flatten=True))
    names = [unquote(name) for name in actions["path"].to_pylist()]
    if any(map(is_elsewhere, names)):
        return None
    return actions.set_column(actions.schema.get_field_index("path"), "path", pa.array(names, pa.string()))


def read_files(session: SparkSession, path: str, names: Sequence[str]) -> DataFrame:
    """Rows of some data files of a table, as :func:`files` names them, in the table's columns.

    Delta's own reader would look for the files with jobs of Spark, at each reading anew.
    """
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(open_table(path).schema().to_json()))
    if not names:
        return session.createDataFrame([], schema)
    reader = session.read.schema(schema).option("basePath", path)
    return reader.parquet(*(f"{path}/{name}" for name in names))
