"""Publications to S3 whose commit comes late, whose answer is lost, or whose connection is cut.

Deaths on S3 are in test_published_paths.py, where those on a disk are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.path_readers import rows_of
from support.published_sales import S3Sales, expected, prove
from support.s3_lake import entries, s3_rig
from support.s3_proxy import CUT, Fault, Proxy
from support.s3_server import S3Server

from kappa import control
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1400)]

NAMES = ("moves", "balances")
#: What happens to the request of a commit, and what the server answers to it.
FAULTS: dict[str, tuple[Callable[[Proxy, str], Fault], list[int | None]]] = {
    "an answer lost, status 500": (lambda proxy, key: proxy.lose_answer(key, status=500), [200]),
    "an answer lost, cut": (lambda proxy, key: proxy.lose_answer(key, status=CUT), [200]),
    "a connection cut before": (lambda proxy, key: proxy.refuse(key, "PUT", status=CUT, times=1), []),
    "status 503": (lambda proxy, key: proxy.refuse(key, "PUT", status=503, times=1), []),
    "status 409": (lambda proxy, key: proxy.refuse(key, "PUT", status=409, times=1), []),
}


@pytest.fixture
def machine(tmp_path: Path, kafka: Broker, topic: TopicFactory, s3: S3Server, proxy: Proxy) -> Iterator[S3Sales]:
    """A live epoch on S3 that publishes all the time."""
    settings = {"publish_seconds": 0.2, "merge_seconds": 0.0, "slice_records": 1_000}
    with s3_rig(tmp_path / "rig", kafka, topic(partitions=2), s3, proxy, kind=S3Sales, **settings) as machine:
        machine.day(-1)
        machine.await_published(machine.start_live(), *NAMES)
        yield machine


def commits(machine: S3Sales, name: str) -> str:
    """A pattern of the keys of a published table's commits."""
    return entries(machine.published(name))


def test_a_publication_whose_answer_is_lost_or_whose_connection_is_cut_is_there_once(
    machine: S3Sales, proxy: Proxy, case: Callable[[str, str], None]
) -> None:
    driver = machine.beat(1).pid
    for number, (name, (inject, answers)) in enumerate(FAULTS.items()):
        faults = [inject(proxy, commits(machine, table)) for table in NAMES]
        machine.day(number)
        machine.await_published(1, *NAMES)
        for fault in faults:
            fault.await_arrival()
            assert fault.answers == answers, name
            case("S3 fault", f"{name}: a publication")
    assert machine.beat(1).pid == driver
    for table in NAMES:
        source_versions = [entry.source_version for entry in prove(machine, table, [1])]
        assert len(source_versions) == len(set(source_versions))


def test_a_publication_that_comes_late_is_refused(
    machine: S3Sales, proxy: Proxy, case: Callable[[str, str], None]
) -> None:
    held = proxy.hold(commits(machine, "moves"))
    machine.day(0)
    machine.await_published(1, *NAMES)  # the driver does not wait for its first request
    held.release()
    held.await_answer()
    assert held.answers == [412]
    case("S3 fault", "held: a publication of a driver that lives")

    of_dead = proxy.hold(commits(machine, "moves"))
    machine.day(1)
    of_dead.await_arrival(seconds=60)
    machine.kill(1)
    machine.run(1)
    machine.await_published(1, *NAMES)
    machine.deploy(2)
    second = machine.plan_replay()
    machine.await_stage(second, Stage.VERIFIED)
    of_successor = proxy.hold(commits(machine, "moves"))
    control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
    of_successor.await_arrival(seconds=60)
    assert machine.record().live == second
    machine.kill(second)
    machine.run(second)
    machine.await_published(second, *NAMES)
    before = rows_of(machine.published("moves"))
    for held in (of_dead, of_successor):
        held.release()
        held.await_answer()
        assert held.answers == [412]
    case("S3 fault", "held: publications of dead drivers, before and after a cutover")
    assert rows_of(machine.published("moves")) == before
    machine.day(2)
    machine.await_published(second, *NAMES)
    for table in NAMES:
        entry = prove(machine, table, [1, second])[-1]
        assert entry.offsets is not None
        assert rows_of(machine.published(table)) == expected(table, second, entry.offsets, machine.history())
