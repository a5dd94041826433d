"""An epoch counted again: changes without the ledger are found."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
import typer
from deltalake import DeltaTable, write_deltalake
from support.damages import drain, halve, lose
from support.slices import Epoch

from kappa import clock, control, serving
from kappa.cli.views import reads
from kappa.config import Config
from kappa.delta import queries, vacuum
from kappa.driver.maintenance import maintain
from kappa.record import foreign_writes, rollup
from kappa.record.epoch_record import TopologyRecord
from kappa.record.ledger import Ledger
from kappa.slices.merging import merge_between
from kappa.verify import topic_recount
from kappa.verify.recount import Recount, recount


@pytest.fixture
def epoch(tmp_path: Path) -> Epoch:
    epoch = Epoch(tmp_path, merge_seconds=0.0)
    for number in range(3):
        epoch.slice({("a", number): number, ("b", number): 10 * number})
    return epoch


def problems(epoch: Epoch) -> list[str]:
    report: Recount = recount(epoch.paths)
    return list(report.problems)


def test_an_untouched_epoch_has_no_problems_and_the_report_names_its_reads(epoch: Epoch) -> None:
    steps: list[str] = []
    report = recount(epoch.paths, steps.append)
    assert report.problems == ()
    assert steps == ["changes/sums", "dead_letters", "tables/sums", "content of files", "dead letters"]
    assert report.read[0] == "changes/sums: 4 commits from version 0, 3 files"
    assert report.unread == ()
    assert report.read[-3] == "changes/sums: 3 files hold what the ledger says"


#: A total that no other bytes of a file look like.
_TOTAL = 987_654_321


def _change_total(files: Iterable[Path]) -> list[Path]:
    """Change a row in place: the number of rows, the size of the file and the log stay as they are."""
    old, new = struct.pack("<q", _TOTAL), struct.pack("<q", _TOTAL - 1)
    changed = []
    for file in files:
        content = file.read_bytes()
        if old in content:
            file.write_bytes(content.replace(old, new))
            changed.append(file)
    return changed


@pytest.mark.parametrize("place", ["changes/sums", "tables/sums"])
def test_a_row_changed_in_place_is_named_by_its_file(epoch: Epoch, place: str) -> None:
    epoch.slice({("a", 0): _TOTAL})
    (file,) = _change_total(_files(epoch, place, "*.parquet"))
    assert _TOTAL - 1 in queries.query(epoch.paths.place(place), None)["total"].to_pylist()

    (problem,) = problems(epoch)

    assert problem.startswith(f"{place}: data file {file.name} was changed after it was written")
    assert problem.endswith("kappa replay sums")


def test_files_added_between_two_slices_are_bound_by_the_first_row_that_names_them(tmp_path: Path) -> None:
    epoch = Epoch(tmp_path, merge_seconds=3600.0)
    epoch.slice({("a", 0): _TOTAL})
    assert merge_between(epoch.run, is_asked=True)
    (row,) = (row for row in epoch.run.ledger.rows() if row.kind == "files")
    assert list(row.detail["files"]) == ["tables/sums"]
    assert recount(epoch.paths).unread == ()
    assert _change_total(_files(epoch, "tables/sums", "*.parquet"))
    (problem,) = problems(epoch)
    assert problem.startswith("tables/sums: data file ")

    epoch.slice({("b", 0): 1})  # its rows name only what came since

    assert problems(epoch) == [problem]


def test_files_of_rolled_up_slices_and_of_upkeep_stay_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = Epoch(tmp_path, merge_seconds=0.0)
    for number in range(30):
        epoch.slice({("a", 0): _TOTAL, ("b", 1): number})
    state = epoch.run.ledger.state()
    row = rollup.rolled_up(state, writer="me", code="code", at=clock.now())
    assert row is not None
    epoch.run.ledger.roll_up(row)
    assert recount(epoch.paths).problems == () == recount(epoch.paths).unread
    monkeypatch.setattr(vacuum, "COMPACT_AFTER", 5)
    maintain(epoch.run, Config.from_env({"KAPPA_LAKE": str(tmp_path)}), clock.now())
    assert len(queries.files(epoch.paths.changes("sums")) or ()) < 30
    assert recount(epoch.paths).problems == () == recount(epoch.paths).unread

    changed = _change_total(_files(epoch, "changes/sums", "*.parquet"))

    live = {Path(uri).name for uri in DeltaTable(epoch.paths.changes("sums")).file_uris()}
    named = {problem.split("data file ")[1].split(" ")[0] for problem in problems(epoch)}
    assert {file.name for file in changed} & live <= named
    assert named


def test_files_without_a_ledger_row_are_not_vouched_for(epoch: Epoch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "history", lambda self: iter([[]]))
    report = recount(epoch.paths)
    assert report.problems == ()
    assert "changes/sums: the ledger does not say what 3 of 3 files hold" in report.unread


def test_rows_deleted_without_the_ledger_are_named_until_restored(epoch: Epoch) -> None:
    DeltaTable(epoch.paths.changes("sums")).delete("id = 'a'")
    (problem,) = problems(epoch)
    assert problem.startswith("changes/sums: version 4 (DELETE at ")
    assert problem.endswith("kappa restore sums --epoch 1")
    foreign_writes.undo(epoch.paths, epoch.run.ledger.state())
    assert problems(epoch) == []


def test_a_foreign_commit_before_the_last_slice_is_named(epoch: Epoch) -> None:
    rows = pa.table({"id": ["z"], "select": pa.array([0], pa.int32()), "total": [1]})
    write_deltalake(epoch.paths.table("sums"), rows, mode="append")
    epoch.run.watch.looked["tables/sums"] = 99  # as of a driver of before this was looked at
    epoch.slice({("a", 0): 5})
    assert any("tables/sums: version 4 (WRITE" in problem for problem in problems(epoch))


def test_a_missing_data_file_is_named(epoch: Epoch) -> None:
    (file, *_) = [Path(name.removeprefix("file://")) for name in DeltaTable(epoch.paths.changes("sums")).file_uris()]
    file.unlink()
    (problem,) = problems(epoch)
    assert f"data file {file.name} is gone, with 2 rows" in problem


def test_a_ledger_that_lost_its_end_is_named(epoch: Epoch) -> None:
    log = Path(epoch.paths.ledger, "_delta_log")
    for entry in sorted(log.glob("*.json"))[-3:]:  # plan, effects and commit of the last slice
        entry.unlink()
    assert any("holds slice 3, the ledger ends at slice 2" in problem for problem in problems(epoch))


def test_parsed_records_rewritten_as_dead_lack_dead_letters(epoch: Epoch, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Ledger.state

    def rewritten(ledger: Ledger) -> object:
        state = whole(ledger)
        commits = [replace(c, rows_read=5, rows_dead=5) if c.seq == 2 else c for c in state.commits]
        return replace(state, commits=commits)

    monkeypatch.setattr(Ledger, "state", rewritten)
    (problem,) = problems(epoch)
    assert problem.startswith("slice 2 has 5 dead letters by the ledger, 0 are in dead_letters")


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_prints_the_problems_and_fails(
    epoch: Epoch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    certificate = SimpleNamespace(complete=True, render=lambda: ["complete"], to_json=lambda: '{"complete": true}')
    monkeypatch.setenv("KAPPA_LAKE", epoch.paths.lake)
    monkeypatch.setattr(control, "certify", lambda *_: certificate)
    monkeypatch.setattr(control, "check_name", lambda *_: None)
    monkeypatch.setattr(serving, "resolve", lambda *_: 1)
    monkeypatch.setattr(TopologyRecord, "epoch", lambda *_: None)
    topics = Recount(epoch=1, problems=(), read=("topic moves",), unread=())
    monkeypatch.setattr(topic_recount, "recount_topics", lambda *_: topics)
    reads.certify("sums", deep=True, json=as_json)
    printed = capsys.readouterr().out
    assert ('"problems": []' if as_json else "Epoch 1 is as its ledger says.") in printed
    assert "topic moves" in printed
    DeltaTable(epoch.paths.table("sums")).delete("id = 'a'")
    with pytest.raises(typer.Exit) as ended:
        reads.certify("sums", deep=True, json=as_json)
    assert ended.value.exit_code == 1
    assert "tables/sums: version 4 (DELETE" in capsys.readouterr().out


def _files(epoch: Epoch, place: str, pattern: str) -> list[Path]:
    return sorted(Path(epoch.paths.place(place)).glob(pattern))


def _spoil(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(b"\0" * len(content))


@pytest.mark.parametrize("place", ["changes/sums", "tables/sums", "dead_letters"])
@pytest.mark.parametrize("damage", [lose, halve, _spoil, drain])
@pytest.mark.parametrize("pattern", ["*.parquet", "_delta_log/*.json"], ids=["data", "log"])
def test_a_damaged_file_is_a_problem_of_its_place_and_the_rest_is_counted(
    epoch: Epoch, place: str, damage: Callable[[Path], object], pattern: str
) -> None:
    files = _files(epoch, place, pattern)
    if not files:
        assert (place, pattern) == ("dead_letters", "*.parquet")  # there are none
        return
    damage(files[-1])

    steps: list[str] = []
    report = recount(epoch.paths, steps.append)

    assert report.problems, f"{place}: {files[-1].name}"
    assert all(problem.startswith(place) and "kappa re" in problem for problem in report.problems), report.problems
    assert {"changes/sums", "dead_letters", "tables/sums"} <= set(steps)


def test_an_unreadable_ledger_is_a_problem(epoch: Epoch) -> None:
    for file in Path(epoch.paths.ledger).glob("**/*.parquet"):
        _spoil(file)
    for file in Path(epoch.paths.ledger).glob("_delta_log/*.json"):
        _spoil(file)

    (problem,) = recount(epoch.paths).problems

    assert problem.startswith("ledger cannot be read: ")
    assert problem.endswith("kappa replay sums")


def test_a_foreign_commit_that_only_merges_files_is_noticed_and_another_is_a_problem(epoch: Epoch) -> None:
    DeltaTable(epoch.paths.changes("sums")).optimize.compact()
    assert recount(epoch.paths).problems == ()
    DeltaTable(epoch.paths.table("sums")).alter.add_constraint({"grown": "total > -1000"})

    report = recount(epoch.paths)

    assert [problem.split(" (")[0] for problem in report.problems] == ["tables/sums: version 4"]
    assert [notice.split(" (")[0] for notice in report.noticed] == ["changes/sums: version 4"]
