"""The stages of an epoch, and which may follow which.

    PLANNED -> REWOUND -> SEEDED -> REPLAYED -> CAUGHT_UP -> VERIFIED -> (APPROVED) -> CUT_OVER -> RETIRED -> DROPPED
                                                    ^                                                |
    any of them before CUT_OVER -> ABORTED          +------------------- recalled -------------------+

The first epoch of a topology has nothing to compare with: it goes from SEEDED to CUT_OVER. A recalled one was verified
when it went live: it goes from CAUGHT_UP to CUT_OVER, or back to RETIRED. A candidate that sets records aside, or that
was rejected and is taken up again beside another live epoch, is REPLAYED once more, and is compared anew.
"""

from __future__ import annotations

from enum import StrEnum

from kappa.errors import IllegalTransitionError


class Stage(StrEnum):
    """How far an epoch is."""

    PLANNED = "PLANNED"
    REWOUND = "REWOUND"
    SEEDED = "SEEDED"
    REPLAYED = "REPLAYED"
    CAUGHT_UP = "CAUGHT_UP"
    VERIFIED = "VERIFIED"
    APPROVED = "APPROVED"
    CUT_OVER = "CUT_OVER"
    RETIRED = "RETIRED"
    DROPPED = "DROPPED"
    ABORTED = "ABORTED"

    @property
    def is_ended(self) -> bool:
        """Whether nothing comes after it, and the epoch's tables and topics are gone or about to go."""
        return self in (Stage.DROPPED, Stage.ABORTED)


#: The order in which a replay passes its stages. ``APPROVED`` may be left out.
STAGES = tuple(Stage)[:8]
#: Stages of an epoch that is being compared with the live one, or was.
COMPARED = (Stage.CAUGHT_UP, Stage.VERIFIED, Stage.APPROVED)

_ALLOWED: dict[Stage | None, frozenset[Stage]] = {
    None: frozenset({Stage.PLANNED}),
    Stage.PLANNED: frozenset({Stage.REWOUND, Stage.ABORTED}),
    Stage.REWOUND: frozenset({Stage.SEEDED, Stage.ABORTED}),
    Stage.SEEDED: frozenset({Stage.REPLAYED, Stage.ABORTED}),
    Stage.REPLAYED: frozenset({Stage.CAUGHT_UP, Stage.ABORTED}),
    Stage.CAUGHT_UP: frozenset({Stage.VERIFIED, Stage.ABORTED}),
    Stage.VERIFIED: frozenset({Stage.APPROVED, Stage.CUT_OVER, Stage.ABORTED}),
    # Approved by a further person.
    Stage.APPROVED: frozenset({Stage.APPROVED, Stage.CUT_OVER, Stage.ABORTED}),
    # The live epoch is what readers get: there is no abort, only a cutover to another one.
    Stage.CUT_OVER: frozenset({Stage.RETIRED}),
    Stage.RETIRED: frozenset({Stage.CAUGHT_UP, Stage.DROPPED}),
    Stage.DROPPED: frozenset(),
    Stage.ABORTED: frozenset(),
}


def check_transition(from_: Stage | None, to: Stage, *, has_live: bool = True, is_recalled: bool = False) -> None:
    """Accept a change of stage or refuse it.

    Args:
        from_: the stage that the epoch is in; ``None`` before it is planned.
        to: the stage that it goes to.
        has_live: whether the topology has a live epoch; without one the epoch goes live as soon as it is seeded.
        is_recalled: whether the epoch was live before and is coming back: it was verified then.

    Raises:
        IllegalTransitionError: the epoch cannot go from the one to the other; the message names both.
    """
    allowed = _ALLOWED[from_]
    if from_ is Stage.SEEDED and not has_live:
        allowed |= {Stage.CUT_OVER}
    if from_ is Stage.CAUGHT_UP and is_recalled:
        allowed = frozenset({Stage.CUT_OVER, Stage.RETIRED})
    if to not in allowed:
        names = " or ".join(sorted(allowed)) or "nothing"
        raise IllegalTransitionError(
            f"An epoch cannot go from {from_ or 'no stage'} to {to}: what may follow is {names}.", from_=from_, to=to
        )
