"""Counts the cases, so that a run says how many there were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.processes import Rig, rig

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

_cases: list[str] = []


@pytest.fixture
def case() -> Callable[[str], None]:
    """Counts one case: one process that died or froze at one place, and what followed was proven."""
    return _cases.append


@pytest.fixture
def machines(
    tmp_path: Path, kafka: Broker, topic: TopicFactory
) -> Iterator[Callable[..., AbstractContextManager[Rig]]]:
    """Makes rigs on the run's broker, one after the other."""

    @contextmanager
    def make(**settings: Any) -> Iterator[Rig]:
        name = topic(partitions=2)
        with rig(tmp_path / name, kafka, name, **{"slice_records": 20, **settings}) as made:
            yield made

    yield make


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _cases:
        terminalreporter.write_line(f"{len(_cases)} crash cases: {', '.join(_cases)}")
