"""Each shipped topology on a real broker: live, computed again by the same code, and moved to by changed code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from support.epochs import Lab, lab
from support.topologies import FOLDER, renamed

from kappa import control
from kappa.replay.stages import Stage
from kappa.testing import MASK_KEY
from kappa.topology import registry
from kappa_local import generator
from kappa_local.draws import Stream
from kappa_local.invoices import Invoices

if TYPE_CHECKING:
    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

RECORDS = 240


@dataclass(frozen=True, kw_only=True)
class Case:
    """A topology and what its topics get.

    Attributes:
        name: the topology.
        scenarios: of the generator, one for each source.
        order: what of it follows the order in which records of several partitions came.
    """

    name: str
    scenarios: Sequence[str]
    order: Sequence[str] = field(default=())


CASES = [
    Case(name="customers.cache", scenarios=["customers"]),
    Case(name="inventory.stock", scenarios=["inventory"]),
    Case(name="logs.browser_windows", scenarios=["logs"]),
    Case(name="logs.captcha", scenarios=["logs", "captcha"], order=["total order over two topics"]),
    Case(name="logs.page_counts", scenarios=["page-views"]),
    Case(name="movies.ratings", scenarios=["movies"]),
    Case(name="music.charts", scenarios=["music"]),
    Case(name="retail.revenue", scenarios=["retail"]),
    Case(name="stocks.latest", scenarios=["stocks"]),
    Case(name="stocks.stats", scenarios=["stocks"]),
    Case(name="text.word_count", scenarios=["text"]),
]


@contextmanager
def deployed(case: Case, base: Path, kafka: Broker, topic: str, session: object) -> Iterator[tuple[Lab, list[str]]]:
    """A lab with version 1 of a topology whose topics are its own; and those of its sources."""
    with lab(base / "lab", kafka, session, topic, mask_key=MASK_KEY) as made:  # type: ignore[arg-type]
        made.name = f"{case.name}_{re.sub('[^a-z0-9]', '_', topic.lower())}"
        write(case, made, "versions")
        found = registry.load(made.config.topologies, made.name)
        topics = [source.topic for source in found.sources]
        for name in topics:
            kafka.create_topic(name, 2, generator.TOPIC_CONFIG, exists_ok=True)
        yield made, topics


def write(case: Case, stream: Lab, folder: str = "") -> None:
    """The file of a version, with names of its own for topology and topics."""
    declared = registry.load(FOLDER / folder, case.name)
    topics = {*(source.topic for source in declared.sources), *(topic.name for topic in declared.topics)}
    names = {case.name: stream.name, **{name: f"{stream.topic}.{name}" for name in topics}}
    (stream.config.topologies / "one.py").write_text(renamed(case.name, names, folder))


def produce(case: Case, stream: Lab, topics: Sequence[str], start: int, stop: int) -> None:
    """Records of the case's scenarios, some out of order, some bad."""
    producer = Producer({"bootstrap.servers": stream.config.bootstrap_servers, "partitioner": "murmur2_random"})
    for scenario, topic in zip(case.scenarios, topics, strict=True):
        course = {"bad_share": 0.02, "out_of_order": 0.1, "lateness": timedelta(seconds=3)}
        chosen = generator.SCENARIOS[scenario]
        made = Invoices(**course) if chosen.make is None else Stream(make=chosen.make, is_text=chosen.is_text, **course)  # type: ignore[arg-type]
        for key, value, time in made.records(start, stop):
            producer.produce(topic, value, key, timestamp=time)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_topology_is_replayed_compared_and_moved_to_its_second_version(
    case: Case, tmp_path: Path, kafka: Broker, topic: object, spark: object
) -> None:
    with deployed(case, tmp_path, kafka, topic(partitions=2), spark) as (stream, topics):  # type: ignore[operator]
        produce(case, stream, topics, 0, RECORDS)
        first = stream.start()
        stream.await_live(first)
        stream.settle(first, topics)
        produce(case, stream, topics, RECORDS, 2 * RECORDS)
        stream.settle(first, topics)

        again = stream.plan_replay(slice_records=300)
        stream.run(again)
        stream.await_stage(again, Stage.VERIFIED)
        report = control.diff(stream.config, stream.name, again)
        assert report.verdict == "same" or case.order, report.render()
        assert stream.stop(again) == []
        control.abort(stream.config, stream.name, again, actor="test", reason="compared")

        write(case, stream)
        second = stream.plan_replay(slice_records=300, allow=("reader-schema-changed",))
        stream.run(second)
        stream.await_stage(second, Stage.VERIFIED)
        assert control.diff(stream.config, stream.name, second).verdict == "differs"
        control.cut_over(stream.config, stream.name, second, actor="test", reason="v2")
        stream.await_live(second)
        certificate = control.certify(stream.config, stream.name)
        assert certificate.complete, certificate.problems
        assert certificate.rows_read == 2 * RECORDS * len(topics)
        assert certificate.rows_dead > 0 or case.scenarios == ["text"]
