"""The difference between two epochs at equal offsets, and the topology's own checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kappa.lake import EpochPaths
from kappa.replay.offsets import ranges_end
from kappa.replay.verdict import CheckResult, DiffReport, OutputDiff, Sample, TableDiff
from kappa.runtime.ledger import LedgerRow
from kappa.slices import read_table
from kappa.topology import Table, Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SAMPLES = 5


def verify(
    session: SparkSession, topology: Topology, live: tuple[EpochPaths, LedgerRow], mine: tuple[EpochPaths, LedgerRow]
) -> DiffReport:
    """Compare an epoch with the live one at the same offsets, and run the topology's checks on it.

    Changes nothing. Tables and outputs are compared in the columns that both have, by their names.

    Args:
        session: Spark.
        topology: the candidate's code.
        live: paths of the live epoch and its commit.
        mine: paths of the epoch and its commit, whose slice ended at the same offsets.
    """
    paths, row = mine
    tables, outputs = [], []
    for table in topology.tables:
        place = f"tables/{table.name}"
        tables.append(_table_diff(table, _frame(session, *live, place), _frame(session, paths, row, place)))
    for append in topology.appends:
        place = f"outputs/{append.name}"
        outputs.append(_output_diff(append.name, _frame(session, *live, place), _frame(session, paths, row, place)))
    return DiffReport(
        topology=topology.name,
        live_epoch=live[0].epoch,
        live_seq=live[1].seq,
        candidate_epoch=paths.epoch,
        candidate_seq=row.seq,
        at=ranges_end(row.ranges),
        tables=tuple(tables),
        outputs=tuple(outputs),
        checks=tuple(_checks(session, topology, paths, row)),
    )


def _frame(session: SparkSession, paths: EpochPaths, row: LedgerRow, place: str) -> DataFrame | None:
    found = row.delta_versions.get(place)
    return None if found is None else read_table(session, f"{paths.root}/{place}", found)


def _table_diff(table: Table, live: DataFrame | None, mine: DataFrame | None) -> TableDiff:
    from pyspark.sql import functions as F

    assert mine is not None
    key = list(table.key)
    if live is None or not set(key) <= set(live.columns):
        return TableDiff(name=table.name, rows_live=None, rows_candidate=mine.count(), keys_added=mine.count())
    shared = [c for c in mine.columns if c in live.columns and c not in key]
    both = live.select(*key, F.struct(*shared, F.lit(1).alias("_here")).alias("l")).join(
        mine.select(*key, F.struct(*shared, F.lit(1).alias("_here")).alias("c")), on=key, how="full_outer"
    )
    changed = [
        (name, F.col("l").isNotNull() & F.col("c").isNotNull() & ~F.col(f"l.`{name}`").eqNullSafe(F.col(f"c.`{name}`")))
        for name in shared
    ]
    any_changed = F.lit(False)
    for _, condition in changed:
        any_changed = any_changed | condition
    # One pass: numbered aliases, since a column of the table may have any name.
    totals = both.agg(
        F.count("l").alias("rows_live"), F.count("c").alias("rows_candidate"), F.count_if(F.col("l").isNull()).alias("added"),
        F.count_if(F.col("c").isNull()).alias("removed"), F.count_if(any_changed).alias("changed"),
        *(F.count_if(condition).alias(f"column_{index}") for index, (_, condition) in enumerate(changed)),
    ).first()  # fmt: skip
    assert totals is not None
    samples: Sequence[Any] = ()
    if totals["added"] or totals["removed"] or totals["changed"]:
        samples = (
            both.where(any_changed | F.col("l").isNull() | F.col("c").isNull()).orderBy(*key).limit(_SAMPLES).collect()
        )
    return TableDiff(
        name=table.name, rows_live=totals["rows_live"], rows_candidate=totals["rows_candidate"], keys_added=totals["added"],
        keys_removed=totals["removed"], keys_changed=totals["changed"],
        changed_columns={name: totals[f"column_{i}"] for i, (name, _) in enumerate(changed) if totals[f"column_{i}"]},
        samples=tuple(_sample(row, key) for row in samples),
    )  # fmt: skip


def _sample(row: Any, key: Sequence[str]) -> Sample:
    def side(name: str) -> dict[str, str] | None:
        return None if row[name] is None else {k: str(v) for k, v in row[name].asDict().items() if k != "_here"}

    return Sample(key={name: str(row[name]) for name in key}, live=side("l"), candidate=side("c"))


def _output_diff(name: str, live: DataFrame | None, mine: DataFrame | None) -> OutputDiff:
    assert mine is not None
    if live is None:
        return OutputDiff(name=name, rows_live=None, rows_candidate=mine.count())
    return OutputDiff(name=name, rows_live=live.count(), rows_candidate=mine.count())


def _checks(session: SparkSession, topology: Topology, paths: EpochPaths, row: LedgerRow) -> list[CheckResult]:
    if not topology.checks:
        return []
    for kind, members in (("tables", topology.tables), ("outputs", topology.appends)):
        for member in members:
            frame = _frame(session, paths, row, f"{kind}/{member.name}")
            assert frame is not None
            frame.createOrReplaceTempView(member.name)
    results = []
    for check in topology.checks:
        found = session.sql(check.sql).count()
        results.append(
            CheckResult(name=check.name, ok=found == 0, detail=f"{found} rows contradict it" if found else "")
        )
    return results
