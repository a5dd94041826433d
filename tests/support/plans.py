"""What Spark makes of a DataFrame, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def analyzed_plan(frame: DataFrame) -> str:
    """The plan as every rule of the analyzer and the optimizer gets it."""
    return str(frame._jdf.queryExecution().analyzed().toString())


def executed_plan(frame: DataFrame) -> str:
    """The plan whose tasks are run."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def optimized_plan(frame: DataFrame) -> str:
    """The plan with the hints of its joins, before Spark chooses how they are run."""
    return str(frame._jdf.queryExecution().optimizedPlan().toString())
