"""Days of windows and pairs computed again beside a live stream, with a reader: by processes that are killed, and by
Airflow.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.airflow_stack import AirflowStack, running
from support.processes import Rig, rig
from support.timed import BEGIN, DAY, TimedMixin, split

from kappa import control, faults, serving
from kappa.control import upgrade
from kappa.record.events import Event
from kappa.replay.stages import Stage
from kappa.verify.recount import recount

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = pytest.mark.e2e

DAYS = 8
OUTPUTS = ("hours", "hops", "pairs")
INTERVALS = ((3, 7), (0, 2), (2, 3))


class Timed(TimedMixin, Rig):
    """A rig with drivers in processes of their own, and the command line."""

    def start_command(self, first: int, last: int, *words: str, crash: str = "") -> subprocess.Popen[str]:
        """``kappa backfill`` of some days, to be killed at a point."""
        interval = [f"--from={(BEGIN + first * DAY).isoformat()}", f"--to={(BEGIN + last * DAY).isoformat()}"]
        outputs = [word for name in (*OUTPUTS, "open_hours") for word in ("--output", name)]
        environ = {**os.environ, **self.config.to_env(), **({faults.VARIABLE: crash} if crash else {})}
        command = [sys.executable, "-m", "kappa", "backfill", self.name, *interval, *outputs, *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environ, stdout=pipe, stderr=subprocess.STDOUT, text=True)

    def command(self, first: int, last: int, *words: str, crash: str = "") -> tuple[int, str]:
        """The same until it ends: exit code and output."""
        process = self.start_command(first, last, *words, crash=crash)
        output, _ = process.communicate()
        return process.returncode, output

    def request(self, first: int, last: int) -> Event:
        """A backfill that is computed and asked for; no driver runs."""
        status, output = self.command(first, last, "--execute", "--detach")
        assert status == 0, output
        return self.record().epoch(1).backfills[-1]

    def drive(self, crash: str = "") -> None:
        """Start the driver, which is to die at a point."""
        config = self.config
        self.config = replace(config, launcher="here")
        try:
            self.run(1, crash)
        finally:
            self.config = config

    @contextmanager
    def reader(self, intervals: Sequence[tuple[int, int]] = INTERVALS) -> Iterator[dict[tuple[int, int], set[str]]]:
        """A reader that polls: per interval the states of all outputs that it saw in one snapshot."""
        states: dict[tuple[int, int], set[str]] = defaultdict(set)
        is_over = threading.Event()

        def poll() -> None:
            while not is_over.is_set():
                snapshot = serving.snapshot(self.config, self.name)
                rows = {name: snapshot.rows(name).to_pylist() for name in OUTPUTS}
                for interval in intervals:
                    states[interval].add(text_of(rows, interval))

        thread = threading.Thread(target=poll)
        thread.start()
        try:
            yield states
        finally:
            is_over.set()
            thread.join()


def text_of(rows: dict[str, list[dict[str, object]]], interval: tuple[int, int]) -> str:
    """Rows of an interval in all outputs, as one text."""
    bare = {
        name: [{column: value for column, value in row.items() if column != "_seq"} for row in table]
        for name, table in rows.items()
    }
    return repr({name: sorted(map(repr, split(table, name, *interval)[0])) for name, table in bare.items()})


@pytest.fixture
def timed(tmp_path: Path, kafka: Broker, topic: TopicFactory) -> Iterator[Timed]:
    """A live epoch that has read eight days by version 1, and goes on by version 2; its driver is at rest."""
    with rig(tmp_path, kafka, topic(partitions=2), kind=Timed) as machine:
        machine.deploy(1)
        machine.day(0)
        machine.start_live()
        for number in range(1, DAYS):
            machine.day(number)
            machine.settle(1)
        machine.deploy(2)
        proposal = upgrade.propose(machine.config, machine.name, slices=0)
        upgrade.upgrade(machine.config, proposal, history_stands=True, actor="ada", reason="from now on")
        upgrade.await_switch(machine.config, proposal)
        machine.close()
        machine.await_end(1)
        # Whether a driver runs is the test's to say, not the command's.
        machine.config = replace(machine.config, launcher="elsewhere")
        yield machine


def test_seven_days_of_windows_and_pairs_equal_a_replay_despite_kills(timed: Timed) -> None:
    before = {name: timed.rows(name) for name in OUTPUTS}
    old = {interval: text_of(before, interval) for interval in INTERVALS}
    with timed.reader() as states:
        status, output = timed.command(3, 7, "--execute", crash="recomputed.slice")
        assert status == -9, output
        request = timed.request(3, 7)
        for point in ("backfill.plan", "backfill.replaced", "send", "backfill"):
            timed.drive(point)
            timed.await_death(1)
        timed.drive()
        timed.wait(lambda: timed.ended(request), "the interval is replaced")
        assert [event.event for event in timed.ended(request)] == ["backfilled"]
        # Two at once, while records come.
        both = [timed.start_command(*interval, "--execute") for interval in INTERVALS[1:]]
        timed.day(DAYS)
        for process in both:
            output, _ = process.communicate()
            assert process.returncode == 0, output
        timed.settle(1)
    after = {name: timed.rows(name) for name in OUTPUTS}
    new = {interval: text_of(after, interval) for interval in INTERVALS}
    assert {interval: texts <= {old[interval], new[interval]} for interval, texts in states.items()} == dict.fromkeys(
        INTERVALS, True
    )
    assert all(old[interval] in states[interval] != {old[interval]} for interval in INTERVALS)
    certificate = control.certify(timed.config, timed.name)
    assert certificate.complete, certificate.problems
    assert recount(timed.paths(1)).problems == ()
    second = timed.plan_replay()
    timed.config = replace(timed.config, launcher="here")
    timed.run(second)
    timed.await_stage(second, Stage.CAUGHT_UP)
    for name in OUTPUTS:
        rows, _ = split(after[name], name, 0, 7)
        assert rows and rows == split(timed.rows(name, second), name, 0, 7)[0], name
    windows = {(row["id"], row["window_start"]): row for row in timed.rows("open_hours", second)}
    for row in timed.rows("open_hours"):
        if row["window_start"] < BEGIN + 7 * DAY:
            assert row == windows[row["id"], row["window_start"]]


@pytest.mark.airflow
@pytest.mark.timeout(1200)
def test_windows_and_pairs_backfilled_by_airflow_equal_a_replay(timed: Timed) -> None:
    days = [(number, number + 1) for number in (3, 4, 5)]
    timed.config = replace(timed.config, launcher="here")
    before = {name: timed.rows(name) for name in OUTPUTS}
    dag = f"backfill__{timed.name}"
    with timed.reader(days) as states, running(AirflowStack(timed.config)) as stack:
        stack.await_dag(dag)
        timed.drive()
        first, last = (f"{BEGIN + number * DAY:%Y-%m-%d}" for number in (3, 5))
        stack.command("backfill", "create", "--dag-id", dag, "--from-date", first, "--to-date", last)
        timed.day(DAYS)  # the stream goes on beside it
        stack.backfilled(dag, 3)
        timed.settle(1)
    after = {name: timed.rows(name) for name in OUTPUTS}
    for day in days:
        old, new = text_of(before, day), text_of(after, day)
        assert old in states[day] != {old} and states[day] <= {old, new}
    certificate = control.certify(timed.config, timed.name)
    assert certificate.complete, certificate.problems
    second = timed.plan_replay()
    timed.await_stage(second, Stage.CAUGHT_UP)
    for name in OUTPUTS:
        rows, _ = split(after[name], name, 3, 6)
        assert rows and rows == split(timed.rows(name, second), name, 3, 6)[0], name
