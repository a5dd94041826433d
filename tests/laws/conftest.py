"""Fixtures of the laws: a lab for each test, one Spark session for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab import Lab, lab

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.runtime.broker import Broker


@pytest.fixture
def stream(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: Any) -> Iterator[Lab]:
    """A deployed topology, version 1, whose topic has two partitions."""
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2)) as made:
        made.deploy(1)
        yield made
