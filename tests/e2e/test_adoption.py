"""Taking over a stream that runs: a plain job of Structured Streaming, stopped, adopted, gone on, then replayed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support.deaths import ENDLESS, run_to_death
from support.processes import Rig, crashing, rows
from support.streaming_job import Job, job_of

from kappa import control
from kappa.errors import RefusedError
from kappa.replay.request import Seed
from kappa.replay.stages import Stage

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).resolve().parents[2] / "docs" / "take-over-a-running-stream.md"
ADOPT = "kappa adopt shop.balances --table balances=/srv/tables/balances --checkpoint /srv/checkpoints/balances"
REPLAY = "kappa replay shop.balances --seed from-tables --execute"

BEFORE, AFTER, LATER = rows(60), rows(40, first=60), rows(20, first=100)


def sums(records: Iterable[tuple[str, int] | bytes], factor: int = 1, begin: Mapping[str, int] = {}) -> dict[str, int]:
    """What a table of sums must hold, in plain Python."""
    totals = dict(begin)
    for record in records:
        if isinstance(record, tuple):
            totals[record[0]] = totals.get(record[0], 0) + factor * record[1]
    return totals


def amounts(records: Iterable[tuple[str, int] | bytes], factor: int = 1) -> list[tuple[str, int]]:
    """The records that come out of these, sorted."""
    return sorted((record[0], factor * record[1]) for record in records if isinstance(record, tuple))


def files(folder: Path) -> dict[str, str]:
    """Every file below a folder, with a hash of its content."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def words_of(machine: Rig, job: Job, command: str) -> list[str]:
    """The words of a command of the page, with the names of a test."""
    names = {
        "shop.balances": machine.name,
        "balances=/srv/tables/balances": f"balances={job.table}",
        "/srv/checkpoints/balances": job.checkpoint,
    }
    assert f"\n{command}\n" in PAGE.read_text()
    return [names.get(word, word) for word in command.split()[1:]]


def await_adopted(machine: Rig) -> None:
    """Wait until the adopted stream is live."""
    machine.started.add(1)
    machine.await_live(1)


def test_an_adopted_stream_goes_on_and_is_replayed_from_table_and_log(machine: Rig, tmp_path: Path) -> None:
    machine.produce(BEFORE)
    job = job_of(machine.config, machine.topic, tmp_path / "old")
    job.run()
    old = files(tmp_path / "old")
    shown = machine.output_of(*words_of(machine, job, ADOPT))
    assert f"balances from {job.table} at version" in shown and "Nothing was changed" in shown
    machine.output_of(*words_of(machine, job, f"{ADOPT} --execute"))
    await_adopted(machine)
    machine.produce(AFTER)
    machine.settle(1)
    assert machine.balances() == sums([*BEFORE, *AFTER]) == machine.folded(1)
    assert sorted(machine.sent()) == amounts(AFTER)

    machine.delete_before({0: 1, 1: 1})
    machine.deploy(2)
    with pytest.raises(RefusedError):
        machine.output_of("replay", machine.name, "--execute")
    machine.output_of(*words_of(machine, job, REPLAY))
    machine.started.add(2)
    machine.await_stage(2, Stage.VERIFIED)
    expected = sums(AFTER, 2, sums(BEFORE))
    assert machine.balances(2) == expected
    control.cut_over(machine.config, machine.name, 2, actor="test", reason="test")
    machine.await_live(2)
    machine.produce(LATER)
    machine.settle(2)
    assert machine.balances() == sums(LATER, 2, expected) == machine.folded(2)
    assert sorted(machine.sent()) == sorted([*amounts(AFTER), *amounts(LATER, 2)])
    assert control.certify(machine.config, machine.name).complete

    machine.deploy(3)
    machine.plan_replay(seed=Seed.FROM_TABLES)
    machine.await_stage(3, Stage.VERIFIED)
    assert machine.balances(3) == sums([*AFTER, *LATER], 3, sums(BEFORE))
    assert files(tmp_path / "old") == old


#: Where the command dies, then the drivers.
COMMAND_POINTS, DRIVER_POINTS = ("planned.code", "planned.plan", "planned"), ("seed.tables", "seed", "seeded", "moved")


def test_an_adoption_killed_at_each_step_ends_as_if_nothing_had_happened(machine: Rig, tmp_path: Path) -> None:
    machine.config = replace(machine.config, attempts=ENDLESS)
    machine.produce(BEFORE)
    job = job_of(machine.config, machine.topic, tmp_path / "old")
    job.run()
    old = files(tmp_path / "old")
    words = words_of(machine, job, f"{ADOPT} --execute")
    environ = {**os.environ, **machine.config.to_env()}
    for point in COMMAND_POINTS:
        run_to_death("-m", "kappa", *words, "--detach", point=point, environ=environ)
    machine.started.add(1)
    with crashing(DRIVER_POINTS[0]):
        machine.output_of(*words, "--detach")
    machine.await_death(1, DRIVER_POINTS[0])
    for point in DRIVER_POINTS[1:]:
        machine.run(1, point)
        machine.await_death(1)
    machine.output_of(*words)
    machine.await_live(1)
    machine.produce(AFTER)
    machine.settle(1)
    assert set(machine.record().epochs) == {1}
    assert machine.balances() == sums([*BEFORE, *AFTER]) == machine.folded(1)
    assert sorted(machine.sent()) == amounts(AFTER)
    assert files(tmp_path / "old") == old
    assert "Nothing to do" in machine.output_of(*words[:-1])


def test_the_log_of_a_table_says_which_batch_it_holds(machine: Rig, tmp_path: Path) -> None:
    machine.produce(BEFORE)
    job = job_of(machine.config, machine.topic, tmp_path / "old", sink="complete")
    job.run()
    ends = machine.kafka.stable_offsets([machine.topic])
    first = {f"{topic}[{partition}]={offset}" for (topic, partition), offset in ends.items()}
    machine.produce(AFTER)
    job.run()
    with pytest.raises(RefusedError) as refused:
        machine.output_of(*words_of(machine, job, f"{ADOPT} --execute"))
    (finding,) = refused.value.data["findings"]
    assert "The job keeps state in" in finding and "adopted-job-keeps-state" in finding
    words = [*words_of(machine, job, ADOPT), "--allow", "adopted-job-keeps-state"]
    now = {f"{t}[{p}]={offset}" for (t, p), offset in machine.kafka.stable_offsets([machine.topic]).items()}
    folder = Path(job.checkpoint)
    # What is left where the job is killed after its sink has written a batch, and where that is before it has.
    for commit in folder.glob("commits/*1*"):
        commit.unlink()
    assert now <= set(machine.output_of(*words).split())
    older = [f"{word}@0" if word.startswith("balances=") else word for word in words]
    assert first <= set(machine.output_of(*older).split())


def test_a_batch_that_may_have_been_written_is_refused_until_the_job_ran_once_more(
    machine: Rig, tmp_path: Path
) -> None:
    machine.produce(BEFORE)
    job = job_of(machine.config, machine.topic, tmp_path / "old")
    replace(job, dies=True).run()
    words = words_of(machine, job, ADOPT)
    with pytest.raises(RefusedError, match="Start the old job once more, stop it after a batch"):
        machine.output_of(*words)
    job.run()
    assert "go live immediately" in machine.output_of(*words)
