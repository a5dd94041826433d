"""What is told of an analysed plan without walking it from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kappa.spark.plan_survey import survey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_plans_and_expressions_are_named_however_deep_they_are(spark: SparkSession) -> None:
    found = survey(spark.range(3).where("array(concat('a', uuid()))[0] <> ''").limit(2).selectExpr("id + 1 AS id"))

    assert {"Range", "Filter", "GlobalLimit", "Project"} <= found.plans
    assert {"Uuid", "Concat", "CreateArray", "Add", "Alias", "Literal"} <= found.expressions
    assert not found.is_deterministic
    assert not found.has_subqueries


def test_an_expression_with_a_plan_of_its_own_is_told_of(spark: SparkSession) -> None:
    found = survey(spark.range(3).selectExpr("id", "(SELECT max(id) FROM range(2)) AS most"))

    assert found.is_deterministic
    assert found.has_subqueries
