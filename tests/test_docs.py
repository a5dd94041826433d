"""README and docs, checked against the product: snippets run, commands parse, links resolve, nothing is left out."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.command_lines import command_group, command_lines, complaint
from support.processes import QUICK_JVM
from support.scripts import script_module

from kappa import operators
from kappa.cli.options import actor
from kappa.config import Config, settings
from kappa.replay.catalogue import ALLOWABLE, DECLARED
from kappa.setting_layers import PREFIX
from kappa.starters import StarterShape
from kappa.starters.repository import repository

ROOT = Path(__file__).resolve().parents[1]
#: In the order in which their snippets run: operations and the runbook continue where the tour ends.
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "tour.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "docs" / "concepts.md",
    ROOT / "docs" / "formats.md",
    ROOT / "docs" / "readers.md",
    ROOT / "docs" / "operations.md",
    ROOT / "docs" / "upgrade-kappa.md",
    ROOT / "docs" / "findings.md",
    ROOT / "docs" / "runbook.md",
    ROOT / "docs" / "configuration.md",
    ROOT / "docs" / "security.md",
    ROOT / "docs" / "managed-kafka.md",
    ROOT / "docs" / "lake-on-s3.md",
    ROOT / "docs" / "spark-cluster.md",
    ROOT / "docs" / "restore-a-bucket.md",
    ROOT / "docs" / "cost.md",
    ROOT / "docs" / "team-stack.md",
    ROOT / "docs" / "metrics.md",
    ROOT / "docs" / "your-own-repository.md",
    ROOT / "docs" / "the-teams-own-code.md",
    ROOT / "docs" / "writing-a-topology.md",
    ROOT / "docs" / "json.md",
    ROOT / "docs" / "change-data-capture.md",
    ROOT / "docs" / "tour-of-operators.md",
    ROOT / "docs" / "five-streams.md",
    ROOT / "docs" / "kafka-streams.md",
    ROOT / "docs" / "event-time.md",
    ROOT / "docs" / "scenarios.md",
    ROOT / "docs" / "reset-tools.md",
    ROOT / "docs" / "take-over-a-running-stream.md",
    ROOT / "docs" / "testing.md",
    ROOT / "docs" / "airflow.md",
    ROOT / "docs" / "pages.md",
    ROOT / "docs" / "archive.md",
    ROOT / "docs" / "queries.md",
    ROOT / "docs" / "compatibility.md",
    ROOT / "docs" / "limits.md",
    ROOT / "docs" / "benchmarks.md",
    *sorted((ROOT / "docs" / "operators").glob("*.md")),
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
    *sorted((ROOT / "benchmarks" / "notes").glob("*.md")),
)

_SNIPPET_SECONDS = 600
_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Fence:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    tag: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def fences(page: Path) -> list[Fence]:
    content = page.read_text()
    blocks = []
    for match in _FENCE.finditer(content):
        language, _, tag = match["info"].partition(" ")
        blocks.append(
            Fence(
                page=page,
                line=content.count("\n", 0, match.start()) + 1,
                language=language,
                tag=tag.strip(),
                text=match["text"],
            )
        )
    return blocks


def prose(page: Path) -> str:
    """A page without its fences."""
    return _FENCE.sub("", page.read_text())


def every_fence() -> list[Fence]:
    return [fence for page in PAGES for fence in fences(page)]


@pytest.mark.parametrize("fence", [f for f in every_fence() if f.language in ("sh", "python")], ids=str)
def test_a_snippet_runs_or_says_why_not(fence: Fence) -> None:
    assert fence.tag == "run" or re.fullmatch(r"unrun: .{10,}", fence.tag), (
        f"{fence}: tag it 'run' or 'unrun: <reason>'"
    )


def test_every_page_of_docs_is_checked() -> None:
    assert set(ROOT.joinpath("docs").rglob("*.md")) <= set(PAGES)
    assert not [f for f in every_fence() if f.language not in ("sh", "python", "text", "java")]


def inline_commands(page: Path) -> list[list[str]]:
    """The ``kappa`` commands in back-quotes; ``<topology>`` and the like stand for a word."""
    return [
        ["1" if word in ("<epoch>", "7") else word for word in shlex.split(command)]
        for command in re.findall(r"`kappa ([^`]+)`", prose(page))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_kappa_command_of_a_page_has_its_options(page: Path) -> None:
    shown = [(words, True) for fence in fences(page) if fence.language == "sh" for words in command_lines(fence.text)]
    named = [(words, False) for words in inline_commands(page)]
    complaints = [complaint(words, is_whole=is_whole) for words, is_whole in [*shown, *named]]
    assert not [text for text in complaints if text]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_or_heading_resolves(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_named_by_a_page_exists(page: Path) -> None:
    named = re.findall(r"`((?:include|tests|docs|dags|jobs|scripts|benchmarks|docker)/[\w./-]+)`", prose(page))
    made_by_use = {"benchmarks/results/", *repository("retail.spending", StarterShape.RUNNING_TOTAL, version="")}
    assert not [name for name in named if name not in made_by_use and not (ROOT / name).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_named_by_a_page_exists(page: Path) -> None:
    # Application ids, and a file.
    published = {f"kappa.published.{name}" for name in ("epoch", "version", "seq")}
    others = {"kappa.slice", "kappa.toml", *published}
    wrong = []
    for name in set(re.findall(r"`(kappa(?:_airflow)?\.[a-z_.]+)(?:\.[A-Z]\w*)?(?:\.\w+)?`", prose(page))) - others:
        parts = name.split(".")
        places = [ROOT.joinpath("include", *parts[:size]) for size in range(len(parts), 0, -1)]
        module = next((place for place in places if place.with_suffix(".py").is_file() or place.is_dir()), None)
        last = parts[-1]
        is_there = module is not None and (module.name == last or re.search(rf"\b{last}\b", source(module)))
        if not is_there:
            wrong.append(name)
    assert not wrong


def source(module: Path) -> str:
    """Text of a module, or of a package's own file."""
    return (module / "__init__.py" if module.is_dir() else module.with_suffix(".py")).read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_named_by_a_page_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = "\n".join(f.text for f in fences(page) if f.language == "sh")
    named = set(re.findall(r"`make ([a-z-]+)", prose(page))) | set(re.findall(r"^make ([a-z-]+)", shown, re.MULTILINE))
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_setting_named_by_a_page_exists(page: Path) -> None:
    wrong_on_purpose = {"KAPPA_SLICE_RECORD"}
    read_elsewhere = {"KAPPA_CRASH_AFTER", "KAPPA_INTERNALS", "KAPPA_SETTINGS"}
    named = set(re.findall(r"\bKAPPA_[A-Z_]*[A-Z]\b", page.read_text()))
    assert named - wrong_on_purpose - read_elsewhere <= {PREFIX + item.name.upper() for item in settings()}


