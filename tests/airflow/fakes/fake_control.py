"""``kappa.control`` without Spark, Kafka and Delta: one JSON file in the lake, and drivers that are idle processes.

The functions have the names, arguments and answers of the real module (a test compares them), so that operators,
triggers and DAGs run on a real Airflow in seconds. What is real here: processes that are started detached, found
again and killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kappa.config import Config
from kappa.control.approval import Terms
from kappa.control.approvers import person
from kappa.control.removals.leftovers import Inventory, Leftover
from kappa.errors import IllegalTransitionError, MoveRefusedError, RefusedError, UnknownEpochError
from kappa.offsets.vector import Offsets
from kappa.record.events import Event
from kappa.record.topology_records import record_of
from kappa.replay.proof.verdict import CheckResult, DiffReport, TableDiff, ThresholdResult
from kappa.replay.request import ReplayRequest
from kappa.replay.stages import Stage
from kappa.replay.starts import FromMarker

#: What a driver walks through, a step every ``FAKE_STEP_SECONDS`` seconds.
WALK = ("PLANNED", "REWOUND", "SEEDED", "REPLAYED", "CAUGHT_UP", "VERIFIED")


@dataclass(frozen=True, kw_only=True)
class DriverStatus:
    topology: str
    epoch: int
    state: str
    pid: int | None = None
    host: str | None = None
    heartbeat_at: datetime | None = None
    seq: int | None = None
    role: str | None = None
    message: str = ""

    @property
    def is_running(self):
        return self.state in ("running", "slow", "stuck")


@dataclass(frozen=True, kw_only=True)
class Progress:
    topology: str
    epoch: int
    stage: Stage
    done: int
    total: int
    records_per_second: float | None
    seconds_left: float | None
    verdict: str | None
    is_live: bool
    is_caught_up: bool
    driver: DriverStatus
    rejected: str = ""
    is_recalled: bool = False
    is_released: bool = False

    @property
    def message(self):
        return f"epoch {self.epoch} {self.stage}"

    @property
    def doing(self):
        return f"epoch {self.epoch}: {self.driver.state}, reached {self.stage}"


def world(config):
    """What there is; the file is replaced in one step: a process killed while it writes leaves the one before."""
    path = Path(config.lake) / "fake.json"
    return json.loads(path.read_text()) if path.exists() else {"live": {}, "epochs": {}, "starts": []}


@contextlib.contextmanager
def changed(config):
    path = Path(config.lake) / "fake.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        now = world(config)
        yield now
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(now))
        temporary.replace(path)


def start(config, topology, *, epoch=None, actor, reason="start", allow=(), in_this_environment=False):
    with changed(config) as now:
        if topology not in now["live"]:
            now["live"][topology] = 1
            now["epochs"][f"{topology}/1"] = _epoch("CUT_OVER")
        epoch = epoch or now["live"][topology]
        _entry(now, topology, epoch).pop("rejected", None)
    ensure_driver(config, topology, epoch)
    return epoch


def ensure_driver(config, topology, epoch):
    with changed(config) as now:
        entry = _entry(now, topology, epoch)
        if not _is_alive(entry["pid"]):
            entry["pid"] = launched(config, topology, epoch)
            now["starts"].append([topology, epoch, entry["pid"], config.spark_master])
    return driver_status(config, topology, epoch)


def driver_status(config, topology, epoch):
    entry = _entry(world(config), topology, epoch)
    state = entry.get("state")
    if state is None:
        state = "never" if entry["pid"] is None else "running" if _is_alive(entry["pid"]) else "dead"
    beat = datetime.now(UTC) if state == "running" else None
    return DriverStatus(
        topology=topology, epoch=epoch, state=state, pid=entry["pid"], host=socket.gethostname(), heartbeat_at=beat
    )


def plan(config, request, *, step=()):
    from fake_plan import fake_plan

    return fake_plan(world(config), request)


def replay(config, plan, *, actor, reason):
    with changed(config) as now:
        numbers = [int(key.rpartition("/")[2]) for key in now["epochs"] if key.startswith(f"{plan.topology}/")]
        for number in numbers:
            if now["epochs"][f"{plan.topology}/{number}"]["plan"] == plan.id:
                break
        else:
            if plan.is_refused:
                raise RefusedError("The plan is refused.", findings=plan.findings)
            number = max(numbers, default=0) + 1
            now["epochs"][f"{plan.topology}/{number}"] = _epoch("PLANNED", plan.id) | {"actor": actor}
            now["planner"] = os.getpid()
    time.sleep(float(os.environ.get("FAKE_REPLAY_SECONDS", "0")))  # long enough to be killed in
    ensure_driver(config, plan.topology, number)
    return number


def rebuild_request(config, topology, *, actor, reason):
    if topology not in world(config).get("markers", ()):
        raise UnknownEpochError(f"No epoch of {topology!r} left a marker.")
    return ReplayRequest(topology=topology, start=FromMarker(epoch=1), reason=reason, actor=actor)


def supersede(config, plan):
    with changed(config) as now:
        now.setdefault("superseded", []).append([plan.topology, plan.seed_epoch, plan.epoch])


def housekeeping(config):
    left = [
        Leftover(kind="log", name=name, reason="its epoch is gone", size_bytes=2_000_000)
        for name in world(config).get("left", ())
    ]
    lookalikes = (Leftover(kind="topic", name="kappa.other.e0001.markers", reason="no record knows it"),)
    return Inventory(leftovers=tuple(left), lookalikes=lookalikes)


def clean(config, leftovers):
    with changed(config) as now:
        now["left"] = [name for name in now.get("left", ()) if name not in {item.name for item in leftovers}]
    return tuple(leftovers)


def progress(config, topology, epoch):
    entry = _entry(world(config), topology, epoch)
    steps = WALK.index(entry["stage"]) if entry["stage"] in WALK else len(WALK)
    return Progress(
        topology=topology,
        epoch=epoch,
        stage=Stage[entry["stage"]],
        done=steps * 1000,
        total=len(WALK) * 1000,
        records_per_second=None,
        seconds_left=None,
        verdict=entry.get("verdict"),
        is_live=world(config)["live"].get(topology) == epoch,
        is_caught_up=entry["stage"] == "VERIFIED",
        driver=driver_status(config, topology, epoch),
        rejected=entry.get("rejected", ""),
        is_recalled=entry.get("recalled", False),
        is_released=entry.get("released", False),
    )


def diff(config, topology, epoch=None):
    entry = _entry(world(config), topology, epoch)
    if entry["stage"] not in ("VERIFIED", "APPROVED", "CUT_OVER"):
        raise UnknownEpochError(f"Epoch {epoch} of {topology!r} has not been verified.")
    table = TableDiff(name="counts", rows_live=9, rows_candidate=10, keys_added=1, keys_changed=2)
    checks = (CheckResult(name="adds up", ok=entry.get("verdict") != "failed", detail="1 is not 2"),)
    thresholds = (ThresholdResult(measure="counts.keys_removed", allowed=0, ok=True, found=0),)
    return DiffReport(
        topology=topology,
        live_epoch=1,
        live_seq=5,
        candidate_epoch=epoch,
        candidate_seq=7,
        at=Offsets({"events": {0: 1000}}),
        tables=(table,),
        checks=checks,
        thresholds=thresholds,
    )


def approval_terms(config, topology, epoch):
    report = diff(config, topology, epoch)
    return Terms(
        topology=topology,
        epoch=epoch,
        live=world(config)["live"].get(topology),
        code="c0de" * 8,
        report=world(config).get("report", "r1"),
        verdict=report.verdict.value,
    )


def ask(config, shown, *, actor, asking, nth=1, needed=1, hours, link=""):
    with changed(config) as now:
        questions = _entry(now, shown.topology, shown.epoch).setdefault("asked", [])
        question = [shown.to_dict(), nth, needed, link, asking]
        if question not in [each[:-1] for each in questions]:
            questions.append([*question, (datetime.now(UTC) + timedelta(hours=hours)).isoformat()])


def approve(config, agreed, *, actor, reason):
    changes = agreed.changes(approval_terms(config, agreed.topology, agreed.epoch))
    if changes:
        raise MoveRefusedError(f"Epoch {agreed.epoch} is not what was shown: {'; '.join(changes)}.")
    with changed(config) as now:
        approvals = _entry(now, agreed.topology, agreed.epoch).setdefault("approvals", [])
        if person(actor) not in [person(by) for by, _ in approvals]:
            approvals.append([actor, agreed.to_dict()])


def reject(config, topology, epoch, *, actor, reason):
    with changed(config) as now:
        _entry(now, topology, epoch).update(rejected=f"rejected by {actor}", wanted=False)


def previous(record):
    return min(record.epochs)


def abort(config, topology, epoch, *, actor, reason, premise=None):
    if premise is not None and _entry(world(config), topology, epoch)["stage"] != "ABORTED":
        premise.check(record(config, topology))
    with changed(config) as now:
        if now["live"].get(topology) == epoch:
            raise IllegalTransitionError(f"Epoch {epoch} of {topology!r} is live: it cannot be aborted.")
        _entry(now, topology, epoch).update(stage="ABORTED")


def cut_over_together(
    config,
    members,
    *,
    actor,
    reason,
    replaces=None,
    accept_verdict=(),
    keep_old_running=False,
    is_approval_required=False,
    override="",
    in_this_environment=False,
):
    with changed(config) as now:
        moved = {name: epoch for name, epoch in members.items() if now["live"].get(name) != epoch}
        for topology, epoch in moved.items():
            entry, live = _entry(now, topology, epoch), now["live"].get(topology)
            _check_environment(entry, in_this_environment)
            if entry["stage"] != "VERIFIED":
                raise MoveRefusedError(f"Epoch {epoch} of {topology} is {entry['stage']}; nothing was changed.")
            expected = (replaces or {}).get(topology, live)
            if expected != live:
                raise MoveRefusedError(f"The live epoch of {topology} is {live}, {expected} was expected.")
            if is_approval_required and not entry.get("approvals") and not entry.get("recalled"):
                raise MoveRefusedError(f"Epoch {epoch} of {topology!r} was not approved: readers stay where they are.")
        for topology, epoch in moved.items():
            _entry(now, topology, epoch)["handover"] = dict(members)


def hand_over(now, members):
    """What drivers do that were asked: all pointers move in one commit."""
    for topology, epoch in members.items():
        before, entry = now["live"].get(topology), _entry(now, topology, epoch)
        if before not in (None, epoch):
            now["epochs"][f"{topology}/{before}"]["stage"] = "RETIRED"
        now["live"][topology] = epoch
        entry.pop("handover", None)
        entry.update(stage="CUT_OVER", together=members)


def missing_environment(config, record, epoch):
    return _entry(world(config), record.topology, epoch).get("missing")


def _check_environment(entry, in_this_environment):
    if entry.get("missing") and not in_this_environment:
        raise MoveRefusedError(entry["missing"])


def recall_together(config, members, *, actor, reason, premises=None, in_this_environment=False):
    with changed(config) as now:
        for topology, to in members.items():
            _check_environment(_entry(now, topology, to), in_this_environment)
        for topology, to in members.items():
            if premises is not None and not _entry(now, topology, to).get("recalled"):
                premises[topology].check(record(config, topology))
        for topology, to in members.items():
            _entry(now, topology, to).update(stage="VERIFIED", recalled=True)
    return dict(members)


def history(config, topology=None):
    now, events = world(config), []
    for key, entry in now["epochs"].items():
        name, _, epoch = key.rpartition("/")
        if topology in (None, name):
            planned = _event(name, int(epoch), "planned")
            document = {"plan": entry["document"]} if "document" in entry else {}
            events.append(replace(planned, actor=entry.get("actor", "fake"), detail={**planned.detail, **document}))
            events += [_event(name, int(epoch), "aborted")] if entry["stage"] == "ABORTED" else []
            for *_, asking, until in entry.get("asked", ()):
                question = _event(name, int(epoch), "asked")
                events.append(replace(question, detail={"asking": asking, "until": until}))
            for by, terms in entry.get("approvals", ()):
                events.append(replace(_event(name, int(epoch), "approved"), actor=by, detail=terms))
            if "rejected" in entry:
                by = entry["rejected"].removeprefix("rejected by ")
                events.append(replace(_event(name, int(epoch), "rejected"), actor=by))
            events += [] if entry.get("wanted", True) else [_event(name, int(epoch), "stop")]
    retired = [key.rpartition("/") for key, entry in now["epochs"].items() if entry["stage"] == "RETIRED"]
    events += [_event(name, int(epoch), "moved") for name, _, epoch in retired if topology in (None, name)]
    events += [
        _event(name, epoch, "moved") for name, epoch in now["live"].items() if epoch and topology in (None, name)
    ]
    return sorted(
        events,
        key=lambda event: ("planned", "asked", "approved", "moved", "rejected", "aborted", "stop").index(event.event),
    )


def record(config, topology, *, age_seconds=0.0):
    return record_of(topology, history(config, topology))


def _event(topology, epoch, event):
    detail = {"version": "2", "code": "c0de" * 8} if event == "planned" else {}
    return Event(topology=topology, epoch=epoch, event=event, at=datetime.now(UTC), actor="fake", detail=detail)


def launched(config, topology, epoch):
    return subprocess.Popen(
        [sys.executable, __file__, topology, str(epoch)],
        env={**os.environ, **config.to_env()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ).pid


def _epoch(stage, plan=None):
    return {"stage": stage, "pid": None, "plan": plan}


def _entry(now, topology, epoch):
    try:
        return now["epochs"][f"{topology}/{epoch}"]
    except KeyError:
        raise UnknownEpochError(f"{topology} has no epoch {epoch}.") from None


def _is_alive(pid):
    if pid is None:
        return False
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _drive(topology, epoch):
    """Be the driver: walk through the stages, hand over when asked, end when another epoch is live."""
    config = Config.from_env()
    while Path(config.lake).is_dir():
        time.sleep(float(os.environ.get("FAKE_STEP_SECONDS", "1")))
        with changed(config) as now:
            entry = _entry(now, topology, epoch)
            if entry["stage"] == "RETIRED":
                return
            if entry["stage"] in WALK[:-1]:
                entry["stage"] = WALK[WALK.index(entry["stage"]) + 1]
            elif members := entry.pop("handover", None):
                hand_over(now, members)


if __name__ == "__main__":
    _drive(sys.argv[1], int(sys.argv[2]))
