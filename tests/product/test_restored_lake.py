"""A lake restored from a copy while the broker went on: nothing is sent twice or left out, and the driver says so."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.epochs import Lab
from support.power_cut import Disk, PowerCutError

from kappa import control
from kappa.record.events import Event
from kappa.replay.starts import FromMarker
from kappa.slices import protocol, writing
from kappa.slices.topics import sending

pytestmark = pytest.mark.spark


def stuck(stream: Lab) -> list[Event]:
    return [event for event in control.history(stream.config, stream.name) if event.event == "stuck"]


def restore(copy: Path, stream: Lab) -> None:
    shutil.rmtree(stream.config.lake)
    shutil.copytree(copy, stream.config.lake)


def serve(stream: Lab, epoch: int, *rounds: list[tuple[str, int]]) -> None:
    """Run an epoch's driver for some rounds of records, each at least a slice."""
    stream.run(epoch)
    stream.await_live(epoch)
    for rows in rounds:
        stream.produce(rows)
        stream.settle(epoch)
    assert stream.stop(epoch) == []


def test_a_lake_restored_from_a_copy_is_refused_and_rebuilt_from_the_broker(stream: Lab, tmp_path: Path) -> None:
    stream.produce([("a", 1), ("b", 2)])
    live = stream.start_live()
    assert stream.stop(live) == []
    shutil.copytree(stream.config.lake, tmp_path / "copy")
    serve(stream, live, [("a", 10)], [("b", 20)], [("a", 30)])
    sent, position = sorted(stream.sent()), stream.kafka.group_offsets(stream.paths(live).name)
    assert len(sent) == 5
    restore(tmp_path / "copy", stream)
    copied = stream.ledger(live).state()

    certificate = control.certify(stream.config, stream.name)
    assert not certificate.complete
    assert any("The lake is older than the broker" in problem for problem in certificate.problems), certificate.problems

    stream.produce([("c", 100), ("c", 200), ("c", 300), ("c", 400)])  # more slices' worth than were lost
    stream.run(live)
    stream.wait(lambda: stuck(stream), "the driver refuses")
    (event,) = stuck(stream)
    assert "The lake is older than the broker" in event.reason
    assert "kappa rebuild" in event.detail["error"]
    stream.deploy(2)
    later = stream.plan_replay()
    stream.run(later)
    stream.wait(lambda: stream.record().epoch(later).verified, "a candidate of the old lake is ready")
    control.cut_over(stream.config, stream.name, later, actor="test", reason="try", accept_verdict=True)
    stream.wait(lambda: stream.record().handover is None, "the handover is withdrawn")
    assert stream.record().live == live
    stream.close()
    state = stream.ledger(live).state()
    assert (state.seq, state.open_plan) == (copied.seq, copied.open_plan), "no slice was planned"
    assert not state.is_yielded
    assert sorted(stream.sent()) == sent
    assert stream.kafka.group_offsets(stream.paths(live).name) == position

    stream.deploy(1)
    stream.config = replace(stream.config, lake=str(tmp_path / "new-lake"))
    request = control.rebuild_request(stream.config, stream.name, actor="test", reason="as the message says")
    assert request.start == FromMarker(epoch=live)
    control.supersede(stream.config, control.plan(stream.config, request))
    rebuilt = control.replay(stream.config, control.plan(stream.config, request), actor="test", reason="rebuild")
    stream.run(rebuilt)
    stream.await_live(rebuilt)
    stream.settle(rebuilt)
    assert stream.balances() == {"a": 41, "b": 22, "c": 1000}
    assert sorted(stream.sent()) == sorted([*sent, ("c", 100), ("c", 200), ("c", 300), ("c", 400)])
    certificate = control.certify(stream.config, stream.name)
    assert certificate.complete, certificate.problems
    assert certificate.attested.startswith(f"the last marker of epoch {rebuilt} is of slice")


