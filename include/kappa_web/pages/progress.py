"""How far a replay is: its stages with their times, and its bulk work. Pure."""

from __future__ import annotations

from typing import Any

from kappa.control import approval
from kappa.control.overview import percent
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.record.events import STAGE_OF
from kappa.replay.stages import STAGES, Stage
from kappa.verify.measurements import outcome
from kappa_web.pages.board import BoardFacts

#: What has happened when a stage is reached.
MEANINGS = {
    Stage.PLANNED: "plan and code are on record",
    Stage.REWOUND: "its consumer group stands at the start",
    Stage.SEEDED: "its tables hold their initial state",
    Stage.REPLAYED: "history is computed",
    Stage.CAUGHT_UP: "it follows the live epoch",
    Stage.VERIFIED: "it is compared with the live epoch",
    Stage.APPROVED: "the cutover is approved",
    Stage.CUT_OVER: "readers get it",
}


def of(record: TopologyRecord, facts: BoardFacts) -> dict[str, Any]:
    """Stages and bulk work of an epoch."""
    epoch = facts.epoch
    return {
        "facts": facts,
        "steps": _steps(record, epoch),
        "percent": percent(facts.done, facts.total),
        "is_bulk": facts.total > 0,
        "outcome": outcome(epoch),
        "rejected": approval.described(epoch.rejected)
        if epoch.rejected is not None and not epoch.stage.is_ended
        else "",
        "approved": epoch.approved,
    }


def _steps(record: TopologyRecord, epoch: EpochRecord) -> list[dict[str, Any]]:
    """Stages in order: name, what it means, when it was reached, and whether it is done, under way or ahead."""
    reached: dict[Stage, Any] = {}
    for event in record.events:
        if event.epoch == epoch.epoch and event.event in STAGE_OF:
            reached.setdefault(STAGE_OF[event.event], event.at)
    if epoch.stage in STAGES:  # it may have gone back, to be compared anew
        reached = {stage: at for stage, at in reached.items() if stage not in STAGES[STAGES.index(epoch.stage) + 1 :]}
    is_first = not any(move.at < epoch.planned.at for move in record.moves)
    left_out = (Stage.REPLAYED, Stage.CAUGHT_UP, Stage.VERIFIED) if is_first else ()
    stages = [s for s in STAGES if s in reached or (s is not Stage.APPROVED and s not in left_out)]
    last = max((stages.index(stage) for stage in reached if stage in stages), default=-1)
    is_asked = epoch.stage in (Stage.VERIFIED, Stage.APPROVED) and record.handover is None
    is_over = epoch.stage in (Stage.RETIRED, Stage.DROPPED, Stage.ABORTED) or epoch.epoch == record.live
    return [
        {
            "name": stage.lower().replace("_", " "),
            "meaning": MEANINGS[stage],
            "at": reached.get(stage),
            "kind": "done"
            if index <= last
            else "ahead"
            if index > last + 1 or is_over
            else "asked"
            if is_asked
            else "now",
        }
        for index, stage in enumerate(stages)
    ]
