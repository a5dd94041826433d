"""Delta tables of an epoch: each slice's rows are written once, by Spark or from the driver's memory.

Every write carries the slice's number as an application transaction. A second write of the same slice, by this driver
after a crash or by one that woke up late, changes nothing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from kappa.delta.access import (
    answers,
    create_table,
    declared_schema,
    is_table,
    open_table,
    path_of,
    write,
    writer_properties,
)
from kappa.delta.damage import entry_of
from kappa.delta.log_entries import messages
from kappa.delta.tail_table import TailTable, tail_of
from kappa.errors import ConflictError, DisagreementError, ForeignCommitError, MiscountedError
from kappa.store.address import is_remote
from kappa.store.stores import store_of
from kappa.topology.ddl import Column, delta_schema, quote

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame


def schema_of(path: str) -> pa.Schema:
    """The columns of a table, as Arrow has them."""
    return declared_schema(open_table(path))


#: Log entries go when they are this old and no commit needs them (:mod:`kappa.delta.vacuum`); Delta itself asks for the
#: age only.
LOG_HOURS = 48
#: A checkpoint names every file that was removed a while ago, by Delta's default in the last week: of a small table
#: that is written every minute they are soon larger than it. Opening a table that is fifty commits past its last
#: checkpoint takes a few milliseconds more.
CONFIGURATION = {
    "delta.checkpointInterval": "50",
    "delta.deletedFileRetentionDuration": "interval 2 hours",
    "delta.logRetentionDuration": f"interval {LOG_HOURS} hours",
    "delta.enableExpiredLogCleanup": "false",
}
#: Spark names the folders of partitions as they are, such as ``city=Zürich``, and ``deltalake`` removes a file by its
#: encoded path (1.6.6): no reader would miss it. Of a table with this property Spark names the folders by chance.
_PARTITIONED = {"delta.randomizeFilePrefixes": "true"}
#: Types whose least and greatest values every engine compares.
_COMPARED = ("byte", "short", "integer", "long", "string", "date", "timestamp")
#: Application id of the writes of slices; its version is the slice's number.
APP = "kappa.slice"
#: ``userMetadata`` of a commit that removes the rows of a slice which was given up.
SEALED = "kappa.seal"

#: How many commits are the last ones.
_LAST_COMMITS = 16

SEQ = Column(name="_seq", type="BIGINT", nullable=False, delta="long")
DELETED = Column(name="_deleted", type="BOOLEAN", nullable=False, delta="boolean")
#: Where a row came from; null for rows that come from several records.
LINEAGE = (
    Column(name="_topic", type="STRING", nullable=True, delta="string"),
    Column(name="_partition", type="INT", nullable=True, delta="integer"),
    Column(name="_offset", type="BIGINT", nullable=True, delta="long"),
    Column(name="_order_timestamp", type="TIMESTAMP", nullable=True, delta="timestamp"),
)
DEAD_LETTER = (
    SEQ,
    Column(name="topic", type="STRING", nullable=False, delta="string"),
    Column(name="partition", type="INT", nullable=False, delta="integer"),
    Column(name="offset", type="BIGINT", nullable=False, delta="long"),
    Column(name="timestamp", type="TIMESTAMP", nullable=True, delta="timestamp"),
    Column(name="key", type="STRING", nullable=True, delta="string"),
    Column(name="value", type="BINARY", nullable=True, delta="binary"),
    Column(name="reason", type="STRING", nullable=False, delta="string"),
)


def create(
    path: str,
    columns: Sequence[Column],
    *,
    partition_by: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
) -> None:
    """Create a Delta table unless it is there."""
    from deltalake import Schema

    create_table(
        path,
        Schema.from_json(delta_schema(columns)),
        partition_by=partition_by,
        configuration={
            **CONFIGURATION,
            **(_PARTITIONED if partition_by else {}),
            **_statistics(columns, partition_by),
            **(configuration or {}),
        },
    )


def _statistics(columns: Sequence[Column], partition_by: Sequence[str]) -> dict[str, str]:
    """Which columns get least and greatest values in the log, where those of some would be wrong.

    delta-rs writes them of a DECIMAL as a floating point number, of at most 2^63: a reader that passes over files by
    them does not find a key of 16 digits. Of the others those are taken that every engine compares.
    """
    if not any(_is_wide(column.delta) for column in columns):
        return {}
    exact = [c.name for c in columns if c.name not in partition_by and _is_compared(c.delta)]
    return {"delta.dataSkippingStatsColumns": ",".join(map(quote, exact))}


def _is_compared(delta: Any) -> bool:
    return isinstance(delta, str) and (delta in _COMPARED or delta.startswith("decimal(")) and not _is_wide(delta)


def _is_wide(delta: Any) -> bool:
    """Whether a type is a decimal, or has one, of more digits than a floating point number holds."""
    digits = re.findall(r"decimal\((\d+)", json.dumps(delta))
    return any(int(precision) > sys.float_info.dig for precision in digits)


def exists(path: str) -> bool:
    """Whether a Delta table is there."""
    return is_table(path)


def version(path: str) -> int:
    """Newest Delta version of a table."""
    return open_table(path).version()


def version_after(path: str, since: int) -> int:
    """Newest Delta version of a table, at or after an earlier one.

    Only the entries of these commits are looked for, by name: opening a table takes a small slice ten times as long.
    """
    if is_remote(path):
        tail = tail_of(path)
        tail.advance()
        return max(since, tail.version)
    newest, store = since, store_of(path)
    while store.head(entry_of(path, newest + 1)) is not None:
        newest += 1
    return version(path) if newest == since else newest  # entries of long ago are gone


def merged(path: str) -> tuple[int, int | None]:
    """Newest Delta version of a table, and the last slice that it holds; None where it never got any changes."""
    table = open_table(path)
    return table.version(), _last_slice(table)


def is_written(path: str, seq: int) -> bool:
    """Whether the rows of a slice, or of a later one, are in a table."""
    return _is_written(open_table(path), seq)


def has_commit_of(path: str, user_metadata: str) -> bool:
    """Whether one of the last commits of a table was written with this user metadata."""
    return user_metadata in islice(messages(path, version(path)), _LAST_COMMITS)


def append(path: str, rows: pa.Table, seq: int, plan: str | None = None, counts: str = "") -> int | None:
    """Append a slice's rows from memory. Idempotent; a crash leaves all of them or none.

    Args:
        rows: the rows.
        seq: the slice.
        plan: hash of its plan, which the commit then names; None where numbers are never given twice.
        counts: of the records that the rows were computed from, which the commit then names too; empty for none.

    Returns:
        The Delta version that these rows made; None when the slice had written its rows before, maybe others.

    Raises:
        ConflictError: another process wrote to the table at the same time.
        DisagreementError: rows of another plan of this number, or of a later slice, are in the table.
        MiscountedError: the rows of the slice that are in the table were computed from other records.
    """
    if is_remote(path) and (version := _append_to_tail(tail_of(path), rows, seq, plan, counts)) is not None:
        return version
    table = open_table(path)
    if _is_written(table, seq, plan, counts):
        return None
    if rows.num_rows:
        write(table, _conform(rows, declared_schema(table), path), _transaction(seq, plan, counts))
    else:  # that the slice has no rows here is a commit too: else rows of a writer that wakes up late would land
        _write_nothing(table, seq, plan, counts)
    return table.version()


def _append_to_tail(tail: TailTable, rows: pa.Table, seq: int, plan: str | None, counts: str) -> int | None:
    """Append by two requests, where the slice is the first of its number and the table has no partitions.

    It is tried on the table as it was seen last. A commit that came since is in the way, and then looked at.
    """
    with tail.lock:
        has_looked = not tail.is_fresh
        if has_looked:
            tail.advance()
        while True:
            last = tail.transaction(APP)
            if tail.partition_by or (last is not None and last >= seq):
                return None
            message = None if plan is None else _commit_message(seq, plan, counts)
            # No rows may have no columns either.
            own_rows = _conform(rows, tail.columns, tail.path) if rows.num_rows else tail.columns.empty_table()
            try:
                tail.append(own_rows, {APP: seq}, user_metadata=message)
            except ConflictError:
                if has_looked:
                    raise
                tail.advance()
                has_looked = True
            else:
                return tail.version


def append_frame(
    path: str, rows: DataFrame, seq: int, plan: str | None = None, counts: str = "", **options: str
) -> None:
    """Append a slice's rows with Spark. Idempotent; a crash leaves all of them or none.

    Args:
        rows: the rows.
        seq: the slice.
        plan: as for :func:`append`.
        counts: as for :func:`append`.
        options: further options of Spark's Delta writer.

    Raises:
        DisagreementError: as :func:`append`.
        MiscountedError: as :func:`append`.
    """

    if plan is not None:
        if _is_written(open_table(path), seq, plan, counts):
            return
        options["userMetadata"] = _commit_message(seq, plan, counts)
    _writer(rows, seq, "append").options(**options).save(path)


def replace_where(path: str, rows: pa.RecordBatchReader, where: str, seq: int, plan: str) -> None:
    """Replace the rows that meet a condition, in one commit. Idempotent; a crash leaves the old rows or the new ones.

    Memory does not grow with the rows. Rows of which the condition is null stay as they are.

    Args:
        rows: the new rows, with the table's columns; all of them meet the condition.
        where: SQL condition.
        seq: the slice that replaces them.
        plan: hash of its plan.

    Raises:
        ConflictError: another process wrote to the table at the same time.
        DisagreementError: as :func:`append`.
    """
    table = open_table(path)
    if _is_written(table, seq, plan):
        return
    properties = _transaction(seq, plan)
    write(table, rows, properties, mode="overwrite", predicate=where)


def put_back(path: str, delta_version: int, seq: int, plan: str) -> None:
    """Undo :func:`replace_where`, and see to it that a writer that wakes up late cannot do it. Idempotent.

    Args:
        delta_version: its version before.
        seq: the slice that replaced rows.
        plan: hash of its plan.

    Raises:
        DisagreementError: as :func:`append`.
    """

    table = open_table(path)
    if _is_written(table, seq, plan):
        with answers(path):
            table.restore(delta_version, commit_properties=upkeep_commit(SEALED))
    else:
        _write_nothing(table, seq, plan)


def merge(path: str, changes: pa.Table, key: Sequence[str], columns: Sequence[Column], seq: int) -> None:
    """Apply a slice's changes to a table from memory: upsert, and remove where ``_deleted``. Idempotent.

    Raises:
        ConflictError: another process wrote to the table at the same time.
    """

    table = open_table(path)
    if _is_written(table, seq) or not changes.num_rows:
        return
    names = [column.name for column in columns]
    assignments = {quote(name): f"s.{quote(name)}" for name in names}
    on = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in key)
    with answers(path):
        merger = table.merge(
            changes.select([*names, "_deleted"]),
            predicate=on,
            source_alias="s",
            target_alias="t",
            writer_properties=writer_properties(declared_schema(table)),
            commit_properties=_transaction(seq),
        )
    with answers(path):
        (
            merger.when_matched_delete(predicate="s.`_deleted`")
            .when_matched_update(assignments)
            .when_not_matched_insert(assignments, predicate="NOT s.`_deleted`")
            .execute()
        )
        if not _is_written(
            table, seq
        ):  # nothing to update and no key to remove, which is not a commit: it is done all the same
            _write_nothing(table, seq)


def overwrite(path: str, rows: pa.Table, seq: int) -> int | None:
    """Replace a table's rows from memory. Idempotent; readers of older Delta versions keep theirs.

    Returns:
        The Delta version that has these rows; None when the slice, or a later one, had been written before.

    Raises:
        ConflictError: another process wrote to the table at the same time.
    """
    table = open_table(path)
    if _is_written(table, seq):
        return None
    write(table, _conform(rows, declared_schema(table), path), _transaction(seq), mode="overwrite")
    return table.version()


def overwrite_frame(path: str, rows: DataFrame, seq: int) -> None:
    """Replace a table's rows with Spark. Idempotent; readers of older Delta versions keep theirs."""
    _writer(rows, seq, "overwrite").save(path)


