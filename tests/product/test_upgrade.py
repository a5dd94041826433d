"""A live epoch takes new code between two slices: history stays, and nobody sees anything in between."""

from __future__ import annotations

import json
import threading
import zipfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kappa import clock, control
from kappa.control import upgrade
from kappa.control.upgrade import Upgrade
from kappa.driver.driver import Driver
from kappa.driver.maintenance import maintain
from kappa.errors import MoveRefusedError, RefusedError, UsageError
from kappa.names import code_file
from kappa.record import savepoints
from kappa.record.code import extract
from kappa.replay.request import ReplayRequest
from kappa.replay.stages import Stage
from kappa.replay.starts import FromSavepoint, ToEarliest
from kappa.topology.registry import load, load_apart
from kappa.verify.trial import Trial, trial, trial_range

if TYPE_CHECKING:
    from support.epochs import Lab

    from kappa.topology import Topology

ROWS: list[tuple[str, int] | bytes] = [("a", 1), ("b", 2), ("a", 3), ("c", 4)]

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def live(stream: Lab) -> int:
    """A first epoch that is live, has read everything in two slices, and goes on."""
    stream.produce(ROWS)
    epoch = stream.start_live()
    later(stream, "d", 5)
    return epoch


def later(stream: Lab, account: str, amount: int) -> None:
    """One more record, of a later time, read."""
    offset = sum(e for _, e in stream.kafka.stable_offsets([stream.topic]).items())
    stream.produce([(account, amount)], start_ms=1_700_000_000_000 + 60_000 * offset)
    stream.settle(stream.record().live)


def ask(stream: Lab, **changes: Any) -> Upgrade:
    """Deploy version 2, which counts twice, and ask for it."""
    stream.deploy(2)
    proposal = upgrade.propose(stream.config, stream.name, slices=0)
    upgrade.upgrade(
        stream.config, replace(proposal, **changes), history_stands=True, actor="ada", reason="twice from now on"
    )
    return proposal


def test_a_live_epoch_is_upgraded_at_a_slice_boundary_and_history_stays(stream: Lab) -> None:
    epoch = live(stream)
    first = stream.record().epoch(epoch).code
    proposal = ask(stream)
    stream.running[epoch][1].join(120)
    assert stream.stop(epoch) == []
    record = stream.record().epoch(epoch)
    assert (record.code, record.version, record.upgrade) == (proposal.to_code, "2", None)
    (row,) = [row for row in stream.ledger(epoch).rows() if row.kind == "upgrade"]
    boundary = stream.ledger(epoch).state().commits[-1]
    assert (row.code, row.seq, row.detail["from"]) == (proposal.to_code, boundary.seq, first)
    stream.run(epoch)
    later(stream, "a", 10)
    assert stream.balances() == {"a": 24, "b": 2, "c": 4, "d": 5}
    assert sorted(stream.sent()) == sorted([*ROWS, ("d", 5), ("a", 20)])
    commits = stream.ledger(epoch).state().commits
    assert [c.code for c in commits if c.seq <= row.seq] == [first] * (row.seq + 1)
    assert {c.code for c in commits if c.seq > row.seq} == {proposal.to_code}
    certificate = control.certify(stream.config, stream.name)
    assert certificate.complete and set(certificate.codes[epoch]) == {first, proposal.to_code}
    entries = [
        (e.event, e.actor, e.reason) for e in control.chronicle(stream.config, stream.name) if "upgrade" in e.event
    ]
    assert entries == [("upgrade", "ada", "twice from now on"), ("upgraded", "ada", "twice from now on")]
    assert stream.record().named_seqs(epoch) == {row.seq}


