"""Slices of an epoch that reads own topics of other topologies' epochs: what its driver asks, beside Kafka and the ledgers.

They end where a commit of the epochs that are read had filled their topics, never where the log happens to end.
"""

from __future__ import annotations

from collections.abc import Sequence

from kappa.driver.context import Workbench
from kappa.driver.upstreams import Cut
from kappa.errors import LedgerError
from kappa.lake.ledger_state import LedgerState
from kappa.offsets.vector import Offsets
from kappa.slices.cuts import cut_by_time


class Chained:
    """Where the slices of one epoch end.

    Args:
        own: what the epoch's driver works with.
    """

    def __init__(self, own: Workbench) -> None:
        self._own = own

    def bulk(self, state: LedgerState, most: int) -> Cut:
        """The next slice towards the end of the plan.

        Raises:
            LedgerError: no commit of an epoch that is read lies between here and there.
        """
        end = self._own.plan.end
        cut = self._own.upstreams.bulk(state, end, self._direct_cut(state, end, most), most)
        if cut is None:
            raise LedgerError(
                f"Epoch {self._own.paths.epoch} stands at {state.position.to_json()}, its plan ends at {end.to_json()}, and no commit of an "
                "epoch that it reads lies between. Abort this replay and plan again."
            )
        return cut

    def onward(self, state: LedgerState, most: int) -> Cut | None:
        """The next slice of the live epoch; None when there is nothing new."""
        return self._own.upstreams.onward(state, self._direct_cut(state, self._direct_end(state), most), most)

    def towards(self, state: LedgerState, goal: Offsets, most: int) -> Cut | None:
        """The next slice on the way to a place of the root topics; None while nothing of it is there."""
        direct = self._direct_end(state)
        end = direct.merge(goal.only(direct.topics))
        return self._own.upstreams.towards(state, goal, self._direct_cut(state, end, most), most)

    def following(self, state: LedgerState, goals: Sequence[Offsets], most: int) -> Cut | None:
        """The next slice of who follows somebody that stood at these places; None while there is none."""
        direct = self._direct_end(state)
        return self._own.upstreams.following(state, goals, lambda goal: direct.merge(goal.only(direct.topics)), most)

    def _direct_cut(self, state: LedgerState, end: Offsets, most: int) -> Offsets:
        """Where a slice towards ``end`` ends in those topics that are no own topics, cut by time."""
        direct = self._direct()
        if not direct or state.committed is None:
            return Offsets()
        return cut_by_time(self._own.time_index(), state, end.only(direct), most)

    def _direct_end(self, state: LedgerState) -> Offsets:
        """Where those topics end that are no own topics."""
        direct = sorted(self._direct())
        return state.position.only(direct).merge(self._own.broker.stable_offsets(direct)) if direct else Offsets()

    def _direct(self) -> set[str]:
        return set(self._own.plan.topic_ids) - set(self._own.upstreams.topics.values())
