"""Each shipped topology on a real broker: live, computed again by the same code, and moved to by changed code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from support.epochs import Lab, lab
from support.topologies import FOLDER, renamed

from kappa import control
from kappa.errors import RefusedError
from kappa.replay.stages import Stage
from kappa.testing import MASK_KEY
from kappa.topology import registry
from kappa_local.generators import generator
from kappa_local.generators.draws import Stream
from kappa_local.generators.invoices import Invoices

if TYPE_CHECKING:
    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

RECORDS = 240
#: Topic -> the scenario that makes its records.
SCENARIOS = {scenario.topic: scenario for scenario in generator.SCENARIOS.values()}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A topology of which both versions run.

    Attributes:
        name: the topology.
        upstream: the topology that it reads, which runs in its second version all the time.
    """

    name: str
    upstream: str | None = None


CASES = [
    Case(name="customers.cache"),
    Case(name="inventory.enriched", upstream="inventory.orders"),
    Case(name="inventory.matched"),
    Case(name="inventory.orders"),
    Case(name="inventory.stock"),
    Case(name="logs.browser_windows"),
    Case(name="logs.captcha"),
    Case(name="logs.page_counts"),
    Case(name="movies.ratings"),
    Case(name="music.charts"),
    Case(name="retail.loyalty"),
    Case(name="retail.revenue"),
    Case(name="retail.shipments"),
    Case(name="retail.trends"),
    Case(name="stocks.latest"),
    Case(name="stocks.stats"),
    Case(name="text.word_count"),
]


@contextmanager
def deployed(case: Case, base: Path, kafka: Broker, topic: str, session: object) -> Iterator[tuple[Lab, list[str]]]:
    """A lab with version 1 of a topology, whose topics are its own and are there; and the topics that get records."""
    with lab(base / "lab", kafka, session, topic, mask_key=MASK_KEY) as stream, ExitStack() as stack:  # type: ignore[arg-type]
        stream.name = own_name(case.name, stream)
        roots = write(case, stream, "versions")
        if case.upstream is not None:
            upstream = replace(stream, name=own_name(case.upstream, stream), running={})
            stack.callback(upstream.close)
            roots += write(Case(name=case.upstream), upstream)
        for name in roots:
            kafka.create_topic(f"{topic}.{name}", 2, generator.TOPIC_CONFIG, exists_ok=True)
        if case.upstream is not None:
            upstream.await_live(upstream.start())
        yield stream, roots


def own_name(name: str, stream: Lab) -> str:
    """A topology's name in a lab."""
    return f"{name}_{re.sub('[^a-z0-9]', '_', stream.topic.lower())}"


def write(case: Case, stream: Lab, folder: str = "") -> list[str]:
    """The file of a version, with names of its own for topologies and topics; the topics that no topology makes."""
    declared = registry.load(FOLDER / folder, case.name)
    topics = {*(source.topic for source in declared.sources), *(topic.name for topic in declared.topics)}
    names = {name: own_name(name, stream) for name in (case.name, case.upstream) if name is not None}
    text = renamed(case.name, names, {name: f"{stream.topic}.{name}" for name in topics}, folder)
    (stream.config.topologies / f"{case.name.replace('.', '_')}.py").write_text(text)
    return [source.topic for source in declared.sources if source.of is None]


def produce(stream: Lab, roots: Sequence[str], start: int, stop: int) -> None:
    """Records of the scenarios of these topics, some out of order, some bad."""
    producer = Producer({"bootstrap.servers": stream.config.bootstrap_servers, "partitioner": "murmur2_random"})
    for topic in roots:
        scenario = SCENARIOS[topic]
        step = scenario.time_step
        course = {"bad_share": 0.02, "out_of_order": 0.1, "time_step": step, "lateness": 30 * step}
        source = (
            Invoices(**course)
            if scenario.make is None
            else Stream(make=scenario.make, is_text=scenario.is_text, **course)
        )  # type: ignore[arg-type]
        for key, value, time in source.records(start, stop):
            producer.produce(f"{stream.topic}.{topic}", value, key, timestamp=time)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_topology_is_replayed_compared_and_moved_to_its_second_version(
    case: Case, tmp_path: Path, kafka: Broker, topic: object, spark: object
) -> None:
    with deployed(case, tmp_path, kafka, topic(partitions=2), spark) as (stream, roots):  # type: ignore[operator]
        topics = [f"{stream.topic}.{name}" for name in roots]
        produce(stream, roots, 0, RECORDS)
        first = stream.start()
        stream.await_live(first)
        stream.settle(first, topics)
        produce(stream, roots, RECORDS, 2 * RECORDS)
        stream.settle(first, topics)

        again = stream.plan_replay(slice_records=300)
        stream.run(again)
        stream.await_stage(again, Stage.VERIFIED)
        report = control.diff(stream.config, stream.name, again)
        assert report.verdict == "same", report.render()
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
        if case.upstream is None:
            assert certificate.rows_read == 2 * RECORDS * len(roots)
        else:
            assert certificate.rows_read > 2 * RECORDS
        assert certificate.rows_dead > 0 or roots == ["lines"]


def test_every_shipped_topology_that_can_be_replayed_has_a_case() -> None:
    shipped = [registry.load(FOLDER, declaration.name) for declaration in registry.declared(FOLDER)]
    on_the_clock = {topology.name for topology in shipped if any(source.is_wall_clock for source in topology.sources)}
    assert {topology.name for topology in shipped} - on_the_clock == {case.name for case in CASES}


def test_a_topology_on_the_wall_clock_runs_and_its_replay_is_refused(
    tmp_path: Path, kafka: Broker, topic: object, spark: object
) -> None:
    case = Case(name="logs.browser_windows_now")
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2)) as stream:  # type: ignore[arg-type, operator]
        stream.name = own_name(case.name, stream)
        roots = write(case, stream)
        topics = [f"{stream.topic}.{name}" for name in roots]
        for name in topics:
            kafka.create_topic(name, 2, generator.TOPIC_CONFIG, exists_ok=True)
        produce(stream, roots, 0, RECORDS)
        first = stream.start()
        stream.await_live(first)
        stream.settle(first, topics)
        certificate = control.certify(stream.config, stream.name)
        assert certificate.complete and certificate.rows_read == RECORDS and certificate.rows_late == 0
        with pytest.raises(RefusedError, match="is the wall clock"):
            stream.plan_replay()
