"""Where the next bounded slice of an epoch ends, by what its ledger says of the last ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kappa.lake.ledger_state import LedgerState
from kappa.offsets.cuts import TimeIndex, likely_ms, next_cut
from kappa.offsets.vector import Offsets

if TYPE_CHECKING:
    from kappa.archive.reader import Archive
    from kappa.kafka.broker import Broker


def time_index(broker: Broker, topics: Iterable[str], archives: Iterable[Archive]) -> TimeIndex:
    """Answers where the records of a time begin, in the log and in archives that reach it."""
    names, held = sorted(topics), list(archives)

    def first_records(timestamp_ms: int, since: Offsets) -> Offsets:
        found = broker.offsets_for_time(names, timestamp_ms, since)
        # An archive knows records that are gone from the log, and agrees with it on all others.
        return Offsets.of(
            [*found.items(), *(item for a in held for item in a.offsets_for_time(timestamp_ms, since).items())]
        )

    return first_records


def cut_by_time(index: TimeIndex, state: LedgerState, end: Offsets, max_records: int) -> Offsets:
    """The end of the slice that follows the last commit, in the topics that ``end`` names.

    It may fall short of ``max_records`` by a tenth: each look-up of a time is a request to the brokers, and mostly one
    does.

    Args:
        index: looks times up.
        state: the epoch's ledger.
        end: where its bounded work ends.
        max_records: most offsets that the slice may span.

    Raises:
        LedgerError: the epoch has no commit yet.
    """
    topics = set(end.topics)
    position = state.position.only(topics)
    last = state.commits[-2:]
    reached = [{at: ms for at, ms in commit.reached_ms.items() if at[0] in topics} for commit in last]
    span = sum(item.count for item in last[-1].ranges if item.topic in topics)
    return next_cut(
        index,
        position,
        end,
        max_records=max_records,
        reached_ms=reached[-1],
        near_ms=likely_ms(reached, span, max_records),
        slack=max_records // 10,
    )
