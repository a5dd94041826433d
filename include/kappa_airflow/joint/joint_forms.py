"""Forms of what is done to several topologies in one run."""

from __future__ import annotations

from collections.abc import Collection

from airflow.sdk import Param

from kappa_airflow.forms import FIELDS, STARTS, move_form, replay_form


def joint_replay_form(topologies: Collection[str]) -> dict[str, Param]:
    """Fields of the form of a joint replay: those of a replay that mean the same for each topology.

    Args:
        topologies: all that there are.
    """
    form = replay_form("", "", "")
    starts = [start for start in STARTS if FIELDS.get(start) in (None, "time", "duration")]
    form["start"] = Param(
        "to_earliest",
        type="string",
        enum=starts,
        values_display={start: STARTS[start] for start in starts},
        title="Start at",
        description="Where to begin reading, in each of them. What cannot be read is refused.",
    )
    names = ("start", "then", "reason", "time", "duration", "keep_old_running")
    more = ("determinism", "live_cuts", "archive", "allow")
    return {"topologies": _topologies(topologies), **{name: form[name] for name in (*names, *more)}}


def joint_move_form(topologies: Collection[str]) -> dict[str, Param]:
    """Fields of the form of a joint cutover or rollback.

    Args:
        topologies: all that there are.
    """
    form = move_form("", keeps=True)
    del form["epoch"]
    return {"topologies": _topologies(topologies), **form}


def _topologies(names: Collection[str]) -> Param:
    return Param(
        [],
        type="array",
        items={"type": "string", **({"enum": sorted(names)} if names else {})},
        uniqueItems=True,
        examples=sorted(names),
        title="Topologies",
        description="Two or more. Readers of all of them move in one commit, or of none.",
    )
