"""Topologies that read each other, decided on the record and the ledgers alone: no broker, no JVM."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support import epoch_record
from support.epoch_record import CODE, FIRST, SECOND, empty_lake, empty_plan, store_code

from kappa import clock, control
from kappa.config import Config
from kappa.control import approval, cutover
from kappa.control.removals import removal
from kappa.driver.handovers import joint_handover
from kappa.driver.upstreams import Upstreams
from kappa.errors import MoveRefusedError, RefusedError
from kappa.names import EpochPaths, code_file
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.presence.liveness import Sign
from kappa.record.chains import check_bindings, sent_ends_of, stands_of_readers
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState
from kappa.record.rollup import RECENT, rolled_up
from kappa.replay.chains import Binding

STORY = "story"


def own(epoch: int) -> str:
    return f"{STORY}.e{epoch:04d}"


def tell(config: Config, topology: str, epoch: int, *names: str, reads: int | None = None, **detail: Any) -> None:
    """Put events on record."""
    bound = {} if reads is None else {STORY: Binding(topology="a", epoch=reads, topic=own(reads))}
    zero = Offsets({"pos": {0: 0}})
    start = zero if reads is None else Offsets({own(reads): {0: 0}})
    roots = {"start": zero, "origin": zero} if bound else {}
    plan = empty_plan(topology, epoch, start, bound=bound, roots=roots)
    by_event = {
        "planned": {"plan_id": plan.id, "start": start.to_json(), "plan": plan.to_json()},
        "verified": {"verdict": "differs"},
        "moved": {"from": None, "at": {"pos": {"0": 9}}},
    }
    epoch_record.tell(config, topology, epoch, *names, by_event=by_event, **{"code": CODE, **detail})


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """``b`` reads ``a``: a live epoch and a verified candidate of each, the candidate on the candidate's topic."""
    config = empty_lake(tmp_path, monkeypatch)
    store_code(config)
    tell(config, "a", 1, *FIRST)
    tell(config, "b", 1, *FIRST, reads=1)
    tell(config, "a", 2, *SECOND)
    tell(config, "b", 2, *SECOND, reads=2)
    return config


def events(config: Config) -> list[Event]:
    return Epochs(config.lake).events()


def both(config: Config) -> None:
    cutover.cut_over_together(config, {"a": 2, "b": 2}, actor="ada", reason="together")


def ledger(config: Config, topology: str, epoch: int) -> Ledger:
    epoch_ledger = Ledger(EpochPaths(lake=config.lake, topology=topology, epoch=epoch).ledger)
    if not epoch_ledger.exists():
        epoch_ledger.create()
        epoch_ledger.claim("w", CODE, LedgerState())
    return epoch_ledger


def commit(config: Config, topology: str, epoch: int, seq: int, end: int, **detail: Any) -> None:
    """A commit that has read up to ``end`` of its topic."""
    topic = "pos" if topology == "a" else own(epoch)
    ranges = (OffsetRange(topic=topic, partition=0, start=0, end=end),)
    at = events(config)[-1].at
    ledger(config, topology, epoch).append(
        LedgerRow(kind="commit", seq=seq, writer="w", at=at, ranges=ranges, detail=detail)
    )


def commit_slices(config: Config, epoch: int, *slices: tuple[int, int]) -> None:
    """What an epoch of ``a`` has told: (root offset, end of its versioned topic) of each slice."""
    commit(config, "a", epoch, 0, 0, sent={own(epoch): {"0": 0}})
    ledger(config, "a", epoch).append(
        LedgerRow(kind="baseline", seq=0, writer="w", at=events(config)[-1].at, detail={"sent": {own(epoch): {"0": 0}}})
    )
    for seq, (root, end) in enumerate(slices, start=1):
        commit(config, "a", epoch, seq, root, sent={own(epoch): {"0": end}})


def root(offset: int) -> Offsets:
    return Offsets({"pos": {0: offset}})


def state(config: Config, epoch: int) -> LedgerState:
    return ledger(config, "b", epoch).state()


def upstreams(config: Config, epoch: int) -> Upstreams:
    return Upstreams(lake=config.lake, bound={STORY: Binding(topology="a", epoch=epoch, topic=own(epoch))})


