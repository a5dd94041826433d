"""Where the next bounded slice of an epoch ends, by what its ledger says of the last ones."""

from __future__ import annotations

from kappa.replay.cuts import TimeIndex, likely_ms, next_cut
from kappa.replay.offsets import Offsets
from kappa.runtime.ledger import LedgerState


def cut_by_time(index: TimeIndex, state: LedgerState, end: Offsets, max_records: int) -> Offsets:
    """The end of the slice that follows the last commit, in the topics that ``end`` names.

    It may fall short of ``max_records`` by a tenth: each look-up of a time is a request to the brokers, and mostly one does.

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
        index, position, end, max_records=max_records, reached_ms=reached[-1],
        near_ms=likely_ms(reached, span, max_records), slack=max_records // 10,
    )  # fmt: skip
