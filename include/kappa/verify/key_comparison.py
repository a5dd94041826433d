"""Keys whose rows may differ between an epoch and the live one, compared ahead of the handover.

Two epochs stand at equal offsets only at the handover, and readers wait meanwhile: there is no time to join whole
tables. But any two commits can be compared before, and of a later pair of commits only these keys can differ: those
that differed then, and those that either side has changed since. So an epoch that follows the live one writes the keys
that differ, starts from them the next time, and at the handover compares the rows of a few. See
docs/decisions/differences-are-written-before-the-pointer-moves.md.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import reduce
from typing import TYPE_CHECKING

from kappa.delta import tables
from kappa.faults import crash_point
from kappa.names import EpochPaths
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState
from kappa.record.merge_on_read import frame_at, read_table
from kappa.replay import stored
from kappa.slices.run import EpochRun
from kappa.store.stores import store_of
from kappa.topology import Table
from kappa.topology.ddl import Column, quoted
from kappa.verify.values import equal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: With more keys than this the whole tables are compared: Spark would shuffle them either way.
MOST = 1_000_000
#: What this code writes, and the newest that it reads.
FORMAT = 1
#: The file that describes the last comparison, beside its keys; replaced once these are written.
_LAST = "last.json"


@dataclass(frozen=True, kw_only=True)
class ComparedSide:
    """One of two epochs that are compared, after its last commit.

    Attributes:
        paths: where it is.
        state: its ledger.
    """

    paths: EpochPaths
    state: BegunState

    @property
    def committed(self) -> LedgerRow:
        """Its last commit."""
        return self.state.committed

    def has_changes_since(self, seq: int, table: Table) -> bool:
        """Whether all changes of a table after a slice are still there."""
        return self.state.forgotten(table.name) <= seq <= self.committed.seq


@dataclass(frozen=True, kw_only=True)
class KeyComparison:
    """A comparison of a table in two epochs, each after one of its commits.

    Attributes:
        live_epoch: number of the live epoch.
        live_seq: slice of its commit.
        own_seq: slice of the commit of the epoch that follows it.
    """

    live_epoch: int
    live_seq: int
    own_seq: int

    @property
    def folder(self) -> str:
        """The Delta table of the keys that differed: a name of its own, never read back."""
        return f"{self.live_epoch}-{self.live_seq}-{self.own_seq}"


def compare(run: EpochRun, live: ComparedSide, table: Table) -> KeyComparison:
    """Compare a table after the last commits of both epochs and write the keys that differ.

    Idempotent: nothing is done for commits that were compared before. A crash leaves the comparison before this one.

    Raises:
        StaleWriterError: another driver claimed the epoch.
    """
    own = _own_side(run)
    comparison = KeyComparison(live_epoch=live.paths.epoch, live_seq=live.committed.seq, own_seq=own.committed.seq)
    if last_comparison(own, live, table) == comparison:
        return comparison
    run.ledger.check_claim(run.writer)
    root = own.paths.key_comparisons(table.name)
    folder = f"{root}/{comparison.folder}"
    tables.create(
        folder,
        [Column(name=c.name, type=c.type, nullable=True, delta=c.delta) for c in table.columns if c.name in table.key],
    )
    candidates = candidate_keys(run, live, table)
    after, before = (among(_rows(run, side, table), candidates, table) for side in (own, live))
    tables.append_frame(folder, differing(after, before, table).select(*quoted(table.key)), 1)
    store = store_of(root)
    store.put(f"{root}/{_LAST}", json.dumps({"format": FORMAT, **asdict(comparison)}).encode(), is_durable=True)
    crash_point("reconcile.compared", own.committed.seq)
    for name in store.folders(root):
        if name != comparison.folder:
            store.delete_folder(f"{root}/{name}")
    return comparison


def last_comparison(own: ComparedSide, live: ComparedSide, table: Table) -> KeyComparison | None:
    """The last comparison, if it was with this live epoch and all changes of both sides since are still there."""
    root = own.paths.key_comparisons(table.name)
    content = store_of(root).get(f"{root}/{_LAST}")
    if content is None:
        return None
    try:
        values = json.loads(content)
    except ValueError:  # a power loss took the end of it
        return None
    stored.check_format(values.get("format"), FORMAT, what="comparison", where=f"{root}/{_LAST}")
    last = stored.read(KeyComparison, values)
    folder = f"{root}/{last.folder}"
    is_usable = (
        last.live_epoch == live.paths.epoch
        and own.has_changes_since(last.own_seq, table)
        and live.has_changes_since(last.live_seq, table)
        and tables.exists(folder)  # a power loss may have taken it
        and tables.is_written(folder, 1)
    )
    return last if is_usable else None


def candidate_keys(run: EpochRun, live: ComparedSide, table: Table) -> DataFrame | None:
    """Keys whose rows may differ after the last commits; None where the whole tables have to be compared."""
    own = _own_side(run)
    last = last_comparison(own, live, table)
    if last is None:
        return None
    folder = f"{own.paths.key_comparisons(table.name)}/{last.folder}"
    keys = run.engines.session.read.format("delta").load(folder).select(*quoted(table.key))
    for side, seq in ((own, last.own_seq), (live, last.live_seq)):
        version = side.committed.delta_versions.get(f"changes/{table.name}")
        if version is None:
            return None
        changes = read_table(run.engines.session, side.paths.changes(table.name), version)
        since = changes.where(f"_seq > {seq} AND _seq <= {side.committed.seq}")
        keys = keys.union(since.select(*quoted(table.key)))
    keys = keys.distinct()
    return keys if keys.limit(MOST + 1).count() <= MOST else None


def differing(after: DataFrame, before: DataFrame, table: Table) -> DataFrame:
    """The keys whose rows differ, with both rows.

    A column of the table that ``before`` lacks is null there. Columns that the table lacks do not count, nor do those
    that its operator keeps for itself.

    Returns:
        The key; ``_old``, the row of ``before``, and ``_new``, that of ``after``, each null where that side has none.
    """
    from pyspark.sql import functions as F

    key, names = list(table.key), [column.name for column in table.columns if column.name not in table.key]

    def side(frame: DataFrame, name: str) -> DataFrame:
        columns = [column for column in names if column in frame.columns]
        row = F.struct(F.lit(True).alias("_here"), *quoted(columns))
        return frame.select(*quoted(key), row.alias(name))

    both = side(before, "_old").join(side(after, "_new"), on=key, how="full_outer")
    unlike = [
        ~equal(F.col(f"_old.{q}"), F.col(f"_new.{q}"), before.schema[name].dataType, after.schema[name].dataType)
        if name in before.columns
        else F.col(f"_new.{q}").isNotNull()
        for name, q in zip(names, quoted(names), strict=True)
        if name not in table.hidden
    ]
    is_other = reduce(lambda one, other: one | other, unlike, F.lit(False))
    return both.where(F.col("_new").isNull() | F.col("_old").isNull() | is_other)


def among(rows: DataFrame, keys: DataFrame | None, table: Table) -> DataFrame:
    """The rows of some keys; all of them for None."""
    from pyspark.sql import functions as F

    return rows if keys is None else rows.join(F.broadcast(keys), on=list(table.key), how="left_semi")


def forget(paths: EpochPaths) -> None:
    """Remove all comparisons of an epoch. Idempotent."""
    folder = paths.key_comparisons("x").rpartition("/")[0]
    store_of(folder).delete_folder(folder)


def _own_side(run: EpochRun) -> ComparedSide:
    return ComparedSide(paths=run.paths, state=run.ledger.begun())


def _rows(run: EpochRun, side: ComparedSide, table: Table) -> DataFrame:
    """The rows of one side after its last commit."""
    return frame_at(run.engines.session, side.paths, side.committed, f"tables/{table.name}")
