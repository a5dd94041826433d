"""An epoch counted again: what was done behind the ledger's back is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
import typer
from deltalake import DeltaTable, write_deltalake
from support.slices import Epoch

from kappa import control, serving
from kappa.cli import reads
from kappa.lake import foreign_commits
from kappa.lake.epoch_record import TopologyRecord
from kappa.lake.ledger import Ledger
from kappa.verify import recount_topics
from kappa.verify.recount import Recount, recount


@pytest.fixture
def epoch(tmp_path: Path) -> Epoch:
    made = Epoch(tmp_path, merge_seconds=0.0)
    for number in range(3):
        made.slice({("a", number): number, ("b", number): 10 * number})
    return made


def problems(epoch: Epoch) -> list[str]:
    found: Recount = recount(epoch.paths)
    return list(found.problems)


def test_nothing_is_found_where_nothing_was_done_and_what_was_read_is_said(epoch: Epoch) -> None:
    told: list[str] = []
    found = recount(epoch.paths, told.append)
    assert found.problems == ()
    assert told == ["changes/sums", "dead_letters", "tables/sums", "dead letters"]
    assert found.read[0] == "changes/sums: 4 commits from version 0, 3 files"
    assert found.unread == ()


def test_rows_deleted_behind_the_ledger_are_named_until_they_are_back(epoch: Epoch) -> None:
    DeltaTable(epoch.paths.changes("sums")).delete("id = 'a'")
    (problem,) = problems(epoch)
    assert problem.startswith("changes/sums: version 4 (DELETE at ")
    assert problem.endswith("kappa restore sums")
    foreign_commits.undo(epoch.paths, epoch.run.ledger.state())
    assert problems(epoch) == []


def test_a_foreign_commit_below_the_last_slice_is_named_too(epoch: Epoch) -> None:
    rows = pa.table({"id": ["z"], "select": pa.array([0], pa.int32()), "total": [1]})
    write_deltalake(epoch.paths.table("sums"), rows, mode="append")
    epoch.run.watch.looked["tables/sums"] = 99  # as of a driver of before this was looked at
    epoch.slice({("a", 0): 5})
    assert any("tables/sums: version 4 (WRITE" in problem for problem in problems(epoch))


def test_a_data_file_that_is_gone_is_named(epoch: Epoch) -> None:
    (file, *_) = [Path(name.removeprefix("file://")) for name in DeltaTable(epoch.paths.changes("sums")).file_uris()]
    file.unlink()
    (problem,) = problems(epoch)
    assert f"data file {file.name} is gone, with 2 rows" in problem


def test_a_ledger_that_lost_its_end_is_named(epoch: Epoch) -> None:
    log = Path(epoch.paths.ledger, "_delta_log")
    for entry in sorted(log.glob("*.json"))[-3:]:  # plan, effects and commit of the last slice
        entry.unlink()
    assert any("holds slice 3, the ledger ends at slice 2" in problem for problem in problems(epoch))


def test_parsed_records_that_were_rewritten_as_dead_have_no_dead_letters(
    epoch: Epoch, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Ledger.state

    def rewritten(ledger: Ledger) -> object:
        state = whole(ledger)
        commits = [replace(c, rows_read=5, rows_dead=5) if c.seq == 2 else c for c in state.commits]
        return replace(state, commits=commits)

    monkeypatch.setattr(Ledger, "state", rewritten)
    (problem,) = problems(epoch)
    assert problem.startswith("slice 2 has 5 dead letters by the ledger, 0 are in dead_letters")


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_says_what_it_found_and_fails(
    epoch: Epoch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    certificate = SimpleNamespace(complete=True, render=lambda: ["complete"], to_json=lambda: '{"complete": true}')
    monkeypatch.setenv("KAPPA_LAKE", epoch.paths.lake)
    monkeypatch.setattr(control, "certify", lambda *_: certificate)
    monkeypatch.setattr(serving, "resolve", lambda *_: 1)
    monkeypatch.setattr(TopologyRecord, "epoch", lambda *_: None)
    topics = Recount(epoch=1, problems=(), read=("topic moves",), unread=())
    monkeypatch.setattr(recount_topics, "recount_topics", lambda *_: topics)
    reads.certify("sums", deep=True, json=as_json)
    printed = capsys.readouterr().out
    assert ('"problems": []' if as_json else "Epoch 1 is as its ledger says.") in printed
    assert "topic moves" in printed
    DeltaTable(epoch.paths.table("sums")).delete("id = 'a'")
    with pytest.raises(typer.Exit) as ended:
        reads.certify("sums", deep=True, json=as_json)
    assert ended.value.exit_code == 1
    assert "tables/sums: version 4 (DELETE" in capsys.readouterr().out
