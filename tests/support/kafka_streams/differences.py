"""Records of which both sides make other rows, on purpose; docs/kafka-streams.md has the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from support.kafka_streams.cases import CASES, SUMS_BY_REF, Case, Compared

#: Side (0 is the left one), key, n (None for a null value), time in milliseconds.
SidedRecord = tuple[int, str, int | None, int]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Records of which both sides make other rows.

    Attributes:
        case: the operators of both sides.
        records: in one partition, in this order.
        theirs: rows of Kafka Streams.
        ours: rows of the topology.
    """

    case: Case
    records: Sequence[SidedRecord]
    theirs: Sequence[Compared]
    ours: Sequence[Compared]


_STEP_OF_SOME = """
def step(slice):
    result(slice, slice[LEFT.topic].where("n < 100"))
"""
_TUMBLING = CASES["tumbling window"]

#: By the records, as the page has them.
DIFFERENCES: dict[str, Difference] = {
    "a record of a join that comes after the grace, whose partner is still in the other window store": Difference(
        case=CASES["inner join"],
        records=[(0, "a", 1, 10_000), (1, "a", 2, 10_001), (1, "a", 3, 13_001), (1, "a", 4, 9_001)],
        theirs=[(1, 2), (1, 3), (1, 4)],
        ours=[(1, 2), (1, 3)],
    ),
    "a record of a left or outer join that comes after the grace": Difference(
        case=CASES["left join"],
        records=[(0, "a", 1, 30_000), (0, "a", 2, 5_000), (1, "a", 3, 30_001)],
        theirs=[(1, 3), (2, None)],
        ours=[(1, 3)],
    ),
    "a row that comes after the grace to a join with versions": Difference(
        case=CASES["stream and versions"],
        records=[(1, "a", 9, 1_001), (0, "a", 1, 30_000), (0, "a", 2, 5_000)],
        theirs=[(1, 9), (2, 9)],
        ours=[(1, 9)],
    ),
    "a session's record before the frontier that would join a session that is still open": Difference(
        case=CASES["session window"],
        records=[(0, "a", 1, 10_000), (0, "a", 2, 13_000), (0, "a", 3, 9_000)],
        theirs=[("a", 9_000, 13_000, 3, 6)],
        ours=[("a", 10_000, 13_000, 2, 3)],
    ),
    "a sliding window's record before the frontier, of which later windows are still open": Difference(
        case=CASES["sliding window"],
        records=[(0, "a", 1, 10_000), (0, "a", 2, 13_000), (0, "a", 3, 10_500)],
        theirs=[
            ("a", 6_000, 10_000, 1, 1),
            ("a", 9_000, 13_000, 3, 6),
            ("a", 10_001, 14_001, 2, 5),
            ("a", 10_501, 14_501, 1, 2),
        ],
        ours=[("a", 6_000, 10_000, 1, 1), ("a", 9_000, 13_000, 2, 3), ("a", 10_001, 14_001, 1, 2)],
    ),
    "a record that `where` takes out before a window": Difference(
        case=replace(
            _TUMBLING, peer="tumbling of some", text=_TUMBLING.text + _STEP_OF_SOME, rest=f"{_TUMBLING.rest}, step=step"
        ),
        records=[(0, "a", 1, 5_000), (0, "a", 100, 20_000), (0, "a", 2, 6_000)],
        theirs=[("a", 0, 10_000, 2, 3)],
        ours=[("a", 0, 10_000, 1, 1)],
    ),
    "a null value, of a window that counts": Difference(
        case=replace(_TUMBLING, peer="count"),
        records=[(0, "a", 1, 5_000), (0, "a", None, 6_000)],
        theirs=[("a", 0, 10_000, 2, 1)],
        ours=[("a", 0, 10_000, 1, 1)],
    ),
    "a row of `at_most_every` that comes after the grace": Difference(
        case=CASES["newest of a window"],
        records=[(0, "a", 1, 5_000), (0, "b", 2, 14_000), (0, "a", 3, 6_000)],
        theirs=[("a", 10_000, 1), ("b", 20_000, 2)],
        ours=[("a", 10_000, 1), ("a", 20_000, 3), ("b", 20_000, 2)],
    ),
    "a group of a table's rows that has none any more": Difference(
        case=replace(CASES["aggregate of a table"], form=SUMS_BY_REF),
        records=[(0, "a", 1, 5_000), (0, "a", None, 6_000)],
        theirs=[("x", 0, 0)],
        ours=[],
    ),
}
