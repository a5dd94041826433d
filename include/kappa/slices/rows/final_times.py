"""Up to when the rows of versioned topics are final: what readers of a chain close their windows by.

An operator knows how far behind the frontier of its sources a column of what it emits may be. A commit records that
for each versioned topic whose time is such a column. No row that is sent later may be earlier, whatever the step made
of it: that is checked before a byte is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.offsets.releases import merged
from kappa.replay.chains import Final
from kappa.topology import Topic, Topology
from kappa.topology.times.event_time import Frontier

if TYPE_CHECKING:
    from kappa.record.ledger_rows import LedgerRow
    from kappa.slices.run import EpochRun


@dataclass(frozen=True, kw_only=True)
class Promise:
    """A promise about an output: no row of it is earlier.

    Attributes:
        topic: the topic whose readers were told.
        time: the column.
        ms: epoch milliseconds.
    """

    topic: str
    time: str
    ms: int


def final_times(topology: Topology, frontier: Callable[[Sequence[str]], Frontier]) -> dict[str, Final]:
    """Versioned topic -> up to when its rows are final.

    Args:
        topology: declares them.
        frontier: gives the frontier of some of its sources.
    """
    return {
        topic.name: Final(time=time, ms=frontier(emitted_of).ago(behind_ms).ms)
        for topic, time, emitted_of, behind_ms in _followed(topology)
    }


def final_after(run: EpochRun, of: LedgerRow, before: Mapping[str, Final]) -> dict[str, Final]:
    """Versioned topic, as Kafka knows it -> up to when its rows are final after a slice. What was final stays so.

    Args:
        of: says what the slice read and how far event time has come.
        before: the same after the slice before it.
    """
    floors = merged([run.ledger.state(look=False).floored, of.floors])
    graces = {source.topic: source.grace_ms for source in run.topology.sources if source.grace_ms is not None}

    def frontier(sources: Sequence[str]) -> Frontier:
        return of.frontier({run.bound.get(source, source): graces[source] for source in sources}, floors)

    named = {run.paths.versioned(name): final for name, final in final_times(run.topology, frontier).items()}
    return {name: _latest(final, before.get(name)) for name, final in named.items()}


def promises(run: EpochRun, before: LedgerRow) -> dict[str, list[Promise]]:
    """Output -> the promise to the readers of its topics up to a commit."""
    final = before.final
    physical = {topic.name: run.paths.versioned(topic.name) for topic in run.topology.versioned_topics}
    return promised(run.topology, {name: final[at] for name, at in physical.items() if at in final})


def promised(topology: Topology, final: Mapping[str, Final]) -> dict[str, list[Promise]]:
    """The same from the final times of a topology's versioned topics."""
    by_output: dict[str, list[Promise]] = {}
    for topic, time, _, _ in _followed(topology):
        one = final.get(topic.name)
        if one is not None and one.time == time and one.ms is not None:
            by_output.setdefault(topic.of, []).append(Promise(topic=topic.name, time=time, ms=one.ms))
    return by_output


def _followed(topology: Topology) -> Iterator[tuple[Topic, str, Sequence[str], int]]:
    """Versioned topics that readers can follow, with the column, the sources of its rows, and how far it is behind."""
    for topic in topology.versioned_topics:
        emitted = topology.followed(topic)
        if emitted is not None and topic.time is not None:
            yield topic, topic.time, emitted.topics, emitted.times[topic.time]


def _latest(final: Final, before: Final | None) -> Final:
    if before is None or before.time != final.time or before.ms is None:
        return final
    return Final(time=final.time, ms=before.ms if final.ms is None else max(before.ms, final.ms))
