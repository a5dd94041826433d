"""Approval and rejection on the record alone: what they are bound to, and mean to a cutover and the next replay."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from support.odd_texts import PARSED, UNPARSED

from kappa import control
from kappa.config import Config
from kappa.control import approval, approvers, cutover, drivers
from kappa.errors import ConfigError, IllegalTransitionError, MoveRefusedError, RefusedError
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.presence import heartbeat
from kappa.record import code as code_store
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.replay.proof.certificate import Certificate
from kappa.replay.proof.verdict import DiffReport, TableDiff
from kappa.replay.stages import Stage
from kappa.verify.certificate import certificate_of

FIRST = ("planned", "rewound", "seeded", "moved")
COMPARED = ("caught_up", "verified")
SECOND = ("planned", "rewound", "seeded", "replayed", *COMPARED)
REPORT = DiffReport(
    topology="a.b",
    live_epoch=1,
    live_seq=3,
    candidate_epoch=2,
    candidate_seq=3,
    at=Offsets({"pos": {0: 9}}),
    tables=(TableDiff(name="t", rows_live=1, rows_candidate=2, keys_added=1),),
)


def put(config: Config, epoch: int, names: tuple[str, ...], report: DiffReport = REPORT, code: str = "") -> None:
    for name in names:
        detail: dict[str, Any] = {"code": code or f"c{epoch}", "from": None, "at": '{"pos": {"0": 0}}'}
        if name == "verified":
            detail |= {"verdict": report.verdict, "report": report.to_json(), "live_epoch": report.live_epoch}
        Epochs(config.lake).add("a.b", epoch, name, actor="test", **detail)


def without_moves(record: TopologyRecord) -> TopologyRecord:
    """A record of which no epoch was live, so that no ledger is needed."""
    return replace(record, make_whole=lambda: replace(record.make_whole(), moves=()))


def asks_for(config: Config, approvals: str) -> None:
    """Deploy a file of the topology that asks for approvals."""
    config.topologies.mkdir(exist_ok=True)
    (config.topologies / "ab.py").write_text(f"Topology(name='a.b', version='2', approvals={approvals})")


@pytest.fixture(autouse=True)
def _started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers are taken for started: none is run."""
    for module in (cutover, drivers):
        monkeypatch.setattr(module, "with_driver", lambda effects, *_, **__: effects)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A live epoch 1 and a candidate 2 that was verified and differs."""
    folders = {"KAPPA_LAKE": str(tmp_path / "lake"), "KAPPA_TOPOLOGIES": str(tmp_path / "topologies")}
    config = Config.from_env({"KAPPA_HOME": str(tmp_path), **folders})
    put(config, 1, FIRST)
    put(config, 2, SECOND)
    return config


def record(config: Config) -> TopologyRecord:
    return Epochs(config.lake).record("a.b")


def shown(config: Config) -> approval.Terms:
    return control.approval_terms(config, "a.b", 2)


def cut_over(config: Config, epoch: int = 2, **how: Any) -> None:
    control.cut_over(config, "a.b", epoch, actor="ada", reason="why", **how)


def test_an_approved_epoch_goes_live_with_its_approval_on_record(config: Config) -> None:
    approval.approve(config, shown(config), actor="airflow:ann", reason="looks right")
    approval.approve(config, shown(config), actor="airflow:bob", reason="again")
    epoch = record(config).epoch(2)
    assert epoch.stage is Stage.APPROVED and epoch.approved is not None and epoch.approved.actor == "airflow:ann"
    cut_over(config, is_approval_required=True)
    handover = record(config).handover
    assert handover is not None and handover.detail["approved"]["by"] == "airflow:ann"


def test_the_certificate_names_the_approver_and_survives_as_json(config: Config) -> None:
    approval.approve(config, shown(config), actor="airflow:ann", reason="looks right")
    put(config, 2, ("moved",))
    certificate = certificate_of(config.lake, without_moves(record(config)))
    assert certificate.approved == {}
    copy = Certificate.from_json(replace(certificate, approved={2: "airflow:ann at noon"}).to_json())
    assert copy.approved == {2: "airflow:ann at noon"}
    assert "  epoch 2 was approved by airflow:ann at noon" in copy.render()


def test_a_required_approval_that_is_missing_refuses_the_cutover(config: Config) -> None:
    with pytest.raises(MoveRefusedError, match="was not approved: readers stay"):
        cut_over(config, is_approval_required=True)
    assert record(config).handover is None
    cut_over(config)
    assert record(config).handover is not None


@pytest.mark.parametrize("approvals", ["1", "WANTED"])
def test_a_topology_that_asks_for_an_approval_is_cut_over_with_one_only(config: Config, approvals: str) -> None:
    asks_for(config, approvals)
    with pytest.raises(MoveRefusedError, match=r"was not approved: readers stay .* kappa approve a\.b 2 --execute"):
        cut_over(config)
    approval.approve(config, shown(config), actor="ann", reason="")
    cut_over(config)
    assert record(config).handover is not None


def test_two_people_are_two_people(config: Config) -> None:
    asks_for(config, "2")
    for actor in ("ann", "airflow:Ann", "ann"):
        approval.approve(config, shown(config), actor=actor, reason="")
    with pytest.raises(MoveRefusedError, match="was approved by ann only, and 2 people have to"):
        cut_over(config)
    approval.approve(config, shown(config), actor="airflow:bob", reason="")
    approval.approve(config, shown(config), actor="eve", reason="one too many")
    cut_over(config)
    handover = record(config).handover
    assert handover is not None and handover.detail["approved"]["by"] == "ann and airflow:bob"
    put(config, 2, ("moved",))
    approvals = certificate_of(config.lake, without_moves(record(config))).approved
    assert approvals == {}
    assert [event.actor for event in record(config).epoch(2).approvals] == ["ann", "airflow:bob"]


@pytest.mark.parametrize(
    ("first", "second", "are_two"),
    [
        ("ann", "airflow:ann@example.org", False),
        ("airflow:EXAMPLE\\Ann", "ann", False),
        ("airflow:ann@example.org", "airflow:ann@example.com", True),
        ("airflow:ann@example.org", "bob", True),
        ("ann", "bob", True),
    ],
)
def test_a_person_of_whom_airflow_knows_more_is_the_same_one(
    config: Config, first: str, second: str, are_two: bool
) -> None:
    asks_for(config, "2")
    for actor in (first, second):
        approval.approve(config, shown(config), actor=actor, reason="")
    assert len(approval.valid_approvals(config, record(config), 2)) == (2 if are_two else 1)
    if are_two:
        cut_over(config)
    else:
        with pytest.raises(MoveRefusedError, match=f"was approved by {re.escape(first)} only, and 2 people have to"):
            cut_over(config)


def beats_on(config: Config, host: str) -> Config:
    """The driver of the live epoch ran last on a host."""
    path = Path(EpochPaths(lake=config.lake, topology="a.b", epoch=1).heartbeat)
    path.parent.mkdir(parents=True, exist_ok=True)
    heartbeat.write(str(path), replace(heartbeat.this_process("w", "c"), host=host))
    return config


NOT_OF_THIS_HOST: dict[str, tuple[Callable[[Config], Config], str]] = {
    "a setting": (lambda config: replace(config, approvals_from="airflow"), "KAPPA_APPROVALS_FROM is airflow"),
    "drivers elsewhere": (lambda config: replace(config, launcher="elsewhere"), "KAPPA_LAUNCHER=elsewhere"),
    "drivers of another host": (lambda config: beats_on(config, "drivers"), "one of host drivers"),
}


@pytest.mark.parametrize("where", NOT_OF_THIS_HOST)
def test_where_lake_or_drivers_are_not_this_hosts_own_only_logins_of_airflow_count(config: Config, where: str) -> None:
    asks_for(config, "2")
    approval.approve(config, shown(config), actor="ann", reason="as long as all of it was here")
    change, why = NOT_OF_THIS_HOST[where]
    there = change(config)
    before = record(config).events
    with pytest.raises(MoveRefusedError, match=f"by bob, a user of this host, does not count: .*{why}.*cutover__a.b"):
        approval.approve(there, shown(config), actor="bob", reason="")
    assert record(config).events == before
    approval.approve(there, shown(config), actor="airflow:eve", reason="")
    with pytest.raises(MoveRefusedError, match=r"approved by airflow:eve only.*Only logins of Airflow count"):
        cut_over(there)
    approval.approve(there, shown(config), actor="airflow:bob", reason="")
    cut_over(there)
    handover = record(config).handover
    assert handover is not None and handover.detail["approved"]["by"] == "airflow:eve and airflow:bob"


@pytest.mark.parametrize(
    ("kind", "lake", "is_shared"),
    [("nfs4", "", True), ("fuse.sshfs", "", True), ("ext4", "", False), ("ext4", "s3://bucket/lake", True)],
)
def test_a_lake_on_a_file_system_of_others_is_not_this_hosts_own(
    config: Config, monkeypatch: pytest.MonkeyPatch, kind: str, lake: str, is_shared: bool
) -> None:
    topology = record(config)
    parts = [SimpleNamespace(mountpoint="/", fstype="ext4"), SimpleNamespace(mountpoint=config.lake, fstype=kind)]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: parts)
    why = approvers.elsewhere(replace(config, lake=lake or config.lake), topology)
    assert ("is not this host's own" in why) is is_shared


def test_a_setting_of_approvals_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="KAPPA_APPROVALS_FROM='anyone' is neither airflow nor empty"):
        Config.from_env({"KAPPA_APPROVALS_FROM": "anyone"})


def test_an_override_moves_readers_for_a_reason_on_record_and_overrides_no_rejection(config: Config) -> None:
    asks_for(config, "2")
    approval.approve(config, shown(config), actor="ann", reason="")
    with pytest.raises(MoveRefusedError, match="2 people have to"):
        cut_over(config, override="  ")
    approval.reject(config, "a.b", 2, actor="bob", reason="")
    with pytest.raises(MoveRefusedError, match="rejected by bob"):
        cut_over(config, override="nobody is awake")
    approval.reopen(config, "a.b", 2, actor="bob", reason="")
    cut_over(config, override="nobody is awake")
    handover = record(config).handover
    assert handover is not None
    assert handover.detail["override"] == {"reason": "nobody is awake", "needed": 2, "given": 0}


def test_an_epoch_that_comes_back_needs_no_approval(config: Config) -> None:
    put(config, 2, ("moved",))
    asks_for(config, "2")
    put(config, 1, ("recalled", "caught_up"))
    cut_over(config, 1)
    assert record(config).handover is not None


@pytest.mark.parametrize("odd", [*UNPARSED.values(), *(before + b"X = 1" for before, _ in PARSED.values())])
def test_a_file_beside_a_topology_hinders_no_move_of_it_and_no_way_back(config: Config, odd: bytes) -> None:
    put(config, 2, ("aborted",))
    asks_for(config, "1")
    (config.topologies / "odd.py").write_bytes(odd)
    code = code_store.store(config.lake, config.topologies, "a.b")
    (config.topologies / "odd.py").unlink()
    put(config, 3, SECOND, replace(REPORT, candidate_epoch=3), code)
    with pytest.raises(MoveRefusedError, match="was not approved"):
        cut_over(config, 3)
    approval.approve(config, control.approval_terms(config, "a.b", 3), actor="ann", reason="")
    cut_over(config, 3)
    put(config, 3, ("moved",), code=code)
    put(config, 1, ("recalled", "caught_up"))
    cut_over(config, 1)
    handover = record(config).handover
    assert handover is not None and handover.epoch == 1 and approval.required(config, record(config), 1) == 0


def test_no_upgrade_of_the_live_epoch_lowers_the_number(config: Config) -> None:
    codes = []
    for number in ("2", "0"):
        asks_for(config, number)
        codes.append(code_store.store(config.lake, config.topologies, "a.b"))
    put(config, 2, ("aborted",))
    put(config, 3, (*SECOND, "moved"), replace(REPORT, candidate_epoch=3), codes[0])
    put(config, 4, SECOND, replace(REPORT, candidate_epoch=4), codes[1])
    upgraded = {"code": codes[1], "from": codes[0], "version": "1", "verdict": "same"}
    Epochs(config.lake).add("a.b", 3, "upgraded", actor="ann", **upgraded)
    assert record(config).epoch(3).code == codes[1]
    assert approval.required(config, record(config), 4) == 2


def test_stored_code_asks_by_the_file_of_the_topology_and_for_one_person_where_that_is_not_read(config: Config) -> None:
    asks_for(config, "2")
    (config.topologies / "newer.py").write_text("Topology(name='c.d', version='2', approvals=2")
    code = code_store.store(config.lake, config.topologies, "a.b")
    (config.topologies / "newer.py").unlink()
    (config.topologies / "_drafts.py").write_text("Topology(name='c.d', version='2', approvals=2)")
    asks_for(config, "0")
    drafts = code_store.store(config.lake, config.topologies, "a.b")
    assert [code_store.approvals(config.lake, one, "a.b") for one in (code, drafts)] == [2, 0]
    assert [code_store.approvals(config.lake, one, "c.d") for one in (code, drafts, "gone")] == [1, 0, 0]


def test_what_changed_since_is_approved_anew(config: Config) -> None:
    asks_for(config, "1")
    other = replace(shown(config), report="another").to_dict()
    row = Event(topology="a.b", epoch=2, event="approved", at=datetime.now(UTC), actor="ann", detail=other)
    Epochs(config.lake).change(row.topology, lambda _: [row])
    approval.approve(config, shown(config), actor="ann", reason="looked again")
    cut_over(config)
    assert record(config).handover is not None


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"report": "0123"}, "the report was 0123"),
        ({"code": "another"}, "the code was another and is c2"),
        ({"live": 7}, "the live epoch was 7 and is 1"),
    ],
)
def test_an_approval_of_something_else_is_refused(config: Config, other: dict[str, Any], message: str) -> None:
    with pytest.raises(MoveRefusedError, match=message):
        approval.approve(config, replace(shown(config), **other), actor="ann", reason="")
    assert record(config).epoch(2).stage is Stage.VERIFIED


@pytest.mark.parametrize(
    "move", [cut_over, lambda config: cutover.cut_over_together(config, {"a.b": 2}, actor="x", reason="y")]
)
def test_a_cutover_of_something_else_than_was_approved_is_refused(
    config: Config, move: Callable[[Config], None]
) -> None:
    before = shown(config)
    other = replace(before, report="another").to_dict()
    row = Event(topology="a.b", epoch=2, event="approved", at=datetime.now(UTC), actor="ann", detail=other)
    Epochs(config.lake).change(row.topology, lambda _: [row])
    with pytest.raises(MoveRefusedError, match="is not what was approved: the report was another"):
        move(config)
    assert record(config).handover is None


def test_a_failed_verdict_is_not_approved(config: Config) -> None:
    Epochs(config.lake).add("a.b", 2, "aborted", actor="test")
    put(config, 3, SECOND, replace(REPORT, candidate_epoch=3))
    epochs = Epochs(config.lake)
    terms = approval.terms(epochs.record("a.b"), 3)
    assert terms.verdict == "differs"
    put(config, 3, ("aborted",))
    failed = {"verdict": "failed", "report": "{}"}
    put(config, 4, SECOND[:-1])
    epochs.add("a.b", 4, "verified", actor="test", **failed)
    with pytest.raises(MoveRefusedError, match="accepted on the command line only"):
        approval.approve(config, approval.terms(epochs.record("a.b"), 4), actor="ann", reason="")


def test_only_a_verified_epoch_is_approved_or_rejected(config: Config) -> None:
    Epochs(config.lake).add("a.b", 2, "aborted", actor="test")
    put(config, 3, SECOND[:-1])
    for act in (
        lambda: control.approval_terms(config, "a.b", 3),
        lambda: approval.reject(config, "a.b", 3, actor="ann", reason=""),
        lambda: approval.reject(config, "a.b", 1, actor="ann", reason=""),
    ):
        with pytest.raises(IllegalTransitionError, match="only a VERIFIED one can be approved or rejected"):
            act()


def test_a_rejected_epoch_has_no_driver_is_no_candidate_and_does_not_go_live(config: Config) -> None:
    approval.approve(config, shown(config), actor="ann", reason="")
    approval.reject(config, "a.b", 2, actor="bob", reason="wrong sums")
    approval.reject(config, "a.b", 2, actor="eve", reason="twice")
    topology = record(config)
    assert topology.candidate is None and not topology.epoch(2).is_wanted and topology.epoch(2).approved is None
    assert control.wanted_drivers(config) == [("a.b", 1)]
    for act in (lambda: cut_over(config), lambda: cutover.cut_over_together(config, {"a.b": 2}, actor="x", reason="y")):
        with pytest.raises(
            MoveRefusedError,
            match=r"rejected by bob at .*: wrong sums\. To take it up again: kappa start a\.b --epoch 2",
        ):
            act()


def test_a_rejected_epoch_is_taken_up_again_unless_another_is_being_built(config: Config) -> None:
    approval.reject(config, "a.b", 2, actor="bob", reason="")
    assert control.start(config, "a.b", epoch=2, actor="ada") == 2
    candidate = record(config).candidate
    assert candidate is not None and candidate.epoch == 2 and candidate.is_wanted
    approval.approve(config, shown(config), actor="ann", reason="")
    approval.reject(config, "a.b", 2, actor="bob", reason="")
    put(config, 3, ("planned",))
    with pytest.raises(RefusedError, match=r"Epoch 3 .* is being built"):
        control.start(config, "a.b", epoch=2, actor="ada")
    assert record(config).epoch(2).rejected is not None


def test_an_epoch_that_is_taken_up_again_is_compared_with_what_is_live_by_then(config: Config) -> None:
    approval.reject(config, "a.b", 2, actor="bob", reason="")
    put(config, 3, (*SECOND, "moved"))
    control.start(config, "a.b", epoch=2, actor="ada")
    assert (record(config).epoch(2).stage, record(config).epoch(2).verified) == (Stage.REPLAYED, None)
    with pytest.raises(IllegalTransitionError, match="only a VERIFIED one can be approved"):
        shown(config)
    with pytest.raises(MoveRefusedError, match="it can take over once it is VERIFIED"):
        cut_over(config)
    put(config, 2, COMPARED, replace(REPORT, live_epoch=3))
    assert shown(config).live == 3


def test_an_epoch_that_sets_records_aside_is_compared_anew(config: Config) -> None:
    approval.approve(config, shown(config), actor="ann", reason="")
    Epochs(config.lake).add("a.b", 2, "set_aside", actor="ann", records=[], count=0, failing="")
    assert (record(config).epoch(2).stage, record(config).epoch(2).verified) == (Stage.REPLAYED, None)
    with pytest.raises(MoveRefusedError, match="it can take over once it is VERIFIED"):
        cut_over(config)
    with pytest.raises(IllegalTransitionError):  # a comparison that had begun before
        put(config, 2, ("verified",))
    put(config, 2, COMPARED, replace(REPORT, set_aside=1))
    with pytest.raises(MoveRefusedError, match="is not what was approved: the report was"):
        cut_over(config)


def test_an_epoch_that_comes_back_may_set_records_aside(config: Config) -> None:
    put(config, 2, ("moved",))
    put(config, 1, ("recalled", "caught_up"))
    Epochs(config.lake).add("a.b", 1, "set_aside", actor="ann", records=[], count=0, failing="")
    assert record(config).epoch(1).stage is Stage.CAUGHT_UP


def test_an_epoch_that_is_being_made_live_is_not_rejected(config: Config) -> None:
    cut_over(config)
    with pytest.raises(MoveRefusedError, match="too late to reject"):
        approval.reject(config, "a.b", 2, actor="bob", reason="")


def test_what_was_rejected_long_ago_is_left_over(config: Config) -> None:
    approval.reject(config, "a.b", 2, actor="bob", reason="wrong sums")
    now = datetime.now(UTC)
    assert approval.expired(config, Epochs(config.lake).records(), now) == []
    (leftover,) = approval.expired(
        config, Epochs(config.lake).records(), now + timedelta(hours=config.rejected_hours, seconds=1)
    )
    assert (leftover.kind, leftover.name) == (approval.REJECTED, "a.b 2") and "kept for 72 hours" in leftover.reason