def test_a_new_owner_is_named_once_its_code_runs_and_nothing_objects(stream: Lab) -> None:
    epoch = live(stream)
    request = ReplayRequest(topology=stream.name, start=ToEarliest(), reason="test", actor="test")
    before = control.plan(stream.config, request).findings
    code = extract(stream.config.lake, stream.record().epoch(epoch).code, stream.config.home) / "topologies"
    file = stream.config.topologies / "balances.py"
    file.write_text(file.read_text().replace('version="1",', 'version="1", owner="team-b",'))
    assert control.plan(stream.config, request).findings == before
    assert json.loads(stream.output_of("topologies", "--json"))["topologies"][0]["owner"] == "team-b"
    assert control.status(stream.config, stream.name).owner == "", "the running code names none"
    after = load_apart(stream.config.topologies, stream.name)
    evidence = trial(stream.config, stream.session, stream.paths(epoch), code.parent.name, after, 2)
    assert evidence.is_equal and evidence.findings == ()
    proposal = upgrade.propose(stream.config, stream.name, slices=0)
    assert not proposal.refusals
    upgrade.upgrade(stream.config, proposal, history_stands=True, actor="ada", reason="another team")
    stream.running[epoch][1].join(120)
    assert stream.stop(epoch) == []
    stream.run(epoch)
    later(stream, "a", 10)
    assert control.status(stream.config, stream.name).owner == "team-b"


def test_an_upgrade_is_undone_by_the_old_file_and_a_replay_from_a_savepoint(stream: Lab) -> None:
    epoch = live(stream)
    first = stream.record().epoch(epoch).code
    ask(stream)
    stream.running[epoch][1].join(120)
    stream.stop(epoch)
    stream.run(epoch)
    later(stream, "a", 10)
    assert stream.balances()["a"] == 24
    with zipfile.ZipFile(code_file(stream.config.lake, first)) as stored:
        (stream.config.topologies / "balances.py").write_bytes(stored.read("topologies/balances.py"))
    (savepoint,) = savepoints.every(stream.config, stream.name)
    second = stream.plan_replay(FromSavepoint(name=savepoint.name))
    stream.run(second)
    stream.await_stage(second, Stage.VERIFIED)
    assert stream.balances(second) == {"a": 14, "b": 2, "c": 4, "d": 5}


