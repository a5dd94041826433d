"""How Delta tables are reached without a JVM: every call of ``deltalake`` that takes a path is here.

On an object store each has the lake's options (:mod:`kappa.store.options`), and retries of its own: by default
``deltalake`` tries for three minutes before it says that nothing answers.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from kappa.delta.damage import check_entries, damage, is_log_file
from kappa.delta.log_entries import add_entry, sync_commits
from kappa.errors import ConflictError, LakeRefusedError, LakeUnreachableError, first_line
from kappa.store import outages
from kappa.store.address import is_remote
from kappa.store.options import access_to, retries_of
from kappa.store.stores import store_of

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, WriterProperties
    from deltalake.transaction import AddAction, RemoveAction

#: Commits between two checkpoints of a table.
CHECKPOINT_INTERVAL = 50
#: Size of merged files, unless another is asked for: that of ``deltalake``.
_TARGET_BYTES = 100 << 20
#: ``userMetadata`` of commits that merge files.
COMPACTED = "kappa.compact"
#: Commits of ``deltalake`` are made on this condition, whatever the environment says.
_CONDITION = {"aws_conditional_put": "etag"}
#: Number of an error of the system, which those of ``deltalake`` have in their text alone.
_OF_SYSTEM = re.compile(r"\(os error (\d+)\)")
#: How often a creation is tried whose first entry S3 refuses: with 409 to two at once, of which it may carry out
#: neither. Then ``deltalake`` looks for that entry, and says this.
_CREATIONS = 5
_NEITHER = "Invalid table version: 0"


def open_table(path: str, version: int | None = None) -> DeltaTable:
    """A table as of a version, or as of now.

    Raises:
        TableNotFoundError: of ``deltalake``: there is none.
        DamagedTableError: files of its log are missing or torn, or its newest entry is empty on a disk.
        LakeUnreachableError: the object store does not answer.
        LakeRefusedError: it refuses.
    """
    from deltalake import DeltaTable

    with answers(path):
        table = DeltaTable(path, version=version, storage_options=storage_options(path))
        if not is_remote(path):  # a store has an object as a whole or not at all
            check_entries(path, [table.version()])
        return table


def is_table(path: str) -> bool:
    """Whether a Delta table is there.

    By the names in its log: ``deltalake`` stops all threads of the process while it waits for them.

    Raises:
        LakeUnreachableError: the object store does not answer.
        LakeRefusedError: it refuses.
    """
    return any(is_log_file(file.name) for file in store_of(path).files(f"{path}/_delta_log"))


def create_table(
    path: str, schema: Any, *, partition_by: Sequence[str] = (), configuration: Mapping[str, str] | None = None
) -> None:
    """Create a table unless it is there.

    Raises:
        LakeUnreachableError: the object store does not answer.
        LakeRefusedError: it refuses.
        OSError: a disk refuses.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    for attempt in range(_CREATIONS):
        try:
            with answers(path):
                DeltaTable.create(
                    path,
                    schema,
                    mode="ignore",
                    partition_by=list(partition_by) or None,
                    configuration=dict(configuration or {}),
                    # Names of Delta's own are checked for misspelling, as long as there are no others.
                    raise_if_key_not_exists=all(name.startswith("delta.") for name in configuration or {}),
                    storage_options=storage_options(path),
                )
            return
        except (DeltaError, OSError) as error:
            if (refusal := of_system(error, path)) is not None:
                raise refusal from error
            if _NEITHER not in str(error):
                raise
            if attempt == _CREATIONS - 1:
                why = f"The first entry of {path} is refused as present and then missing, {_CREATIONS} times."
                raise LakeUnreachableError(f"{why} Look at the store: kappa doctor", path=path) from error


def write(
    table: DeltaTable,
    rows: pa.Table | pa.RecordBatchReader,
    commit: CommitProperties,
    *,
    mode: Literal["append", "overwrite"] = "append",
    schema_mode: Literal["merge", "overwrite"] | None = None,
    predicate: str | None = None,
) -> None:
    """Write rows in one commit.

    Args:
        table: the table; it is at the new version then.
        rows: the rows.
        commit: what the commit says of itself.
        mode: ``overwrite`` replaces all rows, or those that meet the predicate.
        schema_mode: ``merge`` adds columns that the table lacks.
        predicate: SQL condition.

    Raises:
        ConflictError: another writer was first, or the answer to this one was lost.
        LakeUnreachableError: the object store does not answer.
        LakeRefusedError: it refuses.
    """
    from deltalake import write_deltalake

    properties: Any = {
        "commit_properties": commit,
        "post_commithook_properties": _no_steps(),
        "writer_properties": writer_properties(rows.schema),
    }
    with answers(path_of(table)):
        if mode == "append":
            write_deltalake(table, rows, mode="append", schema_mode=schema_mode, **properties)
        else:
            write_deltalake(table, rows, mode="overwrite", schema_mode=schema_mode, predicate=predicate, **properties)
    check_point_if_due(path_of(table), table.version())


