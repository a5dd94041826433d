"""Rows of several effects, collected in one job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kappa.slices.rows.effects import collect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: Values of which Spark knows that they are never null, at every depth.
NEVER_NULL = (
    "'pos' AS topic",
    "NAMED_STRUCT('topic', 'pos', 'at', NAMED_STRUCT('n', id)) AS origin",
    "ARRAY(id) AS ids",
    "ARRAY(NAMED_STRUCT('n', id)) AS rows",
    "MAP('n', id) AS counts",
    "MAP(NAMED_STRUCT('k', 'n'), id) AS keyed",
)


@pytest.mark.parametrize("in_one_job", [True, False])
def test_effects_with_non_null_columns_are_collected_unchanged(spark: SparkSession, in_one_job: bool) -> None:
    frames = {
        "votes": spark.range(3).selectExpr("id", *NEVER_NULL),
        "averages": spark.range(2).selectExpr("id", "2 * id AS double"),
        "none": spark.range(0).selectExpr(*NEVER_NULL),
    }
    effects = collect(frames, in_one_job=in_one_job)
    for name, frame in frames.items():
        assert effects[name].sort_by(effects[name].column_names[0]).to_pylist() == frame.toArrow().to_pylist()
        assert all(field.nullable for field in effects[name].schema), "another slice may have nulls there"
