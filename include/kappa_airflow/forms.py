"""The form of a replay, and the request that a filled form makes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from kappa.errors import UsageError
from kappa.offsets.notation import parsed_time
from kappa.replay.catalogue import ALLOWABLE
from kappa.replay.request import ReplayRequest, Seed
from kappa.replay.starts import FromMarker, FromSavepoint, Start, ToEarliest, ToLatest, start_from_text
from kappa.topology.thresholds import parsed
from kappa_airflow.pages import address

if TYPE_CHECKING:
    from kappa.topology.registry import Declared

DEFAULT_SEED = "default"

_DETAILS, _ADVANCED = "Details of the start", "Advanced"

STARTS = {
    "to_earliest": "the beginning: the first record of the sources",
    "to_latest": "the live epoch's last commit",
    "to_datetime": "a time",
    "by_duration": "a duration ago",
    "shift_by": "a number of offsets from the live epoch's last commit",
    "to_offset": "offsets",
    "from_savepoint": "a savepoint of the live epoch, by number or name",
    "from_savepoint_at": "the live epoch as it was at a time",
    "from_marker": "the end of a changelog",
}
#: The field that belongs to a start; starts that are not listed take none.
FIELDS = {
    "to_datetime": "time",
    "by_duration": "duration",
    "shift_by": "shift",
    "to_offset": "offsets",
    "from_savepoint": "savepoint",
    "from_savepoint_at": "savepoint_time",
    "from_marker": "changelog_epoch",
}
#: Fields that have a meaning in one topology only.
_OF_ONE = ("shift", "offsets", "savepoint", "savepoint_time", "changelog_epoch", "seed", "thresholds")
_SEEDS = {
    DEFAULT_SEED: "the default for the start",
    Seed.EMPTY.value: "nothing",
    Seed.FROM_SAVEPOINT.value: "the tables as they were at the savepoint",
    Seed.FROM_CHANGELOG.value: "the tables folded from the changelog",
    Seed.FROM_TABLES.value: "the tables that were adopted",
}


class Then(StrEnum):
    """What happens to an epoch once it is verified."""

    ASK = "ask"
    CUT_OVER = "cut_over"
    KEEP = "keep"
    PLAN = "plan"


THEN = {
    Then.ASK: "ask for approval, then move readers",
    Then.CUT_OVER: "move readers without asking",
    Then.KEEP: "keep it up to date beside the live one; readers are moved later",
    Then.PLAN: "build nothing and only show the plan",
}


def replay_form(topologies: Sequence[Declared]) -> dict[str, Param]:
    """Fields of the form by name, in the order in which they are shown. Only the DAG's file decides them.

    Args:
        topologies: the one of the DAG; or several, of which a run names some: then only fields with the same meaning in
            each of them.
    """
    form = _replay_fields()
    if len(topologies) > 1:
        starts = [start for start in STARTS if FIELDS.get(start) not in _OF_ONE]
        where = "Where to begin reading, in each of them. A start that cannot be read is refused."
        form = {name: field for name, field in form.items() if name not in _OF_ONE}
        return {"topologies": _topologies(topologies), **form, "start": _start_field(starts, description=where)}
    (topology,) = topologies
    where = (
        "Where to begin reading. A start that cannot be read is refused, never moved to the nearest offset. The replay "
        f"runs version {topology.version or '?'} of {topology.file.name}; [what is live, and earlier "
        f"reports]({address('topologies', topology.name)})."
    )
    return {**form, "start": _start_field(list(STARTS), description_md=where)}


def _replay_fields() -> dict[str, Param]:
    """All fields of the form of a replay."""
    return {
        "start": _start_field(list(STARTS)),
        "then": Param(
            Then.ASK.value,
            type="string",
            enum=[then.value for then in Then],
            values_display={then.value: text for then, text in THEN.items()},
            title="When it is verified",
            description="What happens after the checks pass. Until then readers keep what they have.",
        ),
        "reason": _reason(),
        "time": _detail(
            "string", "Time", "For a start at a time: records from then on, by their timestamps.", format="date-time"
        ),
        "duration": _detail("string", "Duration", "For a start a duration ago: an ISO 8601 duration, P7D or PT6H."),
        "shift": _detail(
            "integer", "Shift", "For a start by offsets from the last commit, in each partition: -1000 goes back."
        ),
        "offsets": _detail(
            "string",
            "Offsets",
            "For a start at offsets: pos:0=1200 pos:1=900, or pos=1200 for all other partitions of a topic; separated "
            "by blanks or commas.",
        ),
        "savepoint": _detail("string", "Savepoint", "For a start at a savepoint: its slice number or its name."),
        "savepoint_time": _detail(
            "string",
            "Savepoint at",
            "For a start at the live epoch's state at a time: the last slice committed by then.",
            format="date-time",
        ),
        "changelog_epoch": _detail(
            "integer",
            "Epoch of the changelog",
            "For a start at the end of a changelog: the epoch of the changelog; empty for the newest.",
            minimum=1,
        ),
        "seed": Param(
            DEFAULT_SEED,
            type="string",
            enum=list(_SEEDS),
            values_display=_SEEDS,
            title="State to begin with",
            description="What the tables hold before the first record is replayed.",
            section=_ADVANCED,
        ),
        "keep_old_running": _keep_old_running(),
        "determinism": _flag(
            False,
            "Compute twice",
            "Yes: the range is computed again in slices of another size, which doubles the time. If the results "
            "differ, the verdict is failed and readers are not moved.",
        ),
        "live_cuts": _flag(
            False,
            "Slices of the live version",
            "Yes: slices end where those of the live version ended, so that results that depend on the slices are "
            "compared too. It takes as many slices as the live version took. It cannot be combined with computing "
            "twice.",
        ),
        "archive": _flag(
            True,
            "Read archives",
            "Yes: records that an archive has are read from there, the rest from Kafka. No: all records are read from "
            "Kafka.",
        ),
        "allow": _optional(
            "array",
            "Allow",
            "Findings that warn instead of refusing.",
            items={"type": "string", "enum": sorted(ALLOWABLE)},
            examples=sorted(ALLOWABLE),
            section=_ADVANCED,
        ),
        "thresholds": _optional(
            "array",
            "Thresholds",
            "Largest allowed differences of the new epoch, one per line: rewards.keys_removed=0, or a share, "
            "rewards.drift.Points=0.1. If one is exceeded, the verdict is failed and readers are not moved.",
            items={"type": "string"},
            section=_ADVANCED,
        ),
    }


def _start_field(starts: list[str], **description: Any) -> Param:
    display = {start: STARTS[start] for start in starts}
    return Param("to_earliest", type="string", enum=starts, values_display=display, title="Start at", **description)


def _optional(kind: str, title: str, description: str, **more: Any) -> Param:
    """A field that may stay empty."""
    return Param(None, type=["null", kind], title=title, description=description, **more)


def _detail(kind: str, title: str, description: str, **more: Any) -> Param:
    return _optional(kind, title, description, section=_DETAILS, **more)


def _reason() -> Param:
    return _optional("string", "Reason", "Reason, kept permanently in the history.")


def _flag(default: bool, title: str, description: str) -> Param:
    return Param(default, type="boolean", title=title, description=description, section=_ADVANCED)


def _topologies(topologies: Sequence[Declared]) -> Param:
    names = sorted(topology.name for topology in topologies)
    return Param(
        [],
        type="array",
        items={"type": "string", "enum": names},
        uniqueItems=True,
        examples=names,
        title="Topologies",
        description="Two or more. One commit moves the readers of all of them, or of none.",
    )


def _in_this_environment() -> Param:
    return Param(
        False,
        type="boolean",
        title="Run in this environment",
        description="Where no interpreter has the epoch's own environment: run it in that of whatever starts drivers, "
        "on record. Otherwise such a move is refused, with the distributions that differ.",
    )


def _keep_old_running() -> Param:
    """The field of every form that moves readers."""
    return _flag(
        False,
        "Keep the old version running",
        "Yes: after the cutover the old driver follows the new one and sends nothing, so that a rollback does not have "
        "to catch up first. It takes the memory of a driver until it is stopped or retired.",
    )


def move_form(topologies: Sequence[Declared], epoch: str, *, keeps: bool = True) -> dict[str, Param]:
    """Fields of the form of a move that asks before it is made.

    Args:
        topologies: the one of the DAG, or several, of which a run names some.
        epoch: the epoch that is moved if the form names none.
        keeps: whether the epoch that was live before can be kept running.
    """
    return {
        **(
            {"topologies": _topologies(topologies)}
            if len(topologies) > 1
            else {"epoch": _optional("integer", "Epoch", f"Number of the epoch; empty for {epoch}.", minimum=1)}
        ),
        "reason": _reason(),
        **({"keep_old_running": _keep_old_running(), "in_this_environment": _in_this_environment()} if keeps else {}),
    }


def rebuild_form() -> dict[str, Param]:
    """Fields of the form of a rebuild."""
    form = _replay_fields()
    return {name: form[name] for name in ("then", "reason", "keep_old_running", "allow")}


def housekeeping_form() -> dict[str, Param]:
    """Fields of a run of ``housekeeping``; the scheduled ones have the defaults."""
    return {
        "remove": Param(
            True, type="boolean", title="Remove", description="No: the log lists the leftovers, and nothing is removed."
        )
    }


def backfill_form() -> dict[str, Param]:
    """Fields of a backfill, which ``--dag-run-conf`` of ``airflow backfill create`` may also have."""
    return {
        "outputs": _optional(
            "array",
            "Outputs",
            "Append outputs whose rows are replaced, one per line; empty for all of them.",
            items={"type": "string"},
        ),
        "zone": _optional(
            "string",
            "Zone",
            "Time zone of the days, like Europe/Berlin: a run then covers the local day of its date. Empty for UTC.",
        ),
        "reason": _reason(),
    }


def check_form(fields: Collection[str], conf: Mapping[str, Any], form: Mapping[str, Any]) -> None:
    """Refuse values that the form does not have: Airflow accepts any when a run is triggered, and adds them to the
    params. Refuse values that are not among the params either: Airflow has a setting by which it passes over all.

    Args:
        fields: names of the form's fields.
        conf: the configuration of the run.
        form: the params of the run.

    Raises:
        UsageError: a field is unknown, and the message names the nearest; or its value does not count.
    """
    for name in sorted(set(conf) - set(fields)):
        near = get_close_matches(name, fields, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(sorted(fields)) or 'none'}."
        raise UsageError(f"The form has no field {name!r}. {hint} Trigger a new run.")
    if ignored := [name for name in sorted(conf) if form[name] != conf[name]]:
        raise UsageError(
            f"Airflow ignores the form of this run, such as field {ignored[0]!r}, and takes the defaults. Set "
            "dag_run_conf_overrides_params to True in section [core] of its settings, then trigger a new run."
        )


def lines_of(form: Mapping[str, Any], field: str) -> list[str]:
    """The lines of a field, without empty ones: Airflow's page takes a line break at the end for one more."""
    return [text for line in form.get(field) or () if (text := line.strip())]


