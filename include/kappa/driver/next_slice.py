"""The end of the next slice of an epoch.

An epoch that reads topics alone is cut by time, wherever the log ends. One that reads versioned topics of other epochs
ends its slices where a commit of those epochs had filled their topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kappa.driver.attempts import is_shrunk
from kappa.driver.driven_epoch import DrivenEpoch
from kappa.driver.lazy_engines import LazyEngines
from kappa.driver.upstreams import Cut
from kappa.errors import LedgerError
from kappa.offsets.cuts import Spread
from kappa.offsets.vector import Offsets, ranges_end
from kappa.record.ledger_state import BegunState
from kappa.slices.input.cuts import cut_by_time, spread_of


class Cuts(Protocol):
    """Ends of slices of at most ``most`` offsets; None where there is nothing to read yet."""

    def bulk(self, state: BegunState, most: int) -> Cut:
        """The next slice towards the end of the plan."""
        ...

    def onward(self, state: BegunState, most: int) -> Cut | None:
        """The next slice towards the end of what there is."""
        ...

    def apart(self, state: BegunState, live: Offsets, most: int) -> Cut | None:
        """The next slice of topics that the live epoch, which stands at ``live``, does not read."""
        ...

    def towards(self, state: BegunState, goal: Offsets, most: int) -> Cut | None:
        """The next slice on the way to ``goal``, in offsets of root topics."""
        ...

    def following(self, state: BegunState, goals: Sequence[Offsets], most: int, *, is_far: bool) -> Cut | None:
        """The next slice after an epoch that stood at ``goals``, oldest first; it ends at one of them.

        Where ``is_far``, a slice may end before the first of them if that is more than ``most`` offsets away.
        """
        ...


def cuts_of(epoch: DrivenEpoch, engines: LazyEngines) -> Cuts:
    """What cuts the slices of a driver's epoch."""
    if epoch.plan.bound:
        return UpstreamCuts(epoch, engines)
    return LiveCuts(epoch, engines) if epoch.plan.request.cuts == "live" else TimeCuts(epoch, engines)


class TimeCuts:
    """Cuts of an epoch that reads topics alone; see :class:`Cuts`."""

    def __init__(self, epoch: DrivenEpoch, engines: LazyEngines) -> None:
        self._epoch = epoch
        self._engines = engines
        self._spread: Spread | None = None

    def bulk(self, state: BegunState, most: int) -> Cut:
        return self.towards(state, self._epoch.plan.end, most)

    def onward(self, state: BegunState, most: int) -> Cut | None:
        end = self._epoch.stable(self._engines.broker, state.position)
        return None if end == state.position else self.towards(state, end, most)

    def apart(self, state: BegunState, live: Offsets, most: int) -> Cut | None:
        end = self._apart_end(state, live)
        return None if end == state.position else self.towards(state, end, most)

    def _apart_end(self, state: BegunState, live: Offsets) -> Offsets:
        """The position with the end of topics in which the live epoch has no commit to follow."""
        return state.position.merge(self._epoch.ends_apart(self._engines.broker, state, live))

    def towards(self, state: BegunState, goal: Offsets, most: int) -> Cut:
        return Cut(end=cut_by_time(self._engines.time_index(), state, goal, most, self._spread_of))

    def _spread_of(self, start: Offsets, end: Offsets) -> Spread | None:
        """How records lie in time: looked at once, which is as good for the next slice as for the first."""
        if self._spread is None:
            self._spread = spread_of(self._engines.broker, start, end)
        return self._spread

    def following(self, state: BegunState, goals: Sequence[Offsets], most: int, *, is_far: bool) -> Cut:
        position, rest = state.position, self._apart_end(state, goals[0])
        fitting = [goal for goal in goals if position.count_to(rest.merge(goal)) <= most]
        if not fitting and (is_far or rest != position):
            return self.towards(state, rest.merge(goals[0]), most)
        return Cut(end=rest.merge(fitting[-1] if fitting else goals[0]))


