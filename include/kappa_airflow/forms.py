"""The form of a replay, and the request that a filled form makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Param

from kappa.errors import UsageError
from kappa.replay.findings import ALLOWABLE
from kappa.replay.request import ReplayRequest, Seed
from kappa.replay.starts import FromMarker, Start, ToEarliest, ToLatest, start_from_text
from kappa.replay.thresholds import parsed

DEFAULT_SEED = "default"

_STARTS = {
    "to_earliest": "the beginning: the first record of the sources",
    "to_latest": "the live epoch's last commit",
    "to_datetime": "a time",
    "by_duration": "so long ago",
    "shift_by": "so many offsets from the live epoch's last commit",
    "to_offset": "offsets",
    "from_savepoint": "a savepoint of the live epoch",
    "from_marker": "where a changelog ends",
}
_VALUES = {
    "to_datetime": "ISO 8601 with a zone, `2026-03-01T00:00:00Z`.",
    "by_duration": "an ISO 8601 duration, `P7D` or `PT6H`.",
    "shift_by": "a number, `-1000` goes back.",
    "to_offset": "`pos:0=1200 pos:1=900`, or `pos=1200` for all other partitions of a topic; with blanks or commas in between.",
    "from_savepoint": "its slice number, its name, or a time in ISO 8601 with a zone, meaning the last slice committed by then.",
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
            title="Time, duration, offsets or savepoint",
            description="For the beginning and the last commit: empty. "
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
        "determinism": Param(
            False,
            type="boolean",
            title="Compute twice",
            description="Yes: the range is computed again in slices of another size, which takes as long again; what differs fails "
            "the verdict, and readers are not moved.",
        ),
        "archive": Param(
            True,
            type="boolean",
            title="Read archives",
            description="Yes: what an archive has is read from there, the rest from Kafka. No: from Kafka only, as `--no-archive`.",
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
        determinism=bool(form.get("determinism")),
        archive=bool(form.get("archive", True)),
    )


def _start(kind: str, value: str) -> Start:
    if kind in ("to_earliest", "to_latest"):
        if value:
            raise UsageError(f"Start {kind} takes no value, the form has {value!r}. Leave it empty or start elsewhere.")
        return ToEarliest() if kind == "to_earliest" else ToLatest()
    if kind == "from_marker" and not value:
        return FromMarker()
    if not value:
        raise UsageError(f"Start {kind} needs a value: {_VALUES[kind]}")
    try:
        return _from_marker(value) if kind == "from_marker" else start_from_text(kind, value)
    except UsageError as error:
        raise UsageError(f"Value {value!r} does not fit start {kind}: {_VALUES[kind]} {error}") from error


def _from_marker(value: str) -> FromMarker:
    if not value.isdecimal():
        raise UsageError("That is no number of an epoch.")
    return FromMarker(epoch=int(value))
