"""Jobs that a function starts while it is called, which no plan that it returns shows."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Result = TypeVar("_Result")


def called(session: SparkSession, function: Callable[[], _Result]) -> tuple[_Result, bool]:
    """The result of a function, and whether it started a job: by ``collect``, ``count`` or another action.

    Args:
        session: the session of its frames.
        function: called once, in this thread.
    """
    context = session.sparkContext
    tag = f"kappa-{uuid.uuid4().hex}"
    context.addJobTag(tag)
    try:
        result = function()
    finally:
        context.removeJobTag(tag)
    java = context._jsc.sc()
    java.listenerBus().waitUntilEmpty()  # the tracker hears of jobs from the bus
    return result, len(java.statusTracker().getJobIdsForTag(tag)) > 0
