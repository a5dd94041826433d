"""Rules about what a step computes: expressions that may give another result when the same slice is computed again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kappa.replay.findings import Finding, warn


class Cause(StrEnum):
    """Why the same records may give another result."""

    CLOCK = "clock"
    RANDOM = "random"
    PARTITIONS = "partitions"
    FUNCTION = "function"
    ORDER = "order"


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """An expression of a step's analysed plan whose result is not settled by its rows alone.

    Attributes:
        effect: the table or append output that is computed with it.
        cause: what else it depends on.
        expression: as SQL.
        column: what the step calls it; empty where it has no name, as in a condition.
    """

    effect: str
    cause: Cause
    expression: str
    column: str = ""

    def __str__(self) -> str:
        return f"{self.effect!r} uses {self.expression}" + (f" (as {self.column})" if self.column else "")


def step_findings(suspects: Iterable[Suspect]) -> list[Finding]:
    """What speaks against computing a step again."""
    given = list(dict.fromkeys(suspects))
    return [
        *reads_clock(given),
        *draws_random(given),
        *depends_on_partitions(given),
        *nondeterministic_function(given),
        *order_undefined(given),
    ]


def reads_clock(suspects: Iterable[Suspect]) -> list[Finding]:
    """A replay runs at another time than the live stream did."""
    return [
        warn(
            "reads-clock",
            f"{found}: a replay sees its own time there, not that of the live stream.",
            "Take the record's `_timestamp` or `_order_timestamp` instead.",
            **_values(found),
        )
        for found in _of(suspects, Cause.CLOCK)
    ]


def draws_random(suspects: Iterable[Suspect]) -> list[Finding]:
    """A replay draws other numbers; a seed does not help, since rows lie in other tasks."""
    return [
        warn(
            "draws-random",
            f"{found}: each run draws anew, also with a seed, since rows lie in other tasks then.",
            "Derive it from the record: xxhash64 or sha2 over its key, or over `_topic`, `_partition` and `_offset`.",
            **_values(found),
        )
        for found in _of(suspects, Cause.RANDOM)
    ]


def depends_on_partitions(suspects: Iterable[Suspect]) -> list[Finding]:
    """Slices of another size, and other machines, split the rows in another way."""
    return [
        warn(
            "depends-on-partitions",
            f"{found}: it tells how Spark happened to split the work, which differs from slice to slice.",
            "Number rows by a key of their own: `_topic`, `_partition` and `_offset` name each record for good.",
            **_values(found),
        )
        for found in _of(suspects, Cause.PARTITIONS)
    ]


def nondeterministic_function(suspects: Iterable[Suspect]) -> list[Finding]:
    """A function that its author, or Spark, calls nondeterministic."""
    return [
        warn(
            "nondeterministic-function",
            f"{found}: that function is marked nondeterministic.",
            "Write it as SQL functions of the record, or take the mark away if equal arguments always give equal results.",
            **_values(found),
        )
        for found in _of(suspects, Cause.FUNCTION)
    ]


def order_undefined(suspects: Iterable[Suspect]) -> list[Finding]:
    """Which row comes first is nobody's decision."""
    return [
        warn(
            "order-undefined",
            f"{found} without an order: which rows it takes, or in which order, is left to chance.",
            "Order by kappa.topology.ORDER: operators.newest, max_by, a window with orderBy, or sort_array around a list.",
            **_values(found),
        )
        for found in _of(suspects, Cause.ORDER)
    ]


def step_not_inspected(error: str) -> Finding:
    """The step could not be called without records: nothing is known about it."""
    return warn(
        "step-not-inspected",
        f"The step could not be looked at, because it does not run without records: {error}",
        "Let it build its DataFrames without looking at rows (no collect, no count); `kappa replay --determinism` computes twice and compares.",
        error=error,
    )


def _of(suspects: Iterable[Suspect], cause: Cause) -> list[Suspect]:
    return [found for found in suspects if found.cause is cause]


def _values(found: Suspect) -> dict[str, str]:
    return {"effect": found.effect, "expression": found.expression, "column": found.column}