@pytest.mark.parametrize("claim", ["has sent up to", "went live last"])
def test_a_lake_copied_before_a_cutover_sends_nothing(stream: Lab, tmp_path: Path, claim: str) -> None:
    """Even if only the cutover came after the copy: by the broker, the other epoch is the one to rebuild."""
    stream.produce([("a", 1), ("b", 2)])
    first = stream.start_live()
    assert stream.stop(first) == []
    shutil.copytree(stream.config.lake, tmp_path / "copy")
    stream.run(first)
    stream.deploy(2)
    second = stream.plan_replay()
    stream.run(second)
    stream.wait(lambda: stream.record().epoch(second).verified, "verified")
    control.cut_over(stream.config, stream.name, second, actor="test", reason="v2", accept_verdict=True)
    stream.await_live(second)
    if claim == "has sent up to":
        stream.produce([("a", 10)])
    stream.settle(second)
    stream.wait(lambda: not stream.ledger(second).state().is_yielded, "it sends")
    stream.close()
    sent = sorted(stream.sent())
    restore(tmp_path / "copy", stream)
    certificate = control.certify(stream.config, stream.name)
    assert not certificate.complete
    assert any(f"epoch {second} {claim}" in problem for problem in certificate.problems), certificate.problems
    stream.run(first)
    stream.wait(lambda: stuck(stream), "the driver refuses")
    assert f"epoch {second} {claim}" in stuck(stream)[0].reason
    stream.close()
    assert sorted(stream.sent()) == sent


def test_a_certificate_says_when_kafka_could_not_be_asked(stream: Lab) -> None:
    stream.produce([("a", 1)])
    stream.start_live()
    assert control.certify(stream.config, stream.name).complete, "while the stream runs"
    stream.close()
    alone = replace(stream.config, bootstrap_servers="127.0.0.1:1")
    certificate = control.certify(alone, stream.name)
    assert not certificate.complete
    assert "Kafka was not asked" in certificate.problems[0]


def test_a_power_cut_loses_and_repeats_no_record(stream: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    stream.meant = (PowerCutError,)
    stream.produce([("a", 1)])
    live = stream.start_live()
    assert stream.stop(live) == []
    disk = Disk(root=Path(stream.config.lake))
    disk.watch(monkeypatch)
    goes_on = protocol.crash_point
    images: list[dict[Path, bytes]] = []
    amounts = [1]
    for amount, point in enumerate(("plan", "effects.changes", "effects", "send.open", "send", "apply", "commit"), 2):

        def cut(name: str, seq: int = 0, *, point: str = point) -> None:
            if name == point:
                images.append(disk.image())
                raise PowerCutError(point)
            goes_on(name, seq)

        stream.produce([("a", amount)])
        amounts.append(amount)
        disk.settle()
        for line in (protocol, writing, sending):
            monkeypatch.setattr(line, "crash_point", cut)
        stream.run(live)
        stream.wait(lambda: stream.running[live][2], f"the power goes at {point}")
        assert [type(error) for error in stream.stop(live)] == [PowerCutError]
        for line in (protocol, writing, sending):
            monkeypatch.setattr(line, "crash_point", goes_on)
        disk.restore(images.pop())
        stream.run(live)
        stream.settle(live)
        assert stream.stop(live) == [], point
        assert stuck(stream) == []
    assert sorted(stream.sent()) == [("a", amount) for amount in amounts]
    assert stream.balances() == {"a": sum(amounts)}
    certificate = control.certify(stream.config, stream.name)
    assert certificate.complete, certificate.problems


def test_tables_ahead_of_a_restored_ledger_are_not_taken_for_its_slices(stream: Lab, tmp_path: Path) -> None:
    stream.produce([("a", 1)])
    live = stream.start_live()
    assert stream.stop(live) == []
    stream.deploy(2)
    second = stream.plan_replay()
    stream.run(second)
    stream.wait(lambda: stream.record().epoch(second).verified, "a candidate, which sends nothing")
    assert stream.stop(second) == []
    ledger = Path(stream.paths(second).ledger)
    shutil.copytree(ledger, tmp_path / "kept")
    stream.run(live)
    stream.run(second)
    stream.produce([("a", 10)])
    stream.settle(live)
    stream.settle(second)
    stream.close()
    sent = sorted(stream.sent())
    shutil.rmtree(ledger)
    shutil.copytree(tmp_path / "kept", ledger)  # the ledger is older, the tables are not; the broker knows of neither
    stream.run(second)
    stream.wait(lambda: stuck(stream), "the candidate refuses")
    assert any(
        phrase in stuck(stream)[0].reason for phrase in ("ledger is older than its tables", "lake is older than the")
    )
    stream.close()
    assert sorted(stream.sent()) == sent
