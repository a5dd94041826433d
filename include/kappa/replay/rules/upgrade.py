"""Rules about new code for a live epoch: what history cannot stand, and who else is at it. One function each."""

from __future__ import annotations

from collections.abc import Iterable

from kappa.replay.findings import Finding, refuse, warn
from kappa.topology import Append, Source, Table, Topic, Topology
from kappa.topology.ddl import Column

_REPLAY = "`kappa replay` computes history with the deployed code into an epoch of its own."


def needs_replay(before: Topology, after: Topology) -> list[Finding]:
    """Everything in which two versions differ so that rows that are there would be wrong, or missing."""
    return [
        *sources_changed(before.sources, after.sources),
        *tables_changed(before.tables, after.tables),
        *outputs_changed(before.appends, after.appends),
        *topics_changed(before.topics, after.topics),
    ]


def sources_changed(before: Iterable[Source], after: Iterable[Source]) -> list[Finding]:
    """Other topics, or values that are read in another way. A column that may be null may come and go."""
    old, new = {source.topic: source for source in before}, {source.topic: source for source in after}
    found = _came_and_went("source", old.keys(), new.keys())
    for topic in sorted(old.keys() & new.keys()):
        if old[topic].of != new[topic].of:
            found.append(f"source {topic!r} is of {new[topic].of or 'no topology'}, not of {old[topic].of or 'none'}")
        if old[topic].format != new[topic].format:
            found.append(f"source {topic!r} is read as {new[topic].format}, not as {old[topic].format}")
            continue
        found += _changed_columns(f"source {topic!r}", old[topic].columns, new[topic].columns, may_come=True)
    return [
        refuse(
            "upgrade-changes-sources",
            f"The deployed code reads its sources in another way: {'; '.join(found)}. Earlier records were read in the old one.",
            _REPLAY,
            changes=found,
        )
    ] if found else []  # fmt: skip


def tables_changed(before: Iterable[Table], after: Iterable[Table]) -> list[Finding]:
    """Tables that came or went, other keys, other columns."""
    old, new = {table.name: table for table in before}, {table.name: table for table in after}
    found = _came_and_went("table", old.keys(), new.keys())
    for name in sorted(old.keys() & new.keys()):
        if old[name].key != new[name].key:
            found.append(f"table {name!r} is keyed by {list(new[name].key)}, not by {list(old[name].key)}")
        found += _changed_columns(f"table {name!r}", old[name].columns, new[name].columns)
    return [
        refuse(
            "upgrade-changes-tables",
            f"The deployed code keeps other state: {'; '.join(found)}. The rows that are there have the old shape.",
            f"{_REPLAY} With --from-savepoint it starts from the tables as they are, where those have what it needs.",
            changes=found,
        )
    ] if found else []  # fmt: skip


def outputs_changed(before: Iterable[Append], after: Iterable[Append]) -> list[Finding]:
    """Append outputs that came or went, or have other columns."""
    old, new = {append.name: append for append in before}, {append.name: append for append in after}
    found = _came_and_went("output", old.keys(), new.keys())
    for name in sorted(old.keys() & new.keys()):
        found += _changed_columns(f"output {name!r}", old[name].columns, new[name].columns)
    return [
        refuse(
            "upgrade-changes-outputs",
            f"The deployed code appends other rows: {'; '.join(found)}. Those that are there have the old shape.",
            _REPLAY,
            changes=found,
        )
    ] if found else []  # fmt: skip


