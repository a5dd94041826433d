"""Brokers with other settings, and those whose end ends the run: each further test would wait for one that is gone
until its own limit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kappa.properties import parsed as properties

if TYPE_CHECKING:
    from kappa_local.kafka import KafkaProcess

#: Brokers to which the run is held, and those of them that the test at hand may end.
WATCHED: list[KafkaProcess] = []
MORTAL: list[KafkaProcess] = []


def started_with(
    folder: Path,
    settings: Callable[[Mapping[str, str]], Mapping[str, str]],
    *,
    options: Sequence[str] = (),
    classes: Path | None = None,
    is_secure: bool = False,
) -> KafkaProcess:
    """A broker with settings over those in its file, of which they may be made, and with classes besides its own."""
    from kappa_local import kafka

    plain = kafka.command

    def command(data_dir: Path, **how: Any) -> list[str]:
        java, *words = plain(data_dir, **how)
        if classes is not None:
            words[words.index("-cp") + 1] += f":{classes}"
        others = settings(properties((data_dir / "server.properties").read_text()))
        return [java, *options, *words, *(w for name in others for w in ("--override", f"{name}={others[name]}"))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka, "command", command)
        return kafka.KafkaProcess.start(folder, is_secure=is_secure)


def is_lost(broker: KafkaProcess) -> bool:
    """Whether a broker ended that no test ended.

    Asked from another thread than the test's: a broker is looked at before and after it is asked whether it may end, or
    one that a test ends or restarts in between would count as lost.
    """
    if broker.is_running() or broker in MORTAL or broker not in WATCHED:
        return False
    return not broker.is_running()


@contextlib.contextmanager
def watched(broker: KafkaProcess) -> Iterator[KafkaProcess]:
    """Within, the run is held to this broker's life; it is stopped at the end."""
    WATCHED.append(broker)
    try:
        yield broker
    finally:
        WATCHED.remove(broker)
        broker.stop()


@contextlib.contextmanager
def mortal(broker: KafkaProcess) -> Iterator[KafkaProcess]:
    """Within, a test may end the broker; it runs again afterwards."""
    MORTAL.append(broker)
    try:
        yield broker
        if not broker.is_running():
            broker.restart()
    finally:
        MORTAL.remove(broker)
