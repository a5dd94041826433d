"""Several joins with one table of versions: each gives what it gives alone, and the table is kept once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from support.shared_versions import compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]


def test_joins_that_share_versions_give_what_the_definition_says(spark: SparkSession) -> None:
    compare(spark, 0, records=24, slices=3)
