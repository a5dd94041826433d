"""Code by content hash."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kappa.errors import CodeError, UnknownTopologyError
from kappa.record import code
from kappa.topology import registry

FILE = """
from kappa.topology import Append, Source, Topology
t = Topology(
    name="{name}",
    version="1",
    sources=[Source(topic="in", schema="a STRING")],
    outputs=[Append(name="rows", schema="a STRING")],
    step=lambda s: {{}},
)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    topologies = tmp_path / "topologies"
    topologies.mkdir()
    (topologies / "mine.py").write_text(FILE.format(name="a.mine"))
    return topologies


def test_equal_content_has_an_equal_hash_and_any_change_another(folder: Path) -> None:
    first = code.code_hash(folder, "a.mine")
    assert code.code_hash(folder, "a.mine") == first
    (folder / "other.py").write_text(FILE.format(name="a.other"))
    assert code.code_hash(folder, "a.mine") == first, "another topology is none of its business"
    (folder / "shared.py").write_text("LIMIT = 3")
    assert code.code_hash(folder, "a.mine") != first, "a module that it may import is"


@pytest.mark.parametrize("has_init", [True, False], ids=["package", "namespace"])
def test_stored_code_has_what_a_topology_imports_through_links(folder: Path, tmp_path: Path, has_init: bool) -> None:
    team = tmp_path / "team"
    for place in (team / "pricing" / "rules", team / "common"):
        place.mkdir(parents=True)
        (place / "limits.py").write_text("LIMIT = 3")
        if has_init:
            (place / "__init__.py").touch()
    (team / "units.py").write_text("UNIT = 'EUR'")
    (team / "pricing" / "common").symlink_to(team / "common")
    (team / "common" / "again").symlink_to(team / "pricing")
    (folder / "pricing").symlink_to("../team/pricing")
    (folder / "units.py").symlink_to("../team/units.py")
    (folder / ".#mine.py").symlink_to("ann@host.4711")  # as an editor locks a file
    stored = code.store(str(tmp_path / "lake"), folder, "a.mine")
    root = code.extract(str(tmp_path / "lake"), stored, tmp_path / "home")
    imports = "import units, pricing.rules.limits, pricing.common.limits as c; print(units.UNIT, c.LIMIT)"
    here, there = (
        subprocess.run([sys.executable, "-c", imports], cwd=place, capture_output=True, text=True, check=True).stdout
        for place in (folder, root / "topologies")
    )
    assert here == there == "EUR 3\n"
    (team / "common" / "limits.py").write_text("LIMIT = 4")
    assert code.code_hash(folder, "a.mine") != stored


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        ("from other import t as upstream", "ModuleNotFoundError: No module named 'other'"),
        ("import helper_of_other", "ModuleNotFoundError: No module named 'other'"),
        (
            "from pathlib import Path\nPath(__file__).with_name('rates.csv').read_text()",
            "No such file or directory: 'ra",
        ),
        (
            "from importlib import resources\nresources.files('prices').joinpath('rates.csv').read_text()",
            "'prices/rates",
        ),
        ("from pathlib import Path\n1 / (Path(__file__).parents[1] / 'lib').is_dir()", "ZeroDivisionError"),
    ],
)
@pytest.mark.parametrize("is_loaded", [False, True], ids=["new", "loaded before"])
def test_code_that_needs_more_than_is_stored_is_refused_with_what_it_lacks(
    folder: Path, needs: str, why: str, is_loaded: bool
) -> None:
    (folder / "other.py").write_text(FILE.format(name="a.other"))
    (folder / "helper_of_other.py").write_text("import other")
    (folder / "prices").mkdir()
    (folder.parent / "lib").mkdir()
    for file in ("rates.csv", "prices/__init__.py", "prices/rates.csv"):
        (folder / file).touch()
    assert code.load(folder, "a.mine").name == "a.mine"
    (folder / "mine.py").write_text(f"{needs}\n{FILE.format(name='a.mine')}")
    before = set(sys.modules)
    try:
        if is_loaded:  # as by a command that looked at all topologies
            registry.topologies(folder)
        with pytest.raises(CodeError) as refused:
            code.load(folder, "a.mine")
    finally:
        for module in sys.modules.keys() - before:
            del sys.modules[module]
    text = str(refused.value)
    assert text.startswith(f"{folder}/mine.py imports in its folder, and not from what an epoch stores of that")
    assert why in text and "/kappa-code-" not in text
    assert text.endswith("Move what it needs into such a file, or into an installed library.")


def test_code_that_has_all_it_needs_stored_is_loaded(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "limits.py").write_text("from team_units import UNIT\nLIMIT = 3")
    (folder / "team_units.py").write_text("UNIT = 'EUR'")
    (folder / "team_prices").symlink_to(tmp_path / "team")
    (folder / "mine.py").write_text(f"from team_prices.limits import LIMIT\n{FILE.format(name='a.mine')}")
    assert code.load(folder, "a.mine").name == "a.mine"


