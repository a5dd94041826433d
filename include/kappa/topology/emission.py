"""The declared emission of an operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

#: Under which cuts of the log the rows of a table or output are the same. ``any``: all, so that a replay gives what the
#: live stream gave. ``time``: those by time, as two replays have them. ``equal``: the same slices only. Where an epoch
#: was cut otherwise, rows are compared and the verdict leaves them out.
Cuts = Literal["any", "time", "equal"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Emission:
    """Rows that an operator emits: an output keeps them, or another operator reads them.

    Attributes:
        operator: the operator, with its table, for messages.
        schema: Spark DDL of the columns.
        topics: topics of the sources that the rows come from, sorted.
        behind_ms: how far behind the frontier of these sources the event time of a later row may be, in milliseconds;
            None where rows have no event time.
        times: columns that hold a time -> how far behind that frontier it may be in a later slice, in milliseconds.
            What reads a topic of these rows by one of them knows by it what is final.
        lags: the same columns -> how far behind the event time of its own row it may be, in milliseconds. A row that
            waits in an operator that reads it, waits by its event time.
        cuts: see :data:`Cuts`.
        deletes: whether a row may delete its key, so that rows cannot be appended as they are.
    """

    operator: str
    schema: str
    topics: tuple[str, ...]
    behind_ms: int | None
    times: Mapping[str, int] = field(default_factory=dict)
    lags: Mapping[str, int] = field(default_factory=dict)
    cuts: Cuts = "any"
    deletes: bool = False


def strictest(cuts: Iterable[Cuts]) -> Cuts:
    """The cuts under which rows are the same that come of several parts."""
    order: tuple[Cuts, ...] = get_args(Cuts)
    return max(cuts, key=order.index, default="any")
