"""How a run of the tests goes: in which order, where its time went, and that it ends whatever happens.

- Tests that share an expensive fixture of a module, or would hinder each other, are one group; of the others each may
  run anywhere. What took longest goes first, by ``durations.json``.
- A test that cannot be interrupted ends its worker with the stacks of all threads; a run that takes longer than
  ``--run-minutes`` prints those of every worker and which tests are left, then ends.
- A broker that died ends the run at once, with its log: each further test would wait for it until its own limit.
- A disk that is too full is told before the first test: a broker ends where it cannot write.
- The temporary files of `make test` are in memory where there is enough of it: a file system that looks for free
  inodes among many deleted ones took a seventh of the processor time. Nightly and soak use the disk.
- ``build/test-results`` keeps seconds by file and by test, also of a run that was ended.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import itertools
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import psutil
import pytest
from support import brokers

HERE = Path(__file__).parent
RESULTS = HERE.parent / "build" / "test-results"
#: File -> test function -> seconds, of a run of all tests alone on two cores: ``python tests/conftest_run.py`` writes
#: it anew.
DURATIONS = HERE / "durations.json"

#: Paths and node ids of tests that need more time than the run before a landing has; one per line.
NIGHTLY = HERE / "nightly.txt"

#: Why tests are not begun any more.
OVER = "the time of the run is over"

#: How the names of kinds of cases end, which a run counts.
CASE = " case"

#: Tests that are scheduled one by one, unless they share a fixture of their module.
_MARKS_OF_SINGLES = ("spark", "broker", "e2e")
#: What a test takes that was never measured, by its dearest mark.
_UNMEASURED = {"e2e": 60.0, "airflow": 60.0, "spark": 6.0, "broker": 2.0}
#: What several processes need at once below the folder for temporary files; tests that pass leave nothing there.
DISK_GIB = 2

#: A file system in memory, and how much of it and of the machine's memory has to be free.
MEMORY = Path("/dev/shm")
MEMORY_GIB, FREE_GIB = 6, 14

#: Longer than its own limit, after which only the process can be ended: nothing interrupts a call into a library.
_GRACE_SECONDS = 60.0


def nightly(text: str) -> tuple[str, ...]:
    """The paths and node ids of a list with comments."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(line for line in lines if line)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-minutes", type=float, default=None, help="end the run after this time, with all stacks")
    parser.addoption("--soak-hours", type=float, default=None, help="begin no test after this time; kinds take turns")
    parser.addoption("--soak-day", type=int, default=0, help="which kind goes first")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    is_quick = config.getoption("numprocesses", None) and not config.getoption("part_minutes", None)
    if is_quick and not config.getoption("soak_hours") and "TMPDIR" not in os.environ and is_roomy(MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)  # workers inherit it
    gc.disable()  # until all tests are collected: it would look again and again at a million objects that stay
    # Capturing is suspended here: this is the stderr that a person sees, whatever a test does to it.
    stderr = os.fdopen(os.dup(2), "w", buffering=1)
    config.pluginmanager.register(Run(config, stderr), "kappa-run")
    faulthandler.register(signal.SIGUSR1, file=stderr, all_threads=True)


def is_roomy(folder: Path) -> bool:
    """Whether a folder in memory can have the temporary files of a run, and programs that run from there."""
    if not folder.is_dir() or not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    free = shutil.disk_usage(folder).free, psutil.virtual_memory().available
    return free[0] >> 30 >= MEMORY_GIB and free[1] >> 30 >= FREE_GIB