def seal(path: str, seq: int, plan: str | None = None, *, column: str = "_seq") -> None:
    """Remove a slice's rows, if any, and see to it that none can be written any more. Idempotent.

    Raises:
        DisagreementError: as :func:`append`.
    """

    table = open_table(path)
    if _is_written(table, seq, plan):
        with answers(path):
            table.delete(f"{column} = {seq}", commit_properties=upkeep_commit(SEALED))
        return
    _write_nothing(table, seq, plan)


def _write_nothing(table: DeltaTable, seq: int, plan: str | None = None, counts: str = "") -> None:
    write(table, declared_schema(table).empty_table(), _transaction(seq, plan, counts))


def _last_slice(table: DeltaTable) -> int | None:
    """The last slice that a table holds; its log is read for it."""
    with answers(path_of(table)):
        return table.transaction_version(APP)


def _is_written(table: DeltaTable, seq: int, plan: str | None = None, counts: str = "") -> bool:
    last = _last_slice(table)
    if last is None or last < seq:
        return False
    if plan is None:
        return True
    path = table.table_uri.removeprefix("file://").rstrip("/")
    written_plan, written_counts = _plan_and_counts(table, seq) if last == seq else (None, "")
    if written_plan != plan:
        raise DisagreementError(
            f"The ledger is older than its tables: {path} holds slice {last}, and not by plan {plan} of slice {seq}. "
            "Nothing is written or sent. Put the newest copy of the lake back, whole, or rebuild the topology into an "
            "empty lake: KAPPA_LAKE=<new folder> kappa rebuild <topology> --from-changelog --execute",
            path=path,
            seq=seq,
            done=last,
            plan=plan,
        )
    if counts and written_counts not in ("", counts):
        raise MiscountedError(
            f"Rows of slice {seq} in {path} were computed from {written_counts}, and the same offsets have {counts} "
            "now, as after a compaction of the topic. It is abandoned and computed once more.",
            path=path,
            seq=seq,
            before=written_counts,
            now=counts,
        )
    return True


