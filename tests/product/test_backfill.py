"""An interval computed again and replaced in a live epoch: readers, the ledger, the certificate, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs
from support.amounts import BEGIN, DAY, AmountsMixin, doubled
from support.epochs import Lab, lab

from kappa import control, serving
from kappa.control import set_aside_listings, setting_aside
from kappa.control import upgrade as upgrading
from kappa.control.backfills import backfill, backfill_plan
from kappa.delta import tables
from kappa.driver.replacements import replacement
from kappa.errors import DataLossError, DriverNotRunningError, MoveRefusedError, RefusedError, TopologyError, UsageError
from kappa.offsets.vector import joins
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.replay.catalogue import ALLOWABLE
from kappa.replay.stages import Stage
from kappa.replay.starts import ToDatetime
from kappa.verify.recount import recount
from kappa.verify.topic_recount import recount_topics

if TYPE_CHECKING:
    from conftest_spark import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]


class Amounts(AmountsMixin, Lab):
    """A lab with drivers in this process."""

    def propose(self, first: int, last: int, *outputs: str) -> backfill_plan.Backfill:
        """What a backfill of some days would do."""
        spark: Any = SimpleNamespace(session=self.session)
        return backfill_plan.propose(
            self.config, spark, self.name, BEGIN + first * DAY, BEGIN + last * DAY, outputs or ("moves",)
        )

    def ask(self, proposal: backfill_plan.Backfill) -> Event:
        """Compute a backfill and request it."""
        spark: Any = SimpleNamespace(session=self.session)
        computed = backfill.compute(self.config, spark, proposal)
        return backfill.request(self.config, proposal, computed, actor="ada", reason="amounts count twice")

    def backfill(self, first: int, last: int) -> Event:
        """The event of a backfill that was made."""
        request = self.ask(self.propose(first, last))
        ended = self.wait(lambda: self.ended(request), "the interval is replaced")
        return backfill.await_replaced(self.config, ended and request)

    def upgrade(self) -> None:
        """Give the live epoch version 2, by which amounts count twice; history stays."""
        live = self.record().live
        self.deploy(2)
        proposal = upgrading.propose(self.config, self.name, slices=0)
        upgrading.upgrade(self.config, proposal, history_stands=True, actor="ada", reason="from now on")
        self.running[live][1].join(120)
        assert self.stop(live) == []
        self.run(live)


@pytest.fixture
def amounts(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Amounts]:
    """A live epoch that has read three days."""
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), kind=Amounts) as stream:
        stream.deploy(1)
        for number in range(3):
            stream.day(number)
        stream.start_live()
        yield stream


def test_a_backfill_replaces_only_the_rows_of_its_interval(amounts: Amounts) -> None:
    before, sent = amounts.moves(), sorted(amounts.sent())
    amounts.upgrade()
    event = amounts.backfill(1, 2)
    assert amounts.moves() == doubled(before, 1, 2) != before
    replaced = event.detail["outputs"]["moves"] | {"version": 0}
    assert replaced == {"version": 0, "computed": 100, "rows": 100, "before": 100, "same": False}
    assert sorted(amounts.sent()) == sent
    # The stream goes on after it, and by the same code.
    amounts.day(3)
    amounts.settle(event.epoch)
    assert [n for p, o, _, n in amounts.moves() if p == 0 and o >= 150] == [2 * n for n in range(50)]
    state = amounts.ledger(event.epoch).state()
    assert all(joins(a.ranges, b.ranges) for a, b in zip(state.commits, state.commits[1:], strict=False))
    (row,) = [row for row in state.commits if "backfill" in row.detail]
    assert (row.seq, row.rows_read, row.detail["backfill"]["offsets"]) == (event.detail["seq"], 0, 100)
    assert not Path(amounts.paths(event.epoch).recomputed(row.detail["backfill"]["folder"]).lake).exists()


def test_a_commit_before_the_replacement_has_the_old_rows(amounts: Amounts) -> None:
    before, seq = amounts.moves(), amounts.ledger(1).state().seq
    amounts.upgrade()
    amounts.backfill(0, 3)
    rows = serving.snapshot(amounts.config, amounts.name, epoch=1, seq=seq).rows("moves").to_pylist()
    assert sorted((r["_partition"], r["_offset"], r["id"], r["counted"]) for r in rows) == before
    assert amounts.moves() == doubled(before, 0, 3)


def test_the_certificate_names_the_interval_and_a_recount_agrees(amounts: Amounts) -> None:
    amounts.upgrade()
    event = amounts.backfill(1, 2)
    certificate = control.certify(amounts.config, amounts.name)
    assert certificate.complete, certificate.problems
    (text,) = [line for line in certificate.render() if "computed again" in line]
    assert "moves from 2023-11-15 00:00 UTC to 2023-11-16 00:00 UTC" in text and "ada" in text
    assert f"slice {event.detail['seq']}" in text
    assert amounts.stop(1) == []
    for report in (recount(amounts.paths(1)), recount_topics(amounts.config, amounts.paths(1), amounts.kafka)):
        assert report.problems == ()
    entries = {e.event: e.interval for e in control.chronicle(amounts.config, amounts.name) if e.interval}
    interval = "moves from 2023-11-15 00:00 UTC to 2023-11-16 00:00 UTC"
    assert entries == {"backfill": interval, "backfilled": interval}


def half_removed(amounts: Amounts, backfilled: Event) -> None:
    """Leave what a driver leaves that is killed while it removes the folder of a backfill."""
    request = next(e for e in Epochs(amounts.config.lake).events() if e.n == backfilled.detail["backfill"])
    ledger = Ledger(amounts.paths(request.epoch).recomputed(request.detail["folder"]).ledger)
    assert not ledger.exists()
    ledger.create()
    ledger.claim(request.detail["writer"], request.detail["code"], ledger.state())
    for file in Path(ledger.path).glob("*.parquet"):
        file.unlink()


def test_the_same_interval_twice_gives_the_same_rows(amounts: Amounts) -> None:
    amounts.upgrade()
    first, rows = amounts.backfill(0, 2), amounts.moves()
    half_removed(amounts, first)
    again = amounts.backfill(0, 2)
    assert again.n != first.n and again.detail["outputs"]["moves"]["same"]
    assert amounts.moves() == rows


def test_all_intervals_backfilled_equal_a_replay(amounts: Amounts) -> None:
    amounts.upgrade()
    for number in (2, 0, 1):
        amounts.backfill(number, number + 1)
    rows = amounts.moves()
    second = amounts.plan_replay()
    amounts.run(second)
    amounts.await_stage(second, Stage.VERIFIED)
    replayed = serving.snapshot(amounts.config, amounts.name, epoch=second).rows("moves").to_pylist()
    assert sorted((r["_partition"], r["_offset"], r["id"], r["counted"]) for r in replayed) == rows


def test_a_driver_that_starts_later_carries_out_the_backfill(amounts: Amounts) -> None:
    before = amounts.moves()
    amounts.upgrade()
    assert amounts.stop(1) == []
    request = amounts.ask(amounts.propose(2, 3))
    assert amounts.moves() == before
    assert amounts.ask(amounts.propose(2, 3)).n == request.n  # asked for once
    amounts.run(1)
    amounts.wait(lambda: amounts.ended(request), "the interval is replaced")
    assert amounts.moves() == doubled(before, 2, 3)


def test_a_backfill_computed_with_other_code_is_withdrawn(amounts: Amounts) -> None:
    before = amounts.moves()
    assert amounts.stop(1) == []
    request = amounts.ask(amounts.propose(0, 1))
    amounts.deploy(2)
    proposal = upgrading.propose(amounts.config, amounts.name, slices=0)
    upgrading.upgrade(amounts.config, proposal, history_stands=True, actor="ada", reason="from now on")
    amounts.run(1)
    amounts.running[1][1].join(120)
    assert amounts.stop(1) == []
    amounts.run(1)
    amounts.wait(lambda: amounts.ended(request), "it is withdrawn")
    with pytest.raises(MoveRefusedError, match="was withdrawn: It was computed with code"):
        backfill.await_replaced(amounts.config, request)
    assert amounts.moves() == before
    assert amounts.ledger(1).state().open_plan is None


def test_a_replacement_that_keeps_failing_is_undone_and_the_stream_goes_on(
    amounts: Amounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = amounts.moves()
    amounts.upgrade()
    real = tables.replace_where
    tried: list[str] = []

    def fails_afterwards(path: str, *rest: Any) -> None:
        real(path, *rest)
        tried.append(path)
        raise OSError("disk full")

    monkeypatch.setattr(tables, "replace_where", fails_afterwards)
    request = amounts.ask(amounts.propose(0, 3))
    amounts.wait(lambda: amounts.ended(request), "it is withdrawn")
    (ended,) = amounts.ended(request)
    assert ended.event == "backfill_withdrawn" and "disk full" in ended.reason
    assert len(tried) == amounts.config.attempts
    assert amounts.moves() == before
    amounts.day(3)
    amounts.settle(1)
    assert len(amounts.moves()) == 400
    assert amounts.stop(1) == []
    assert recount(amounts.paths(1)).problems == ()
    certificate = control.certify(amounts.config, amounts.name)
    assert certificate.complete and not any("computed again" in line for line in certificate.render())


def test_a_sent_replacement_that_cannot_be_finished_makes_the_epoch_stuck(
    amounts: Amounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = amounts.moves()
    amounts.upgrade()
    with monkeypatch.context() as patch:

        def no_commit(*_: Any) -> None:
            raise OSError("the ledger's disk is broken")

        patch.setattr(replacement, "commit_slice", no_commit)
        request = amounts.ask(amounts.propose(0, 1))
        amounts.wait(lambda: [e for e in amounts.record().events if e.event == "stuck"], "it is given up")
        (stuck,) = [e for e in amounts.record().events if e.event == "stuck"]
        assert "the ledger's disk is broken" in stuck.reason
        plan = amounts.ledger(1).state().open_plan
        assert plan is not None and plan.seq == stuck.detail["seq"] and not amounts.ended(request)
        with pytest.raises(DriverNotRunningError, match=f"stuck at slice {plan.seq}: .*disk is broken.*kappa start"):
            backfill.await_replaced(amounts.config, request)
    # The decision to try again finishes it: what was sent stays.
    Epochs(amounts.config.lake).add(amounts.name, 1, "start", actor="ada", reason="the disk is whole")
    amounts.wait(lambda: amounts.ended(request), "it is finished")
    assert amounts.moves() == doubled(before, 0, 1)
    assert amounts.ledger(1).state().open_plan is None


def test_running_totals_are_refused_and_nothing_is_changed(amounts: Amounts) -> None:
    events = Epochs(amounts.config.lake).events()
    proposal = amounts.propose(0, 1, "moves", "totals")
    (finding,) = proposal.refusals
    assert finding.code == "backfill-cumulative"
    assert "reads table 'balances'" in finding.message and "window" in finding.message
    assert f"kappa replay {amounts.name}" in finding.remedy
    spark: Any = SimpleNamespace(session=amounts.session)
    with pytest.raises(RefusedError, match="computed record by record"):
        backfill.compute(amounts.config, spark, proposal)
    assert Epochs(amounts.config.lake).events() == events


class OwnSession:
    """A lazily started session that is the tests' own, which has to stay."""

    def __init__(self, amounts: Amounts) -> None:
        self.config, self.session = amounts.config, amounts.session

    def __call__(self, **_: Any) -> OwnSession:
        return self

    def __enter__(self) -> OwnSession:
        return self

    def __exit__(self, *_: object) -> None: ...


