"""Keys whose rows may differ between an epoch and the live one, compared as it follows: the handover has few left.

A comparison of the whole tables is made of any two commits, not of two at equal offsets. At the handover a key can
differ only where it differed then, or where either side has changed it since. See
docs/decisions/differences-are-written-before-the-pointer-moves.md.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from kappa.delta import tables
from kappa.faults import crash_point
from kappa.names import EpochPaths, epoch_word
from kappa.record.ledger_state import LedgerState
from kappa.record.merge_on_read import frame_at, read_table
from kappa.slices.run import EpochRun
from kappa.topology import Table, Topology
from kappa.topology.ddl import Column, quoted
from kappa.topology.shapes import Shape
from kappa.verify.values import equal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Of more keys than these the whole tables are compared: Spark would shuffle them either way.
MOST = 1_000_000


@dataclass(frozen=True, kw_only=True)
class ComparedSide:
    """One of two epochs that are compared.

    Attributes:
        paths: where it is.
        state: its ledger; compared is its last commit.
    """

    paths: EpochPaths
    state: LedgerState

    @property
    def seq(self) -> int:
        """The slice of its last commit."""
        assert self.state.committed is not None
        return self.state.committed.seq


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A comparison that was made.

    Attributes:
        path: Delta table of the keys that differed.
        theirs: slice of the live epoch.
        own: slice of the epoch that follows it.
    """

    path: str
    theirs: int
    own: int


def differing(after: DataFrame, known: DataFrame, table: Table) -> DataFrame:
    """The key, and as ``was`` and ``now`` the rows of both sides, null where one has none; of keys whose rows differ.

    A column of the table that ``known`` lacks is null there; columns that the table lacks do not count, and neither do
    those that its operator keeps for itself.
    """
    from pyspark.sql import functions as F

    key, names = list(table.key), [column.name for column in table.columns if column.name not in table.key]

    def side(frame: DataFrame, name: str) -> DataFrame:
        found = [column for column in names if column in frame.columns]
        row = F.struct(F.lit(True).alias("_here"), *quoted(found))
        return frame.select(*quoted(key), row.alias(name))

    both = side(known, "was").join(side(after, "now"), on=key, how="full_outer")
    unlike = [
        ~equal(F.col(f"was.{q}"), F.col(f"now.{q}"), known.schema[name].dataType, after.schema[name].dataType)
        if name in known.columns
        else F.col(f"now.{q}").isNotNull()
        for name, q in zip(names, quoted(names), strict=True)
        if name not in table.hidden
    ]
    is_other = reduce(lambda one, other: one | other, unlike, F.lit(False))
    return both.where(F.col("now").isNull() | F.col("was").isNull() | is_other)


def compare(run: EpochRun, theirs: ComparedSide, table: Table) -> Compared:
    """Write the keys that differ between the last commits of both epochs, going on from the last comparison.

    Nothing is done where these commits were compared before. A crash leaves the comparison before this one.

    Raises:
        StaleWriterError: another driver claimed the epoch.
    """
    own = ComparedSide(paths=run.paths, state=run.ledger.state())
    root = Path(run.paths.suspects(table.name))
    path = str(root / f"{epoch_word(theirs.paths.epoch)}-{theirs.seq:012d}-{own.seq:012d}")
    last = newest(own, theirs, table)
    if last is None or last.path != path:
        run.ledger.check_claim(run.writer)
        tables.create(
            path,
            [
                Column(name=c.name, type=c.type, nullable=True, delta=c.delta)
                for c in table.columns
                if c.name in table.key
            ],
        )
        found = differing(*_rows(run, own, theirs, table, keys(run, theirs, table)), table)
        tables.append_frame(path, found.select(*quoted(table.key)), 1)
        crash_point("reconcile.compared", own.seq)
    for other in root.iterdir():
        if str(other) != path:
            shutil.rmtree(other, ignore_errors=True)
    return Compared(path=path, theirs=theirs.seq, own=own.seq)


def newest(own: ComparedSide, theirs: ComparedSide, table: Table) -> Compared | None:
    """The last comparison of these two epochs since which all changes of both are still there."""
    root, word = Path(own.paths.suspects(table.name)), epoch_word(theirs.paths.epoch)
    found = []
    for folder in root.iterdir() if root.is_dir() else ():
        named = re.fullmatch(rf"{word}-(\d+)-(\d+)", folder.name)
        if named is None or not tables.exists(str(folder)) or not tables.is_written(str(folder), 1):
            continue
        compared = Compared(path=str(folder), theirs=int(named[1]), own=int(named[2]))
        sides = ((own, compared.own), (theirs, compared.theirs))
        if all(side.state.forgotten(table.name) <= seq <= side.seq for side, seq in sides):
            found.append(compared)
    return max(found, key=lambda compared: (compared.own, compared.theirs), default=None)


def keys(run: EpochRun, theirs: ComparedSide, table: Table) -> DataFrame | None:
    """Keys whose rows may differ between the last commits; None where the whole tables have to be compared."""
    own = ComparedSide(paths=run.paths, state=run.ledger.state())
    last = newest(own, theirs, table)
    if last is None:
        return None
    found = run.engines.session.read.format("delta").load(last.path).select(*quoted(table.key))
    for side, since in ((own, last.own), (theirs, last.theirs)):
        committed = side.state.committed
        assert committed is not None
        version = committed.delta_versions.get(f"changes/{table.name}")
        if version is None:
            return None
        changes = read_table(run.engines.session, side.paths.changes(table.name), version)
        found = found.union(changes.where(f"_seq > {since} AND _seq <= {committed.seq}").select(*quoted(table.key)))
    found = found.distinct()
    return found if found.limit(MOST + 1).count() <= MOST else None


def as_sent(topology: Topology, name: str) -> Table:
    """A table of which no column is internal that a topic is to have all the same."""
    table = topology.table(name)
    topics = [topic for topic in topology.topics if topic.of == name]
    sent = {column for topic in topics for column in (*topic.key, *topic.columns, topic.time)}
    return replace(table, internal=tuple(column for column in table.internal if column not in sent))


def among(rows: DataFrame, chosen: DataFrame | None, table: Table) -> DataFrame:
    """The rows of some keys; all of them for None."""
    from pyspark.sql import functions as F

    return rows if chosen is None else rows.join(F.broadcast(chosen), on=list(table.key), how="left_semi")


def forget(paths: EpochPaths) -> None:
    """Remove what an epoch compared. Idempotent."""
    shutil.rmtree(Path(paths.suspects("x")).parent, ignore_errors=True)


def is_alike(shapes: Mapping[str, Shape], table: Table) -> bool:
    """Whether an epoch, by its shapes, has the table with the same key."""
    from kappa.replay.rules.topic import has_same_key

    return has_same_key(shapes.get(f"tables/{table.name}"), Shape.of(table))


def _rows(
    run: EpochRun, own: ComparedSide, theirs: ComparedSide, table: Table, chosen: DataFrame | None
) -> tuple[DataFrame, DataFrame]:
    """The rows of both sides after their last commits."""
    ours, before = own.state.committed, theirs.state.committed
    assert ours is not None and before is not None
    place = f"tables/{table.name}"
    after = frame_at(run.engines.session, own.paths, ours, place).select(
        *quoted([column.name for column in table.columns])
    )
    return (
        among(after, chosen, table),
        among(frame_at(run.engines.session, theirs.paths, before, place), chosen, table),
    )