def reason_of(form: Mapping[str, Any], otherwise: str) -> str:
    """The reason in the form, or another one if it is empty."""
    return (form.get("reason") or "").strip() or otherwise


def replay_request(
    topology: str, form: Mapping[str, Any], *, actor: str, reason: str, slice_records: int
) -> ReplayRequest:
    """The request that a filled form makes.

    Args:
        form: the filled form.
        actor: the user that filled it.
        reason: why, for the history.
        slice_records: largest number of offsets of a slice.

    Raises:
        UsageError: a value is missing, superfluous or malformed.
    """
    seed = form.get("seed", DEFAULT_SEED)
    _check_together(form)
    return ReplayRequest(
        topology=topology,
        start=_start(form),
        seed=None if seed == DEFAULT_SEED else Seed(seed),
        reason=reason,
        actor=actor,
        allow=frozenset(form.get("allow") or ()),
        thresholds=parsed(lines_of(form, "thresholds")),
        slice_records=slice_records,
        determinism=bool(form.get("determinism")),
        cuts="live" if form.get("live_cuts") else "time",
        archive=bool(form.get("archive", True)),
    )


def _check_together(form: Mapping[str, Any]) -> None:
    """Refuse fields that contradict each other, by their names in the form."""
    seed, start = form.get("seed", DEFAULT_SEED), form["start"]
    needed = {Seed.FROM_SAVEPOINT.value: "from_savepoint", Seed.FROM_CHANGELOG.value: "from_marker"}.get(seed)
    if needed and not start.startswith(needed):
        raise UsageError(
            f"{_field('seed')} is {seed}, which needs start {needed}, but {_field('start')} is {start}. Leave "
            f"{_field('seed')} at its default, or start there."
        )
    if form.get("determinism") and form.get("live_cuts"):
        raise UsageError(
            f"{_field('determinism')} and {_field('live_cuts')} are both set, but slices of the live version cannot "
            "have another size. Unset one of them."
        )


