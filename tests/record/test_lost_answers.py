"""Events whose answer is lost on S3 are on record once: the log knows its own commit by its mark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.s3_options import config_on
from support.s3_proxy import CUT, Proxy

from kappa.delta import append_log
from kappa.errors import LakeUnreachableError
from kappa.names import epochs_log
from kappa.record.epochs import Epochs, Now
from kappa.record.events import Event, EventKind

#: An epoch that may go live.
BUILT: tuple[EventKind, ...] = ("planned", "rewound", "seeded")
#: What comes after it beside a live epoch.
PROOF: tuple[EventKind, ...] = ("replayed", "caught_up", "verified")
LOST: list[tuple[EventKind, int | None]] = [("savepoint", CUT), ("savepoint", 500), ("moved", CUT)]
#: The entry of the record's log after its creation and those of :data:`BUILT`.
NEXT = r"epochs/_delta_log/0{19}4\.json$"


@pytest.fixture
def epochs(proxy: Proxy, tmp_path: Path) -> Epochs:
    """The record of a lake behind the proxy."""
    epochs = Epochs(config_on(proxy.server, tmp_path).lake)
    for kind in BUILT:
        epochs.add("a.b", 1, kind, actor="test", code="c", plan_id="p")
    return epochs


def kinds_of(epochs: Epochs, kind: str) -> int:
    """How many events of a kind are on record, read anew."""
    lake = epochs._log.path.removesuffix("/_kappa/epochs")
    assert epochs_log(lake) == epochs._log.path
    return sum(event.event == kind for event in Epochs(lake).events())


@pytest.mark.parametrize(("kind", "status"), LOST)
def test_an_event_whose_answer_was_lost_is_there_once(
    epochs: Epochs, proxy: Proxy, kind: EventKind, status: int | None
) -> None:
    lost = proxy.lose_answer(NEXT, status=status)
    event = epochs.add("a.b", 1, kind, actor="test", name="sale", seq=7)
    assert lost.answers == [200]
    assert (event.event, kinds_of(epochs, kind)) == (kind, 1)
    epochs.add("a.b", 1, "stop", actor="test")
    assert [one.event for one in epochs.events()][-2:] == [kind, "stop"]


def test_an_approval_whose_answer_was_lost_is_there_once(epochs: Epochs, proxy: Proxy) -> None:
    epochs.add("a.b", 1, "moved", actor="test")
    for kind in (*BUILT, *PROOF):
        epochs.add("a.b", 2, kind, actor="test", code="c", plan_id="p")
    lost = proxy.lose_answer(r"epochs/_delta_log/0{18}11\.json$")
    epochs.add("a.b", 2, "approved", actor="ann")
    assert lost.answers == [200]
    assert kinds_of(epochs, "approved") == 1


def test_a_decision_that_is_repeated_after_an_outage_finds_its_event(epochs: Epochs, proxy: Proxy) -> None:
    def decide(now: Now) -> Sequence[Event]:
        is_there = any(event.event == "savepoint" for event in now.record.events)
        return [] if is_there else [now.event("savepoint", 1, actor="ann", detail={"name": "sale", "seq": 7})]

    proxy.lose_answer(NEXT)
    proxy.refuse(NEXT, "HEAD", "PUT")  # after the commit nothing tells what became of it
    with pytest.raises(LakeUnreachableError):
        epochs.change("a.b", decide)
    proxy.clear()
    assert epochs.change("a.b", decide) == []
    assert kinds_of(epochs, "savepoint") == 1


def test_an_act_is_done_though_the_record_cannot_be_read_after_it(epochs: Epochs, proxy: Proxy) -> None:
    proxy.refuse(r"epochs/_delta_log/0{19}5\.json$", "GET")
    assert epochs.add("a.b", 1, "savepoint", actor="ann", name="sale", seq=7).n == 4
    with pytest.raises(LakeUnreachableError):
        epochs.records(age_seconds=60.0)  # not as it was before the act
    proxy.clear()
    assert kinds_of(epochs, "savepoint") == 1


def test_an_act_is_done_though_no_file_may_be_removed(
    epochs: Epochs, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("COMPACT_AFTER", 3), ("VACUUM_AFTER", 1), ("KEEP_HOURS", 0), ("ABANDONED_HOURS", 0)):
        monkeypatch.setattr(append_log, name, value)
    for method in ("DELETE", "POST"):
        proxy.refuse("", method, status=403)
    for _ in range(4):
        epochs.add("a.b", 1, "savepoint", actor="ann", name="sale", seq=7)
    proxy.clear()
    assert kinds_of(epochs, "savepoint") == 4


def test_an_event_of_another_process_at_that_moment_is_decided_about(epochs: Epochs, proxy: Proxy) -> None:
    """The other one took the number, and the answer to this one's refusal is lost too."""
    other = Epochs(epochs._log.path.removesuffix("/_kappa/epochs"))
    other.events()
    calls: list[int] = []

    def decide(now: Now) -> Sequence[Event]:
        calls.append(len(now.records.events()))
        if len(calls) == 1:
            other.add("a.b", 1, "stop", actor="bob")
        return [now.event("savepoint", 1, actor="ann", detail={"name": "sale", "seq": 7})]

    proxy.lose_answer(NEXT, nth=2)
    epochs.change("a.b", decide)
    assert calls == [3, 4]
    assert [event.event for event in epochs.events()][-2:] == ["stop", "savepoint"]
    assert kinds_of(epochs, "savepoint") == kinds_of(epochs, "stop") == 1