def test_a_file_whose_name_is_not_text_is_not_stored_and_declares_nothing(folder: Path) -> None:
    alone = code.code_hash(folder, "a.mine")
    for name in (b"caf\xe9.py", b"caf\xe9/other.py"):
        file = folder / os.fsdecode(name)
        file.parent.mkdir(exist_ok=True)
        file.write_text(FILE.format(name="a.other"))
    assert code.code_hash(folder, "a.mine") == alone
    assert code.load(folder, "a.mine").name == "a.mine"
    for load in (registry.load, code.load):
        with pytest.raises(CodeError, match=r"is not text in UTF-8\. Rename it\.$"):
            load(folder, "a.other")
    good, broken = registry.topologies(folder)
    assert list(good) == ["a.mine"] and len(broken) == 1


def test_stored_code_is_unpacked_unchanged(folder: Path, tmp_path: Path) -> None:
    stored = code.store(str(tmp_path / "lake"), folder, "a.mine")
    assert code.store(str(tmp_path / "lake"), folder, "a.mine") == stored
    (folder / "mine.py").write_text("changed = True")
    root = code.extract(str(tmp_path / "lake"), stored, tmp_path / "home")
    assert code.extract(str(tmp_path / "lake"), stored, tmp_path / "home") == root
    assert registry.load(root / "topologies", "a.mine").version == "1"
    assert (root / "include" / "kappa" / "driver" / "driver.py").is_file()
    assert (root / "include" / "kappa" / "driver" / "__main__.py").is_file()
    assert (root / "include" / "kappa" / "spark" / "S3ConditionalLogStore.java").is_file(), "its driver compiles it"


def test_unknown_topologies_and_unknown_code_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownTopologyError, match=r"a\.yours"):
        code.code_hash(folder, "a.yours")
    with pytest.raises(CodeError, match="feed"):
        code.extract(str(tmp_path), "feed", tmp_path / "home")


def zip_of(lake: Path, stored: str) -> Path:
    return lake / "_kappa" / "code" / f"{stored}.zip"


def altered(path: Path) -> None:
    """The same names with other content, in a zip that is whole."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content["topologies/mine.py"] += b"\nimport os\nos.environ['ALTERED'] = '1'\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def one_byte(path: Path) -> None:
    with zipfile.ZipFile(path) as stored:
        largest = max(stored.infolist(), key=lambda item: item.compress_size)
    # Behind its header: a byte of a header may say nothing of the content, such as the time of the file.
    data = bytearray(path.read_bytes())
    data[largest.header_offset + 30 + len(largest.filename) + largest.compress_size // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [altered, torn, one_byte])
def test_stored_code_that_differs_from_its_hash_is_not_unpacked(
    folder: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    lake, home = tmp_path / "lake", tmp_path / "home"
    stored = code.store(str(lake), folder, "a.mine")
    harm(zip_of(lake, stored))
    with pytest.raises(CodeError, match=rf"Stored code {stored} .*(?s:.*)deploy the files"):
        code.extract(str(lake), stored, home)
    with pytest.raises(CodeError, match=stored):
        code.check(str(lake), stored)
    assert not (home / "code" / stored).exists()
    assert code.store(str(lake), folder, "a.mine") == stored, "the way out: the same files are stored again"
    assert registry.load(code.extract(str(lake), stored, home) / "topologies", "a.mine").version == "1"


@pytest.mark.parametrize("what", ["changed", "removed", "added"])
def test_an_altered_unpacked_folder_is_unpacked_again(folder: Path, tmp_path: Path, what: str) -> None:
    lake, home = str(tmp_path / "lake"), tmp_path / "home"
    stored = code.store(lake, folder, "a.mine")
    root = code.extract(lake, stored, home)
    before = {path.relative_to(root): path.read_bytes() for path in root.rglob("*.py")}
    if what == "changed":
        (root / "topologies" / "mine.py").write_text("raise SystemExit('altered')")
    elif what == "removed":
        (root / "include" / "kappa" / "driver" / "driver.py").unlink()
    else:
        (root / "include" / "sitecustomize.py").write_text("raise SystemExit('added')")
    assert code.extract(lake, stored, home) == root
    assert {path.relative_to(root): path.read_bytes() for path in root.rglob("*.py")} == before
    assert list(root.parent.iterdir()) == [root], "nothing is left beside it"


def test_bytecode_in_an_unpacked_folder_is_not_an_alteration(folder: Path, tmp_path: Path) -> None:
    lake, home = str(tmp_path / "lake"), tmp_path / "home"
    root = code.extract(lake, code.store(lake, folder, "a.mine"), home)
    py_compile.compile(str(root / "topologies" / "mine.py"))
    inode = root.stat().st_ino
    assert list(root.rglob("__pycache__"))
    assert code.extract(lake, root.name, home).stat().st_ino == inode


def test_processes_that_unpack_at_the_same_time_get_the_whole_code(folder: Path, tmp_path: Path) -> None:
    lake, home = str(tmp_path / "lake"), tmp_path / "home"
    stored = code.store(lake, folder, "a.mine")
    script = (
        "import sys, pathlib\nfrom kappa.record import code\nsys.stdin.readline()\n"
        f"root = code.extract({lake!r}, {stored!r}, pathlib.Path({str(home)!r}))\n"
        f"print(code._is_unpacked(root, {stored!r}))\n"
    )
    (home / "code" / stored / "include").mkdir(parents=True)  # what an older process left when it was killed
    several = [
        subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for one in several:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    assert [one.communicate()[0].strip() for one in several] == ["True"] * 4
    assert [path.name for path in (home / "code").iterdir()] == [stored]
