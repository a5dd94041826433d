"""Slices of a few records, as a driver runs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kappa.spark.session import tune

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True, scope="module")
def small_slices(spark: SparkSession) -> Iterator[None]:
    """The session is tuned for small slices: each takes a fraction of the time."""
    tune(spark, is_small=True)
    yield
    tune(spark, is_small=False)
