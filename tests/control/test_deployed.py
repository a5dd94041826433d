"""What a folder of topologies defines, with files in it that would end or hang whatever imports them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kappa.control.deployed import deployed
from kappa.errors import CodeError
from kappa.topology import registry

GOOD = """
from kappa.topology import Append, Source, Table, Topic, Topology
t = Topology(
    name="{name}", version="3", owner="team-a", sources=[Source(topic="in", schema="id STRING NOT NULL")],
    tables=[Table(name="kept", key=["id"], schema="id STRING NOT NULL")],
    outputs=[Append(name="rows", schema="id STRING"), Topic(name="out", of="rows", key="id")], step=lambda s: {{}},
)
"""
HANGS = "while True: pass"


def folder_of(base: Path, **files: str) -> Path:
    folder = base / "topologies"
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_a_topology_is_described_as_its_file_defines_it(tmp_path: Path) -> None:
    good, broken = deployed(folder_of(tmp_path, good=GOOD.format(name="a.good")))
    assert broken == {}
    (description,) = good.values()
    assert (description.name, description.version, description.owner) == ("a.good", "3", "team-a")
    assert (description.sources, description.tables, description.outputs) == (("in",), ("kept",), ("rows", "out"))


def test_a_module_of_the_working_folder_takes_the_place_of_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path, good=GOOD.format(name="a.good"))
    for name in ("types", "json", "token", "pandas"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the module of the team')")
    monkeypatch.chdir(tmp_path)
    good, broken = deployed(folder)
    assert (list(good), broken) == (["a.good"], {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import sys\nsys.exit()", "SystemExit"),
        ("import os\nos._exit(7)", "ended the process with exit code 7"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "ended the process with exit code -9"),
        ("1 / 0", "division by zero"),
        ("print('noise')\nraise KeyboardInterrupt", "ended the process"),
    ],
)
def test_a_file_that_ends_whatever_imports_it_is_named_and_the_others_are_found(
    tmp_path: Path, text: str, says: str
) -> None:
    first, last = GOOD.format(name="a.first"), GOOD.format(name="a.last")
    folder = folder_of(tmp_path, a=first, b=text, c=last, d=text)
    good, broken = deployed(folder)
    assert list(good) == ["a.first", "a.last"]
    assert [file.name for file in broken] == ["b.py", "d.py"]
    assert says in str(broken[folder / "b.py"])


def test_a_file_that_never_ends_is_named_and_the_others_are_found(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a=GOOD.format(name="a.first"), b=HANGS, c=GOOD.format(name="a.last"))
    good, broken = deployed(folder, seconds=15)
    assert list(good) == ["a.first", "a.last"]
    assert "not done after 15 seconds" in str(broken[folder / "b.py"])


def test_a_name_that_two_files_define_is_an_error_of_the_second(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a=GOOD.format(name="a.same"), b=GOOD.format(name="a.same"))
    good, broken = deployed(folder)
    assert list(good) == ["a.same"]
    assert [file.name for file in broken] == ["b.py"]


def test_a_file_that_would_end_the_process_does_not_end_one_that_loads_it(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a=GOOD.format(name="a.ends") + "\nimport sys\nsys.exit('enough')")
    with pytest.raises(CodeError, match="SystemExit: enough"):
        registry.load(folder, "a.ends")


def test_the_command_names_the_bad_file_and_lists_the_others(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a=GOOD.format(name="a.first"), b="import sys\nsys.exit()")
    env = {**os.environ, "KAPPA_HOME": str(tmp_path / "home"), "KAPPA_TOPOLOGIES": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "kappa", "topologies", "--json"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    listing = json.loads(done.stdout)
    assert [(row["name"], row["owner"]) for row in listing["topologies"]] == [("a.first", "team-a")]
    assert list(listing["broken"]) == [str(folder / "b.py")]
