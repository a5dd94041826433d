"""Which stage may follow which."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from kappa.errors import IllegalTransitionError
from kappa.replay.stages import STAGES, Stage, check_transition

FORWARD = {(None, Stage.PLANNED), *pairwise(STAGES), (Stage.VERIFIED, Stage.CUT_OVER), (Stage.CUT_OVER, Stage.RETIRED)}
ABORTS = {(stage, Stage.ABORTED) for stage in STAGES[:-1]}
ALLOWED = (
    FORWARD
    | ABORTS
    | {(Stage.RETIRED, Stage.CAUGHT_UP), (Stage.RETIRED, Stage.DROPPED), (Stage.APPROVED, Stage.APPROVED)}
)
EVERY_PAIR = list(product((None, *Stage), Stage))


@pytest.mark.parametrize(("from_", "to"), EVERY_PAIR)
def test_exactly_the_drawn_transitions_are_allowed(from_: Stage | None, to: Stage) -> None:
    if (from_, to) in ALLOWED:
        check_transition(from_, to)
    else:
        with pytest.raises(IllegalTransitionError, match=f"{from_ or 'no stage'} to {to}"):
            check_transition(from_, to)


def test_the_first_epoch_goes_live_once_it_is_seeded() -> None:
    check_transition(Stage.SEEDED, Stage.CUT_OVER, has_live=False)
    with pytest.raises(IllegalTransitionError):
        check_transition(Stage.REWOUND, Stage.CUT_OVER, has_live=False)


def test_a_recalled_epoch_goes_live_or_retires_without_verification() -> None:
    check_transition(Stage.CAUGHT_UP, Stage.CUT_OVER, is_recalled=True)
    check_transition(Stage.CAUGHT_UP, Stage.RETIRED, is_recalled=True)
    for stage in set(Stage) - {Stage.CUT_OVER, Stage.RETIRED}:
        with pytest.raises(IllegalTransitionError):
            check_transition(Stage.CAUGHT_UP, stage, is_recalled=True)


@pytest.mark.parametrize("stage", [Stage.REPLAYED, Stage.RETIRED])
def test_a_recalled_epoch_goes_live_only_once_caught_up(stage: Stage) -> None:
    with pytest.raises(IllegalTransitionError):
        check_transition(stage, Stage.CUT_OVER, is_recalled=True)