@pytest.mark.parametrize("name", ["configuration_page", "findings_page", "formats_page"])
def test_a_page_is_generated_from_the_declarations(name: str) -> None:
    script = script_module(name)
    assert script.PAGE.read_text() == script.page(), f"make it anew: python scripts/{name}.py"


def test_the_reference_is_generated_from_docstrings_and_has_every_operator() -> None:
    script = script_module("operators_page")
    for path, text in script.pages().items():
        assert path.read_text() == text, "make it anew: python scripts/operators_page.py"
    named = [name for family in script.FAMILIES for name in family.names]
    assert sorted([*named, "agg"]) == sorted(operators.__all__)
    assert {file.stem for file in script.DRAWINGS.iterdir()} == set(named)
    assert {family.path for family in script.FAMILIES} == set((ROOT / "docs" / "operators").glob("*.md"))


def test_the_glossary_has_at_most_forty_words() -> None:
    page = (ROOT / "docs" / "concepts.md").read_text()
    rows = re.findall(
        r"^\| ([^|]+) \|", page[page.index("## Words\n") : page.index("## The slice protocol\n")], re.MULTILINE
    )
    words = [word for row in rows for word in re.split(", | / ", row) if row != "word"]
    assert 20 < len(words) <= 40
    assert len(set(words)) == len(words)


