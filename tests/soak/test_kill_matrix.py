"""Kills after every effect of every stage of a replay, for each kind of start and seed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from support.kill_matrix import FILE_POINTS, KINDS, LIVE_POINTS, Case, walk
from support.processes import Rig

pytestmark = pytest.mark.soak

KIND_NAMES = list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_killed_after_every_effect_ends_as_if_undisturbed(
    machines: Callable[..., AbstractContextManager[Rig]], case: Case, kind: str
) -> None:
    # Every other kind merges in every slice: otherwise a kill around a merge hits a merge that does nothing.
    settings = {"merge_seconds": 0.0} if KIND_NAMES.index(kind) % 2 == 0 else {}
    with machines(**settings) as machine:
        walk(machine, kind, case, live=LIVE_POINTS)


def test_a_replay_killed_during_merges_and_upkeep_ends_as_if_undisturbed(
    machines: Callable[..., AbstractContextManager[Rig]], case: Case
) -> None:
    with machines(merge_seconds=0.0, maintain_minutes=0.0) as machine:
        walk(machine, "to-earliest", case, points=FILE_POINTS, live=FILE_POINTS)
