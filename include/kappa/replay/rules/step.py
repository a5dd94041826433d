"""Rules about what a step computes: expressions that may give another result when the same slice is computed again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kappa.replay.findings import Declaration, Finding, warns


class Cause(StrEnum):
    """Why the same records may give another result."""

    CLOCK = "clock"
    RANDOM = "random"
    PARTITIONS = "partitions"
    FUNCTION = "function"
    ORDER = "order"


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """An expression of a step's analysed plan whose result its rows alone do not determine.

    Attributes:
        effect: the table or append output that is computed with it.
        cause: what else it depends on.
        expression: as SQL.
        column: its name in the step; empty where it has none, as in a condition.
    """

    effect: str
    cause: Cause
    expression: str
    column: str = ""

    def __str__(self) -> str:
        return f"{self.effect!r} uses {self.expression}" + (f" (as {self.column})" if self.column else "")


READS_CLOCK = warns(
    "reads-clock",
    "{suspect}: a replay sees its own time there, not that of the live stream.",
    "Take the record's `_timestamp` or `_order_timestamp` instead.",
    way_out="Take the record's `_timestamp` or `_order_timestamp` instead of `current_timestamp`, `now`, "
    "`current_date` and the like.",
)
DRAWS_RANDOM = warns(
    "draws-random",
    "{suspect}: each run draws other values, even with a seed, since rows are in other tasks then.",
    "Derive it from the record: xxhash64 or sha2 over its key, or over `_topic`, `_partition` and `_offset`.",
    way_out="Derive it from the record instead of `rand`, `randn`, `shuffle`, `uuid` or a sample: xxhash64 or sha2 "
    "over its key, or over `_topic`, `_partition` and `_offset`.",
)
DEPENDS_ON_PARTITIONS = warns(
    "depends-on-partitions",
    "{suspect}: it shows how Spark happened to split the work, which differs from slice to slice.",
    "Number rows by a key of their own: `_topic`, `_partition` and `_offset` name each record for good.",
    way_out="Number rows by a key of their own instead of `monotonically_increasing_id`, `spark_partition_id`, "
    "`input_file_name`: `_topic`, `_partition` and `_offset` name each record for good.",
)
NONDETERMINISTIC_FUNCTION = warns(
    "nondeterministic-function",
    "{suspect}: that function is marked nondeterministic, by its author or by Spark.",
    "Write it with SQL functions of the record, or remove the mark if equal arguments always give equal results.",
)
ORDER_UNDEFINED = warns(
    "order-undefined",
    "{suspect} without an order: which rows it takes, or in which order, is left to chance.",
    "Order by kappa.topology.ORDER: operators.newest, max_by, a window with orderBy, or sort_array around a list.",
    way_out="Order by kappa.topology.ORDER what `first`, `last`, `any_value`, `collect_list`, `limit` and "
    "`dropDuplicates` leave to chance: operators.newest, max_by, a window with orderBy, or sort_array around "
    "a list.",
)

_BY_CAUSE: Mapping[Cause, Declaration] = {
    Cause.CLOCK: READS_CLOCK,
    Cause.RANDOM: DRAWS_RANDOM,
    Cause.PARTITIONS: DEPENDS_ON_PARTITIONS,
    Cause.FUNCTION: NONDETERMINISTIC_FUNCTION,
    Cause.ORDER: ORDER_UNDEFINED,
}


def step_findings(suspects: Iterable[Suspect]) -> list[Finding]:
    """Objections to computing a step again, by cause."""
    distinct_suspects = dict.fromkeys(suspects)
    return [
        declared({"suspect": suspect}, effect=suspect.effect, expression=suspect.expression, column=suspect.column)
        for cause, declared in _BY_CAUSE.items()
        for suspect in distinct_suspects
        if suspect.cause is cause
    ]


STEP_NOT_INSPECTED = warns(
    "step-not-inspected",
    "The step could not be inspected, because it does not run without records: {error}",
    "Build its DataFrames without looking at rows (no collect, no count); `kappa replay --determinism` computes twice "
    "and compares.",
)


def step_not_inspected(error: str) -> Finding:
    """The step could not be called without records: nothing is known about it."""
    return STEP_NOT_INSPECTED(error=error)
