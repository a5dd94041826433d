"""Prometheus' own tool for rules: Debian's package, unpacked into the cache where the host has none."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from kappa.config import Config
from support.environments import ROOT
from support.metrics import Samples

RULES = ROOT / "docker" / "prometheus" / "alerts.yaml"


def promtool() -> str:
    """Path of the tool; the server is beside it."""
    folder = Config.from_env({}).cache / "prometheus"
    places = os.pathsep.join([os.environ.get("PATH", ""), str(folder / "usr" / "bin")])
    if shutil.which("promtool", path=places) is None and shutil.which("apt-get"):
        _fetch(folder)
    path = shutil.which("promtool", path=places)
    if path is None:
        pytest.skip("promtool is missing and could not be fetched: `apt-get download prometheus`")
    return path


def _fetch(folder: Path) -> None:
    """Unpack the package into a folder, in one step: two processes may do it at once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:

        def run(*command: str) -> bool:
            return not subprocess.run(command, cwd=scratch, capture_output=True, check=False, timeout=120).returncode

        download = ("apt-get", "download", "prometheus")
        if run(*download) or (run("apt-get", "update") and run(*download)):
            run("sh", "-c", "dpkg-deb --extract prometheus_*.deb unpacked")
            with contextlib.suppress(OSError):  # the other one was first, or there is nothing
                (Path(scratch) / "unpacked").rename(folder)


def check(*arguments: str | Path) -> str:
    """Run the tool; what it printed. It has to succeed."""
    done = subprocess.run([promtool(), *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


#: Samples of one look, and for how many minutes Prometheus sees them.
Looks = Sequence[tuple[int, Samples]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """An alert and what Prometheus scraped.

    Attributes:
        alert: its name; it has to fire at the end.
        looks: samples, oldest first; during the first of them no alert may fire.
        labels: those that the series have in Prometheus beside their own.
        routed: those of them that the alert has to have.
    """

    alert: str
    looks: Looks
    labels: Mapping[str, str]
    routed: Mapping[str, str] = field(default_factory=dict)


def assert_firing(folder: Path, cases: Sequence[Case]) -> None:
    """Let Prometheus evaluate the rules on what it would have scraped: each case by itself.

    Args:
        folder: where the tool's test is written.
        cases: one for each alert.
    """
    file = folder / "alerts-test.yaml"
    tests = [_test(case) for case in cases]
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    check("test", "rules", file)


def _test(case: Case) -> dict[str, Any]:
    minutes = [minute for minute, _ in case.looks]
    quiet, end = minutes[0] - 1, sum(minutes) - 1
    alert = "ALERTS", frozenset({("alertname", case.alert), ("alertstate", "firing")})
    keys = {key for _, samples in case.looks for key in samples if not key[0].startswith("kappa_slice_")}
    return {
        "interval": "1m",
        "input_series": [
            {"series": series(key, case.labels), "values": " ".join(values(key, case.looks))}
            for key in sorted(keys, key=str)
        ],
        "promql_expr_test": [
            expectation('count(ALERTS{alertstate="firing"})', quiet, None),
            expectation(f"count({series(alert, case.routed)})", end, 1),
        ],
    }


def expectation(query: str, minute: int, value: int | None) -> dict[str, Any]:
    """A query with its value at a minute; None for no value."""
    samples = [] if value is None else [{"labels": "{}", "value": value}]
    return {"expr": query, "eval_time": f"{minute}m", "exp_samples": samples}


def series(key: tuple[str, frozenset[tuple[str, str]]], labels: Mapping[str, str]) -> str:
    """A series in Prometheus' notation."""
    name, own = key
    words = ", ".join(f'{label}="{word}"' for label, word in sorted({**labels, **dict(own)}.items()))
    return f"{name}{{{words}}}"


def values(key: tuple[str, frozenset[tuple[str, str]]], looks: Looks) -> list[str]:
    """A value for each minute; one that is gone is ``stale``, as Prometheus marks it at the scrape that lacks it."""
    words: list[str] = []
    for minutes, samples in looks:
        value = samples.get(key)
        gone = "stale" if set(words) - {"_"} else "_"
        word = gone if value is None else "Inf" if value == math.inf else repr(value)
        words += [word] * minutes
    return words
