"""A rig for each test, on the run's broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.processes import Rig, rig

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker


@pytest.fixture
def machine(tmp_path: Path, kafka: Broker, topic: TopicFactory) -> Iterator[Rig]:
    """A deployed topology, version 1, with real driver processes; its topic has two partitions."""
    with rig(tmp_path, kafka, topic(partitions=2), slice_records=20) as machine:
        yield machine
