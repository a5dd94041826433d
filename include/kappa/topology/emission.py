"""The declared emission of an operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

#: The cuts of the log under which the rows of a table or output are the same. ``any``: all cuts, so that a replay gives
#: the same rows as the live stream. ``time``: cuts by time, as in two replays. ``equal``: only the same slices. If an
#: epoch was cut in another way, rows are compared, but do not count for the verdict.
Cuts = Literal["any", "time", "equal"]
#: When a row comes. ``record``: with the record whose place it has. ``frontier``: when a frontier made it final, which
#: its place says too. ``partner``: with a later record than that of its place, so that what comes first is a matter of
#: cuts.
Comes = Literal["record", "frontier", "partner"]
#: The record of a pair's right row: pairs of one left record may come in several slices.
PARTNER = "_partner"


@dataclass(frozen=True, kw_only=True)
class Places:
    """The places of rows in the order of their topics, which an operator that passes rows on leaves as they are.

    Attributes:
        of: the source, or the rows of an operator, for messages.
        topics: topics of the records that the rows have the places of.
        comes: see :data:`Comes`.
    """

    of: str
    topics: tuple[str, ...]
    comes: Comes

    def may_meet(self, other: Places) -> bool:
        """Whether a row of one may have the place of a row of the other, in another slice."""
        comes = (self.comes, other.comes)
        # A pair also has its partner. The place of a final row may be that of a record which came out of order.
        return "frontier" in comes and "partner" not in comes and not set(self.topics).isdisjoint(other.topics)


@dataclass(frozen=True, kw_only=True, eq=False)
class Emission:
    """Rows that an operator emits, for an output or another operator.

    Attributes:
        operator: the operator, with its table, for messages.
        schema: Spark DDL of the columns.
        topics: topics of the sources that the rows come from, sorted.
        behind_ms: how far behind the frontier of these sources the event time of a later row may be, in milliseconds;
            None if rows have no event time.
        times: columns that hold a time -> how far behind that frontier it may be in a later slice, in milliseconds. A
            reader of a topic of these rows knows from such a column which rows are final.
        lags: the same columns -> how far behind the event time of its own row it may be, in milliseconds. A row that
            waits in a reading operator waits by its event time.
        cuts: see :data:`Cuts`.
        deletes: whether a row may delete its key, so that rows cannot be appended as they are.
        comes: see :data:`Comes`.
        is_paired: whether rows of one record come in several slices, so that :data:`PARTNER` tells them apart.
        places: the places that the rows have, by where they got them.
    """

    operator: str
    schema: str
    topics: tuple[str, ...]
    behind_ms: int | None
    times: Mapping[str, int] = field(default_factory=dict)
    lags: Mapping[str, int] = field(default_factory=dict)
    cuts: Cuts = "any"
    deletes: bool = False
    comes: Comes = "record"
    is_paired: bool = False
    places: tuple[Places, ...] = ()


def strictest(cuts: Iterable[Cuts]) -> Cuts:
    """The cuts under which rows from several parts are the same."""
    order: tuple[Cuts, ...] = get_args(Cuts)
    return max(cuts, key=order.index, default="any")


def latest(comes: Iterable[Comes]) -> Comes:
    """When the rows of several parts come, of which each row needs one."""
    order: tuple[Comes, ...] = get_args(Comes)
    return max(comes, key=order.index, default="record")
