"""The form of a replay, and the request that a filled form makes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from airflow.sdk import Param

from kappa.errors import UsageError
from kappa.replay.request import (
    ALLOWABLE,
    FromMarker,
    FromSavepoint,
    ReplayRequest,
    Seed,
    Start,
    ToDatetime,
    ToEarliest,
)
from kappa.replay.thresholds import parsed

DEFAULT_SEED = "default"

_STARTS = {
    "to_earliest": "the beginning: the first record of the sources",
    "to_datetime": "a time",
    "from_savepoint": "a savepoint of the live epoch",
    "from_marker": "where a changelog ends",
}
_VALUES = {
    "to_datetime": "ISO 8601 with a zone, `2026-03-01T00:00:00Z`.",
    "from_savepoint": "its slice number, or a time in ISO 8601 with a zone, meaning the last slice committed by then.",
    "from_marker": "the epoch whose changelog it is; empty for the newest.",
}
_SEEDS = {
    DEFAULT_SEED: "what goes with the start",
    Seed.EMPTY.value: "nothing",
    Seed.FROM_SAVEPOINT.value: "the tables as they were at the savepoint",
    Seed.FROM_CHANGELOG.value: "the tables folded from the changelog",
}


def replay_form() -> dict[str, Param]:
    """Fields of the form, by name, in the order in which they are shown."""
    return {
        "start": Param(
            "to_earliest",
            type="string",
            enum=list(_STARTS),
            values_display=_STARTS,
            title="Start at",
            description="Where to begin reading. What cannot be read is refused, never moved to the nearest offset.",
        ),
        "value": Param(
            None,
            type=["null", "string"],
            title="Time or savepoint",
            description="For the beginning: empty. "
            + " ".join(f"For {_STARTS[kind]}: {text}" for kind, text in _VALUES.items()),
        ),
        "seed": Param(
            "default",
            type="string",
            enum=list(_SEEDS),
            values_display=_SEEDS,
            title="State to begin with",
            description="What the tables hold before the first record is replayed.",
        ),
        "cut_over": Param(
            False,
            type="boolean",
            title="Cut over when verified",
            description="Yes: readers are moved to the new epoch once its checks pass. No: it is built, verified and "
            "kept up to date; `kappa cutover` moves readers later.",
        ),
        "keep_old_running": Param(
            False,
            type="boolean",
            title="Keep the old version running",
            description="Yes: after the cutover the old driver follows the new one and sends nothing, so that a rollback need not "
            "catch up first. It takes the memory of a driver until `kappa stop` or `kappa retire`.",
        ),
        "reason": Param(
            type="string",
            minLength=1,
            title="Reason",
            description="Why; kept in the history for good.",
        ),
        "allow": Param(
            [],
            type="array",
            items={"type": "string", "enum": sorted(ALLOWABLE)},
            examples=sorted(ALLOWABLE),
            title="Allow",
            description="Findings that shall warn instead of refuse.",
        ),
        "thresholds": Param(
            [],
            type="array",
            items={"type": "string"},
            title="Thresholds",
            description="Most that the new epoch may differ, one a line: `rewards.keys_removed=0`, or a share, "
            "`rewards.drift.Points=0.1`. Exceeded, the verdict is failed and readers are not moved.",
        ),
    }


def replay_request(topology: str, form: Mapping[str, Any], *, actor: str, slice_records: int) -> ReplayRequest:
    """The request that a filled form makes.

    Raises:
        UsageError: a value is missing, superfluous or malformed.
    """
    seed = form["seed"]
    return ReplayRequest(
        topology=topology,
        start=_start(form["start"], (form["value"] or "").strip()),
        seed=None if seed == DEFAULT_SEED else Seed(seed),
        reason=form["reason"],
        actor=actor,
        allow=frozenset(form["allow"] or ()),
        thresholds=parsed(line for line in form.get("thresholds") or () if line.strip()),
        slice_records=slice_records,
    )


def _start(kind: str, value: str) -> Start:
    if kind == "to_earliest":
        if value:
            raise UsageError(
                f"Start to_earliest takes no value, the form has {value!r}. Leave it empty or start elsewhere."
            )
        return ToEarliest()
    if kind == "from_marker":
        return FromMarker(epoch=_number(kind, value) if value else None)
    if not value:
        raise UsageError(f"Start {kind} needs a value: {_VALUES[kind]}")
    if kind == "from_savepoint" and value.isdigit():
        return FromSavepoint(seq=int(value))
    at = _time(kind, value)
    return ToDatetime(at=at) if kind == "to_datetime" else FromSavepoint(at=at)


def _time(kind: str, value: str) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except ValueError as error:
        raise UsageError(f"Value {value!r} does not fit start {kind}: {_VALUES[kind]}") from error


def _number(kind: str, value: str) -> int:
    if not value.isdigit():
        raise UsageError(f"Value {value!r} does not fit start {kind}: {_VALUES[kind]}")
    return int(value)