def upkeep_commit(user_metadata: str):  # type: ignore[no-untyped-def]  # deltalake is imported by its users only
    """Properties of a commit that belongs to no slice; it says of itself what it is."""
    from deltalake import CommitProperties

    return CommitProperties(custom_metadata={"userMetadata": user_metadata}, max_commit_retries=0)


def _plan_and_counts(table: DeltaTable, seq: int) -> tuple[str | None, str]:
    """The plan that a slice's commit names, and the counts of its records; asked only after a crash, of one of the last
    commits.
    """
    begin = _commit_message(seq, "")
    message = next((text for text in messages(path_of(table), table.version()) if text.startswith(begin)), None)
    if message is None:
        return None, ""
    plan, _, counts = message.removeprefix(begin).partition(" ")
    return plan, counts


def _commit_message(seq: int, plan: str, counts: str = "") -> str:
    return f"slice={seq} plan={plan} {counts}".rstrip()


def _transaction(seq: int, plan: str | None = None, counts: str = ""):  # type: ignore[no-untyped-def]  # deltalake is imported by its users only
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        app_transactions=[Transaction(APP, seq)],
        custom_metadata=None if plan is None else {"userMetadata": _commit_message(seq, plan, counts)},
        max_commit_retries=0,
    )


def _writer(rows: DataFrame, seq: int, mode: str):  # type: ignore[no-untyped-def]
    return rows.write.format("delta").mode(mode).option("txnAppId", APP).option("txnVersion", str(seq))


def _conform(rows: pa.Table, columns: pa.Schema, path: str) -> pa.Table:
    """Rows in the columns of a table, which another program may have changed since the last look at its commits."""
    if odd := sorted(set(rows.column_names) ^ set(columns.names)):
        raise ForeignCommitError(
            f"Another program changed {path}: either the table or its new rows lack {', '.join(odd)}. Nothing is "
            "written. To undo it: kappa stop <topology> --epoch <epoch> --execute, then kappa restore <topology> "
            "--epoch <epoch> --execute",
            path=path,
            columns=odd,
        )
    return rows.select(columns.names).cast(columns)
