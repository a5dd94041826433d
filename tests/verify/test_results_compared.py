"""Two epochs are compared in the results of operators; an operator's internal state is not a difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.internal_columns import AT
from support.slices import Epoch

from kappa import Source, Topology
from kappa.driver.handovers.reconciliation import as_sent
from kappa.names import EpochPaths
from kappa.operators import agg, aggregate, newest_by
from kappa.operators.agg import Aggregate
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.merge_on_read import frame_at
from kappa.replay.proof.verdict import DiffReport
from kappa.serving import snapshot_of
from kappa.topology import Topic
from kappa.topology.thresholds import Threshold, limits_of
from kappa.verify.content_hash import twice
from kappa.verify.diff import Mask, verify
from kappa.verify.key_comparison import differing
from kappa.verify.report import Format, rendered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

KEY = 'We"ird.Id'
SOURCE = Source(topic="pos", schema=f"`{KEY}` STRING NOT NULL, n BIGINT, `n__sum` BIGINT")
PLACE = {"_order_timestamp": AT, "_topic": "pos", "_partition": 0}


def counting(aggregates: Mapping[str, Aggregate]) -> Topology:
    """A topology of one aggregate and of the newest rows, whose column looks like one that an aggregate keeps."""
    operators = [
        aggregate(SOURCE, key=KEY, aggregates=aggregates, table="t"),
        newest_by(SOURCE, key=KEY, table="newest"),
    ]
    return Topology(name="tests.compared", version="1", sources=[SOURCE], operators=operators)


MEANS = counting({"Mean.n": agg.avg("n"), "last": agg.last("n")})


class Both:
    """A live epoch and one that is compared with it, at the same offsets."""

    def __init__(self, base: Path, session: SparkSession) -> None:
        self.session = session
        self.base = base
        self.epochs: list[Epoch] = []

    def put(self, topology: Topology, *, t: dict[str, Any], newest: dict[str, Any] | None = None) -> None:
        """An epoch after one slice; its tables have one key."""
        epoch = Epoch(self.base, topology, len(self.epochs) + 1)
        row = {KEY: "k", "n": 1, "n__sum": 1, "origin": {**PLACE, "_offset": 1}, **(newest or {})}
        epoch.put_into({"t": [{KEY: "k", **t}], "newest": [row]})
        self.epochs.append(epoch)

    def frames(self) -> tuple[DataFrame, DataFrame]:
        """All columns of table ``t`` of both."""
        live, candidate = (frame_at(self.session, *side, "tables/t") for side in self.sides())
        return live, candidate

    def sides(self) -> list[tuple[EpochPaths, LedgerRow]]:
        """Both with their last commits."""
        commits = [(epoch.paths, Ledger(epoch.paths.ledger).last_commit()) for epoch in self.epochs]
        return [(paths, row) for paths, row in commits if row is not None]

    def report(self, **limits: Any) -> DiffReport:
        live, candidate = self.sides()
        topology = self.epochs[1].run.topology
        return verify(self.session, topology, live, candidate, **limits)


@pytest.fixture
def both(tmp_path: Path, spark: SparkSession) -> Both:
    return Both(tmp_path, spark)


def mean(total: int, count: int, offset: int, value: int = 2) -> dict[str, Any]:
    return {
        "Mean.n": Decimal(value),
        "Mean.n__sum": total,
        "Mean.n__count": count,
        "last": 3,
        "last__last": {**PLACE, "_offset": offset, "value": 3},
    }


def test_equal_results_of_different_states_differ_only_in_a_second_run(both: Both) -> None:
    both.put(MEANS, t=mean(4, 2, 7))
    both.put(MEANS, t=mean(6, 3, 8), newest={"origin": {**PLACE, "_offset": 9}})
    report = both.report(limits=limits_of([Threshold(table="t", keys_changed=0, drift={"Mean.n": 0})]))

    assert report.verdict == "same", report
    for diff in report.tables:
        assert diff.is_same and not diff.samples and not diff.drift, diff
        assert (diff.columns_added, diff.columns_removed, diff.columns_retyped) == ((), (), ())
    assert "__" not in rendered(report, Format.TEXT) and "origin" not in rendered(report, Format.TEXT)

    by_state = both.report(by_state=True)
    assert by_state.verdict == "differs"
    assert {diff.name: set(diff.changed_columns) for diff in by_state.tables} == {
        "t": {"Mean.n__sum", "Mean.n__count", "last__last"},
        "newest": {"origin"},
    }

    was, now = both.frames()
    shown = snapshot_of(*both.sides()[0]).spark("t", both.session)
    assert shown.columns == [KEY, "Mean.n", "last"] and shown.count() == 1
    again = twice(MEANS.table("t"), was, now, Mask())
    assert again.hash != again.hash_again
    assert again.columns == ("Mean.n__count", "Mean.n__sum", "last__last")


def test_different_results_are_shown_without_their_helper_columns(both: Both) -> None:
    both.put(MEANS, t=mean(4, 2, 7))
    both.put(MEANS, t=mean(9, 3, 8, value=3), newest={"n__sum": 5, "origin": {**PLACE, "_offset": 9}})
    diffs = {diff.name: diff for diff in both.report().tables}

    assert diffs["t"].changed_columns == {"Mean.n": 1} and set(diffs["t"].drift) == {"Mean.n"}
    (sample,) = diffs["t"].samples
    assert (set(sample.live or ()), set(sample.candidate or ())) == ({"Mean.n", "last"}, {"Mean.n", "last"})
    # A column of the author's own counts, whatever it is called.
    assert diffs["newest"].changed_columns == {"n__sum": 1}


def test_a_replaced_aggregate_is_two_columns_of_results(both: Both) -> None:
    both.put(MEANS, t=mean(4, 2, 7))
    both.put(counting({"total": agg.sum("n"), "last": agg.top("n", 1, by="n")}), t={"total": 4, "last": []})
    (diff, _) = both.report().tables

    assert (diff.columns_added, diff.columns_removed, diff.columns_retyped) == (("total",), ("Mean.n",), ("last",))
    assert set(diff.changed_columns) <= {"last"}


def test_a_helper_column_of_another_type_is_not_compared(both: Both) -> None:
    both.put(counting({"x": agg.avg("n")}), t={"x": Decimal(2), "x__sum": 4, "x__count": 2})
    wide = replace(SOURCE, schema=SOURCE.schema.replace("n BIGINT", "n DECIMAL(16,0)", 1))
    operators = [
        aggregate(wide, key=KEY, aggregates={"x": agg.avg("n")}, table="t"),
        newest_by(wide, key=KEY, rows=SOURCE.schema, table="newest"),
    ]
    other = Topology(name="tests.compared", version="2", sources=[wide], operators=operators, step=lambda _: {})
    both.put(other, t={"x": Decimal(2), "x__sum": Decimal(4), "x__count": 2})
    (diff, _) = both.report().tables

    assert diff.columns_retyped == ("x",) and diff.keys_changed == 0


def test_columns_hidden_now_stay_hidden_in_an_epoch_of_earlier_code(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kappa.verify.diff.hidden_in", lambda paths: {})
    both.put(MEANS, t=mean(4, 2, 7))
    both.put(MEANS, t=mean(6, 3, 8))
    (diff, _) = both.report().tables

    assert diff.is_same and diff.columns_removed == ()


def test_a_reconciled_topic_gets_the_rows_whose_sent_columns_differ(both: Both) -> None:
    both.put(MEANS, t=mean(4, 2, 7))
    both.put(MEANS, t=mean(6, 3, 8))
    was, now = both.frames()
    assert differing(now, was, MEANS.table("t")).count() == 0
    topic = Topic(name="means", of="t", key=KEY, on_replay="reconcile", columns=[KEY, "Mean.n__sum"])
    named = as_sent(replace(MEANS, outputs=[topic]), "t")
    (row,) = differing(now, was, named).collect()
    assert (row["_old"]["Mean.n__sum"], row["_new"]["Mean.n__sum"]) == (4, 6)