def test_a_rejected_epoch_is_left_over_once_its_reader_is_gone(config: Config) -> None:
    for topology in ("a", "b"):
        approval.reject(config, topology, 2, actor="bob", reason="wrong sums")
    later = clock.now() + timedelta(hours=config.rejected_hours, seconds=1)

    def expired() -> list[str]:
        return [item.name for item in approval.expired(config, Epochs(config.lake).records(), later)]

    assert expired() == ["b 2"]
    with pytest.raises(RefusedError, match="kappa abort b 2 --execute"):
        control.abort(config, "a", 2, actor="housekeeping", reason="")
    tell(config, "b", 2, "aborted")
    assert expired() == ["a 2"]


def test_neither_moves_alone_and_the_way_out_is_named(config: Config) -> None:
    before = len(events(config))
    with pytest.raises(MoveRefusedError, match=r"Live epoch 1 of 'b' reads epoch 1 of 'a', which would stop"):
        control.cut_over(config, "a", 2, actor="ada", reason="alone")
    with pytest.raises(MoveRefusedError, match="Move both together: kappa cutover a b --execute"):
        control.cut_over(config, "b", 2, actor="ada", reason="alone")
    with pytest.raises(MoveRefusedError, match="Live epoch 1 of 'b' reads"):
        cutover.cut_over_together(config, {"a": 2}, actor="ada", reason="alone")
    assert len(events(config)) == before
    both(config)
    assert [e.event for e in events(config)[before:]] == ["handover", "handover"]


def test_neither_goes_back_alone(config: Config) -> None:
    both(config)
    for name in "ab":
        tell(config, name, 2, "moved", **{"from": 1})
    for name in "ab":
        with pytest.raises(MoveRefusedError, match="cannot be moved, nothing was changed"):
            control.rollback(config, name, actor="ada", reason="back")
    with pytest.raises(MoveRefusedError, match="cannot be moved, nothing was changed"):
        cutover.recall_together(config, {"b": None}, actor="ada", reason="back")
    assert cutover.recall_together(config, {"a": None, "b": None}, actor="ada", reason="back") == {"a": 1, "b": 1}


def test_a_reader_that_is_built_on_an_earlier_epoch_goes_back_with_it(config: Config) -> None:
    both(config)
    for name in "ab":
        tell(config, name, 2, "moved", **{"from": 1})
    tell(config, "b", 1, "dropped")
    tell(config, "b", 3, *SECOND, reads=1)
    with pytest.raises(MoveRefusedError, match="kappa rollback a b --execute"):
        control.rollback(config, "a", actor="ada", reason="back")
    for members in ({"a": None, "b": None}, {"a": 1, "b": 3}):
        assert cutover.recall_together(config, members, actor="ada", reason="back") == {"a": 1, "b": 3}
    assert [(e.topology, e.epoch) for e in events(config) if e.event == "recalled"] == [("a", 1)]
    tell(config, "a", 1, "caught_up")
    cutover.cut_over_together(config, {"a": 1, "b": 3}, actor="ada", reason="back")
    assert [Epochs(config.lake).record(name).handover is not None for name in "ab"] == [True, True]


def test_a_reader_that_is_built_on_the_live_epoch_does_not_go_along(config: Config) -> None:
    both(config)
    for name in "ab":
        tell(config, name, 2, "moved", **{"from": 1})
    tell(config, "b", 3, *SECOND, reads=2)
    before = len(events(config))
    with pytest.raises(MoveRefusedError, match="Abort it first: kappa abort b 3 --execute"):
        cutover.recall_together(config, {"a": None, "b": None}, actor="ada", reason="back")
    assert len(events(config)) == before


def test_an_epoch_whose_topic_is_read_is_not_removed(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match=r"epoch 2 of 'b' .* kappa abort b 2 --execute"):
        control.abort(config, "a", 2, actor="ada", reason="wrong")
    monkeypatch.setattr(removal.ownership, "is_ours", lambda *_: False)  # there is no broker that has anything of it
    control.abort(config, "b", 2, actor="ada", reason="wrong")
    control.abort(config, "a", 2, actor="ada", reason="wrong")
    tell(config, "a", 3, *SECOND)
    tell(config, "b", 3, *SECOND, reads=3)
    for name in "ab":
        tell(config, name, 3, "moved", **{"from": 1})
    with pytest.raises(RefusedError, match=r"epoch 1 of 'b' \(RETIRED\) .* kappa retire b 1 --execute"):
        control.retire(config, "a", 1, actor="ada", reason="old")
    control.retire(config, "b", 1, actor="ada", reason="old")
    control.retire(config, "a", 1, actor="ada", reason="old")