def test_a_driver_killed_at_the_ledger_row_leaves_either_old_or_new_code(
    stream: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = live(stream)
    assert stream.stop(epoch) == []
    first = stream.record().epoch(epoch).code
    proposal = ask(stream)

    def dies_at(point: str) -> None:
        from kappa.driver import upgrade as switching

        def crash(name: str, seq: int | None = None) -> None:
            if name == point:
                raise SystemExit(point)

        with monkeypatch.context() as patch:
            patch.setattr(switching, "crash_point", crash)
            stream.run(epoch)
            stream.running[epoch][1].join(120)
            (error,) = stream.stop(epoch)
            assert isinstance(error, SystemExit)

    dies_at("upgrade.ready")
    assert stream.ledger(epoch).state().upgrade is None
    assert stream.record().epoch(epoch).code == first
    dies_at("upgrade")
    state = stream.ledger(epoch).state()
    assert state.upgrade is not None and state.upgrade.code == proposal.to_code
    assert stream.record().epoch(epoch).upgrade is not None  # nobody has told yet
    stream.produce([("a", 10)], start_ms=1_700_000_900_000)
    stream.run(epoch)  # by the record it is still the old code
    stream.running[epoch][1].join(120)
    assert stream.stop(epoch) == []
    assert stream.ledger(epoch).state().commits[-1].seq == state.commits[-1].seq
    assert stream.record().epoch(epoch).code == proposal.to_code
    assert [e.event for e in stream.record().events].count("upgraded") == 1
    stream.run(epoch)
    stream.settle(epoch)
    assert stream.balances()["a"] == 24
    assert len([r for r in stream.ledger(epoch).rows() if r.kind == "upgrade"]) == 1


def test_one_of_two_simultaneous_operators_is_refused(stream: Lab) -> None:
    epoch = live(stream)
    assert stream.stop(epoch) == []
    stream.deploy(2)
    proposal = upgrade.propose(stream.config, stream.name, slices=0)
    answers: list[str] = []
    gate = threading.Barrier(2, timeout=60)

    def operator(name: str) -> None:
        gate.wait()
        try:
            upgrade.upgrade(stream.config, proposal, history_stands=True, actor=name, reason="r")
            answers.append("asked")
        except MoveRefusedError as error:
            answers.append(str(error))

    threads = [threading.Thread(target=operator, args=(name,), daemon=True) for name in ("ada", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert "asked" in answers
    (refused,) = [answer for answer in answers if answer != "asked"]
    assert "asked for an upgrade" in refused
    assert [e.event for e in stream.record().events].count("upgrade") == 1


def test_a_refused_upgrade_changes_nothing_and_says_what_to_do(stream: Lab) -> None:
    epoch = live(stream)
    same = upgrade.propose(stream.config, stream.name, slices=0)
    assert [f.code for f in same.refusals] == ["upgrade-same-code"]
    stream.deploy(2)
    proposal = upgrade.propose(stream.config, stream.name, slices=0)
    files = sorted(Path(stream.config.lake, "_kappa").rglob("*"))
    with pytest.raises(UsageError, match="--history-stands"):
        upgrade.upgrade(stream.config, proposal, history_stands=False, actor="ada", reason="r")
    with pytest.raises(UsageError, match="and why"):
        upgrade.upgrade(stream.config, proposal, history_stands=True, actor="ada", reason=" ")
    file = stream.config.topologies / "balances.py"
    file.write_text(
        file.read_text().replace("counted BIGINT, total BIGINT", "counted BIGINT, total BIGINT, more STRING")
    )
    other = upgrade.propose(stream.config, stream.name, slices=0)
    assert [f.code for f in other.refusals] == ["upgrade-changes-outputs"]
    with pytest.raises(RefusedError, match="column 'more' of output 'moves' is new"):
        upgrade.upgrade(stream.config, other, history_stands=True, actor="ada", reason="r")
    file.write_text("import a_module_that_nobody_has\n" + file.read_text())
    broken = upgrade.propose(stream.config, stream.name, slices=0)
    assert [f.code for f in broken.refusals] == ["code-does-not-import"]
    assert sorted(Path(stream.config.lake, "_kappa").rglob("*")) == files
    assert stream.record().epoch(epoch).upgrade is None
    stream.deploy(2)
    stream.plan_replay()
    beside = upgrade.propose(stream.config, stream.name, slices=0)
    assert [f.code for f in beside.refusals] == ["upgrade-beside-candidate"]
    with pytest.raises(MoveRefusedError, match="is being built"):
        upgrade.upgrade(stream.config, proposal, history_stands=True, actor="ada", reason="r")


def test_an_upgrade_to_unavailable_code_is_withdrawn_and_the_stream_goes_on(stream: Lab) -> None:
    epoch = live(stream)
    assert stream.stop(epoch) == []
    proposal = ask(stream)
    Path(code_file(stream.config.lake, proposal.to_code)).unlink()
    import shutil

    shutil.rmtree(stream.config.home / "code" / proposal.to_code)
    stream.run(epoch)
    later(stream, "a", 10)
    assert stream.balances()["a"] == 14
    assert stream.record().epoch(epoch).upgrade is None
    assert stream.record().events[-1].event == "upgrade_withdrawn"
    with pytest.raises(MoveRefusedError, match="is not in the lake"):
        upgrade.await_switch(stream.config, proposal)


def test_corrected_code_frees_a_stuck_epoch_without_loss_or_repetition(stream: Lab) -> None:
    stream.config = replace(stream.config, attempts=2)
    epoch = live(stream)
    driver: Driver = stream.running[epoch][0]

    def poisoned(_: object) -> Any:
        raise ValueError("this step is broken")

    driver.engines.slice_run.topology = replace(driver.epoch.topology, step=poisoned)
    stream.produce([("z", 1)], start_ms=1_700_000_900_000)
    stream.wait(lambda: control.driver_status(stream.config, stream.name, epoch).state == "stuck", "stuck")
    ask(stream)
    stream.running[epoch][1].join(120)
    assert stream.stop(epoch) == []
    stream.run(epoch)
    stream.settle(epoch)
    assert stream.balances() == {"a": 4, "b": 2, "c": 4, "d": 5, "z": 2}
    assert sorted(stream.sent()) == sorted([*ROWS, ("d", 5), ("z", 2)])
    assert control.certify(stream.config, stream.name).complete


def test_evidence_compares_new_code_with_what_was_written_and_leaves_nothing(stream: Lab) -> None:
    epoch = live(stream)
    later(stream, "a", 10)
    paths, running = stream.paths(epoch), stream.record().epoch(epoch).code
    before = load_apart(extract(stream.config.lake, running, stream.config.home) / "topologies", stream.name)
    files = {p for p in Path(paths.root).rglob("*") if "/recomputed/" in str(p)}
    sent = sorted(stream.sent_values())
    stream.deploy(2)

    def tried(after: Topology, slices: int, code: str = running) -> Trial:
        return trial(stream.config, stream.session, paths, code, after, slices)

    other = tried(load(stream.config.topologies, stream.name), 1)
    assert other.report is not None and (other.findings, other.is_equal) == ((), False)
    assert other.report.verdict == "differs"
    (balances,), (moves,) = other.report.tables, other.report.outputs
    assert (balances.rows_live, balances.keys_changed, balances.changed_columns) == (4, 1, {"total": 1})
    assert (moves.rows_live, moves.rows_candidate, moves.rows_added, moves.rows_removed) == (1, 1, 1, 1)
    assert "Slices" in other.report.notes[0]
    steps: list[tuple[int, int]] = []
    same = trial(stream.config, stream.session, paths, running, before, 2, progress=lambda *step: steps.append(step))
    assert (same.is_equal, same.slices, same.due, steps) == (True, 2, 2, [(1, 2), (2, 2)])
    assert (same.rows, same.gaps) == (4, ()), "a change of balances and a row of moves per slice, not all balances"
    assert {p for p in Path(paths.root).rglob("*") if "/recomputed/" in str(p)} == files
    assert sorted(stream.sent_values()) == sent
    poisoned = tried(replace(before, step=lambda _: 1 / 0), 1)
    (why,) = [finding for finding in poisoned.findings if finding.code != "step-not-inspected"]
    assert (poisoned.report, poisoned.is_equal) == (None, False)
    assert why.code == "upgrade-fails" and "ZeroDivisionError" in why.message
    nothing = tried(before, 2, code="of another release")
    assert (nothing.report, nothing.is_equal, nothing.due) == (None, False, 2)
    assert [finding.code for finding in nothing.findings] == ["upgrade-without-evidence"]
    state = stream.ledger(epoch).state()
    assert [len(trial_range(state, n, running)[1]) for n in (1, 2, 1000)] == [1, 2, len(state.commits) - 1]


def test_slices_that_wrote_no_row_are_no_evidence(stream: Lab) -> None:
    stream.produce([("a", 1)])
    epoch = stream.start_live()
    stream.produce([b'{"id": "c"}'], start_ms=1_700_000_060_000)
    stream.settle(epoch)
    paths, running = stream.paths(epoch), stream.record().epoch(epoch).code
    after = load_apart(stream.config.topologies, stream.name)
    evidence = trial(stream.config, stream.session, paths, running, after, 1)
    assert (evidence.report, evidence.is_equal, evidence.due) == (None, False, 1)
    (why,) = evidence.findings
    assert why.code == "upgrade-without-evidence" and "wrote none" in why.message


def test_a_slice_that_counts_its_records_otherwise_is_not_equal(stream: Lab) -> None:
    stream.produce([("a", 1)])
    epoch = stream.start_live()
    stream.produce([b'{"id": "c"}', ("b", 2)], start_ms=1_700_000_060_000)
    stream.settle(epoch)
    paths, running = stream.paths(epoch), stream.record().epoch(epoch).code
    file = stream.config.topologies / "balances.py"
    assert trial(stream.config, stream.session, paths, running, load_apart(file.parent, stream.name), 9).is_equal
    text = file.read_text().replace("amount BIGINT NOT NULL", "amount BIGINT")
    file.write_text(text.replace('"].selectExpr', '"].where("amount IS NOT NULL").selectExpr'))
    evidence = trial(stream.config, stream.session, paths, running, load_apart(file.parent, stream.name), 1)
    assert evidence.report is not None and not evidence.is_equal
    assert all(one.is_same for one in (*evidence.report.tables, *evidence.report.outputs))
    (check,) = evidence.report.checks
    assert "parsed 1 -> 2" in check.detail and "dead 1 -> 0" in check.detail


LASTS = """
from kappa.topology import Source, Table, Topology

def step(slice):
    return {{"lasts": slice["{topic}"].selectExpr("id", "IF(amount = 1, {first}, amount) AS amount")}}

topology = Topology(
    name="{name}",
    version="1",
    sources=[Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL")],
    tables=[Table(name="lasts", key="id", schema="id STRING NOT NULL, amount BIGINT")],
    step=step,
)
"""


def test_a_change_that_a_later_slice_hides_is_not_equal(stream: Lab) -> None:
    file = stream.config.topologies / "balances.py"
    names = {"topic": stream.topic, "name": stream.name}
    file.write_text(LASTS.format(first=1, **names))
    stream.produce([("b", 4)])
    epoch = stream.start_live()
    later(stream, "a", 1)
    later(stream, "a", 5)
    paths, running = stream.paths(epoch), stream.record().epoch(epoch).code
    assert trial(stream.config, stream.session, paths, running, load_apart(file.parent, stream.name), 2).is_equal
    file.write_text(LASTS.format(first=7, **names))
    evidence = trial(stream.config, stream.session, paths, running, load_apart(file.parent, stream.name), 2)
    assert evidence.report is not None and evidence.report.tables[0].is_same and not evidence.is_equal
    (check,) = evidence.report.checks
    assert (check.name, check.detail) == ("changes of lasts", "1 are not made, 1 others are")


def test_evidence_is_read_from_what_upkeep_left_and_is_none_where_that_is_gone(stream: Lab) -> None:
    stream.config = replace(stream.config, merge_seconds=0.0)
    epoch = live(stream)
    for amount in (10, 20, 30):
        later(stream, "a", amount)
    run = stream.running[epoch][0].engines.slice_run
    assert stream.stop(epoch) == []
    paths, running = stream.paths(epoch), stream.record().epoch(epoch).code
    after = load_apart(stream.config.topologies, stream.name)
    maintain(run, stream.config, clock.now())
    evidence = trial(stream.config, stream.session, paths, running, after, 3)
    assert (evidence.is_equal, evidence.slices, evidence.rows, evidence.gaps) == (True, 3, 6, ())
    before = stream.ledger(epoch).state().commits[-1].seq - 3
    maintain(run, stream.config, clock.now() + timedelta(days=9), lambda: {before})
    evidence = trial(stream.config, stream.session, paths, running, after, 3)
    assert evidence.report is not None and evidence.report.verdict == "same"
    assert (evidence.is_equal, evidence.slices, evidence.rows) == (False, 3, 4), "a change of three is left"
    (gap,) = evidence.gaps
    assert gap in evidence.report.notes and gap.startswith("Changes of table balances by slices 3 to 4 are merged")
    maintain(run, stream.config, clock.now() + timedelta(days=9))
    evidence = trial(stream.config, stream.session, paths, running, after, 3)
    assert (evidence.report, evidence.is_equal, evidence.slices, evidence.due) == (None, False, 0, 3)
    (why,) = evidence.findings
    assert why.code == "upgrade-without-evidence" and "KAPPA_KEEP_MINUTES" in why.message