class Run:
    """One process of a run: a worker, the one that leads them, or the only one."""

    def __init__(self, config: pytest.Config, stderr: TextIO) -> None:
        self.config = config
        self.stderr = stderr
        self.is_worker = hasattr(config, "workerinput")
        self.seconds: Counter[tuple[str, str]] = Counter()
        self.by_kind: Counter[tuple[tuple[str, str], str]] = Counter()
        self.notes: list[tuple[str, str]] = []
        self.tests: set[str] = set()
        self.begun: dict[str, float] = {}
        self.ended: set[str] = set()
        self.failed: list[str] = []
        self.workers: list[int] = []
        threading.Thread(target=self._watch_brokers, name="brokers", daemon=True).start()
        self.hours: float | None = config.getoption("soak_hours")
        minutes_of_part: float | None = config.getoption("part_minutes", None)
        seconds = 3600 * self.hours if self.hours else minutes_of_part and 60 * minutes_of_part
        self.until = None if seconds is None else time.monotonic() + seconds
        if self.is_worker:
            return
        signal.signal(signal.SIGTERM, lambda *_: self._give_up("was told to end"))
        if minutes := config.getoption("run_minutes") or (60 * self.hours + 60 if self.hours else None):
            timer = threading.Timer(60 * minutes, self._give_up, [f"takes longer than {minutes:g} minutes"])
            timer.daemon = True
            timer.start()

    def pytest_sessionstart(self) -> None:
        if self.config.getoption("numprocesses", None) and not self.is_worker:
            folder = tempfile.gettempdir()
            free = shutil.disk_usage(folder).free >> 30
            if free < DISK_GIB:
                pytest.exit(
                    f"The disk of {folder} has {free} GiB free, and the tests need {DISK_GIB}. Runs that were killed "
                    f"left theirs: rm -r {folder}/pytest-of-*. Or set TMPDIR to another disk.",
                    returncode=pytest.ExitCode.USAGE_ERROR,
                )

    # Order

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        durations = json.loads(DURATIONS.read_text()) if DURATIONS.is_file() else {}
        later = nightly(NIGHTLY.read_text())
        for item in items:
            if item.nodeid.removeprefix("tests/").startswith(later):
                item.add_marker(pytest.mark.nightly)
        instances = Counter(_test(item.nodeid) for item in items)
        by_group: Counter[str] = Counter()
        groups = {item: _group(item) for item in items}
        for item in items:
            file, test = _test(item.nodeid)
            measured = durations.get(file, {}).get(test)
            by_group[groups[item]] += _unmeasured(item) if measured is None else measured / instances[file, test]
        for item in items:
            item.add_marker(pytest.mark.xdist_group(groups[item]))
        items.sort(key=lambda item: -by_group[groups[item]])
        if self.hours:
            items[:] = in_turns(items, self.config.getoption("soak_day"))

    # Life

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if limit := _limit(item):
            faulthandler.dump_traceback_later(limit + _GRACE_SECONDS, exit=True, file=self.stderr)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self.until is not None and time.monotonic() > self.until:
            pytest.skip(OVER)

    def _watch_brokers(self) -> None:
        while True:
            time.sleep(1)
            for broker in list(brokers.WATCHED):
                if brokers.is_lost(broker):
                    from kappa_local.kafka import last_words

                    code, log = broker.process.poll(), last_words(broker.data_dir, 60)
                    print(
                        f"\nThe broker on {broker.bootstrap_servers} ended with code {code}: the run ends.\n{log}",
                        file=self.stderr,
                    )
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                    return

    # What happened

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.tests |= {item.nodeid for item in session.items}
        gc.freeze()
        gc.enable()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        self.tests |= set(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        self.workers.append(node.gateway._io.popen.pid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.begun[nodeid] = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[_test(report.nodeid)] += report.duration
        if report.when == "call":
            self.by_kind[_test(report.nodeid), report.outcome] += 1
        if report.failed:
            self.failed.append(report.nodeid)
        if report.when == "teardown":
            self.ended.add(report.nodeid)
            self.notes += [(key, str(value)) for key, value in report.user_properties]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.is_worker:
            return
        for line in self.summary():
            terminalreporter.write_line(line)

    def pytest_sessionfinish(self) -> None:
        gc.unfreeze()
        if not self.is_worker:
            self._keep()
            self._end_leftovers()

    def summary(self) -> list[str]:
        """Seconds per file, and the notes of tests."""
        files: Counter[str] = Counter()
        for (file, _), seconds in self.seconds.items():
            files[file] += seconds
        lines = [f"{seconds:7.1f} s  {file}" for file, seconds in files.most_common() if seconds >= 5]
        if self.hours:
            lines += [
                f"covered {self.by_kind[kind, 'passed']}, failed {self.by_kind[kind, 'failed']}, of {n}: "
                f"{'::'.join(kind)}"
                for kind, n in sorted(Counter(map(_test, self.tests)).items())
            ]
        deaths = Counter(value for key, value in self.notes if key == "death")
        if deaths:
            lines.append(
                f"{deaths.total()} deaths: " + ", ".join(f"{point} {n}" for point, n in sorted(deaths.items()))
            )
        for kind in sorted({key for key, _ in self.notes if key.endswith(CASE)}):
            cases = Counter(value for key, value in self.notes if key == kind)
            names = ", ".join(f"{name} {n}" if n > 1 else name for name, n in sorted(cases.items()))
            lines.append(f"{cases.total()} {kind}s: {names}")
        if self.hours:
            from kappa import faults

            lines.append(f"no death at: {', '.join(sorted(set(faults.POINTS) - set(deaths))) or 'none is missing'}")
        return lines

    def _keep(self) -> None:
        if not self.ended:
            return
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / "files.txt").write_text("\n".join(self.summary()) + "\n")
        durations: dict[str, dict[str, float]] = {}
        for (file, test), seconds in sorted(self.seconds.items()):
            durations.setdefault(file, {})[test] = round(seconds, 1)
        (RESULTS / "durations.json").write_text(json.dumps(durations, indent=1) + "\n")

    # The end of a run that does not end

    def _give_up(self, why: str) -> None:
        me = psutil.Process()
        rest = sorted(self.tests - self.ended)
        running = [name for name in rest if name in self.begun]
        print(f"\n\nThe run {why}.", file=self.stderr)
        faulthandler.dump_traceback(file=self.stderr, all_threads=True)
        for worker in self.workers:
            print(f"\nThreads of worker {worker}:", file=self.stderr)
            with contextlib.suppress(ProcessLookupError):
                os.kill(
                    worker, signal.SIGUSR1
                )  # answered without Python's help: a worker stuck in a library says where
                time.sleep(2)
        # What matters most comes last: the end of an output is what is kept of it.
        for name in rest:
            if name not in self.begun:
                print(f"  not begun: {name}", file=self.stderr)
        print(f"The run {why}: {len(rest)} of {len(self.tests)} tests are left.", file=self.stderr)
        for name in running:
            print(f"  running for {time.monotonic() - self.begun[name]:.0f} s: {name}", file=self.stderr)
        for name in self.failed:
            print(f"  failed: {name}", file=self.stderr)
        self._keep()
        for child in [*me.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._end_leftovers()
        self.stderr.flush()
        os._exit(3)

    def _end_leftovers(self) -> None:
        """End what tests of this run started and left: it works below the folder of this run, and nothing else does."""
        factory = getattr(self.config, "_tmp_path_factory", None)
        if factory is None or getattr(factory, "_basetemp", None) is None:
            return
        base = str(factory.getbasetemp())
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = [*process.cmdline(), process.environ().get("KAPPA_HOME", "")]
                if process.pid != os.getpid() and any(base + os.sep in word for word in words):
                    print(f"left by a test, ended: {process.pid} {' '.join(process.cmdline())[:200]}", file=self.stderr)
                    process.kill()


def in_turns(items: list[pytest.Item], day: int) -> list[pytest.Item]:
    """One of each kind, then the second of each: a run that ends early has some of all.

    Another kind goes first each day.
    """
    kinds: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in sorted(items, key=lambda item: item.nodeid):
        kinds.setdefault(_test(item.nodeid), []).append(item)
    first = day % max(1, len(kinds))
    order = [*list(kinds.values())[first:], *list(kinds.values())[:first]]
    turned = [[*kind[day % len(kind) :], *kind[: day % len(kind)]] for kind in order]
    return [item for turn in itertools.zip_longest(*turned) for item in turn if item is not None]


def _group(item: pytest.Item) -> str:
    """Tests of one group run in one process, one after the other."""
    if item.get_closest_marker("airflow"):
        return "airflow"  # never two of it at once: each takes two cores and gigabytes while it starts
    scopes = {definitions[-1].scope for definitions in item._fixtureinfo.name2fixturedefs.values()}  # type: ignore[attr-defined]
    is_single = "module" not in scopes and any(item.get_closest_marker(mark) for mark in _MARKS_OF_SINGLES)
    return (item.nodeid if is_single else _test(item.nodeid)[0]).replace("/", ".")


def _unmeasured(item: pytest.Item) -> float:
    if item.get_closest_marker("timeout"):  # a limit of its own is set for what takes long
        return (_limit(item) or 0.0) / 4
    return next((seconds for mark, seconds in _UNMEASURED.items() if item.get_closest_marker(mark)), 0.05)


def _test(nodeid: str) -> tuple[str, str]:
    """File and test function of a test, without its parameters and the group that xdist appends."""
    file, _, test = nodeid.partition("::")
    return file, re.split(r"[\[@]", test)[0]


def _limit(item: pytest.Item) -> float | None:
    mark = item.get_closest_marker("timeout")
    limit = (mark.args[0] if mark.args else mark.kwargs.get("timeout")) if mark else item.config.getoption("timeout")
    return float(limit) if limit else None


if __name__ == "__main__":
    timings = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "durations.json"
    DURATIONS.write_text(timings.read_text())
    print(f"{DURATIONS} is what {timings} says")
