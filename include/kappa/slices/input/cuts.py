"""The end of an epoch's next bounded slice, derived from the ledger's last slices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kappa.offsets.cuts import Spread, TimeIndex, likely_ms, next_cut
from kappa.offsets.vector import Offsets
from kappa.record.ledger_state import BegunState

if TYPE_CHECKING:
    from kappa.archive.reader import Archive
    from kappa.kafka.broker import Broker


def time_index(broker: Broker, topics: Iterable[str], archives: Iterable[Archive]) -> TimeIndex:
    """Answers where the records of a time begin, in the log and in archives that reach it."""
    names, held = sorted(topics), list(archives)

    def first_records(timestamp_ms: int, since: Offsets) -> Offsets:
        log_offsets = broker.offsets_for_time(names, timestamp_ms, since)
        # An archive knows records that are gone from the log, and agrees with it on all others.
        return Offsets.of(
            [*log_offsets.items(), *(item for a in held for item in a.offsets_for_time(timestamp_ms, since).items())]
        )

    return first_records


#: How many offsets before its end a partition is looked at for its last record: the very last offset may be a marker.
_LAST = 20


def spread_of(broker: Broker, start: Offsets, end: Offsets) -> Spread | None:
    """How the records of a span lie in time, by a look at both of its ends; None where it has no records."""
    near_end = Offsets.of((at, max(start.get(*at) or 0, last - _LAST)) for at, last in end.items())
    first, last = (
        sorted(messages[0].timestamp()[1] for messages in sample.values())
        for sample in broker.sample([start.naming(at for at, _ in end.items()), near_end], end, most=1)
    )
    if not first or not last:
        return None
    return Spread(start=start, end=end, first_ms=first[len(first) // 2], last_ms=last[len(last) // 2])


def cut_by_time(
    index: TimeIndex,
    state: BegunState,
    end: Offsets,
    max_records: int,
    spread: Callable[[Offsets, Offsets], Spread | None] | None = None,
) -> Offsets:
    """The end of the slice that follows the last commit, in the topics that ``end`` names.

    It may fall short of ``max_records`` by a tenth: each look-up of a time is a request to the brokers, and mostly one
    does.

    Args:
        index: looks times up.
        state: the epoch's ledger.
        end: where its bounded work ends.
        max_records: most offsets that the slice may span.
        spread: tells how the records between two places lie in time, where no slices tell it yet.
    """
    topics = set(end.topics)
    position = state.position.only(topics)
    last = state.commits[-2:]
    reached = [{at: ms for at, ms in commit.reached_ms.items() if at[0] in topics} for commit in last]
    span = sum(item.count for item in last[-1].ranges if item.topic in topics)
    near_ms = likely_ms(reached, span, max_records)
    if near_ms is None and spread is not None and position.count_to(end) > max_records:
        estimate = spread(position, end)
        near_ms = estimate.likely_ms(position, max_records) if estimate is not None else None
    return next_cut(
        index, position, end, max_records=max_records, reached_ms=reached[-1], near_ms=near_ms, slack=max_records // 10
    )
