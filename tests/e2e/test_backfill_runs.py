"""Backfills by Airflow's command line over real drivers: seven days, twice; triggerer and scheduler die midway."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from support.airflow_stack import AirflowStack, running, wait_for
from support.processes import Rig, rig

from kappa import control, serving
from kappa.control import upgrade
from kappa.replay.stages import Stage
from kappa_local.generators.invoices import Invoices

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.e2e, pytest.mark.airflow]

PATIENCE = 900
VERSION_1 = Path(__file__).parents[2] / "include" / "topologies" / "versions" / "retail_loyalty_v1.py"
FIRST, DAYS = datetime(2026, 11, 1, tzinfo=UTC), 8
#: Ten days of invoices; of those the first seven are backfilled.
INVOICES = Invoices(seed=7, bad_share=0.02, out_of_order=0.1, start_time=FIRST, time_step=timedelta(minutes=3))
A_DAY = 480


class Loyalty(Rig):
    """Loyalty points, version 1 of the shop's own code, at two or three percent."""

    def deploy(self, version: int, factor: int | str | None = None) -> None:
        """The shop's file, under names of this test; version 2 gives three percent."""
        text = (
            VERSION_1.read_text()
            .replace('"pos"', f'"{self.topic}"')
            .replace('name="loyalty"', f'name="{self.topic}.points"')
        )
        text = text.replace('name="retail.loyalty"', f'name="{self.name}"').replace(
            'version="1"', f'version="{version}"'
        )
        (self.config.topologies / "loyalty.py").write_text(text.replace("0.02", f"0.0{version + 1}"))

    def invoices(self, first: int, last: int) -> None:
        """Invoices of some days."""
        producer = Producer({"bootstrap.servers": self.config.bootstrap_servers, "partitioner": "murmur2_random"})
        for key, value, timestamp_ms in INVOICES.records(first * A_DAY, last * A_DAY):
            producer.produce(self.topic, key=key, value=value, timestamp=timestamp_ms)
        assert producer.flush(60) == 0

    def points(self, epoch: int | None = None) -> list[tuple[int, int, Decimal, datetime]]:
        """Notifications as a reader has them: partition, offset, share of the amount, time of the record."""
        rows = serving.snapshot(self.config, self.name, epoch=epoch).rows("notifications").to_pylist()
        return sorted(
            (
                r["_partition"],
                r["_offset"],
                (r["EarnedLoyaltyPoints"] / r["TotalAmount"]).normalize(),
                r["_order_timestamp"],
            )
            for r in rows
        )

    @contextmanager
    def reader(self) -> Iterator[list[str]]:
        """A reader that polls; complaints about half replaced intervals, and errors."""
        complaints: list[str] = []
        is_over = threading.Event()

        def poll() -> None:
            try:
                while not is_over.wait(0.3):
                    shares = Counter((at.date(), share) for *_, share, at in self.points())
                    torn = {day for day, _ in shares if (day, TWO) in shares and (day, THREE) in shares}
                    complaints.extend(f"{day} is half replaced" for day in torn)
            except Exception as error:
                complaints.append(repr(error))

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        try:
            yield complaints
        finally:
            is_over.set()
            thread.join(60)
            assert not thread.is_alive()


TWO, THREE = Decimal("0.02"), Decimal("0.03")


def test_seven_days_backfilled_twice_equal_a_replay(tmp_path: Path, kafka: Broker, topic: TopicFactory) -> None:
    with rig(tmp_path, kafka, topic(partitions=2), kind=Loyalty) as machine:
        machine.invoices(0, DAYS)
        first = machine.start_live()
        machine.deploy(2)
        proposal = upgrade.propose(machine.config, machine.name, slices=0)
        upgrade.upgrade(machine.config, proposal, history_stands=True, actor="ada", reason="three percent from now on")
        upgrade.await_switch(machine.config, proposal)
        assert {share for *_, share, _ in machine.points()} == {TWO}

        dag = f"backfill__{machine.name}"
        words = [
            "backfill",
            "create",
            "--dag-id",
            dag,
            "--from-date",
            f"{FIRST:%Y-%m-%d}",
            "--to-date",
            f"{FIRST + timedelta(days=6):%Y-%m-%d}",
            "--reprocess-behavior",
            "completed",
            "--max-active-runs",
            "3",
        ]
        with running(AirflowStack(machine.config)) as stack, machine.reader() as complaints:
            stack.await_dag(dag)
            assert stack.runs(dag) == []  # the scheduler makes none

            stack.command(*words)
            wait_for(lambda: machine.record().epoch(first).backfilled, PATIENCE, "a day is replaced")
            for component in ("triggerer", "scheduler"):
                stack.kill(component)
            for component in ("scheduler", "triggerer"):
                stack.start_component(component)
            machine.invoices(DAYS, DAYS + 1)  # the stream goes on beside it
            stack.backfilled(dag, 7)
            machine.settle(first)
            once = machine.points()
            last = FIRST + timedelta(days=7)
            assert {share for *_, share, at in once if at < last} == {THREE}
            assert {share for *_, share, at in once if last <= at < last + timedelta(days=1)} == {TWO}
            assert {share for *_, share, at in once if at >= FIRST + timedelta(days=8)} == {THREE}

            count = len(machine.record().epoch(first).backfilled)
            wait_for(lambda: is_complete(stack, dag), PATIENCE, "Airflow takes the backfill for complete")
            stack.command(*words)
            wait_for(lambda: len(machine.record().epoch(first).backfilled) >= count + 7, PATIENCE, "all days once more")
            runs = stack.backfilled(dag, 7)
            assert machine.points() == once
            log = stack.task_log(dag, runs[0]["dag_run_id"], "backfill")
            assert "the same as the live epoch has" in log and "offsets" in log
            assert len(runs) == 7
        assert complaints == []

        assert control.certify(machine.config, machine.name).complete
        second = machine.plan_replay()
        machine.await_stage(second, Stage.VERIFIED)
        replayed = machine.points(second)
        assert [row for row in replayed if row[3] < last] == [row for row in once if row[3] < last]
        report = control.diff(machine.config, machine.name, second)
        assert report.verdict == "differs"  # by the eighth day, which was left as it was


def is_complete(stack: AirflowStack, dag: str) -> bool:
    """Whether Airflow would create another backfill; the scheduler looks every half minute."""
    return all(one["completed_at"] for one in stack.call("GET", f"/backfills?dag_id={dag}")["backfills"])
