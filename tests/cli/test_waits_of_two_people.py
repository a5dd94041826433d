"""A command that waits for an epoch ends when somebody else decides that the epoch is not to run any more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.page_lake import CANDIDATE, TopologyStory, steady
from typer.testing import CliRunner

from kappa import clock
from kappa.cli import app
from kappa.cli.views.watch import watch
from kappa.config import Config
from kappa.driver.processes import process
from kappa.record.epochs import Epochs

NAME = "a.waits"


@pytest.fixture
def story(tmp_path: Path) -> TopologyStory:
    """Epoch 2 is live, epoch 1 is retired, epoch 3 is being built, and drivers are elsewhere."""
    folders = {f"KAPPA_{name}": str(tmp_path / name.lower()) for name in ("HOME", "LAKE", "TOPOLOGIES")}
    config = Config.from_env({**folders, "KAPPA_LAUNCHER": "elsewhere"})
    config.topologies.mkdir()
    story, now = TopologyStory(config=config, name=NAME, partitions=1), clock.now()
    for epoch, live in ((1, None), (2, 1)):
        story.begin(epoch, now, live=live, stages=CANDIDATE if live else CANDIDATE[:3], topics=())
        story.move(epoch, live, 0, now)
        story.ledger(epoch, steady(now, 3))
    story.begin(3, now, live=2, stages=CANDIDATE[:2], topics=())
    return story


@contextmanager
def waiting(config: Config, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, from the moment on at which it says how far the epoch is."""
    command = [sys.executable, "-m", "kappa", *words]
    environ = {**os.environ, **config.to_env()}
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as process_:
        try:
            assert process_.stderr is not None and "epoch" in process_.stderr.readline()
            yield process_
        finally:
            process_.kill()


def decide(story: TopologyStory, *words: str) -> None:
    """What the second person does; of an abort the row that it begins with, for it removes topics too."""
    if words == ("abort", NAME, "3"):
        story.tell(3, "aborted", clock.now(), reason="wrong sums")
        return
    answer = CliRunner().invoke(app, [*words, "--reason", "wrong sums", "--execute"], env=story.config.to_env())
    assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize(
    ("words", "decision", "outcome"),
    [
        (("start", NAME, "--epoch", "3"), ("stop", NAME, "--epoch", "3"), "Epoch 3 of 'a.waits' was stopped by"),
        (("start", NAME, "--epoch", "3"), ("abort", NAME, "3"), "Epoch 3 of 'a.waits' was aborted by"),
        (("rollback", NAME), ("abort", NAME, "1"), "Epoch 1 of 'a.waits' was retired again by"),
        (("rollback", NAME), ("stop", NAME, "--epoch", "1"), "Epoch 1 of 'a.waits' was stopped by"),
    ],
)
def test_a_wait_ends_with_the_name_of_whoever_ended_the_epoch(
    story: TopologyStory, words: tuple[str, ...], decision: tuple[str, ...], outcome: str
) -> None:
    if words[0] == "rollback":
        story.tell(3, "aborted", clock.now())
    with waiting(story.config, *words, "--execute") as command:
        decide(story, *decision)
        _, errors = command.communicate(timeout=120)
    assert command.returncode == 1 and outcome in " ".join(errors.split()), errors
    assert "wrong sums. Nothing is waited for any more." in " ".join(errors.split())


@pytest.mark.parametrize("event", ["stop", "aborted"])
def test_a_driver_that_is_not_wanted_is_not_revived(
    story: TopologyStory, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    monkeypatch.setattr(process, "ensure_driver", lambda _config, _topology, epoch: started.append(epoch))
    monkeypatch.setattr(process, "REVIVE_SECONDS", -1.0)
    revival = process.Revival(replace(story.config, launcher="here"), {NAME: 3})
    revival.look()
    Epochs(story.config.lake).add(NAME, 3, "stop" if event == "stop" else "aborted", actor="bob")
    revival.look()
    assert started == [3]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_wait_shows_what_a_driver_says_as_it_is(
    story: TopologyStory, is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    says = "waits: no [id, n] in [/lake/x]"
    story.beat(1, message=says)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "300")
    watch(story.config, NAME, 1, until=lambda progress: progress.driver.message == says)
    assert says in capsys.readouterr().err
