"""A long run in parts: a part begins no test after its time, and the next one continues with what has not passed.

What has passed is in ``build/test-results/passed``, in a file for the state of the tree, written line by line: a part
that was killed is continued too, and after a change of any file a run begins again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest_run import OVER

#: Folders that a test may depend on.
PARTS = ("benchmarks", "dags", "docker", "docs", "include", "jobs", "plugins", "scripts", "tests")
#: Exit code of a part after which tests are left, and none failed: that of sysexits.h for "try again".
LEFT = 75


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part-minutes", type=float, default=None, help="begin no test after this time, and continue")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("part_minutes") is not None:
        config.pluginmanager.register(Part(config), "kappa-part")


class Part:
    """One part of a run, in a worker or in the process that leads them."""

    def __init__(self, config: pytest.Config) -> None:
        self.is_worker = hasattr(config, "workerinput")
        # Workers read it while they collect: no test passes before all of them have.
        self.file = config.rootpath / "build" / "test-results" / "passed" / f"{state(_files(config.rootpath))}.txt"
        self.before = set(self.file.read_text().splitlines()) if self.file.is_file() else set[str]()
        self.outcomes: dict[str, set[str]] = {}
        self.left: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        done = [item for item in items if self.before & _names(item)]
        config.hook.pytest_deselected(items=done)
        items[:] = [item for item in items if item not in done]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.is_worker:
            return
        outcomes = self.outcomes.setdefault(report.nodeid, set())
        outcomes.add(report.outcome)
        if report.skipped and OVER in str(report.longrepr):
            self.left.append(report.nodeid)
        elif report.when == "teardown" and outcomes == {"passed"}:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a") as file:
                file.write(f"{report.nodeid}\n")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.is_worker and self.left and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = LEFT

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.is_worker:
            now = sum(outcomes == {"passed"} for outcomes in self.outcomes.values())
            terminalreporter.write_line(
                f"{now} tests passed in this part, and {len(self.before)} before it. {len(self.left)} are left"
                + (": run the same command again." if self.left else ".")
            )


def _names(item: pytest.Item) -> set[str]:
    """Its node id in a run of one process, and in one of several, which append its group."""
    groups = sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")})
    return {item.nodeid, f"{item.nodeid}@{'_'.join(groups)}"}


def state(files: Iterable[Path]) -> str:
    """A hash of names and contents."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _files(root: Path) -> Iterator[Path]:
    for part in PARTS:
        yield from sorted(
            file for file in (root / part).rglob("*") if file.is_file() and "__pycache__" not in file.parts
        )
