"""Cases of a soak, and rigs on the run's broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.deaths import ENDLESS
from support.processes import Rig, rig

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker


@pytest.fixture
def case(case: Callable[[str, str], None]) -> Callable[[str], None]:
    """Counts one case: a process died or froze at one place, and the outcome was proven."""
    return partial(case, "crash")


@pytest.fixture
def machines(
    tmp_path: Path, kafka: Broker, topic: TopicFactory
) -> Iterator[Callable[..., AbstractContextManager[Rig]]]:
    """Makes rigs on the run's broker, one after the other.

    However often drivers die in one slice, it is tried again as it was planned: what is under test are the deaths.
    """

    @contextmanager
    def make(**settings: Any) -> Iterator[Rig]:
        name = topic(partitions=2)
        with rig(tmp_path / name, kafka, name, **{"slice_records": 20, "attempts": ENDLESS, **settings}) as machine:
            yield machine

    yield make