class LiveCuts(TimeCuts):
    """Cuts where slices of the live epoch ended; see :class:`Cuts`. What is live has cuts of its own."""

    def __init__(self, epoch: DrivenEpoch, engines: LazyEngines) -> None:
        super().__init__(epoch, engines)
        self._ends: list[Offsets] | None = None

    def bulk(self, state: BegunState, most: int) -> Cut:
        position, end = state.position, self._epoch.plan.end
        if self._ends is None:
            self._ends = self._recorded(position, end)
        while self._ends and position.dominates(self._ends[0]):
            self._ends.pop(0)
        if not self._ends:  # what is left are topics that the live epoch does not read
            return self.towards(state, end, most)
        goal = position.merge(self._ends[0])
        return self.towards(state, goal, most) if is_shrunk(state) else Cut(end=goal)

    def following(self, state: BegunState, goals: Sequence[Offsets], most: int, *, is_far: bool) -> Cut:
        if is_shrunk(state):
            return super().following(state, goals[:1], most, is_far=True)
        rest = self._apart_end(state, goals[0])
        # A slice that ends elsewhere than one of the live epoch reads no topic of both.
        if state.position.count_to(rest) > most:
            return self.towards(state, rest, most)
        return Cut(end=rest.merge(goals[0]))

    def _recorded(self, position: Offsets, end: Offsets) -> list[Offsets]:
        """Ends of the live epoch's slices from a position up to an end, oldest first: those that are rolled up too."""
        epoch = self._epoch
        pieces = epoch.live_ledger(epoch.record()).history()
        ends = [ranges_end(row.ranges).only(end.topics) for piece in pieces for row in piece if row.kind == "commit"]
        ends_ahead = [one for one in ends if end.dominates(one) and not position.dominates(one)]
        return sorted(ends_ahead, key=lambda one: sum(offset for _, offset in one.items()))


class UpstreamCuts:
    """Cuts of an epoch that reads versioned topics of other epochs; see :class:`Cuts`."""

    def __init__(self, epoch: DrivenEpoch, engines: LazyEngines) -> None:
        self._epoch = epoch
        self._engines = engines

    def bulk(self, state: BegunState, most: int) -> Cut:
        """Raises LedgerError where no commit of an epoch it reads lies between the last commit and the plan's end."""
        end = self._epoch.plan.end
        cut = self._epoch.upstreams.bulk(state, end, self._direct_cut(state, end, most), most)
        if cut is None:
            raise LedgerError(
                f"Epoch {self._epoch.paths.epoch} stands at {state.position.to_json()}, its plan ends at "
                f"{end.to_json()}, and no commit of an epoch that it reads lies between. Abort this replay and plan "
                "again."
            )
        return cut

    def onward(self, state: BegunState, most: int) -> Cut | None:
        return self._epoch.upstreams.onward(state, self._direct_cut(state, self._direct_end(state), most), most)

    def apart(self, state: BegunState, live: Offsets, most: int) -> Cut | None:
        return self.towards(state, state.standing.only(live.topics), most)

    def _apart_cut(self, state: BegunState, live: Offsets, most: int) -> Offsets:
        """Where a slice ends in topics as they are that the live epoch does not read; cut by time."""
        end = self._epoch.ends_apart(self._engines.broker, state, live).only(self._direct())
        return cut_by_time(self._engines.time_index(), state, end, most) if len(end) else end

    def towards(self, state: BegunState, goal: Offsets, most: int) -> Cut | None:
        direct = self._direct_end(state)
        end = direct.merge(goal.only(direct.topics))
        return self._epoch.upstreams.towards(state, goal, self._direct_cut(state, end, most), most)

    def following(self, state: BegunState, goals: Sequence[Offsets], most: int, *, is_far: bool) -> Cut | None:
        direct = self._direct_end(state).merge(self._apart_cut(state, goals[0], most))
        return self._epoch.upstreams.following(state, goals, lambda goal: direct.merge(goal.only(direct.topics)), most)

    def _direct_cut(self, state: BegunState, end: Offsets, most: int) -> Offsets:
        """Where a slice towards ``end`` ends in those topics that are not versioned, cut by time."""
        direct = self._direct()
        if not direct:
            return Offsets()
        return cut_by_time(self._engines.time_index(), state, end.only(direct), most)

    def _direct_end(self, state: BegunState) -> Offsets:
        """Where those topics end that are not versioned."""
        direct = sorted(self._direct())
        if not direct:
            return Offsets()
        return state.position.only(direct).merge(self._engines.broker.stable_offsets(direct))

    def _direct(self) -> set[str]:
        return set(self._epoch.plan.topic_ids) - set(self._epoch.upstreams.topics.values())
