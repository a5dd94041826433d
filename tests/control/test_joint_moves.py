"""What may be asked of several topologies at once, decided on the record alone: no broker, no JVM."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from support import epoch_record
from support.epoch_record import CODE, FIRST, SECOND, empty_lake, empty_plan, store_code
from typer.testing import CliRunner

from kappa import control, serving
from kappa.cli import app
from kappa.config import Config
from kappa.control import cutover
from kappa.control.removals import removal
from kappa.driver.handovers import joint_handover
from kappa.errors import MoveRefusedError, UnknownTopologyError, UsageError
from kappa.names import EpochPaths, epochs_log
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.presence.liveness import Sign
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState
from kappa.replay.proof.certify import certify

BOTH = {"a.b": 2, "a.c": 2}
AT = {"pos": {"0": 9}}


def tell(config: Config, topology: str, epoch: int, *names: str, **detail: Any) -> None:
    """Put events on record."""
    plan = empty_plan(topology, epoch, Offsets({"pos": {0: 0}}))
    by_event = {
        "planned": {"plan_id": plan.id, "start": plan.start.to_json(), "plan": plan.to_json()},
        "verified": {"verdict": "differs"},
        "moved": {"from": None, "at": AT},
    }
    epoch_record.tell(config, topology, epoch, *names, by_event=by_event, **{"code": CODE, **detail})


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Two topologies, each with live epoch 1 and a verified candidate 2, and their code."""
    config = empty_lake(tmp_path, monkeypatch)
    store_code(config)
    for topology in BOTH:
        tell(config, topology, 1, *FIRST)
        tell(config, topology, 2, *SECOND)
    return config


def record(config: Config, topology: str) -> TopologyRecord:
    return Epochs(config.lake).record(topology)


def events(config: Config) -> list[Event]:
    return Epochs(config.lake).events()


def cut_over(config: Config, members: dict[str, int] | None = None, **how: Any) -> None:
    cutover.cut_over_together(config, members or BOTH, **{"actor": "ada", "reason": "together", **how})


def commits(config: Config) -> int:
    """How many commits the record of epochs has had."""
    return DeltaTable(epochs_log(config.lake)).version()


def handover(config: Config, topology: str) -> Event:
    event = record(config, topology).handover
    assert event is not None
    return event


def refused(config: Config, **how: Any) -> str:
    """Why a cutover is refused; nothing is on record of it."""
    before = len(events(config))
    with pytest.raises(MoveRefusedError) as error:
        cut_over(config, **how)
    assert len(events(config)) == before
    return str(error.value)


def test_a_handover_for_each_is_appended_in_one_commit_with_the_names_of_all(config: Config) -> None:
    before, version = len(events(config)), commits(config)
    cut_over(config, keep_old_running=True)
    one, two = handover(config, "a.b"), handover(config, "a.c")
    assert (one.n, two.n) == (before + 1, before + 2) and commits(config) == version + 1
    assert one.at == two.at and one.detail["group"] == two.detail["group"]
    for event in (one, two):
        assert event.detail["together"] == BOTH and event.detail["from"] == 1 and event.detail["keep_old_running"]
        assert (event.actor, event.reason) == ("ada", "together")
    cut_over(config, reason="again")
    assert [e.event for e in events(config)].count("handover") == 2


def test_who_waits_for_one_learns_that_its_handover_was_withdrawn(config: Config) -> None:
    control.cut_over(config, "a.b", 2, actor="ada", reason="alone")
    assert not cutover.is_live(config, {"a.b": 2})
    Epochs(config.lake).add("a.b", 2, "withdrawn", actor="driver", reason="epoch 2 did not take over within 120 s")
    with pytest.raises(MoveRefusedError, match=r"a\.b is not moved: .* withdrawn by driver .* did not take over"):
        cutover.is_live(config, {"a.b": 2})
    control.cut_over(config, "a.b", 2, actor="ada", reason="again")
    assert not cutover.is_live(config, {"a.b": 2})


def test_epochs_that_were_stopped_are_to_run_for_their_handover(config: Config) -> None:
    for topology, epoch in (("a.b", 1), ("a.c", 2)):
        control.stop(config, topology, epoch=epoch, actor="eve", reason="night")
    cut_over(config)
    assert all(record(config, topology).epoch(epoch).is_wanted for topology in BOTH for epoch in (1, 2))
    control.stop(config, "a.b", epoch=2, actor="eve", reason="again")
    cut_over(config)
    assert record(config, "a.b").epoch(2).is_wanted