def writer_properties(columns: pa.Schema) -> WriterProperties | None:
    """How ``deltalake`` writes the files of a table with these columns; None for its own way."""
    from deltalake import ColumnProperties, WriterProperties

    names = compared_columns(columns)
    if names is None:
        return None
    return WriterProperties(
        compression="SNAPPY",
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties=dict.fromkeys(names, ColumnProperties(statistics_enabled="PAGE")),
    )


def compared_columns(columns: pa.Schema) -> list[str] | None:
    """The columns of which a file says the least and greatest values; None for all.

    Writers leave NaN out of them, and to readers it is greater than all numbers: they would pass over its file. Of the
    fields within a value none can be left out alone.
    """
    import pyarrow as pa

    if not any(_has_floats(column.type) for column in columns):
        return None
    return [column.name for column in columns if not (pa.types.is_nested(column.type) or _has_floats(column.type))]


def _has_floats(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_floating(kind) or any(_has_floats(kind.field(at).type) for at in range(kind.num_fields))


def replace_files(table: DeltaTable, files: Sequence[Mapping[str, Any]], schema: Any, commit: CommitProperties) -> None:
    """Let a table have some files that were written, and no others, in one commit.

    Args:
        table: the table; it is at the new version then.
        files: what the commit says of each.
        schema: the columns of the table then.
        commit: what the commit says of itself.

    Raises:
        ConflictError: another writer was first, or the answer to this one was lost.
        LakeUnreachableError: the object store does not answer.
        LakeRefusedError: it refuses.
    """
    from deltalake.transaction import AddAction

    added: list[AddAction | RemoveAction] = [
        AddAction(
            path=file["path"],
            size=file["size"],
            partition_values={},
            modification_time=file["modificationTime"],
            data_change=True,
            stats=file["stats"],
        )
        for file in files
    ]
    commit_actions(table, added, "overwrite", schema, commit)


def commit_actions(
    table: DeltaTable,
    actions: list[AddAction | RemoveAction],
    mode: Literal["append", "overwrite"],
    schema: Any,
    commit: CommitProperties,
) -> None:
    """Add files that are there to a table, and take others out, in one commit; it is at the new version then.

    Raises:
        ConflictError: another writer was first, or the answer to this one was lost.
        LakeUnreachableError: the object store does not answer.
        LakeRefusedError: it refuses.
    """
    with answers(path_of(table)):
        table.create_write_transaction(
            actions, mode, schema, commit_properties=commit, post_commithook_properties=_no_steps()
        )
        table.update_incremental()
    check_point_if_due(path_of(table), table.version())


def compact(table: DeltaTable, target_bytes: int | None) -> None:
    """Merge small files of an open table, which is at the new version then. Changes no row.

    Of two processes that merge at once the one that began first is refused, at whatever time it commits: ``deltalake``
    (1.6.6) would commit both, and rows would be there twice. It refuses a merge after whose beginning the metadata was
    written; so each merge first writes it, as it is. Not by ``deltalake``, which stops all threads for that.

    Args:
        table: the table.
        target_bytes: size from which on a file is not small; None leaves that to ``deltalake``.

    Raises:
        ConflictError: another process wrote to the table at the same time.
        LakeUnreachableError: the object store does not answer.
        LakeRefusedError: it refuses.
    """
    from deltalake import CommitProperties

    files = table.get_add_actions(flatten=True)
    smallest = sorted(files["size_bytes"].to_pylist())[:2] if files.num_rows > 1 else []
    if not smallest or sum(smallest) > (target_bytes or _TARGET_BYTES):
        return
    path, version = path_of(table), table.version() + 1
    if add_entry(path, version, [{"commitInfo": _merge_info()}, {"metaData": _metadata(table)}]):
        with answers(path):
            table.update_incremental()
    if table.version() != version:
        raise ConflictError(f"Another process wrote to {path} at the same time. Look: kappa status", path=path)
    commit = CommitProperties(custom_metadata={"userMetadata": COMPACTED}, max_commit_retries=0)
    with answers(path):
        table.optimize.compact(
            target_size=target_bytes,
            writer_properties=writer_properties(declared_schema(table)),
            commit_properties=commit,
            post_commithook_properties=_no_steps(),
        )
    for number in range(version, table.version() + 1):
        check_point_if_due(path, number)


def _merge_info() -> dict[str, Any]:
    return {
        "timestamp": time.time_ns() // 1_000_000,  # of this host, as in the entries of `deltalake`
        "operation": "SET TBLPROPERTIES",
        "operationParameters": {},
        "engineInfo": "kappa",
        "userMetadata": COMPACTED,
    }


def _metadata(table: DeltaTable) -> dict[str, Any]:
    """The ``metaData`` action of an open table (Delta's protocol, "Change Metadata")."""
    metadata = table.metadata()
    return {
        "id": id_of(table),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": metadata.partition_columns,
        "createdTime": metadata.created_time,
        "configuration": metadata.configuration,
    }


def _no_steps() -> PostCommitHookProperties:
    """No checkpoint within a commit: one that fails would be the failure of a commit that is there."""
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def check_point_if_due(path: str, version: int) -> None:
    """After a commit: :func:`check_point` of each :data:`CHECKPOINT_INTERVAL`, as ``deltalake`` counts them."""
    if (version + 1) % CHECKPOINT_INTERVAL == 0:
        check_point(path)


def check_point(path: str) -> None:
    """Sum a table's log up for those who open it, and remove its old entries unless it says otherwise.

    The commit before it is made whatever comes of it.
    """
    try:
        with answers(path):
            table = open_table(path)
            table.create_checkpoint()
            sync_commits(path, range(table.version(), table.version() + 1))  # before the entries go
            if table.metadata().configuration.get("delta.enableExpiredLogCleanup") != "false":
                table.cleanup_metadata()
    except Exception as error:  # of any kind: the next one makes it
        import structlog

        structlog.get_logger(__name__).warning("no checkpoint", path=path, error=first_line(error))


def declared_schema(table: DeltaTable) -> pa.Schema:
    """The columns of an open table, as Arrow has them."""
    import pyarrow as pa

    return pa.schema(table.schema().to_arrow())


def id_of(table: DeltaTable) -> str:
    """Delta's id of an open table, as of its version: one that is made anew in its place has another."""
    return str(table.metadata().id)  # a text, whatever the stubs of `deltalake` say


def file_names(table: DeltaTable) -> frozenset[str]:
    """Names of the files of an open table: Delta gives URIs, in which blanks and letters with umlauts are encoded."""
    return frozenset(uri.rpartition("/")[2] for uri in table.file_uris())


def path_of(table: DeltaTable) -> str:
    """The path of an open table, as it was given."""
    uri = table.table_uri.rstrip("/")
    return unquote(uri.removeprefix("file://")) if uri.startswith("file://") else uri


def storage_options(path: str) -> dict[str, str] | None:
    """The options of ``deltalake`` for a path; None for a local one."""
    if not is_remote(path):
        return None
    return {**retries_of(path).storage_options(), **access_to(path), **_CONDITION}


def of_system(error: Exception, path: str) -> OSError | None:
    """The error of the system in one of ``deltalake``, with its number; None where it is another.

    Args:
        error: the error.
        path: the table.
    """
    number = _OF_SYSTEM.search(str(error))
    return None if number is None else OSError(int(number[1]), os.strerror(int(number[1])), path)


@contextmanager
def answers(path: str) -> Iterator[None]:
    """As :func:`kappa.store.outages.answers`, for calls of ``deltalake``.

    Raises:
        TableNotFoundError: of ``deltalake``: there is no table.
        ConflictError: of a commit: another writer was first, or the answer to this one was lost.
        DamagedTableError: files of the table's log are missing or torn.
    """
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

    try:
        with outages.answers(path):
            yield
    except (DeltaError, LakeUnreachableError, LakeRefusedError) as error:
        own = error if isinstance(error, DeltaError) else error.__cause__
        if isinstance(own, CommitFailedError):
            raise ConflictError(
                f"Another process wrote to {path} at the same time, or the answer of its store was lost: "
                f"{first_line(own)}. Look, then try again: kappa status",
                path=path,
            ) from own
        if isinstance(own, TableNotFoundError):
            raise own from None
        if own is error and (why := damage(path)) is not None:
            raise why from error
        raise
