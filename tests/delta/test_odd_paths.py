"""A lake below a folder whose name has blanks, letters of other languages, and characters with a meaning in URLs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from kappa.delta import queries, tables, vacuum
from kappa.delta.append_log import AppendLog
from kappa.record import code
from kappa.topology.ddl import columns_of

NAMES = ["my lake", "jürgen", "a#b", "100%", "a?b", "a+b&c=d:e;f,g", "名前"]
ROW = pa.schema({"n": pa.int64(), "word": pa.string()})


@pytest.mark.parametrize("name", NAMES)
def test_a_log_at_an_odd_path_is_appended_to_merged_and_read(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name / "log")
    log = AppendLog(path, ROW)
    log.create()
    for number in range(70):  # more than are merged into one file
        assert [row["word"] for row in log.refresh()] == [str(number - 1)] * (number > 0)
        log.append([{"word": str(number)}])
    assert [row["n"] for row in AppendLog(path, ROW).refresh()] == list(range(1, 71))
    assert [row["n"] for row in log.newest_first()] == list(range(70, 0, -1))
    assert [entry.name for entry in tmp_path.iterdir()] == [name], "nothing lies under an encoded name"


@pytest.mark.parametrize("name", NAMES)
def test_tables_at_odd_paths_are_written_read_and_cleaned_up(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name / "table")
    tables.create(path, columns_of("_seq BIGINT, id STRING", "test"))
    for seq in (1, 2, 3):
        tables.append(path, pa.table({"_seq": pa.array([seq], pa.int64()), "id": ["a"]}), seq)
    vacuum.vacuum(path, lambda: [1], age=timedelta(0), check=lambda: None)
    assert queries.query(path, None).num_rows == 3
    files = queries.files(path)
    if files is not None:
        assert all((Path(path) / file).is_file() for file in files["path"].to_pylist())
    assert [files.name for files in tmp_path.iterdir()] == [name]


def test_code_at_an_odd_path_is_stored_and_unpacked(tmp_path: Path) -> None:
    base = tmp_path / "my läke #1? 100%"
    folder = base / "topologies"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text("Topology(name='a.mine', version='1')")
    stored = code.store(str(base / "lake"), folder, "a.mine")
    assert (code.extract(str(base / "lake"), stored, base / "home") / "topologies" / "mine.py").is_file()
