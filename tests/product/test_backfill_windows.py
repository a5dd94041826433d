"""Intervals of event time of windows and joins, computed again and replaced beside a live stream, equal to a replay."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from support.epochs import Lab, lab, read_messages
from support.timed import BEGIN, BOUNDED, DAY, MORE, TimedMixin, split

from kappa import control, serving
from kappa.control import upgrade as upgrading
from kappa.control.backfills import backfill, backfill_plan
from kappa.delta import tables
from kappa.driver.replacements import replacement
from kappa.errors import MoveRefusedError
from kappa.record.events import Event
from kappa.replay.stages import Stage
from kappa.replay.starts import FromSavepoint
from kappa.verify.recount import recount

if TYPE_CHECKING:
    from conftest_spark import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]


class Timed(TimedMixin, Lab):
    """A lab with drivers in this process."""

    def propose(self, first: float, last: float, *outputs: str) -> backfill_plan.Backfill:
        """What a backfill of some days would do."""
        spark: Any = SimpleNamespace(session=self.session)
        begin, end = BEGIN + first * DAY, BEGIN + last * DAY
        return backfill_plan.propose(self.config, spark, self.name, begin, end, outputs or BOUNDED)

    def ask(self, first: float, last: float, *outputs: str) -> Event:
        """Compute a backfill, request it, and wait for its end."""
        proposal = self.propose(first, last, *outputs)
        assert not proposal.refusals, proposal.render()
        spark: Any = SimpleNamespace(session=self.session)
        computed = backfill.compute(self.config, spark, proposal)
        request = backfill.request(self.config, proposal, computed, actor="ada", reason="amounts count twice")
        self.wait(lambda: self.ended(request), "the interval is replaced, or it is withdrawn")
        return request

    def backfill(self, first: float, last: float, *outputs: str) -> Event:
        """The event of a backfill that was made."""
        return backfill.await_replaced(self.config, self.ask(first, last, *outputs))

    def folded_hours(self) -> dict[tuple[str, datetime], int]:
        """The changelog of the table of hours, folded by a plain consumer."""
        hours: dict[tuple[str, datetime], int] = {}
        for message in read_messages(self.config.bootstrap_servers, self.paths(1).changelog("open_hours")):
            key = orjson.loads(message.key())
            at = (key["id"], datetime.fromisoformat(key["window_start"]))
            hours.pop(at, None)
            if message.value() is not None:
                hours[at] = orjson.loads(message.value())["counted"]
        return hours

    def upgrade(self, version: int = 2, **parts: Any) -> None:
        """Give the live epoch other code; history stays."""
        live = self.record().live
        self.deploy(version, **parts)
        proposal = upgrading.propose(self.config, self.name, slices=0)
        upgrading.upgrade(self.config, proposal, history_stands=True, actor="ada", reason="from now on")
        self.running[live][1].join(120)
        assert self.stop(live) == []
        self.run(live)

    def refused(self, first: float, last: float, *outputs: str) -> list[tuple[str, str]]:
        """Code and text of each refusal of a backfill."""
        return [
            (finding.code, f"{finding.message} {finding.remedy}")
            for finding in self.propose(first, last, *outputs).refusals
        ]


class More(Timed):
    """A topology with outputs that no interval bounds."""

    more = MORE


@pytest.fixture
def more(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[More]:
    """Such a live epoch that has read four days, in one slice."""
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), kind=More) as stream:
        stream.deploy(1)
        for number in range(4):
            stream.day(number)
        stream.start_live()
        yield stream


@pytest.fixture
def timed(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Timed]:
    """A live epoch that has read four days, in a slice each."""
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), kind=Timed) as stream:
        stream.deploy(1)
        stream.day(0)
        stream.start_live()
        for number in (1, 2, 3):
            stream.day(number)
            stream.settle(1)
        yield stream


def test_backfilled_windows_and_joins_equal_a_replay_and_no_reader_sees_half(timed: Timed) -> None:
    before = {name: timed.rows(name) for name in BOUNDED}
    timed.upgrade()
    # What lies far before the interval is not read.
    assert (timed.propose(2, 3).since or 0) > 0 and timed.propose(0, 1).since == 0
    halves: list[str] = []
    stop = threading.Event()
    states: set[tuple[str, ...]] = set()

    def read() -> None:
        while not stop.is_set():
            snapshot = serving.snapshot(timed.config, timed.name)
            state = []
            for name in BOUNDED:
                rows = [{k: v for k, v in r.items() if k != "_seq"} for r in snapshot.rows(name).to_pylist()]
                current, _ = split(sorted(rows, key=lambda row: sorted(map(str, row.items()))), name, 2, 3)
                old, _ = split(before[name], name, 2, 3)
                state.append("old" if current == old else "new")
            states.add(tuple(state))
            halves.extend([] if len(set(state)) == 1 else [str(state)])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        event = timed.backfill(2, 3)
    finally:
        stop.set()
        reader.join()
    assert not halves and ("old",) * len(BOUNDED) in states
    assert set(event.detail["outputs"]) == set(BOUNDED)
    # What the table holds is in its changelog too.
    assert timed.folded_hours() == {
        (row["id"], row["window_start"]): row["counted"] for row in timed.rows("open_hours")
    }
    # Some records of the day came after midnight, and some after the grace.
    assert any("late" in row["reason"] or "closed" in row["reason"] for row in timed.rows("late_records"))
    # An earlier interval overlaps in what is read, not in what is replaced; in any order, and again.
    timed.backfill(0, 1)
    assert all(output["same"] for output in timed.backfill(2, 3).detail["outputs"].values())
    after = {name: timed.rows(name) for name in BOUNDED}
    second = timed.plan_replay()
    timed.run(second)
    timed.await_stage(second, Stage.CAUGHT_UP)
    for name in BOUNDED:
        for first, last, is_other in ((0, 1, True), (1, 2, False), (2, 3, True)):
            current, was = (split(rows, name, first, last)[0] for rows in (after[name], before[name]))
            assert current and len(current) == len(was) and (current != was) is is_other, (name, first)
            if is_other:
                assert current == split(timed.rows(name, second), name, first, last)[0], (name, first)
        assert split(after[name], name, 0, 3)[1] == split(before[name], name, 0, 3)[1], name
    certificate = control.certify(timed.config, timed.name)
    assert certificate.complete, certificate.problems
    assert len([line for line in certificate.render() if "computed again" in line]) == 3
    assert timed.stop(1) == []
    assert recount(timed.paths(1)).problems == ()


def test_an_output_that_no_interval_bounds_is_refused_with_a_remedy(more: More) -> None:
    (totals,) = more.refused(1, 2, "totals")
    assert totals[0] == "backfill-cumulative" and "reads table 'balances'" in totals[1] and "kappa replay" in totals[1]
    (visits,) = more.refused(1, 2, "visits")
    assert visits[0] == "backfill-cumulative" and "state of session_window" in visits[1] and "kappa replay" in visits[1]
    (untimed,) = more.refused(1, 2, "untimed")
    assert untimed[0] == "backfill-without-time" and "Append(name='untimed', ..., time=COLUMN)" in untimed[1]
    hour = 1 / 24
    off = more.refused(1 + hour, 2, "hours", "hops")
    assert [code for code, _ in off] == ["backfill-off-grid"]
    assert "within a window of 'hops'" in off[0][1] and "2023-11-15T02:00:00" in off[0][1]
    (still,) = more.refused(3, 4, "hours")
    assert still[0] == "backfill-still-open" and "It has reached 2023-11-17T" in still[1]
    # Rows of one record each need no column: they belong by the offsets of their records.
    assert not more.propose(1, 2, "moves", "late_records").refusals


def test_an_interval_before_the_beginning_of_the_epoch_is_refused(timed: Timed) -> None:
    second = timed.plan_replay(FromSavepoint(seq=timed.ledger(1).state().seq))
    timed.run(second)
    timed.await_stage(second, Stage.VERIFIED)
    control.cut_over(timed.config, timed.name, second, actor="ada", reason="later")
    timed.await_live(second)
    (refusal,) = timed.refused(1, 2, "hours")
    assert refusal[0] == "backfill-state-gone" and "from 2023-11-15 00:00 UTC on" in refusal[1]
    assert "kappa replay" in refusal[1]


def test_intervals_read_with_another_grace_are_refused(timed: Timed) -> None:
    timed.upgrade(2, grace="4 hours")
    (refusal,) = timed.refused(1, 2, "hours")
    assert refusal[0] == "backfill-other-parameters"
    assert "was '3 hours' and is '4 hours'" in refusal[1] and "kappa replay" in refusal[1]


def test_a_column_that_is_not_the_time_of_the_record_is_detected(timed: Timed) -> None:
    proposal = timed.propose(1, 2, "pairs")
    assert proposal.since is not None and proposal.reads
    later = tuple(replace(one, start=one.end - 1) for one in proposal.reads)
    spark: Any = SimpleNamespace(session=timed.session)
    with pytest.raises(MoveRefusedError, match="is not the event time of the record"):
        backfill.compute(timed.config, spark, replace(proposal, reads=later, since=None))


@pytest.fixture
def quick(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Timed]:
    """A live epoch that has read two days in one slice."""
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), kind=Timed) as stream:
        stream.deploy(1)
        stream.day(0)
        stream.day(1)
        stream.start_live()
        yield stream


def test_the_same_code_gives_the_same_rows_and_late_records_keep_their_frontier(quick: Timed) -> None:
    names = ("hours", "open_hours", "pairs", "late_records")
    before = {name: quick.rows(name) for name in names}
    assert all(before.values())
    event = quick.backfill(0, 1, *names)
    same = {name for name, output in event.detail["outputs"].items() if output["same"] and output["rows"]}
    assert same == set(names)
    assert {name: quick.rows(name) for name in names} == before
    assert control.certify(quick.config, quick.name).complete
    # The stream goes on after it, and by what the epoch kept.
    quick.day(2)
    quick.settle(1)
    windows, _ = split(quick.rows("hours"), "hours", 0, 1)
    assert windows == split(before["hours"], "hours", 0, 1)[0]
    assert split(quick.rows("hours"), "hours", 1, 2)[0]


def test_a_replacement_of_windows_that_fails_every_time_is_undone(
    quick: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: quick.rows(name) for name in ("hours", "open_hours")}
    quick.upgrade()
    changes = quick.paths(1).changes("open_hours")

    def fails_afterwards(point: str, seq: int) -> None:
        if point == "backfill.replaced" and tables.is_written(changes, seq):
            raise OSError("disk full")

    monkeypatch.setattr(replacement, "crash_point", fails_afterwards)
    (ended,) = quick.ended(quick.ask(0, 1, "hours", "open_hours"))
    assert ended.event == "backfill_withdrawn" and "disk full" in ended.reason
    assert {name: quick.rows(name) for name in before} == before
    # The stream goes on; neither the output nor the table has a row of it.
    quick.day(2)
    quick.settle(1)
    assert split(quick.rows("hours"), "hours", 0, 1)[0] == split(before["hours"], "hours", 0, 1)[0]
    rows = [row for row in quick.rows("open_hours") if row["window_start"] < BEGIN + DAY]
    assert rows and all(row in before["open_hours"] for row in rows)
    assert quick.stop(1) == []
    assert recount(quick.paths(1)).problems == ()
    assert control.certify(quick.config, quick.name).complete


def test_savepoints_followers_and_comparisons_account_for_a_backfill(quick: Timed) -> None:
    before, seq = quick.rows("hours"), quick.ledger(1).state().seq
    quick.upgrade()
    event = quick.backfill(0, 1, "hours")
    after = quick.rows("hours")
    assert after != before
    # A commit before it has the old rows, the one that it made the new ones.
    old = serving.snapshot(quick.config, quick.name, epoch=1, seq=seq).rows("hours").to_pylist()
    assert sorted(row["counted"] for row in old) == sorted(row["counted"] for row in before)
    second = quick.plan_replay(FromSavepoint(seq=event.detail["seq"]))
    quick.run(second)
    quick.await_stage(second, Stage.VERIFIED)
    report = quick.record().epoch(second).verified.detail["report"]
    assert "Live epoch 1 had hours from 2023-11-14 00:00 UTC to 2023-11-15 00:00 UTC computed again" in report
    assert [row["counted"] for row in quick.rows("hours", second)] == [row["counted"] for row in after]
    control.cut_over(quick.config, quick.name, second, actor="ada", reason="later", keep_old_running=True)
    quick.await_live(second)
    # The old epoch follows what comes now, and readers that go back to it get what was computed again in it.
    quick.day(2)
    quick.settle(second)
    quick.settle(1)
    control.rollback(quick.config, quick.name, actor="ada", reason="back")
    quick.wait(lambda: control.progress(quick.config, quick.name, 1).is_caught_up, "it is there already")
    control.cut_over(quick.config, quick.name, 1, actor="ada", reason="back")
    quick.await_live(1)
    assert split(quick.rows("hours"), "hours", 0, 1)[0] == split(after, "hours", 0, 1)[0]
    certificate = control.certify(quick.config, quick.name)
    assert certificate.complete, certificate.problems
    assert any("hours from 2023-11-14" in line and "computed again" in line for line in certificate.render())


def test_a_longer_grace_closes_no_window_twice_after_an_upgrade_or_a_replay(quick: Timed) -> None:
    late = len(quick.rows("late_records"))
    quick.upgrade(2, factor=1, grace="2 days")
    quick.day(0)  # all of them before the frontier at which the upgrade found the stream
    quick.settle(1)
    assert len(quick.rows("late_records")) > late
    for number in (2, 5):
        quick.day(number)
        quick.settle(1)
    live = {name: quick.rows(name) for name in ("hours", "hops", "pairs", "late_records")}
    for name in ("hours", "hops"):
        windows = [(row["id"], row["window_start"]) for row in live[name]]
        assert len(windows) == len(set(windows)), name
        assert split(live[name], name, 2, 3)[0], "what the new grace has passed is closed"
    # Seeded by the new code with what the old grace had closed, it keeps the same frontiers.
    (upgrade,) = [row for row in quick.ledger(1).state().upgrades if row.detail["floors"]]
    second = quick.plan_replay(FromSavepoint(name=upgrade.detail["savepoint"]))
    quick.run(second)
    quick.await_stage(second, Stage.VERIFIED)
    assert {name: quick.rows(name, second) for name in live} == live