def test_the_end_of_another_epoch_is_not_that_of_the_handover(config: Config) -> None:
    tell(config, "a.b", 3, *SECOND, "rejected")
    cut_over(config)
    tell(config, "a.b", 3, "aborted")
    assert record(config, "a.b").handover is not None and not cutover.is_live(config, BOTH)
    tell(config, "a.b", 2, "aborted", actor="eve")
    with pytest.raises(MoveRefusedError, match=r"'a\.b' epoch 2 aborted by eve"):
        cutover.is_live(config, BOTH)


def test_a_member_that_may_not_move_refuses_all_with_its_reasons_and_changes_nothing(config: Config) -> None:
    tell(config, "a.c", 2, "aborted")
    tell(config, "a.c", 3, *SECOND[:-1])
    tell(config, "a.d", 1, *FIRST)
    tell(config, "a.d", 2, *SECOND)
    control.cut_over(config, "a.d", 2, actor="bob", reason="alone")
    message = refused(config, members={"a.b": 2, "a.c": 3, "a.d": 2}, replaces={"a.b": 7})
    assert "nothing was changed" in message
    assert "The live epoch of 'a.b' is 1, 7 was expected" in message
    assert "epoch 3 of 'a.c' is CAUGHT_UP" in message
    assert "bob asked at" in message and "to hand 'a.d' over to epoch 2" in message


def test_a_failed_verdict_is_accepted_by_topology_with_the_reason_on_record(config: Config) -> None:
    tell(config, "a.c", 2, "aborted")
    tell(config, "a.c", 3, *SECOND, verdict="failed")
    members = {"a.b": 2, "a.c": 3}
    assert "--accept-verdict a.c" in refused(config, members=members)
    assert "--accept-verdict a.c" in refused(config, members=members, accept_verdict=["a.b"])
    with pytest.raises(UsageError, match="give --reason"):
        cut_over(config, members, accept_verdict=["a.c"], reason=" ")
    with pytest.raises(UsageError, match=r"names a\.x"):
        cut_over(config, members, accept_verdict=["a.x"])
    cut_over(config, members, accept_verdict=["a.c"], reason="duplicates")
    assert handover(config, "a.c").detail["accepted_verdict"] == "failed"
    assert "accepted_verdict" not in handover(config, "a.b").detail


def test_an_epoch_whose_code_is_gone_refuses_the_cutover(config: Config) -> None:
    tell(config, "a.c", 1, "upgraded", code="gone", version="1")
    assert "Code gone is not in the lake" in refused(config)
    tell(config, "a.c", 1, "upgraded", code=CODE, version="1")
    cut_over(config)


def test_while_the_group_waits_no_member_moves_by_itself_and_who_asked_is_named(config: Config) -> None:
    tell(config, "a.d", 1, *FIRST)
    tell(config, "a.d", 2, *SECOND)
    cut_over(config)
    before = len(events(config))
    for ask in (
        lambda: control.cut_over(config, "a.b", 2, actor="bob", reason="alone"),
        lambda: control.rollback(config, "a.b", actor="bob", reason="back"),
        lambda: cutover.recall_together(config, {"a.b": None, "a.c": None}, actor="bob", reason="back"),
        lambda: cut_over(config, {**BOTH, "a.d": 2}, actor="bob"),
        lambda: cut_over(config, {"a.b": 2, "a.d": 2}, actor="bob"),
    ):
        with pytest.raises(MoveRefusedError, match=r"ada asked at \d\d:\d\d:\d\d .* together with a\.c epoch 2"):
            ask()
    assert len(events(config)) == before


