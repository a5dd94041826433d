"""An estimate is checked against what happened, on record, and the next plan of the topology is made from that."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.testing
from support.epochs import read_messages

from kappa import control
from kappa.cli import app
from kappa.delta import table_files
from kappa.replay.explain import explain
from kappa.replay.request import ReplayRequest
from kappa.replay.stages import Stage
from kappa.replay.starts import FromMarker, FromSavepoint, ToEarliest
from kappa.verify import measurements

if TYPE_CHECKING:
    from support.epochs import Lab

    from kappa.replay.plan import ReplayPlan

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ROWS: list[tuple[str, int] | bytes] = [("abc"[n % 3], n + 1) for n in range(30)]


def live(stream: Lab) -> int:
    """A first epoch that has read everything and was stopped."""
    stream.produce(ROWS)
    epoch = stream.start_live()
    assert stream.stop(epoch) == []
    return epoch


def planned(stream: Lab, **changes: Any) -> ReplayPlan:
    """A plan as of now; nothing is recorded."""
    fields = {"start": ToEarliest(), "reason": "test", "actor": "test", **changes}
    return control.plan(stream.config, ReplayRequest(topology=stream.name, **fields))


def replayed(stream: Lab, **request: Any) -> dict[str, Any]:
    """Epoch and detail of the event that ended the bulk work of a replay; its driver is stopped there."""
    epoch = stream.plan_replay(**request)
    stream.run(epoch)
    stream.await_stage(epoch, Stage.VERIFIED)
    assert stream.stop(epoch) == []
    event = stream.record().epoch(epoch).replayed
    return {"epoch": epoch, **event.detail}


def size_of_records(stream: Lab) -> int:
    """Keys and values of the source's records, by a plain consumer."""
    messages = read_messages(stream.config.bootstrap_servers, stream.topic)
    return sum(len(message.key() or b"") + len(message.value() or b"") for message in messages)


def run(stream: Lab, *words: str) -> str:
    """A command's output."""
    result = typer.testing.CliRunner().invoke(app, list(words), env=stream.config.to_env())
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_measures_of_a_replay_are_recorded_and_used_by_the_next_plan(stream: Lab) -> None:
    first = live(stream)
    size = size_of_records(stream)
    before = planned(stream)
    assert before.estimate.seconds is None
    assert "no replay measured yet" in "\n".join(explain(before))
    assert (before.estimate.records, before.estimate.bytes) == (30, size), (
        "as many records as before, as large as a few of them"
    )
    stream.deploy(2)
    outcome = replayed(stream, slice_records=10)
    slices = stream.ledger(outcome["epoch"]).state().commits[1:]
    bulk = [row for row in slices if row.seq <= outcome["seq"]]
    took = sum((row.at - _started(row)).total_seconds() for row in bulk)
    measured = outcome["measured"]
    assert (measured["offsets"], measured["records"], measured["bytes"]) == (30, 30, size)
    assert measured["seconds"] == pytest.approx(took, abs=0.01)
    mark = f"e{outcome['epoch']:04d}"  # of its folder, and of those in which its served tables are
    files = [file for file in Path(stream.config.lake).rglob("*") if file.is_file() and mark in str(file)]
    assert 0 < measured["disk_bytes"] <= sum(file.stat().st_size for file in files)
    held = sum(
        table_files.size_bytes(stream.paths(first).place(place), version)
        for place, version in stream.ledger(first).state().commits[-1].delta_versions.items()
    )
    assert before.estimate.disk_bytes == held
    assert outcome["by_estimate"] == {
        "records": 1.0,
        "bytes": 1.0,
        "disk_bytes": round(measured["disk_bytes"] / held, 4),
    }

    control.abort(stream.config, stream.name, outcome["epoch"], actor="test", reason="measured")
    stream.produce([("a", 1)] * 30)
    stream.run(first)
    stream.settle(first)
    assert stream.stop(first) == []
    second = planned(stream)
    assert second.estimate.offsets == second.estimate.records == 60
    assert second.estimate.seconds == round(60 * measured["seconds"] / 30, 1)
    assert second.estimate.disk_bytes == round(60 * measured["disk_bytes"] / 30)
    assert second.estimate.bytes == round(60 * size / 30)
    assert second.estimate.measured_epoch == outcome["epoch"]
    assert f"at the rate of epoch {outcome['epoch']}" in "\n".join(explain(second))

    again = replayed(stream)
    estimated = stream.plan(again["epoch"]).estimate
    assert again["estimate"] == estimated.as_dict()
    assert again["by_estimate"]["seconds"] == round(again["measured"]["seconds"] / estimated.seconds, 4)
    off = 100 * (again["measured"]["seconds"] / estimated.seconds - 1)
    line = f"estimated {estimated.seconds:,.3g} s, took {again['measured']['seconds']:,.3g} s ({off:+.0f} %)"
    assert line in run(stream, "status", stream.name)
    assert line in run(stream, "history", stream.name)
    status = json.loads(run(stream, "status", stream.name, "--json"))
    assert line in status[0]["epochs"][-1]["outcome"]


