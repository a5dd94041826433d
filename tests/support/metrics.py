"""A lab whose driver answers Prometheus, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar
from urllib.request import urlopen

import orjson
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from kappa.presence import heartbeat
from support.epochs import Lab

BEGIN = 1_700_000_000_000
OWNER = "team-sums"
SUMS = '''
"""Amounts of each account in windows of ten seconds; each amount counts {factor} times."""

from kappa import Append, Source, Topic, Topology
from kappa.operators import agg, tumbling_window

MOVES = Source(
    topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL, at BIGINT", time="at", grace="5 seconds"
)
SUMS = tumbling_window(
    MOVES, key="id", size="10 seconds", aggregates={{"total": agg.sum("amount")}}, table="open_windows"
)


def step(slice):
    """Sums of the windows that are open, and those of the windows that closed."""
    moves = slice["{topic}"]
    SUMS(slice, moves.withColumn("amount", moves["amount"] * {factor}))
    return {{}}


windows = Topology(
    name="{name}",
    version="{version}",
    owner="team-sums",
    sources=[MOVES],
    operators=[SUMS],
    outputs=[Append(name="sums", of=SUMS.final), Topic(name="{topic}.sums", of="sums", key="id")],
    step=step,
)
'''

#: Name and labels of a series, without those that every one has -> its value.
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class MeasuredLab(Lab):
    """A lab whose topology sums amounts in windows of event time, and whose drivers answer Prometheus."""

    template: ClassVar[str] = SUMS

    def moves(self, partition: int, seconds: Sequence[float], *others: bytes) -> None:
        """A move at each of these seconds of event time, then other records, in one partition.

        Kafka's timestamps are those of the last move: none is ahead of them.
        """
        rows = [orjson.dumps({"id": "a", "amount": 1, "at": BEGIN + round(1000 * second)}) for second in seconds]
        self.produce([*rows, *others], partition=partition, start_ms=BEGIN + round(1000 * max(seconds)))

    def endpoint(self, epoch: int) -> str:
        """Where an epoch's driver answers, by its heartbeat."""
        beat = heartbeat.read(self.paths(epoch).heartbeat)
        assert beat is not None and beat.metrics
        return f"http://{beat.metrics}/metrics"

    def samples(self, epoch: int) -> Samples:
        """What an epoch's driver answers now."""
        return scraped(self.endpoint(epoch), {"topology": self.name, "epoch": str(epoch), "owner": OWNER})


def scraped(endpoint: str, common: Mapping[str, str]) -> Samples:
    """What an endpoint answers; every series has to have the common labels."""
    with urlopen(endpoint, timeout=30) as answer:
        text = answer.read().decode()
    return samples_of(text_string_to_metric_families(text), common)


def samples_of(families: Iterable[Metric], common: Mapping[str, str]) -> Samples:
    """The samples of what a registry holds or an endpoint answered; every series has to have the common labels."""
    samples: Samples = {}
    for family in families:
        for sample in family.samples:
            assert common.items() <= sample.labels.items(), sample
            own = frozenset(item for item in sample.labels.items() if item[0] not in common)
            samples[sample.name, own] = sample.value
    return samples


def value(samples: Samples, name: str, /, **labels: Any) -> float | None:
    """The value of one series."""
    return samples.get((name, frozenset((key, str(word)) for key, word in labels.items())))