def test_to_abort_one_withdraws_all_in_the_same_commit_and_says_by_whom(config: Config) -> None:
    cut_over(config)
    before = commits(config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(removal.ownership, "is_ours", lambda *_: False)  # there is no broker that has anything of it
        control.abort(config, "a.b", 2, actor="eve", reason="wrong")
    assert commits(config) == before + 1
    assert [(e.topology, e.event) for e in events(config)[-2:]] == [("a.c", "withdrawn"), ("a.b", "aborted")]
    assert record(config, "a.b").handover is None and record(config, "a.c").handover is None
    assert record(config, "a.c").candidate is not None
    with pytest.raises(MoveRefusedError, match="aborted by eve at"):
        cutover.is_live(config, BOTH)


def test_where_all_yield_is_decided_once_all_old_epochs_stand_and_stays(config: Config) -> None:
    cut_over(config)
    one, two = (joint_handover.Group(config=config, epochs=Epochs(config.lake)) for _ in range(2))
    first, second = Offsets({"pos": {0: 5, 1: 9}}), Offsets({"pos": {0: 7, 1: 8}})
    assert one.meet(handover(config, "a.b"), first) is None
    assert one.meet(handover(config, "a.b"), first) is None
    meeting = Offsets({"pos": {0: 7, 1: 9}})
    assert two.meet(handover(config, "a.c"), second) == meeting
    assert one.meet(handover(config, "a.b"), meeting) == meeting  # also when it has come there, and told it anew
    assert one.meet(handover(config, "a.b"), first, is_stuck=True) == first
    assert [e.event for e in events(config)].count("standing") == 2
    standing = record(config, "a.b").standing
    assert standing is not None and standing.epoch == 1 and standing.detail["at"] == first.as_dict()

    two.withdraw(handover(config, "a.c"), "too late")
    assert record(config, "a.b").standing is None and record(config, "a.c").handover is None
    cut_over(config)
    assert record(config, "a.b").standing is None  # that of the handover before does not count
    assert one.meet(handover(config, "a.b"), second) is None


def test_a_handover_of_one_topology_yields_where_it_is(config: Config) -> None:
    control.cut_over(config, "a.b", 2, actor="ada", reason="alone")
    one = joint_handover.Group(config=config, epochs=Epochs(config.lake))
    position = Offsets({"pos": {0: 5}})
    assert one.meet(handover(config, "a.b"), position) == position
    assert events(config)[-1].event == "handover"


def in_place(config: Config, topology: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers in which the old epoch has yielded and the new one stands there with a baseline; a driver that beats."""
    ranges = (OffsetRange(topic="pos", partition=0, start=0, end=9),)
    for epoch in (1, 2):
        ledger = Ledger(EpochPaths(lake=config.lake, topology=topology, epoch=epoch).ledger)
        ledger.create()
        ledger.claim("w", CODE, LedgerState())
        n = handover(config, topology).n
        last = {"kind": "yield", "detail": {"handover": n}} if epoch == 1 else {"kind": "baseline"}
        at = events(config)[-1].at
        ledger.append(LedgerRow(kind="commit", seq=0, writer="w", at=at, ranges=ranges))
        ledger.append(LedgerRow(seq=0, writer="w", at=at, **last))  # type: ignore[arg-type]
    joint_handover.Group(config=config, epochs=Epochs(config.lake)).meet(
        handover(config, topology), Offsets({"pos": {0: 9}})
    )

    monkeypatch.setattr(joint_handover.liveness, "look", lambda *_: Sign(beat=None, state="alive"))
    good = certify("a.b", (), {})
    complete = type(good)(**{**vars(good), "complete": True, "problems": ()})
    monkeypatch.setattr(joint_handover, "certificate_of", lambda *_, **__: complete)
    monkeypatch.setattr(joint_handover, "attested", lambda certificate, *_: certificate)  # there is no Kafka here


def test_nobody_moves_before_all_are_in_place_and_then_one_commit_moves_all(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_over(config, keep_old_running=True)
    one, two = (joint_handover.Group(config=config, epochs=Epochs(config.lake)) for _ in range(2))
    first = handover(config, "a.b")
    assert not one.move(first)
    in_place(config, "a.b", monkeypatch)
    assert not one.move(first)
    assert "live epoch 1 of 'a.c' has not come to a stand" in one.missing(first)
    in_place(config, "a.c", monkeypatch)
    assert one.missing(first) == ""
    before, version = len(events(config)), commits(config)
    assert one.move(first)
    assert commits(config) == version + 1
    assert two.move(first)  # its driver was slower: it finds it done
    moved = events(config)[before:]
    assert [(e.topology, e.event, e.epoch) for e in moved] == [("a.b", "moved", 2), ("a.c", "moved", 2)]
    for event in moved:
        assert event.detail["together"] == BOTH and event.detail["from"] == 1 and event.detail["at"] == AT
        assert event.detail["yielded"] == AT
        assert event.detail["keep_old_running"] and json.loads(event.detail["certificate"])["complete"]
    assert cutover.is_live(config, BOTH)


@pytest.mark.parametrize("is_dropped", [False, True])
@pytest.mark.parametrize(("place", "is_in_place"), [(6, False), (7, True)])
def test_an_epoch_is_in_place_once_it_has_read_what_an_epoch_before_the_live_one_sent(
    config: Config, monkeypatch: pytest.MonkeyPatch, place: int, is_in_place: bool, is_dropped: bool
) -> None:
    def moves(epoch: int, **detail: Any) -> None:
        epoch_record.tell(config, "a.d", epoch, "moved", by_event={"moved": detail})

    tell(config, "a.d", 1, *FIRST[:-1])
    moves(1, **{"from": None, "at": {"pos": {"0": 0}, "more": {"0": 0}}})
    tell(config, "a.d", 2, *SECOND)
    control.cut_over(config, "a.d", 2, actor="ada", reason="reads one topic less")
    first = handover(config, "a.d").n
    yielded = {"yielded": {"pos": {"0": 5}, "more": {"0": 7}}} if is_dropped else {}  # rows of earlier code lack it
    moves(2, **{"from": 1, "at": {"pos": {"0": 5}}, "handover": first, **yielded})
    if is_dropped:
        tell(config, "a.d", 1, "dropped")
    tell(config, "a.d", 3, *SECOND)
    control.cut_over(config, "a.d", 3, actor="ada", reason="reads both")
    second = handover(config, "a.d")
    stands = {1: {"pos": 5, "more": 7}, 2: {"pos": 9}, 3: {"pos": 9, "more": place}}
    for epoch, offsets in stands.items():
        ledger = Ledger(EpochPaths(lake=config.lake, topology="a.d", epoch=epoch).ledger)
        ledger.create()
        ledger.claim("w", CODE, LedgerState())
        ranges = tuple(OffsetRange(topic=topic, partition=0, start=0, end=end) for topic, end in offsets.items())
        ledger.append(LedgerRow(kind="commit", seq=0, writer="w", at=second.at, ranges=ranges))
        if epoch == 3:
            ledger.append(LedgerRow(kind="baseline", seq=0, writer="w", at=second.at))
            continue
        detail = {"handover": {1: first, 2: second.n}[epoch], "at": ledger.begun().standing.as_dict()}
        ledger.append(LedgerRow(kind="yield", seq=0, writer="w", at=second.at, detail=detail))
    monkeypatch.setattr(joint_handover.liveness, "look", lambda *_: Sign(beat=None, state="alive"))
    missing = joint_handover.Group(config=config, epochs=Epochs(config.lake)).missing(second)
    expected = "" if is_in_place else "epoch 3 of 'a.d' is not where epoch 2 yielded and those before it stopped"
    assert missing == expected


def test_an_incomplete_certificate_of_one_withdraws_all(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_over(config)
    for topology in BOTH:
        in_place(config, topology, monkeypatch)
    none = certify("a.b", (), {})
    problems = (*none.problems, *(f"orders[{partition}] 0..9: no epoch has sent it." for partition in range(1_000)))
    bad = replace(none, problems=problems)
    monkeypatch.setattr(joint_handover, "certificate_of", lambda lake, record, **_: bad)
    one = joint_handover.Group(config=config, epochs=Epochs(config.lake))
    assert not one.move(handover(config, "a.b"))
    assert [e.event for e in events(config)[-2:]] == ["withdrawn", "withdrawn"]
    reason = events(config)[-1].reason
    assert "a certificate is not complete: a.b: No epoch was ever live" in reason and reason.endswith("1,999 more")
    assert {record(config, name).live for name in BOTH} == {1}


@pytest.mark.parametrize("is_aborted", [True, False])
def test_a_move_finds_out_at_its_commit_that_the_group_was_ended_meanwhile(
    config: Config, monkeypatch: pytest.MonkeyPatch, is_aborted: bool
) -> None:
    cut_over(config)
    for topology in BOTH:
        in_place(config, topology, monkeypatch)
    event = handover(config, "a.b")
    one, two = (joint_handover.Group(config=config, epochs=Epochs(config.lake)) for _ in range(2))

    def meanwhile(_: str) -> None:
        monkeypatch.setattr(joint_handover, "crash_point", lambda *_: None)
        if is_aborted:
            monkeypatch.setattr(removal.ownership, "is_ours", lambda *_: False)  # there is no broker
            control.abort(config, "a.c", 2, actor="eve", reason="wrong")
        else:
            assert two.move(event)

    monkeypatch.setattr(joint_handover, "crash_point", meanwhile)
    if is_aborted:
        with pytest.raises(MoveRefusedError, match=r"'a\.c' epoch 2 aborted by eve at \d\d:\d\d:\d\d: wrong"):
            one.move(event)
        assert {record(config, name).live for name in BOTH} == {1}
    else:
        assert one.move(event)
        assert [e.event for e in events(config)].count("moved") == 4


def test_epochs_come_back_together_or_not_at_all(config: Config) -> None:
    before = len(events(config))
    with pytest.raises(MoveRefusedError) as error:
        cutover.recall_together(config, dict.fromkeys(BOTH), actor="ada", reason="back")
    assert "Epoch 2 of 'a.b' is being built" in str(error.value) and "'a.c'" in str(error.value)
    assert len(events(config)) == before
    for topology in BOTH:
        tell(config, topology, 2, "moved", **{"from": 1})
    assert cutover.recall_together(config, dict.fromkeys(BOTH), actor="ada", reason="back") == {"a.b": 1, "a.c": 1}
    assert [e.event for e in events(config)[-2:]] == ["recalled", "recalled"]
    assert cutover.recall_together(config, dict.fromkeys(BOTH), actor="ada", reason="again") == {"a.b": 1, "a.c": 1}
    assert len(events(config)) == before + 4
    assert "is RETIRED: it can take over once it is CAUGHT_UP again" in refused(config, members={"a.b": 1, "a.c": 1})


def test_several_are_resolved_by_one_read_of_the_record(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_over(config)
    for topology in BOTH:
        in_place(config, topology, monkeypatch)
    event = handover(config, "a.b")

    def meanwhile(path: str) -> Ledger:
        joint_handover.Group(config=config, epochs=Epochs(config.lake)).move(event)
        return Ledger(path)

    monkeypatch.setattr(serving, "Ledger", meanwhile)
    snapshots = serving.snapshots(config, BOTH)
    assert {name: one.epoch for name, one in snapshots.items()} == {"a.b": 1, "a.c": 1}
    assert {name: one.epoch for name, one in serving.snapshots(config, BOTH).items()} == BOTH
    with pytest.raises(UnknownTopologyError, match="has no live epoch"):
        serving.snapshots(config, ["a.b", "a.x"])


def kappa(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def test_the_command_line_says_what_it_would_do_and_refuses_names_that_make_no_sense(config: Config) -> None:
    both = "hand over a.b from epoch 1 to epoch 2 and hand over a.c from epoch 1 to epoch 2, all in one commit"
    assert both in kappa("cutover", "a.b", "a.c").output
    assert "To do it: kappa cutover a.b a.c --execute" in kappa("cutover", "a.b", "a.c").output
    assert "hand over a.b from epoch 1 to epoch 2." in kappa("cutover", "a.b").output
    assert "Abort it first: kappa abort a.b 2" in str(kappa("rollback", "a.b", "a.c").exception)
    for words, message in (
        (("cutover", "a.b", "a.b"), "a.b is named twice"),
        (("cutover", "a.b", "a.c", "--epoch", "2"), "--epoch 2 belongs to one topology, but 2 are named"),
        (("rollback", "a.b", "a.c", "--to", "1"), "--to 1 belongs to one topology"),
        (("cutover", "a.b", "--accept-verdict", "a.x"), "--accept-verdict names a.x, but the cutover is of a.b"),
    ):
        answer = kappa(*words)
        assert isinstance(answer.exception, UsageError) and message in str(answer.exception)


def test_status_history_and_certificate_show_what_belongs_together(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(config, "a.d", 1, *FIRST)
    cut_over(config)
    assert control.status(config, "a.b").moving_with == {"a.c": 2}
    assert control.status(config, "a.b").moved_with == control.status(config, "a.d").moving_with == {}
    for topology in BOTH:
        in_place(config, topology, monkeypatch)
    assert joint_handover.Group(config=config, epochs=Epochs(config.lake)).move(handover(config, "a.b"))
    assert control.status(config, "a.b").moving_with == {}
    assert control.status(config, "a.b").moved_with == {"a.c": 2}
    back = (
        "bring back epoch 1 of a.b to be live again and bring back epoch 1 of a.c to be live again, all in one commit"
    )
    assert back in kappa("rollback", "a.b", "a.c").output
    assert "a.b went live together with a.c epoch 2; a topology that is not named" in kappa("rollback", "a.b").output
    assert "went live together" not in kappa("rollback", "a.b", "a.c").output
    assert "went live together" not in kappa("rollback", "a.d").output
    by_event = {(e.topology, e.event): e for e in control.chronicle(config) if e.epoch == 2}
    assert by_event["a.b", "moved"].together == by_event["a.b", "handover"].together == {"a.c": 2}
    assert by_event["a.c", "moved"].together == {"a.b": 2} and by_event["a.b", "verified"].together == {}
    shown = kappa("history", "a.b").output.splitlines()
    assert shown[0].endswith("reason    together with")
    assert [line.endswith("a.c epoch 2") for line in shown if " moved " in line] == [False, True]
    assert "together with" not in kappa("history", "a.d").output
    monkeypatch.undo()
    from kappa.verify.certificate import certificate_of

    notes = certificate_of(config.lake, record(config, "a.b")).notes
    assert len(notes) == 1 and notes[0].endswith("together with a.c epoch 2, in one commit.")