def test_a_killed_and_resumed_replay_is_measured_as_a_whole(stream: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    live(stream)
    epoch = stream.plan_replay(slice_records=10)

    class Killed(BaseException):
        """What stands for a kill."""

    def die(point: str, seq: int | None = None) -> None:
        if point == "commit" and seq == 2:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("kappa.slices.protocol.crash_point", die)
        _, thread, errors = stream.run(epoch), stream.running[epoch][1], stream.running[epoch][2]
        thread.join(300)
        assert isinstance(errors[0], Killed)
    stream.running.pop(epoch)
    stream.run(epoch)
    stream.await_stage(epoch, Stage.VERIFIED)
    measured = stream.record().epoch(epoch).replayed.detail["measured"]
    assert (measured["offsets"], measured["records"], measured["bytes"]) == (30, 30, size_of_records(stream))


def test_a_seeded_replay_gives_no_measure_of_bytes_per_record(stream: Lab) -> None:
    first = live(stream)
    plain = planned(stream).estimate
    seq = stream.ledger(first).state().commits[1].seq
    seeded = planned(stream, start=FromSavepoint(seq=seq))
    held = measurements.rates(stream.config.lake, stream.record(), stream.ledger(first).state()).live_bytes
    assert seeded.estimate.disk_bytes == held + round(seeded.estimate.records * plain.disk_bytes / 30)
    outcome = replayed(stream, start=FromSavepoint(seq=seq))
    assert outcome["measured"]["disk_bytes"] > 0
    assert planned(stream, allow=frozenset()).estimate.disk_bytes in (None, plain.disk_bytes)


def test_a_fold_is_measured_and_the_next_one_is_checked_against_it(stream: Lab) -> None:
    first = live(stream)
    end = sum(o for _, o in stream.kafka.settled_ends([stream.paths(first).changelog("balances")]).items())
    epoch = stream.plan_replay(FromMarker(epoch=first))
    stream.run(epoch)
    stream.await_stage(epoch, Stage.VERIFIED)
    assert stream.stop(epoch) == []
    folded = stream.record().epoch(epoch).seeded.detail["folded"]
    assert folded["offsets"] == end and folded["seconds"] > 0
    control.abort(stream.config, stream.name, epoch, actor="test", reason="measured")
    changelog = stream.paths(first).changelog("balances")
    _set(stream, changelog, "delete.retention.ms", str(int(folded["seconds"] * 500)))
    (finding,) = planned(stream, start=FromMarker(epoch=first)).refusals
    assert finding.code == "fold-outlasts-tombstones"
    assert finding.numbers["seconds"] == pytest.approx(folded["seconds"], abs=0.01)


def test_a_replay_run_by_earlier_code_is_measured_by_its_ledger(stream: Lab) -> None:
    first = live(stream)
    outcome = replayed(stream)
    record, state = stream.record(), stream.ledger(first).state()
    rates = measurements.rates(stream.config.lake, record, state)
    epoch = record.epoch(outcome["epoch"])
    older = replace(epoch, replayed=replace(epoch.replayed, detail={"seq": outcome["seq"]}))
    epochs = {**record.epochs, outcome["epoch"]: older}
    without = replace(record, recent=epochs, make_whole=lambda: replace(record.make_whole(), epochs=epochs))
    rates_by_ledger = measurements.rates(stream.config.lake, without, state)
    assert (rates_by_ledger.records_per_second, rates_by_ledger.bytes_per_record) == (
        rates.records_per_second,
        rates.bytes_per_record,
    )
    assert measurements.outcome(older) == ""


def _started(row: Any) -> Any:
    from datetime import datetime

    return datetime.fromisoformat(row.detail["started_at"])


def _set(stream: Lab, topic: str, name: str, value: str) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    admin = AdminClient({"bootstrap.servers": stream.config.bootstrap_servers})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for answer in admin.incremental_alter_configs([change]).values():
        answer.result(30)
