"""The lag of an answer: known from a recent answer of the broker, or unknown. Never zero by default."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from support.web_site import Site

from kappa import clock
from kappa.errors import BrokerUnreachableError
from kappa.offsets.vector import Offsets
from kappa_web import lake as lakes
from kappa_web.lake import Lake, Staleness, View


class Broker:
    """A broker whose topics have an end, and which may hang."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.ends: dict[str, int] = {}
        self.requests = 0
        self.hangs: dict[str, threading.Event] = {}
        self.began = threading.Semaphore(0)

    def stable_offsets(self, topics: Iterable[str]) -> Offsets:
        self.requests += 1
        names = sorted(topics)
        self.began.release()
        for name in names:
            if name in self.hangs:
                self.hangs[name].wait()
                raise BrokerUnreachableError("it does not answer")
        return Offsets({name: {0: self.ends[name]} for name in names})


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that is advanced."""
    seconds = [1000.0]
    monkeypatch.setattr(lakes, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    return seconds


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(lakes, "Broker", lambda *_, **__: broker)
    return broker


@pytest.fixture
def lake(site: Site, broker: Broker, now: list[float]) -> Lake:
    return Lake(site.config)


def view_at(lake: Lake, topic: str, offset: int, **changes: Any) -> View:
    view = lake.view("sums")
    return replace(view, snapshot=replace(view.snapshot, position=Offsets({topic: {0: offset}})), **changes)


def test_ends_from_hours_ago_do_not_count_as_current(lake: Lake, broker: Broker, now: list[float]) -> None:
    broker.ends["pos"] = 5
    assert lake.staleness(view_at(lake, "pos", 5)) == Staleness(offsets=0, seconds=0.0)
    now[0] += 7200
    broker.hangs["pos"] = threading.Event()
    other = threading.Thread(target=lake.staleness, args=(view_at(lake, "pos", 5),))
    broker.began.acquire()
    other.start()
    broker.began.acquire()  # another request asks, and gets no answer
    try:
        staleness = lake.staleness(view_at(lake, "pos", 5))
        assert staleness.offsets is None and staleness.seconds is not None and staleness.seconds > 0
        later = lake.staleness(view_at(lake, "pos", 9))
        assert later.offsets is None and later.seconds != 0
    finally:
        broker.hangs.pop("pos").set()
        other.join()
    now[0] += 1
    assert lake.staleness(view_at(lake, "pos", 4)).offsets == 1, "it answers again"


def test_a_hanging_topic_does_not_affect_another_one(lake: Lake, broker: Broker) -> None:
    broker.ends |= {"pos": 5, "other": 7}
    broker.hangs["other"] = threading.Event()
    hanging = threading.Thread(target=lake.staleness, args=(view_at(lake, "other", 7),))
    hanging.start()
    broker.began.acquire()
    try:
        assert lake.staleness(view_at(lake, "pos", 3)).offsets == 2
    finally:
        broker.hangs["other"].set()
        hanging.join()


def test_ends_that_a_slice_has_passed_are_requested_again(lake: Lake, broker: Broker) -> None:
    broker.ends["pos"] = 5
    assert lake.staleness(view_at(lake, "pos", 5)).offsets == 0
    broker.ends["pos"] = 9
    assert lake.staleness(view_at(lake, "pos", 8)).offsets == 1
    assert broker.requests == 2
    assert lake.staleness(view_at(lake, "pos", 8)).offsets == 1 and broker.requests == 2, "within a second it is known"


def test_a_position_beyond_the_log_has_no_distance_to_its_end(lake: Lake, broker: Broker) -> None:
    broker.ends["pos"] = 5
    staleness = lake.staleness(view_at(lake, "pos", 8))
    assert staleness.offsets is None and staleness.seconds != 0


def test_a_slice_from_the_future_has_no_age(lake: Lake, broker: Broker) -> None:
    broker.ends["pos"] = 5
    later = clock.now() + timedelta(hours=1)
    assert lake.staleness(view_at(lake, "pos", 3, committed_at=later)) == Staleness(offsets=2, seconds=None)


def test_an_unknown_lag_has_no_header_and_is_null(site: Site) -> None:
    answer = site.get("/tables/sums/sums")  # no broker answers
    assert "Kappa-Stale-Offsets" not in answer.headers and float(answer.headers["Kappa-Stale-Seconds"]) > 0
    assert answer.json()["snapshot"]["stale"]["offsets"] is None
