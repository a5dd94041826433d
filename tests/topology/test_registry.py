"""Finding topologies: by reading, and by importing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.odd_texts import PARSED, UNPARSED

from kappa.errors import CodeError, UnknownTopologyError
from kappa.slices.step import call_step
from kappa.topology import Slice, registry

GOOD = """
from kappa.topology import Append, Source, Topology
from beside import SCHEMA
t = Topology(
    name="{name}",
    version="3",
    sources=[Source(topic="in", schema=SCHEMA)],
    outputs=[Append(name="rows", schema=SCHEMA)],
    step=lambda s: {{}},
)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("SCHEMA = 'id STRING NOT NULL'")
    (tmp_path / "good.py").write_text(GOOD.format(name="shop.good"))
    return tmp_path


def test_names_and_versions_are_read_without_running_the_file(folder: Path) -> None:
    (folder / "bomb.py").write_text("raise SystemExit('it ran')\nTopology(name='shop.bomb', version='1')")
    assert [(d.name, d.version) for d in registry.declared(folder)] == [("shop.bomb", "1"), ("shop.good", "3")]


@pytest.mark.parametrize(
    ("word", "owner"), [("'ann@example.org'", "ann@example.org"), ("TEAM", ""), ("'a, b'", ""), ("7", "")]
)
def test_an_owner_is_read_where_it_is_a_literal_that_an_import_takes(tmp_path: Path, word: str, owner: str) -> None:
    (tmp_path / "a.py").write_text(f"1 / 0\nTopology(name='shop.a', version='1', owner={word})")
    (declaration,) = registry.declared(tmp_path)
    assert declaration.owner == owner


def test_one_broken_file_is_named_and_the_others_load(folder: Path) -> None:
    (folder / "broken.py").write_text("import nothing_of_that_name")
    (folder / "unparsable.py").write_text("def (")
    good, broken = registry.topologies(folder)
    assert list(good) == ["shop.good"]
    assert {path.name for path in broken} == {"broken.py", "unparsable.py"}
    assert "nothing_of_that_name" in str(broken[folder / "broken.py"])


def test_what_a_file_and_its_step_print_is_not_part_of_the_output_of_a_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = GOOD.format(name="shop.good").replace("lambda s: {}", "lambda s: print('called') or {'rows': s}")
    (folder / "good.py").write_text(f"print('imported')\n{text}")
    topology = registry.load(folder, "shop.good")
    call_step(topology, Slice(seq=1, records={}, tables={}))
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "imported\ncalled\n")


def test_a_name_defined_by_two_files_is_an_error_of_the_second(folder: Path) -> None:
    (folder / "later.py").write_text(GOOD.format(name="shop.good"))
    good, broken = registry.topologies(folder)
    assert list(good) == ["shop.good"]
    assert [path.name for path in broken] == ["later.py"]


def test_a_name_declared_by_two_files_is_not_loaded(folder: Path) -> None:
    (folder / "later.py").write_text(GOOD.format(name="shop.good"))
    with pytest.raises(CodeError, match=r"later\.py defines topology 'shop\.good', which another file"):
        registry.load(folder, "shop.good")


@pytest.mark.parametrize("name", ["shop goods", "Shop.Goods", "shop.e0001", "shop." + "a" * 96])
def test_a_name_that_an_import_refuses_is_not_declared(folder: Path, name: str) -> None:
    (folder / "bad.py").write_text(GOOD.format(name=name))
    assert [item.name for item in registry.declared(folder)] == ["shop.good"]
    _, broken = registry.topologies(folder)
    assert name in str(broken[folder / "bad.py"])
    with pytest.raises(CodeError, match=r"bad\.py does not import: TopologyError"):
        registry.load(folder, name)


def test_an_error_about_an_unknown_name_suggests_the_nearest(folder: Path) -> None:
    with pytest.raises(UnknownTopologyError, match=r"Did you mean 'shop\.good'"):
        registry.load(folder, "shop.goods")


def test_code_that_fails_to_import_has_an_error_of_its_own(folder: Path) -> None:
    (folder / "good.py").write_text(GOOD.format(name="shop.good") + "\n1 / 0")
    with pytest.raises(CodeError, match="division by zero"):
        registry.load(folder, "shop.good")


@pytest.mark.parametrize("files", [("beside_it.py",), ("it/words.py", "it/__init__.py"), ("it/words.py",)])
def test_each_version_of_a_topology_imports_its_own_modules(tmp_path: Path, files: tuple[str, ...]) -> None:
    import sys

    topologies = {}
    module = files[0].removesuffix(".py").replace("/", ".")
    for version in ("1", "2"):
        folder = tmp_path / version
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(f"WORD = 'version {version}'\n")
        text = (
            f"from {module} import WORD\nfrom kappa.topology import Append, Source, Topology\n"
            "t = Topology(name='a.b', version='1', sources=[Source(topic='pos', format='string')], step=lambda s: "
            "WORD,\n"
            "             outputs=[Append(name='o', schema='x STRING')])\n"
        )
        (folder / "one.py").write_text(text)
        topologies[version] = registry.load_apart(folder, "a.b")
    assert [topology.step(None) for topology in topologies.values()] == ["version 1", "version 2"]  # type: ignore[arg-type]
    assert module not in sys.modules


