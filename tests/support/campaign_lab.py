"""Cases of the campaign on a real broker: what drivers, archive and backfill make of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from confluent_kafka import Producer

from kappa import serving
from kappa.archive.writer import Archiver
from kappa.archive.writer import run as run_archivers
from kappa.control.backfills import backfill, backfill_plan
from kappa.delta import queries
from support.campaign import Case, write_file
from support.epochs import Lab, plain_settings

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@dataclass(kw_only=True)
class CampaignLab(Lab):
    """A topology of several cases, each with a topic of its own."""

    cases: Sequence[Case] = field(default_factory=list)

    def deploy_cases(self, cases: Sequence[Case]) -> None:
        """Deploy the cases, and make their topics; each has one partition, so that a place is an offset."""
        self.cases = [replace(case, topic=f"{self.topic}.{case.topic}") for case in cases]
        write_file(self.config.topologies, self.cases, self.name)
        for case in self.cases:
            self.kafka.create_topic(case.topic, 1, {"retention.ms": "-1"})

    @property
    def topics(self) -> list[str]:
        """Their topics."""
        return [case.topic for case in self.cases]

    def send(self, first: float, last: float) -> None:
        """Send a part of the records of each case, by its share of the whole; all lie within one day."""
        producer = Producer({**plain_settings(self.config.bootstrap_servers), "linger.ms": 60_000})
        for case in self.cases:
            count = len(case.records)
            for place in range(round(first * count), round(last * count)):
                at = int(BEGIN.timestamp() * 1000) + 1_000 * place
                producer.produce(case.topic, value=case.records[place].value, timestamp=at, partition=0)
        assert producer.flush(30) == 0

    def sent_of(self, case: Case) -> list[dict[str, Any]]:
        """What an independent consumer reads of a case's output topic."""
        return [json.loads(value) for value in self.values_of(f"{case.topic}.rows")]

    def archive_topics(self) -> None:
        """Archive all of them up to their stable ends."""
        for topic in self.topics:
            with Archiver(self.config, topic, session=self.session) as archiver:
                run_archivers([archiver])

    def backfill_all(self, live: int) -> dict[str, Any]:
        """Compute the whole day of every output again, and replace it; what the event says of each output."""
        spark: Any = SimpleNamespace(session=self.session)
        outputs = tuple(f"rows_{number}" for number in range(len(self.cases)))
        proposal = backfill_plan.propose(self.config, spark, self.name, BEGIN, BEGIN + DAY, outputs)
        computed = backfill.compute(self.config, spark, proposal)
        event = backfill.request(self.config, proposal, computed, actor="ada", reason="again")
        self.wait(
            lambda: any(
                row.detail.get("backfill", {}).get("n") == event.n for row in self.ledger(live).state().commits
            ),
            "the interval is replaced",
        )
        done = backfill.await_replaced(self.config, event)
        return dict(done.detail["outputs"])

    def seen(self, epoch: int) -> Seen:
        """What an epoch has."""
        return Seen(lab=self, epoch=epoch)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What an epoch has, as :func:`support.campaign.hold` asks for it."""

    lab: CampaignLab
    epoch: int

    @property
    def dead_letters(self) -> list[dict[str, Any]]:
        """Where they come from."""
        rows = queries.query(self.lab.paths(self.epoch).dead_letters, None).to_pylist()
        return [{f"_{name}": row[name] for name in ("topic", "partition", "offset")} for row in rows]

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Rows of a table; of an append output with the place of the record that they come from."""
        snapshot = serving.snapshot(self.lab.config, self.lab.name, epoch=self.epoch)
        return list(snapshot.rows(name).to_pylist())

    rows_in_order = rows