def test_exactly_the_declared_findings_are_documented() -> None:
    page = (ROOT / "docs" / "findings.md").read_text()
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (refuse|warn)s \| (yes)? ?\| ([^|]{10,}) \| ([^|]{10,}) \|$", page, re.MULTILINE
    )
    assert len(rows) == page.count("\n| `")
    assert sorted(row[0] for row in rows) == sorted(DECLARED)
    assert {code: kind for code, kind, *_ in rows} == {code: finding.severity for code, finding in DECLARED.items()}
    assert {code for code, _, allowed, *_ in rows if allowed} == ALLOWABLE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_finding_named_by_a_table_of_a_page_exists(page: Path) -> None:
    """Where a row names one finding first, it names only findings there; `seed-*` stands for a prefix."""
    cells = [
        re.findall(r"`([a-z]+(?:-[a-z*]+)+)`", cell)
        for cell in re.findall(r"^\| (`[^|]+) \|", prose(page), re.MULTILINE)
    ]
    named = {code for codes in cells if set(codes) & set(DECLARED) for code in codes}
    assert not [name for name in named if not fnmatch.filter(DECLARED, name)]


def test_exactly_the_existing_errors_are_in_the_runbook() -> None:
    from kappa import errors

    branches = {errors.KappaError, errors.Terminal, errors.Transient}
    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.KappaError) and kind not in branches
    }
    page = (ROOT / "docs" / "runbook.md").read_text()
    assert set(re.findall(r"^\| `([A-Z]\w+)` \|", page, re.MULTILINE)) == kinds


def test_each_section_of_the_runbook_is_reached_from_a_symptom_or_stands_for_itself() -> None:
    page = (ROOT / "docs" / "runbook.md").read_text()
    reached = set(re.findall(r"\]\(#([\w-]+)\)", page[: page.index("## The plan refuses")]))
    by_themselves = {"first-three-looks", "give-a-candidate-up", "keep-the-evidence", "errors-by-name"}
    headings = {h.lower().replace(",", "").replace(" ", "-") for h in re.findall(r"^## (.+)$", page, re.MULTILINE)}
    assert headings == reached | by_themselves


def test_exactly_the_existing_commands_are_in_the_changelog() -> None:
    commands = set(command_group().commands)
    entry = re.search(r"\*\*Command line\*\*: (.*?)\.\n", (ROOT / "CHANGELOG.md").read_text(), re.DOTALL)
    assert entry is not None
    assert set(re.findall(r"`([a-z-]+)`", entry[1])) == commands


def shape(line: str) -> str:
    """A line without what changes from run to run: numbers, hashes, times, widths, folders, users, ids and hosts of
    lakes."""
    line = re.sub(rf"\b{re.escape(actor())}\b", "ada", line)
    line = re.sub(r"(?:\.\.\.|/)\S*/(lake|kappa)\b", r"<folder>/\1", line)
    line = re.sub(r"\bof lake [0-9a-f]{8} \((\S+) on \S+\)", r"of lake # (\1)", line)
    line = re.sub(r"\b[0-9a-f]{12,}\b", "#", line)
    return re.sub(r"[\d#][\d#,.:]*", "#", re.sub(r"\s+", " ", line.strip()))