def task(amounts: Amounts, monkeypatch: pytest.MonkeyPatch, day: int, **form: Any) -> Callable[[], dict[str, Any]]:
    """The task of the run of a day."""
    from kappa_airflow.backfill import BackfillInterval
    from kappa_airflow.forms import backfill_form

    monkeypatch.setattr("kappa.spark.session.LazySession", OwnSession(amounts))
    monkeypatch.setattr("kappa_airflow.tasks.config_with_spark", lambda _: amounts.config)
    run = SimpleNamespace(triggering_user_name="ann", conf=form)
    context: Any = {
        "dag": SimpleNamespace(params=backfill_form()),
        "data_interval_start": BEGIN + day * DAY,
        "data_interval_end": BEGIN + (day + 1) * DAY,
        "dag_run": run,
        "run_id": "run-1",
        "params": {"outputs": [], "reason": None, **form},
    }
    return lambda: BackfillInterval(task_id="backfill", topology=amounts.name).execute(context)


def test_the_task_of_a_run_logs_its_steps_and_returns_the_replaced_outputs(
    amounts: Amounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    before = amounts.moves()
    amounts.upgrade()
    # Both outputs are meant, and one of them is of running totals.
    with (
        capture_logs() as logs,
        pytest.raises(AirflowFailException, match=r"is refused; nothing was changed. Rows of 'totals'"),
    ):
        task(amounts, monkeypatch, 1)()
    messages = [(entry["log_level"], entry["event"] % entry.get("positional_args", ())) for entry in logs]
    assert any(level == "warning" and "REFUSED" in text and "kappa replay" in text for level, text in messages)
    assert amounts.moves() == before and not amounts.record().epoch(1).backfills

    with pytest.raises(AirflowFailException, match=r"no field 'output'. Did you mean 'outputs'"):
        task(amounts, monkeypatch, 1, output=["moves"])()
    with capture_logs() as logs:
        result = task(amounts, monkeypatch, 1, outputs=["moves"])()
    assert result["outputs"] == {"moves": {"rows": 100, "before": 100, "same": False}} and result["epoch"] == 1
    assert amounts.moves() == doubled(before, 1, 2)
    text = "\n".join(entry["event"] % entry.get("positional_args", ()) for entry in logs)
    for words in (
        "Backfill of",
        "computed 100 of 100 offsets",
        "comparing with the live epoch",
        "the live epoch has 100 others",
        "waiting for the turn of epoch 1",
        "moves: 100 rows in the place of 100, which were others",
    ):
        assert words in text
    (event,) = amounts.record().epoch(1).backfilled
    assert (event.actor, event.reason) == ("airflow:ann", "run run-1")


def test_a_step_that_needs_rows_is_refused(amounts: Amounts, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise IndexError("no rows")

    monkeypatch.setattr(backfill_plan, "dependencies", fails)
    (finding,) = amounts.propose(0, 1).refusals
    assert finding.code == "backfill-not-inspected" and "IndexError: no rows" in finding.message


def test_a_row_that_fails_the_check_ends_a_backfill_and_changes_nothing(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    required = Amounts.template.replace('"id STRING NOT NULL, counted BIGINT"', '"id STRING, counted BIGINT NOT NULL"')
    monkeypatch.setattr(Amounts, "template", required)
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), kind=Amounts) as amounts:
        amounts.deploy(1)
        amounts.day(0)
        amounts.start_live()
        before = amounts.moves()
        # One row of the day loses a required value.
        amounts.deploy(2, factor="IF(_partition = 0 AND _offset = 3, NULL, 2)")
        proposal = upgrading.propose(amounts.config, amounts.name, slices=0)
        upgrading.upgrade(amounts.config, proposal, history_stands=True, actor="ada", reason="from now on")
        amounts.running[1][1].join(120)
        assert amounts.stop(1) == []
        amounts.run(1)

        with pytest.raises(TopologyError, match=r"1 of .* rows have null in column 'counted'") as refused:
            amounts.ask(amounts.propose(0, 1))

        assert refused.value.data["place"] == (amounts.topic, 0, 3)
        assert amounts.moves() == before
        assert [event for event in amounts.record().events if event.event.startswith("backfill")] == []


def test_records_before_the_epoch_are_refused(amounts: Amounts) -> None:
    second = amounts.plan_replay(ToDatetime(at=BEGIN + DAY), allow=ALLOWABLE)
    amounts.run(second)
    amounts.await_stage(second, Stage.VERIFIED)
    control.cut_over(amounts.config, amounts.name, second, actor="ada", reason="later")
    amounts.await_live(second)
    (finding,) = amounts.propose(0, 2).refusals
    assert finding.code == "backfill-before-epoch" and "begins at 50" in finding.message
    assert not amounts.propose(1, 2).refusals


def test_an_unknown_output_or_an_inverted_interval_is_refused(amounts: Amounts) -> None:
    assert [finding.code for finding in amounts.propose(0, 1, "balances").refusals] == ["backfill-unknown-output"]
    with pytest.raises(UsageError, match="which is not after"):
        amounts.propose(1, 1)


def test_an_interval_without_records_replaces_nothing(amounts: Amounts) -> None:
    before = amounts.moves()
    proposal = amounts.propose(-5, -4)
    assert not proposal.refusals and proposal.offsets == 0
    assert "no record" in "\n".join(proposal.render())
    amounts.backfill(-5, -4)
    assert amounts.moves() == before


def test_the_end_of_the_log_is_left_to_the_live_epoch(amounts: Amounts) -> None:
    assert amounts.stop(1) == []
    amounts.day(3)
    proposal = amounts.propose(2, 5)
    assert [finding.code for finding in proposal.findings] == ["backfill-sends-nothing", "backfill-not-final"]
    assert proposal.offsets == 100


def test_an_interval_whose_records_were_removed_by_retention_is_refused(amounts: Amounts) -> None:
    before = amounts.moves()
    amounts.upgrade()
    amounts.delete_before({0: 70, 1: 70})
    (finding,) = amounts.propose(0, 2).refusals
    assert finding.code == "backfill-records-gone" and "from offset 70 on" in finding.message
    assert not amounts.propose(2, 3).refusals
    assert amounts.moves() == before


def test_an_archive_gives_the_records_that_kafka_no_longer_has(amounts: Amounts) -> None:
    before = amounts.moves()
    amounts.upgrade()
    assert amounts.archive() == 300
    amounts.delete_before({0: 70, 1: 120})
    proposal = amounts.propose(0, 2)
    assert not proposal.refusals
    assert [(r.partition, r.start, r.end) for r in proposal.archived] == [(0, 0, 70), (1, 0, 100)]
    amounts.backfill(0, 2)
    assert amounts.moves() == doubled(before, 0, 2)


def test_an_interval_over_a_gap_between_archive_and_log_is_refused(amounts: Amounts) -> None:
    assert amounts.archive() == 300
    amounts.day(3)
    amounts.wait(lambda: len(amounts.moves()) == 400, "the fourth day is read")
    amounts.delete_before({0: 120, 1: 180})  # of partition 1 the offsets 150 to 180 are in neither
    (finding,) = amounts.propose(1, 4).refusals
    assert (finding.code, finding.numbers["partition"], finding.numbers["first"]) == ("backfill-records-gone", 1, 180)
    assert not amounts.propose(1, 2).refusals
    live = amounts.record().live
    assert live is not None and amounts.stop(live) == []
    amounts.kafka.delete_topics([amounts.topic])
    subject = setting_aside.subject(amounts.config, amounts.name, None, None, 0)
    for look in (lambda: amounts.propose(1, 2), lambda: set_aside_listings.named(amounts.config, subject, [200])):
        with pytest.raises(DataLossError, match="do not create the topic again"):
            look()