def test_code_of_an_upgrade_goes_with_its_epoch_that_is_rolled_up_at_its_end(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of such an epoch, only the history says by which code it ran after its plan's."""
    monkeypatch.setattr("kappa.record.epochs.ROLL_UP_EVENTS", 1)
    monkeypatch.setattr(removal.ownership, "is_ours", lambda *_: False)
    tell(config, "a", 1, "upgrade", "upgraded", code="later")
    file = Path(code_file(config.lake, "later"))
    file.write_bytes(b"")
    for name in "ab":
        tell(config, name, 2, "moved", **{"from": 1})
    control.retire(config, "b", 1, actor="ada", reason="old")
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(days=2))
    control.retire(config, "a", 1, actor="ada", reason="old")
    assert Epochs(config.lake).record("a").epoch(1).rolled_up
    assert not file.exists() and Path(code_file(config.lake, CODE)).exists()


def test_a_plan_is_held_against_the_record_again_when_it_is_put_there(config: Config) -> None:
    bound = {STORY: Binding(topology="a", epoch=2, topic=own(2))}
    check_bindings(Epochs(config.lake).records(), bound, is_first=False)
    with pytest.raises(RefusedError, match="goes live by itself, and reads epoch 2 of 'a'; live is 1"):
        check_bindings(Epochs(config.lake).records(), bound, is_first=True)
    tell(config, "a", 2, "aborted")
    with pytest.raises(RefusedError, match="Epoch 2 of 'a', which the plan reads, has ended"):
        check_bindings(Epochs(config.lake).records(), bound, is_first=False)


def test_commits_of_an_earlier_platform_say_no_ends_and_a_baseline_tells_a_seed(config: Config) -> None:
    commit_slices(config, 1, (5, 4))
    ends = list(sent_ends_of(ledger(config, "a", 1).state(), [own(1)]))
    assert [(one.standing, one.ends[own(1), 0]) for one in ends] == [(root(5), 4), (root(0), 0)]
    commit(config, "a", 2, 0, 0)
    commit(config, "a", 2, 1, 5)
    commit(config, "a", 2, 2, 9, sent={own(2): {"0": 7}})
    ends = list(sent_ends_of(ledger(config, "a", 2).state(), [own(2)]))
    assert [(one.standing, one.ends[own(2), 0]) for one in ends] == [(root(9), 7)]


def test_places_at_which_live_readers_and_their_savepoints_stand_outlive_a_roll_up(config: Config) -> None:
    commit_slices(config, 1, *((5 * n, n) for n in range(1, RECENT + 30)))
    commit(config, "b", 1, 0, 0, roots=root(0).as_dict())
    commit(config, "b", 1, 1, 7, roots=root(35).as_dict())
    commit(config, "b", 1, 2, 8, roots=root(40).as_dict())
    commit(config, "b", 1, 3, 9, roots=root(45).as_dict())
    tell(config, "b", 1, "savepoint", name="sale", seq=1)
    at = events(config)[-1].at
    look = {"readable_from": RECENT + 20, "savepoints": []}
    ledger(config, "a", 1).append(LedgerRow(kind="maintain", seq=RECENT + 29, writer="w", at=at, detail=look))
    stands = stands_of_readers(config.lake, Epochs(config.lake).records(), "a", 1)
    assert stands == [root(35), root(45)]
    row = rolled_up(ledger(config, "a", 1).state(), writer="w", code=CODE, at=at, stands=stands)
    assert row is not None
    ledger(config, "a", 1).roll_up(row)
    # The plan of the next epoch ends there, and that epoch follows the reader that stands there.
    commit(config, "b", 3, 0, 0, roots=root(0).as_dict())
    here = replace(state(config, 3), commits=[replace(state(config, 3).commits[0], ranges=())])
    cut = upstreams(config, 1).bulk(here, Offsets({own(1): {0: 9}}), Offsets(), 1000)
    assert cut is not None and cut.standing == root(45)
    places = [one.standing for one in sent_ends_of(ledger(config, "a", 1).state(), [own(1)])]
    assert root(35) in places and root(40) not in places