class World:
    """A folder like a checkout after `make bootstrap`, with a home of its own; ended without a trace."""

    def __init__(self, folder: Path) -> None:
        from kappa_local.kafka import free_port

        self.folder = folder
        for name in ("include", "jobs", "dags", "docs", "Makefile", "kappa.toml"):
            (folder / name).symlink_to(ROOT / name)
        binaries = folder / ".venv" / "bin"
        binaries.mkdir(parents=True)
        for name, arguments in (("kappa", " -m kappa"), ("python", "")):
            (binaries / name).write_text(f'#!/bin/sh\nexec {sys.executable}{arguments} "$@"\n')
            (binaries / name).chmod(0o755)
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("KAPPA_", "AIRFLOW"))}
        self.environ = {
            **environ,
            "PYTHONPATH": str(ROOT / "include"),
            "PATH": f"{binaries}{os.pathsep}{environ['PATH']}",
            "COLUMNS": "1000",
            # What `kappa up` takes the broker's port from: the page's own 9092 may be taken here.
            "KAPPA_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}",
            "KAPPA_SPARK_CONF": json.dumps(QUICK_JVM),
            "KAPPA_TRIGGER_SECONDS": "0.5",
            "KAPPA_CACHE": str(Config.from_env({}).cache),
        }

    def run(self, fence: Fence) -> str:
        """Run a snippet; its output. Exports of a shell snippet hold for later ones."""
        exports = self.folder / ".exports"
        if fence.language == "python":
            command = [sys.executable, "-c", fence.text]
        else:
            command = ["bash", "-euo", "pipefail", "-c", f"{fence.text}\nenv -0 > {shlex.quote(str(exports))}"]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=_SNIPPET_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            raise AssertionError(
                f"{fence} did not end within {_SNIPPET_SECONDS} s:\n{output}\n{self.driver_logs()}"
            ) from None
        print(f"── {fence}\n{output}", end="")
        assert process.returncode == 0, f"{fence} ended with {process.returncode}:\n{output}\n{self.driver_logs()}"
        if fence.language == "sh":
            self.environ = dict(item.split("=", 1) for item in exports.read_text().split("\0") if "=" in item)
        return output

    def driver_logs(self) -> str:
        """The last lines of each driver's log."""
        return "\n".join(
            f"{log}:\n{''.join(log.read_text().splitlines(keepends=True)[-8:])}"
            for log in self.folder.rglob("*.e[0-9]*.log")
        )

    def close(self) -> None:
        """End what runs, also what a snippet that failed left."""
        home = self.environ.get("KAPPA_HOME")
        if home and Path(home).is_dir():
            from kappa.driver.processes import host
            from kappa_local import supervisor

            config = Config.from_env({name: value for name, value in self.environ.items() if name.startswith(PREFIX)})
            host.end_local(config)
            supervisor.down(config)


#: Pages that are tours of their own, in homes of their own; all others follow docs/tour.md.
OWN_TOURS = tuple(ROOT / "docs" / name for name in ("writing-a-topology.md", "testing.md", "archive.md"))


@pytest.mark.e2e
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("own", [False, True], ids=["the tour and the pages after it", "pages with homes of their own"])
def test_every_snippet_runs_and_prints_what_its_page_shows(tmp_path: Path, own: bool) -> None:
    world, stale = World(tmp_path), []
    try:
        for page in PAGES:
            if (page in OWN_TOURS) != own:
                continue
            blocks = fences(page)
            for fence, behind in zip(blocks, [*blocks[1:], None], strict=False):
                if fence.tag != "run":
                    continue
                printed = world.run(fence)
                if behind is not None and (behind.language, behind.tag) == ("text", ""):
                    real = {shape(line) for line in printed.splitlines()}
                    shown = [line for line in behind.text.splitlines() if line.strip() not in ("", "...")]
                    missing = [line for line in shown if shape(line) not in real]
                    if missing:
                        stale.append(
                            f"{behind} shows what was not printed:\n" + "\n".join(missing) + f"\nprinted:\n{printed}"
                        )
    finally:
        world.close()
    assert not stale, "\n\n".join(stale)
