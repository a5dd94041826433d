"""What an epoch's progress means for a task that waits for a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kappa.replay.stages import STAGES, Stage

if TYPE_CHECKING:
    from kappa.control import Progress

#: Stages in the order in which a replay passes them; a retired epoch has passed them all.
ORDER = (*STAGES, Stage.RETIRED)


def arrival(progress: Progress, stage: Stage) -> dict[str, Any] | None:
    """Whether the epoch has reached the stage, will never reach it, or (``None``) is still on its way.

    With a failed verdict an epoch is never cut over: after ``VERIFIED`` no task may wait for it.
    """
    current = progress.stage
    if current is Stage.RETIRED and progress.is_recalled:
        return None
    if stage is Stage.CUT_OVER and progress.is_released:
        return {
            "event": "failed",
            "message": f"Epoch {progress.epoch} was retired again before it took over; `kappa history "
            f"{progress.topology}` says by whom. Readers stay. Trigger a new run of DAG rollback__{progress.topology}.",
        }
    if current not in ORDER:
        return {"event": "failed", "message": f"Epoch {progress.epoch} is {current}. Trigger a new replay."}
    if (
        progress.verdict == "failed"
        and current not in (Stage.CUT_OVER, Stage.RETIRED)
        and ORDER.index(stage) >= ORDER.index(Stage.VERIFIED)
    ):
        return {
            "event": "failed",
            "message": f"Epoch {progress.epoch} failed its checks. `kappa diff {progress.topology}` shows them; "
            f"`kappa abort {progress.topology} {progress.epoch}` removes the epoch.",
        }
    if ORDER.index(current) >= ORDER.index(stage):
        return {"event": "arrived", "message": progress.doing}
    return None