def test_slices_end_where_the_upstream_stood_those_of_a_candidate_where_the_live_did(config: Config) -> None:
    commit_slices(config, 2, (5, 4), (9, 7), (12, 7), (20, 30))
    commit(config, "b", 2, 0, 0, roots=root(0).as_dict())
    here, none = state(config, 2), Offsets()
    reader = upstreams(config, 2)

    def place(cut: Any) -> tuple[int, int] | None:
        return None if cut is None else (cut.end[own(2), 0], cut.standing["pos", 0])

    assert place(reader.onward(here, none, 7)) == (7, 12)
    assert place(reader.onward(here, none, 3)) == (4, 5)  # one transaction is read whole
    assert place(reader.bulk(here, Offsets({own(2): {0: 7}}), none, 100)) == (7, 9)
    assert place(reader.towards(here, root(12), none, 100)) == (7, 12)
    assert place(reader.towards(here, root(4), none, 100)) is None
    # A live epoch stood at 9 and at 13: at 13 the upstream has no commit.
    assert place(reader.following(here, [root(9), root(13)], lambda _: none, 100)) == (7, 9)
    assert place(reader.following(here, [root(13)], lambda _: none, 100)) == (7, 12)  # on the way there
    commit(config, "b", 2, 1, 7, roots=root(9).as_dict())
    assert place(reader.onward(state(config, 2), none, 1)) == (7, 12)  # reads nothing, and stands further
    commit(config, "b", 2, 2, 30, roots=root(20).as_dict())
    assert reader.onward(state(config, 2), none, 100) is None


def test_who_reads_yields_where_its_upstream_did_and_not_before(config: Config) -> None:
    commit_slices(config, 1, (5, 4), (9, 7))
    commit(config, "b", 1, 0, 4, roots=root(5).as_dict())
    both(config)
    pending = {name: Epochs(config.lake).record(name).handover for name in "ab"}
    assert pending["a"] is not None and pending["b"] is not None
    one, two = (joint_handover.Group(config=config, epochs=Epochs(config.lake)) for _ in range(2))
    reads = upstreams(config, 1).keys
    assert two.meet(pending["b"], root(5), reads=reads) is None
    assert one.meet(pending["a"], root(9)) == root(9)
    assert two.meet(pending["b"], root(5), reads=reads) is None  # both stand, and the upstream may still send
    assert two.meet(pending["b"], root(5), reads=reads, is_stuck=True) == root(5)
    ledger(config, "a", 1).append(
        LedgerRow(kind="yield", seq=2, writer="w", at=events(config)[-1].at, detail={"handover": pending["a"].n})
    )
    assert two.meet(pending["b"], root(5), reads=reads) == root(9)


def test_who_reads_an_epoch_that_stays_meets_with_its_other_readers_alone(config: Config) -> None:
    for epoch in (1, 2):
        tell(config, "c", epoch, *(FIRST if epoch == 1 else SECOND))
        tell(config, "d", epoch, *(FIRST if epoch == 1 else SECOND), reads=1)
    tell(config, "b", 2, "aborted")
    tell(config, "b", 3, *SECOND, reads=1)
    commit_slices(config, 1, (5, 4), (9, 7), (14, 9))
    commit(config, "b", 1, 0, 4, roots=root(5).as_dict())
    cutover.cut_over_together(config, {"b": 3, "c": 2, "d": 2}, actor="ada", reason="together")

    def met(name: str, at: int) -> Offsets | None:
        handover = Epochs(config.lake).record(name).handover
        assert handover is not None
        group = joint_handover.Group(config=config, epochs=Epochs(config.lake))
        return group.meet(handover, root(at), reads=() if name == "c" else upstreams(config, 1).keys)

    assert [met("b", 5), met("c", 12)] == [None, None]
    assert [met("d", 9), met("c", 12)] == [root(9), root(12)]
    place = met("b", 5)
    assert place == root(9), "the upstream epoch has no commit at 12"
    cut = upstreams(config, 1).towards(state(config, 1), place, Offsets(), 100)
    assert cut is not None and cut.standing == place