def topics_changed(before: Iterable[Topic], after: Iterable[Topic]) -> list[Finding]:
    """Topic outputs that came or went, are made of something else or have another key."""
    old, new = {topic.name: topic for topic in before}, {topic.name: topic for topic in after}
    found = _came_and_went("topic", old.keys(), new.keys())
    for name in sorted(old.keys() & new.keys()):
        if old[name].on_replay != new[name].on_replay:
            found.append(f"topic {name!r} is on_replay={new[name].on_replay!r}, not {old[name].on_replay!r}")
        if (old[name].of, old[name].key) != (new[name].of, new[name].key):
            found.append(
                f"topic {name!r} is of {new[name].of!r} by {list(new[name].key)}, not of {old[name].of!r} by {list(old[name].key)}"
            )
    return [
        refuse(
            "upgrade-changes-topics",
            f"The deployed code sends other records: {'; '.join(found)}. Consumers would meet both in one topic.",
            f"{_REPLAY} Its cutover begins to send at an exact offset.",
            changes=found,
        )
    ] if found else []  # fmt: skip


def same_code(running: str, deployed: str) -> list[Finding]:
    """The epoch runs what is deployed."""
    if running != deployed:
        return []
    return [
        refuse(
            "upgrade-same-code",
            f"The live epoch runs the deployed code already ({deployed[:12]}).",
            "Deploy the new file first; `kappa topologies` shows what is deployed.",
            deployed=deployed,
        )
    ]


def epoch_is_busy(topology: str, candidate: int | None, handover: int | None, pending: str | None) -> list[Finding]:
    """Somebody builds an epoch beside the live one, moves readers, or upgrades it."""
    found = []
    if candidate is not None:
        found.append(
            refuse(
                "upgrade-beside-candidate",
                f"Epoch {candidate} of {topology!r} is being built and is compared with the live one, whose code would change under it.",
                f"`kappa cutover {topology}` finishes it, `kappa abort {topology} {candidate}` removes it.",
                epoch=candidate,
            )
        )
    if handover is not None:
        found.append(
            refuse(
                "upgrade-during-handover",
                f"{topology!r} is being handed over to epoch {handover}.",
                f"Wait until `kappa history {topology}` shows `moved` or `withdrawn`.",
                epoch=handover,
            )
        )
    if pending is not None:
        found.append(
            refuse(
                "upgrade-pending",
                f"{pending} asked for an upgrade of {topology!r} already, which its driver makes at its next slice boundary.",
                f"Wait for it; a driver that does not run is started by `kappa start {topology}`.",
                asked_by=pending,
            )
        )
    return found


def fails_on_real_records(error: str) -> list[Finding]:
    """The deployed code raised on slices that the running code has read."""
    return [
        refuse(
            "upgrade-fails",
            f"The deployed code failed on the last slices of the live epoch: {error}",
            "Correct it. Deployed as it is, it would make the live epoch stuck.",
            error=error,
        )
    ]


def without_evidence(reason: str) -> list[Finding]:
    """No slice could be computed with both codes."""
    return [
        warn(
            "upgrade-without-evidence",
            f"No slice was computed with both codes: {reason}",
            "Nothing, if its author knows what the new code does; otherwise `kappa replay`, which compares all of history.",
            reason=reason,
        )
    ]


def _came_and_went(what: str, old: Iterable[str], new: Iterable[str]) -> list[str]:
    before, after = set(old), set(new)
    return [f"{what} {name!r} is new" for name in sorted(after - before)] + [
        f"{what} {name!r} is gone" for name in sorted(before - after)
    ]


def _changed_columns(
    what: str, old: Iterable[Column], new: Iterable[Column], *, may_come: bool = False
) -> list[str]:  # fmt: skip
    before, after = {column.name: column for column in old}, {column.name: column for column in new}
    found = []
    for name in [*before, *(name for name in after if name not in before)]:
        was, now = before.get(name), after.get(name)
        if was is None or now is None:
            one = was or now
            if not (may_come and one is not None and one.nullable):
                found.append(f"column {name!r} of {what} is {'new' if was is None else 'gone'}")
        elif (was.delta, was.nullable) != (now.delta, now.nullable):
            found.append(f"column {name!r} of {what} is {_said(now)}, not {_said(was)}")
    return found


def _said(column: Column) -> str:
    return column.type + ("" if column.nullable else " NOT NULL")
