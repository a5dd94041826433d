"""The topology's own checks, run on a candidate."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kappa.errors import first_line, unworded
from kappa.replay.proof.verdict import CheckResult
from kappa.topology import Check, Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: Names of temporary views are the session's, which drivers in one process share.
_views = threading.Lock()


def checked(session: SparkSession, topology: Topology, tables: Mapping[str, DataFrame]) -> list[CheckResult]:
    """The topology's checks on its tables and append outputs by name. One that raises does not hold."""
    if not topology.checks:
        return []
    is_masked = any(member.masked for member in (*topology.tables, *topology.appends))
    with _views:
        for name, frame in tables.items():
            frame.createOrReplaceTempView(name)
        return [
            _checked(check, partial(_contradicting, session, check, tables), is_masked) for check in topology.checks
        ]


def _checked(check: Check, run: Callable[[], int | bool], is_masked: bool) -> CheckResult:
    from py4j.protocol import Py4JNetworkError

    try:
        outcome = run()
    except (Py4JNetworkError, ConnectionError):
        raise  # Spark is gone, which is not about the check: the driver tries again
    except Exception as error:  # any error of a user's check is a reason not to trust the candidate
        return CheckResult(name=check.name, ok=False, detail=f"raised {_error(error, is_masked)}")
    if isinstance(outcome, bool):
        return CheckResult(name=check.name, ok=outcome, detail="" if outcome else "it says that it does not hold")
    return CheckResult(name=check.name, ok=outcome == 0, detail=f"{outcome} rows contradict it" if outcome else "")


def _contradicting(session: SparkSession, check: Check, tables: Mapping[str, DataFrame]) -> int | bool:
    """Number of rows that contradict a check, or whether it holds."""
    if check.function is None:
        return session.sql(check.sql).count()
    outcome = check.function(tables)
    if isinstance(outcome, bool):
        return outcome
    if not callable(getattr(outcome, "count", None)) or not hasattr(outcome, "schema"):
        raise TypeError(f"its function returned {type(outcome).__name__}, not a DataFrame or a bool")
    return outcome.count()


def _error(error: Exception, is_masked: bool) -> str:
    """Class and first line of an error; without its message where that may hold masked values."""
    line, kind = first_line(error), type(error).__name__
    if not is_masked:
        return f"{kind}: {line}" if line else kind
    what = unworded(error)
    return f"{kind if what == kind else f'{kind} {what}'} (its message is not shown: columns are masked)"
