"""A backfill whose processes are killed: the command that computes it, and, line by line, the driver that replaces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.amounts import BEGIN, DAY, AmountsMixin, Move, doubled
from support.processes import Rig, is_running, rig

from kappa import control, faults
from kappa.control import upgrade
from kappa.record.events import Event
from kappa.verify.recount import recount

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = pytest.mark.e2e

DAYS = 4


class Amounts(AmountsMixin, Rig):
    """A rig with drivers in processes of their own, and the command line."""

    def command(self, first: int, last: int, *words: str, crash: str = "") -> subprocess.CompletedProcess[str]:
        """``kappa backfill`` of some days, to be killed at a point."""
        interval = [
            f"--from={(BEGIN + first * DAY).isoformat()}",
            f"--to={(BEGIN + last * DAY).isoformat()}",
            "--output",
            "moves",
        ]
        environ = {**os.environ, **self.config.to_env(), **({faults.VARIABLE: crash} if crash else {})}
        command = [sys.executable, "-m", "kappa", "backfill", self.name, *interval, *words]
        return subprocess.run(
            command, env=environ, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )

    def request(self, first: int, last: int) -> Event:
        """A backfill that is computed and asked for; no driver runs."""
        result = self.command(first, last, "--execute", "--detach")
        assert result.returncode == 0, result.stdout + result.stderr
        return self.record().epoch(1).backfills[-1]

    def rest(self) -> None:
        """End every driver, also one that comes up; the epoch stays wanted."""
        self.close()
        self.await_end(1)


@pytest.fixture
def amounts(tmp_path: Path, kafka: Broker, topic: TopicFactory) -> Iterator[Amounts]:
    """A live epoch that has read four days by version 1, and goes on by version 2; its driver is at rest."""
    with rig(tmp_path, kafka, topic(partitions=2), kind=Amounts) as machine:
        for number in range(DAYS):
            machine.day(number)
        machine.start_live()
        machine.deploy(2)
        proposal = upgrade.propose(machine.config, machine.name, slices=0)
        upgrade.upgrade(machine.config, proposal, history_stands=True, actor="ada", reason="from now on")
        upgrade.await_switch(machine.config, proposal)
        machine.rest()
        # Whether a driver runs is the test's to say, not the command's.
        machine.config = replace(machine.config, launcher="elsewhere")
        yield machine


def run(machine: Amounts, crash: str = "") -> None:
    """Start the driver, which is to die at a point."""
    config = machine.config
    machine.config = replace(config, launcher="here")
    try:
        machine.run(1, crash)
    finally:
        machine.config = config


def proved(machine: Amounts, expected: list[Move]) -> None:
    """Readers have what they should, and everything on record agrees."""
    assert machine.moves() == expected
    certificate = control.certify(machine.config, machine.name)
    assert certificate.complete, certificate.problems
    assert recount(machine.paths(1)).problems == ()


def test_a_driver_killed_in_a_replacement_leaves_old_or_new_rows(amounts: Amounts) -> None:
    before = amounts.moves()
    for day, point in enumerate(("backfill.plan", "backfill.replaced", "send", "backfill")):
        request = amounts.request(day, day + 1)
        run(amounts, point)
        amounts.await_death(1)
        is_committed = point == "backfill"
        assert amounts.moves() == doubled(before, 0, day + is_committed)
        assert amounts.record().epoch(1).backfills, f"the record knows of it after {point}"
        run(amounts)
        amounts.wait(lambda request=request: amounts.ended(request), "the interval is replaced")
        assert [e.event for e in amounts.ended(request)] == ["backfilled"]
        proved(amounts, doubled(before, 0, day + 1))
        amounts.rest()


def test_a_replacement_that_kills_each_driver_is_undone_and_the_stream_goes_on(amounts: Amounts) -> None:
    before = amounts.moves()
    request = amounts.request(0, 2)
    for _ in range(amounts.config.attempts):
        run(amounts, "backfill.replaced")
        amounts.await_death(1)
        assert amounts.moves() == before
    run(amounts, "backfill.undone")
    amounts.await_death(1)
    assert amounts.moves() == before
    run(amounts)
    amounts.wait(lambda: amounts.ended(request), "it is withdrawn")
    (ended,) = amounts.ended(request)
    assert ended.event == "backfill_withdrawn" and "it failed" in ended.reason
    amounts.day(DAYS)
    amounts.settle(1)
    assert len(amounts.moves()) == 100 * (DAYS + 1)
    proved(amounts, sorted([*before, *(row for row in amounts.moves() if row[1] >= 50 * DAYS)]))


def test_a_driver_frozen_in_a_replacement_replaces_nothing_when_it_wakes(amounts: Amounts) -> None:
    amounts.config = replace(amounts.config, stale_seconds=4.0)
    before = amounts.moves()
    request = amounts.request(0, 1)
    run(amounts, "backfill.plan:stop")
    frozen = amounts.await_death(1)
    amounts.wait(lambda: amounts.status(1).state == "dead", "the heartbeat grows stale")
    run(amounts)
    amounts.wait(lambda: amounts.ended(request), "the interval is replaced")
    amounts.day(DAYS)
    amounts.settle(1)
    commits = len(amounts.ledger(1).state().commits)
    os.kill(frozen, signal.SIGCONT)
    amounts.wait(lambda: not is_running(frozen), "the woken driver stops")
    assert len(amounts.ledger(1).state().commits) == commits
    proved(amounts, sorted([*doubled(before, 0, 1), *(row for row in amounts.moves() if row[1] >= 50 * DAYS)]))


def test_a_killed_backfill_resumes_and_is_requested_only_once(amounts: Amounts) -> None:
    before = amounts.moves()
    killed = amounts.command(0, 2, "--execute", crash="recomputed.slice")
    assert killed.returncode == -9, killed.stdout + killed.stderr
    assert not amounts.record().epoch(1).backfills and amounts.moves() == before
    killed = amounts.command(0, 2, "--execute", "--detach", crash="backfill.asked")
    assert killed.returncode == -9, killed.stdout + killed.stderr
    (request,) = amounts.record().epoch(1).backfills
    assert amounts.request(0, 2).n == request.n
    run(amounts)
    result = amounts.command(0, 2, "--execute")
    assert result.returncode == 0 and "200 rows in the place of 200" in result.stdout, result.stdout + result.stderr
    proved(amounts, doubled(before, 0, 2))
