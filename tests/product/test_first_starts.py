"""A first start over a topic that does not keep its history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.epochs import Lab, lab
from typer.testing import CliRunner

from kappa.cli import app

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def compacted(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Lab]:
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=1, cleanup_policy="compact")) as stream:
        stream.deploy(1)
        yield stream


def test_a_first_start_is_refused_with_an_option_that_the_command_has(compacted: Lab) -> None:
    compacted.produce([("a", 1), ("b", 2)])
    refused = CliRunner().invoke(app, ["start", compacted.name], env=compacted.config.to_env())
    assert refused.exit_code == 1, refused.output
    assert "--allow compacted-source" in " ".join(f"{refused.output} {refused.exception}".split())
    assert "Would build epoch 1" in compacted.output_of("start", compacted.name, "--allow", "compacted-source")
