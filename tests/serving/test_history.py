"""The record, read by people and auditors."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kappa import control
from kappa.cli import app
from kappa.config import Config
from kappa.errors import UsageError
from kappa.offsets.vector import Offsets
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.serving.history import vector

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
AT = {"pos": {"0": 90, "1": 80}}


def event(epoch: int, name: str, minute: int, *, topology: str = "a.b", **detail: object) -> Event:
    return Event(
        topology=topology,
        epoch=epoch,
        event=name,
        at=NOON + timedelta(minutes=minute),
        actor="ada",
        reason="because",
        detail=detail,
    )


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("KAPPA_HOME", str(tmp_path))
    monkeypatch.setenv("KAPPA_LAKE", str(tmp_path / "lake"))
    config = Config.from_env()
    plan = {"plan": json.dumps({"id": "p1"}), "plan_id": "p1", "code": "c", "start": json.dumps({"pos": {"0": 0}})}
    moved = {"from": None, "at": AT, "plan": "p1", "handover": None, "certificate": json.dumps({"complete": True})}
    epochs = Epochs(config.lake)
    rows = [
        event(1, "planned", 0, **plan),
        event(1, "planned", 1, topology="a.c", **{**plan, "plan_id": "p9"}),
        event(1, "rewound", 2),
        event(1, "seeded", 3),
        event(1, "moved", 4, **moved),
        event(2, "planned", 5, **{**plan, "plan_id": "p2"}),
        *(event(2, name, 6) for name in ("rewound", "seeded", "replayed", "caught_up")),
        event(2, "verified", 7, verdict="failed", report=json.dumps({"at": AT, "verdict": "failed"})),
        event(2, "handover", 8, **{"from": 1, "accepted_verdict": "failed"}),
        event(2, "moved", 9, **{**moved, "from": 1, "plan": "p2", "handover": 12}),
    ]
    for row in rows:
        epochs.change(row.topology, lambda _, row=row: [row])  # type: ignore[misc]
    return config


def test_every_event_is_listed_oldest_first_with_its_plan(config: Config) -> None:
    entries = control.chronicle(config)
    assert [entry.n for entry in entries] == list(range(1, 14))
    assert [(e.topology, e.epoch, e.plan_id) for e in entries][:3] == [
        ("a.b", 1, "p1"),
        ("a.c", 1, "p9"),
        ("a.b", 1, "p1"),
    ]
    assert {e.actor for e in entries} == {"ada"} and {e.reason for e in entries} == {"because"}


def test_a_move_has_its_offsets_and_certificate_and_a_verification_its_verdict(config: Config) -> None:
    by_event = {(e.epoch, e.event): e for e in control.chronicle(config, "a.b")}
    moved, verified = by_event[1, "moved"], by_event[2, "verified"]
    assert (moved.offsets, moved.is_complete, moved.verdict) == (Offsets.from_json(AT), True, None)
    assert moved.certificate == {"complete": True} and moved.plan is None and moved.detail["plan"] == "p1"
    assert (verified.offsets, verified.verdict, verified.is_complete) == (Offsets.from_json(AT), "failed", None)
    assert by_event[2, "planned"].offsets == Offsets({"pos": {0: 0}}) and by_event[2, "planned"].plan == {"id": "p1"}
    assert by_event[2, "caught_up"].offsets is None


def test_an_accepted_verdict_shows_on_the_handover_and_its_move(config: Config) -> None:
    verdicts = {(e.epoch, e.event): e.verdict for e in control.chronicle(config, "a.b")}
    assert (verdicts[2, "handover"], verdicts[2, "moved"], verdicts[1, "moved"]) == ("failed", "failed", None)


def test_history_is_filtered_by_topology_epoch_and_time(config: Config) -> None:
    assert [e.event for e in control.chronicle(config, "a.c")] == ["planned"]
    assert {e.epoch for e in control.chronicle(config, epoch=2)} == {2}
    late = control.chronicle(config, "a.b", since=NOON + timedelta(minutes=8))
    assert [(e.event, e.plan_id) for e in late] == [("handover", "p2"), ("moved", "p2")]


def test_the_command_prints_a_table_or_everything_as_json(config: Config) -> None:
    shown = CliRunner().invoke(app, ["history", "a.b", "--since", "2026-03-01T12:07:00Z"])
    lines = [" ".join(line.split()) for line in shown.output.splitlines()]
    assert lines == [
        "n at topology epoch event actor plan offsets verdict certificate reason",
        "11 2026-03-01 12:07:00 a.b 2 verified ada p2 pos[0]=90 pos[1]=80 failed - because",
        "12 2026-03-01 12:08:00 a.b 2 handover ada p2 - failed - because",
        "13 2026-03-01 12:09:00 a.b 2 moved ada p2 pos[0]=90 pos[1]=80 failed complete because",
    ]
    printed = json.loads(CliRunner().invoke(app, ["history", "--epoch", "2", "--json"]).output)
    assert printed[-1]["certificate"] == {"complete": True} and printed[-1]["offsets"] == AT
    assert printed[0]["plan"] == {"id": "p1"} and printed[5]["report"]["verdict"] == "failed"


def test_a_time_without_a_zone_is_refused_and_an_empty_record_says_so(config: Config) -> None:
    answer = CliRunner().invoke(app, ["history", "--since", "2026-03-01T12:07:00"])
    assert isinstance(answer.exception, UsageError) and "has no zone" in str(answer.exception)
    later = CliRunner().invoke(app, ["history", "a.b", "--since", "2030-03-01T12:07:00Z"])
    assert "Nothing on record." in later.output


def test_a_wide_vector_is_truncated_with_the_count_of_the_rest() -> None:
    wide = Offsets({"t": dict.fromkeys(range(6), 1)})
    assert vector(wide) == "t[0]=1 t[1]=1 t[2]=1 t[3]=1 and 2 more"
    assert vector(Offsets({"t": {0: 1}})) == "t[0]=1"


def test_the_end_of_bulk_work_shows_estimated_and_actual_duration(config: Config) -> None:
    measured = {"offsets": 9, "records": 8, "seconds": 15.0, "bytes": None, "disk_bytes": None}
    for name, detail in (
        ("planned", {"plan": json.dumps({"id": "p3"}), "plan_id": "p3", "code": "c"}),
        *((name, {}) for name in ("rewound", "seeded")),
        ("replayed", {"estimate": {"offsets": 9, "seconds": 12.0}, "measured": measured, "by_estimate": {}}),
    ):
        row = replace(event(3, name, 20, **detail), reason="")
        Epochs(config.lake).change(row.topology, lambda _, row=row: [row])  # type: ignore[misc]
    *_, last = control.chronicle(config, epoch=3)
    assert last.outcome == "were 8 records, not estimated; estimated 12 s, took 15 s (+25 %)"
    assert [e.outcome for e in control.chronicle(config, epoch=2)] == [""] * 8
    assert last.outcome in CliRunner().invoke(app, ["history", "a.b"]).output