def in_place(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old epochs have yielded, new ones stand there with a baseline, and drivers beat."""
    for epoch in (1, 2):
        commit_slices(config, epoch, (9, 7))
        commit(config, "b", epoch, 0, 7, roots=root(9).as_dict())
    at = events(config)[-1].at
    ledger(config, "b", 2).append(LedgerRow(kind="baseline", seq=0, writer="w", at=at))
    for name in "ab":
        handover = Epochs(config.lake).record(name).handover
        assert handover is not None
        joint_handover.Group(config=config, epochs=Epochs(config.lake)).meet(handover, root(9))
        row = LedgerRow(kind="yield", seq=1, writer="w", at=at, detail={"handover": handover.n})
        ledger(config, name, 1).append(row)
    monkeypatch.setattr(joint_handover.liveness, "look", lambda *_: Sign(beat=None, state="alive"))
    monkeypatch.setattr(joint_handover, "attested", lambda certificate, *_: certificate)  # there is no Kafka here


def test_a_move_finds_out_at_its_commit_that_somebody_reads_what_would_stop(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    both(config)
    handover = Epochs(config.lake).record("a").handover
    assert handover is not None
    tell(config, "c", 1, *FIRST, reads=1)  # it went live meanwhile
    in_place(config, monkeypatch)
    group = joint_handover.Group(config=config, epochs=Epochs(config.lake))
    assert group.missing(handover) == ""
    assert not group.move(handover)
    ends = [e for e in events(config) if e.event == "withdrawn"]
    assert len(ends) == 2 and "Live epoch 1 of 'c' reads epoch 1 of 'a', which would stop" in ends[0].reason
    assert [Epochs(config.lake).record(name).live for name in "ab"] == [1, 1]


def chained_commits(config: Config, epoch: int, sends: str, *slices: tuple[int, int, int]) -> None:
    """Slices of ``b`` after its seed: (end in its upstream's topic, place in the root topic, records read)."""
    epoch_ledger, before, at = ledger(config, "b", epoch), 0, events(config)[-1].at
    for seq, (end, place, rows) in enumerate([(0, 0, 0), *slices]):
        ranges = (OffsetRange(topic=own(epoch), partition=0, start=before, end=end),)
        columns: Any = {"sends": sends if seq else "held", "rows_read": rows, "rows_parsed": rows}
        epoch_ledger.append(
            LedgerRow(
                kind="commit",
                seq=seq,
                writer="w",
                at=at,
                ranges=ranges,
                detail={"roots": root(place).as_dict()},
                **columns,
            )
        )
        before = end


def test_a_certificate_before_a_move_is_that_of_the_move(config: Config) -> None:
    from kappa.verify.certificate import certificate_of

    both(config)
    chained_commits(config, 1, "live", (20, 9, 20))
    chained_commits(config, 2, "held", (20, 9, 20))
    handover = Epochs(config.lake).record("b").handover
    assert handover is not None
    before = certificate_of(config.lake, Epochs(config.lake).record("b"), candidate=2)
    assert (before.at_epoch, before.at) == (1, root(9)), "the live epoch sends on"
    detail = {"handover": handover.n, "at": root(9).as_dict()}
    ledger(config, "b", 1).append(LedgerRow(kind="yield", seq=1, writer="w", at=handover.at, detail=detail))
    about_to_move = certificate_of(config.lake, Epochs(config.lake).record("b"), candidate=2)
    assert (about_to_move.at_epoch, about_to_move.at) == (2, root(9))


def test_a_certificate_is_in_root_offsets_and_holds_the_topics_that_were_read_too(config: Config) -> None:
    from kappa.verify.certificate import certificate_of

    chained = Epochs(config.lake).record("b")
    # Twenty records of the other topology were made of nine of the root topic; one slice read nothing.
    chained_commits(config, 1, "live", (20, 9, 20), (20, 12, 0), (25, 15, 5))
    certificate = certificate_of(config.lake, chained)
    assert certificate.problems == (
        "Epoch 1, slice 1: pos[0] 0..9 was sent while the pointer was not at epoch 1.",
    )  # this record has it go live at 9
    assert certificate.at == root(15) and [proof.topic for proof in certificate.partitions] == ["pos"]
    rows = ledger(config, "b", 1)
    ranges = (OffsetRange(topic=own(1), partition=0, start=26, end=30),)
    detail = {"roots": root(18).as_dict()}
    rows.append(LedgerRow(kind="commit", seq=4, writer="w", at=events(config)[-1].at, ranges=ranges, detail=detail))
    broken = certificate_of(config.lake, chained).problems
    assert any(f"{own(1)}[0] 26..30 does not start at 25" in problem for problem in broken)
