"""The epochs whose versioned topics one epoch reads, as its driver sees them: where its next slice ends.

A slice ends only where a commit of each of them had filled its topics. So every commit stands at one place of the root
topics, in which epochs that read different versioned topics can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.record.chains import sent_ends_of
from kappa.record.ledger import Ledger
from kappa.record.ledger_state import BegunState, LedgerState, begun
from kappa.replay.chains import Binding, Key, SentEnd, is_at, is_reached, next_end, sent_at, topics_of, within

#: What is read of those topics that are not versioned topics, for a slice that ends at a place of the root topics.
Direct = Callable[[Offsets], Offsets]


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Where a slice ends.

    Attributes:
        end: next offset of every topic that is read.
        standing: the same in root topics; None where no versioned topic is read, and ``end`` is it.
        frontiers: versioned topic -> up to when its rows are final there, epoch milliseconds.
    """

    end: Offsets
    standing: Offsets | None = None
    frontiers: Mapping[str, int] = field(default_factory=dict)


@dataclass(kw_only=True)
class Upstreams:
    """The epochs that one epoch reads.

    Attributes:
        bound: source -> the versioned topic that it reads.
    """

    lake: str
    bound: Mapping[str, Binding]
    _ledgers: dict[Key, Ledger] = field(default_factory=dict)

    @property
    def topics(self) -> dict[str, str]:
        """Source -> what its topic is called in Kafka."""
        return {source: binding.topic for source, binding in self.bound.items()}

    @property
    def keys(self) -> tuple[Key, ...]:
        """The epochs."""
        return tuple(topics_of(self.bound))

    def onward(self, state: BegunState, direct: Offsets, most: int) -> Cut | None:
        """The next slice of a reader that goes on as far as there is something; None when there is nothing.

        Args:
            state: the reader's ledger.
            direct: where the slice ends in topics that are not versioned topics.
            most: offsets that it may span, unless one transaction is larger.
        """
        return _cut(state, self.ahead(state.standing), direct, most)

    def bulk(self, state: BegunState, end: Offsets, direct: Offsets, most: int) -> Cut | None:
        """The next slice towards the end of a plan, which is in offsets of the versioned topics."""
        ahead = {key: within(sent, end.only(_topics(sent))) for key, sent in self.ahead(state.standing).items()}
        return _cut(state, ahead, direct, most)

    def towards(self, state: BegunState, goal: Offsets, direct: Offsets, most: int) -> Cut | None:
        """The next slice on the way to a place of the root topics; None when none of it is there to be read yet."""
        return _cut(state, _upto(self.ahead(state.standing), goal), direct, most)

    def following(self, state: BegunState, goals: Sequence[Offsets], direct: Direct, most: int) -> Cut | None:
        """The next slice of an epoch that follows another one, which was at these places, oldest first.

        It ends at the furthest of them that is at most so far away and at which all upstreams have a commit. Where that
        is further away, or there is none, it is a step on the way, never beyond the last of them; None when there is
        none.
        """
        ahead = self.ahead(state.standing)
        reachable = [goal for goal in goals if self._have(ahead, state.standing, goal)]
        for goal in reversed(reachable):
            cut = _cut(state, _upto(ahead, goal), direct(goal), None)
            if cut is not None and state.position.count_to(cut.end) <= most:
                return cut
        goal = reachable[0] if reachable else goals[-1]
        return _cut(state, _upto(ahead, goal), direct(goal), most)

    def ahead(self, standing: Offsets) -> dict[Key, list[SentEnd]]:
        """What each of them has sent since it stood there, oldest first."""
        sent_ends: dict[Key, list[SentEnd]] = {}
        for key, topics in topics_of(self.bound).items():
            newest_first = []
            for one in sent_ends_of(self._state(key), topics):
                if is_reached(one.standing, standing):
                    break
                newest_first.append(one)
            sent_ends[key] = newest_first[::-1]
        return sent_ends

    def _have(self, ahead: Mapping[Key, Sequence[SentEnd]], standing: Offsets, goal: Offsets) -> bool:
        """Whether each of them has a commit at the goal, or knows none of its topics."""
        for key, sent in ahead.items():
            topics = set(begun(self._state(key)).standing.topics)
            is_there = is_at(goal, standing.only(topics)) or sent_at(sent, goal) is not None
            if topics & set(goal.topics) and not is_there:
                return False
        return True

    def _state(self, key: Key) -> LedgerState:
        if key not in self._ledgers:
            self._ledgers[key] = Ledger(EpochPaths(lake=self.lake, topology=key[0], epoch=key[1]).ledger)
        return self._ledgers[key].state()


def _topics(sent: Sequence[SentEnd]) -> tuple[str, ...]:
    return sent[-1].ends.topics if sent else ()


def _upto(ahead: Mapping[Key, Sequence[SentEnd]], goal: Offsets) -> dict[Key, list[SentEnd]]:
    return {key: [one for one in sent if is_reached(one.standing, goal)] for key, sent in ahead.items()}


def _cut(state: BegunState, ahead: Mapping[Key, Sequence[SentEnd]], direct: Offsets, most: int | None) -> Cut | None:
    end, standing = state.position, state.standing
    frontiers: dict[str, int] = {}
    for sent in ahead.values():
        one = (sent[-1] if sent else None) if most is None else next_end(sent, state.position, most)
        if one is not None:
            end, standing = end.merge(one.ends), standing.merge(one.standing)
            frontiers |= {topic: final.ms for topic, final in one.final.items() if final.ms is not None}
    standing = standing.merge(direct)
    return None if standing == state.standing else Cut(end=end.merge(direct), standing=standing, frontiers=frontiers)