def _field(name: str) -> str:
    """A field in a message: its name, and its title in the form."""
    return f"{name!r} ({_replay_fields()[name].schema['title']})"


def _text(value: object) -> str:
    """A value of a form; 3.0 is an integer of JSON Schema."""
    return f"{value:.0f}" if isinstance(value, float) else str(value).strip()


def _start(form: Mapping[str, Any]) -> Start:
    kind = form["start"]
    field = FIELDS.get(kind)
    filled = {name: _text(form[name]) for name in FIELDS.values() if form.get(name) not in (None, "")}
    superfluous = sorted(set(filled) - {field})
    if superfluous:
        what = f"takes {_field(field)} only" if field else "takes no further field"
        raise UsageError(
            f"Start {kind} {what}, but the form has {', '.join(map(_field, superfluous))}. Empty it, or start "
            "elsewhere."
        )
    if kind == "to_earliest":
        return ToEarliest()
    if kind == "to_latest":
        return ToLatest()
    assert field is not None
    if field not in filled:
        if kind == "from_marker":
            return FromMarker()
        raise UsageError(f"Start {kind} needs {_field(field)}. Fill it in, or choose another start.")
    if kind == "from_marker":
        return FromMarker(epoch=int(filled[field]))
    try:
        if kind == "from_savepoint_at":
            return FromSavepoint(at=parsed_time(filled[field]))
        return start_from_text(kind, filled[field])
    except UsageError as error:
        raise UsageError(f"{_field(field)} {filled[field]!r} does not fit start {kind}. {error}") from error