def test_an_edit_within_a_second_that_keeps_the_size_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "one.py"
    versions = []
    for version in ("1", "2"):
        file.write_text(
            "from kappa.topology import Append, Source, Topology\n"
            'schema = "id STRING"\n'
            f'one = Topology(name="one", version="{version}", sources=[Source(topic="pos", schema=schema)],\n'
            '    outputs=[Append(name="out", schema=schema)], step=lambda slice: {})\n'
        )
        os.utime(file, (1_700_000_000, 1_700_000_000))
        versions += [topology.version for topology in registry.import_file(file)]
    assert versions == ["1", "2"]


def test_a_name_in_a_file_that_does_not_parse_may_be_declared_there(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("Topology(name='demo.good', of='demo.gone')")
    (tmp_path / "broken.py").write_text("Topology(name='demo.broken'")
    (tmp_path / "latin.py").write_bytes("Topology(name='demo.latin', owner='é')".encode("latin-1"))
    (tmp_path / "folder.py").mkdir()
    names = ("demo.good", "demo.gone", "demo.broken", "demo.latin", "demo.other")
    assert [name for name in names if registry.is_in_broken_file(tmp_path, name)] == ["demo.broken", "demo.latin"]


@pytest.mark.parametrize("wrong", UNPARSED)
def test_a_text_that_does_not_parse_is_an_error_of_its_file_alone(folder: Path, wrong: str) -> None:
    (folder / "odd.py").write_bytes(UNPARSED[wrong] + b"\nTopology(name='shop.odd', version='1')\n")
    assert [item.name for item in registry.declared(folder)] == ["shop.good"]
    assert list(registry.broken_files(folder)) == [folder / "odd.py"]
    assert registry.is_in_broken_file(folder, "shop.odd") and not registry.is_in_broken_file(folder, "shop.good")
    assert registry.load(folder, "shop.good").version == "3"
    good, _ = registry.topologies(folder)
    assert "shop.good" in good


@pytest.mark.parametrize("what", PARSED)
def test_a_text_is_decoded_as_python_decodes_it(folder: Path, what: str) -> None:
    before, coding = PARSED[what]
    text = GOOD.format(name="shop.odd").replace('version="3"', 'version="ü"')
    (folder / "odd.py").write_bytes(before + text.encode(coding))
    assert registry.load(folder, "shop.odd").version == registry.declaration(folder, "shop.odd").version == "ü"
    assert not registry.is_in_broken_file(folder, "shop.odd")


def test_a_step_that_is_too_deep_to_look_at_loads(folder: Path) -> None:
    step = f"def step(slice):\n    x = {' + '.join(['1'] * 1500)}\n    return {{}}\n"
    (folder / "step.py").write_text(step)
    (folder / "deep.py").write_text(
        "from step import step\n" + GOOD.format(name="shop.deep").replace("lambda s: {}", "step")
    )
    assert registry.load(folder, "shop.deep").name == "shop.deep"


@pytest.mark.parametrize(
    ("words", "approvals"),
    [
        ("approvals=2", 2),
        ("approvals=N", 1),
        ("**COMMON", 1),
        ("**COMMON, approvals=2", 2),
        ("approvals=None", 1),
        ("", 0),
    ],
)
def test_a_number_of_approvals_that_is_computed_counts_as_one(folder: Path, words: str, approvals: int) -> None:
    (folder / "asks.py").write_text(f"Topology(name='shop.asks', version='1', {words})")
    assert registry.declaration(folder, "shop.asks").approvals == approvals


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("approvals=N + 1", 2),
        ("approvals=limits.TWO", 2),
        ("**COMMON", 2),
        ("**NONE", 0),
        ("approvals=N - 1", 0),
        ("approvals=N", None),
        ("**NONE, approvals=2", None),
    ],
)
def test_a_number_of_approvals_is_what_its_text_says_or_refused(folder: Path, words: str, number: int | None) -> None:
    (folder / "limits.py").write_text("TWO = 2\n")
    text = GOOD.format(name="shop.asks").replace('version="3",', f'version="3", {words},')
    assert words in text
    beside = "import limits\nN, COMMON, NONE = 1, {'approvals': 2}, {}\n"
    (folder / "asks.py").write_text(beside + text)
    if number is None:
        assert registry.load(folder, "shop.asks").approvals == registry.declaration(folder, "shop.asks").approvals
        return
    with pytest.raises(CodeError, match=rf"Write the number in its call: approvals={number}$"):
        registry.load(folder, "shop.asks")
    assert registry.load_stored(folder, "shop.asks").approvals == number, "an epoch ran it"
