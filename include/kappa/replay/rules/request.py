"""Rules about what was asked for: the topology, the start, the end and the seed; one function each, as in log_rules."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from datetime import datetime

from kappa.offsets.vector import Offsets, TopicPartition
from kappa.replay.facts import ActiveFacts, MarkerFacts, NamedSavepoint, SavepointFacts, TopologyFacts
from kappa.replay.findings import Finding, refuse, warn
from kappa.topology.thresholds import unknown


def unknown_topology(name: str, known: tuple[str, ...]) -> list[Finding]:
    """No topology of that name is deployed."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return [
        refuse(
            "unknown-topology",
            f"No topology {name!r} is deployed; known are {sorted(known)}.",
            f"{hint}`kappa topologies` lists them and names files that do not import.",
            name=name,
        )
    ]


def code_does_not_import(topology: TopologyFacts) -> list[Finding]:
    """The topology's code raises when it is imported."""
    if topology.error is None:
        return []
    return [
        refuse(
            "code-does-not-import",
            f"The code of {topology.name!r} does not import: {topology.error}",
            "Correct it and plan again; the live epoch keeps running on its own stored code.",
            error=topology.error,
        )
    ]


def unknown_thresholds(names: Iterable[str], topology: TopologyFacts) -> list[Finding]:
    """A threshold limits what the topology does not have, or what cannot be measured."""
    return [
        refuse(
            "unknown-threshold",
            f"Topology {topology.name!r} has nothing that threshold {name!r} could limit: no such table or output, or a "
            "column that is no number, a key or masked.",
            hint,
            name=name,
        )
        for name, hint in unknown(names, topology.measures).items()
    ]


def determinism_without_live_epoch(is_wanted: bool, live: int | None) -> list[Finding]:
    """A first epoch goes live before it has computed anything: there is no range that could be computed again."""
    if not is_wanted or live is not None:
        return []
    return [
        refuse(
            "determinism-without-live-epoch",
            "No epoch is live, so this one goes live as soon as it is seeded: it has no range that could be computed twice.",
            "Start it without --determinism, then `kappa replay --determinism` beside it.",
        )
    ]


def replay_already_active(name: str, active: ActiveFacts | None) -> list[Finding]:
    """A replay of the topology is not finished."""
    if active is None:
        return []
    return [
        refuse(
            "replay-already-active",
            f"Epoch {active.epoch} of {name!r} is being replayed, it is {active.stage}: a topology has one at a time.",
            f"`kappa cutover {name}` finishes it, `kappa abort {name} {active.epoch}` removes it.",
            epoch=active.epoch,
            stage=active.stage,
            plan=active.plan,
        )
    ]


def end_ahead_of_live(end: Offsets, position: Offsets) -> list[Finding]:
    """The plan ends past the live epoch's last commit, which a candidate may not overtake."""
    return [
        refuse(
            "end-ahead-of-live",
            f"The live epoch has committed {topic}[{partition}] up to {position.get(topic, partition) or 0}, the plan "
            f"ends at {offset}: a candidate follows the live epoch and never passes it.",
            "Leave the end away, or wait until the live epoch is there.",
            topic=topic,
            partition=partition,
            committed=position.get(topic, partition) or 0,
            end=offset,
        )
        for (topic, partition), offset in end.items()
        if offset > (position.get(topic, partition) or 0)
    ]


def start_after_end(start: Offsets, end: Offsets) -> list[Finding]:
    """The plan begins after its own end."""
    return [
        refuse(
            "start-after-end",
            f"The plan begins at offset {start[topic, partition]} of {topic}[{partition}] and ends at {offset}, "
            "which is as far as the live epoch has committed unless an end was given.",
            "Choose an earlier start, or wait until the live epoch has passed it.",
            topic=topic,
            partition=partition,
            start=start[topic, partition],
            end=offset,
        )
        for (topic, partition), offset in end.items()
        if (topic, partition) in start and start[topic, partition] > offset
    ]


def time_without_record(
    at: datetime,
    first_records: Mapping[TopicPartition, int | None],
    last_times: Mapping[TopicPartition, datetime],
    stable: Offsets,
) -> list[Finding]:
    """No record is as late as the time asked for: Kafka's tools would move to the end; a plan refuses.

    A single partition without such a record begins at its end, where the first one will be, and is named in a warning.
    """
    quiet = [where for where, offset in sorted(first_records.items()) if offset is None]
    if not quiet:
        return []
    if len(quiet) < len(first_records):
        names = ", ".join(f"{topic}[{partition}] at {stable[topic, partition]}" for topic, partition in quiet)
        return [
            warn(
                "quiet-partitions",
                f"{len(quiet)} of {len(first_records)} partitions have no record from {at.isoformat()} on and begin at "
                f"their end: {names}.",
                "Nothing, if those partitions are quiet; check the time if they should not be.",
                partitions=[f"{topic}[{partition}]" for topic, partition in quiet],
            )
        ]
    times = [last_times[where] for where in quiet if where in last_times]
    last = f"the last one is of {max(times).isoformat()}" if times else "all of them are earlier"
    ends = ", ".join(f"{topic}[{partition}] ends at {stable[topic, partition]}" for topic, partition in quiet)
    return [
        refuse(
            "time-without-record",
            f"No record is of {at.isoformat()} or later, {last}: {ends}.",
            "Choose a time that is not after the last record; times are UTC unless they carry an offset.",
            at=at.isoformat(),
            last=max(times).isoformat() if times else None,
            ends=stable.as_dict(),
        )
    ]


def time_below_low_watermark(at: datetime, first_records: Offsets, low: Offsets) -> list[Finding]:
    """The first record that is left is not before the time asked for: what retention removed may belong to it."""
    return [
        refuse(
            "time-below-low-watermark",
            f"Source {topic}[{partition}] starts at offset {first}, and that record is not before {at.isoformat()}: "
            "retention may have removed others of that time.",
            "Replay --to-datetime with a later time, or --allow partial-history to begin with what is left.",
            topic=topic,
            partition=partition,
            low=first,
            at=at.isoformat(),
        )
        for (topic, partition), first in low.items()
        if first > 0 and first_records.get(topic, partition) == first
    ]


def unknown_savepoint(wanted: str, savepoints: tuple[SavepointFacts, ...]) -> list[Finding]:
    """The live epoch has no savepoint there."""
    kept = "none is kept"
    if savepoints:
        first, last = savepoints[0], savepoints[-1]
        kept = (
            f"{len(savepoints)} are kept, from seq {first.seq} ({first.finished_at.isoformat()}) "
            f"to seq {last.seq} ({last.finished_at.isoformat()})"
        )
    return [
        refuse(
            "unknown-savepoint",
            f"The live epoch has no savepoint {wanted}: {kept}.",
            "Choose one of those, or replay --to-earliest.",
            wanted=wanted,
            kept=[savepoint.seq for savepoint in savepoints],
        )
    ]


def unusable_savepoint_name(
    name: str, named: NamedSavepoint | None, known: Mapping[str, NamedSavepoint], live: int | None
) -> list[Finding]:
    """No savepoint has that name, or it is one of an epoch that is not live: its tables are not the live ones."""
    if named is None:
        near = difflib.get_close_matches(name, known, n=1)
        return [
            refuse(
                "unknown-savepoint-name",
                f"No savepoint is called {name!r}; there are {sorted(known)}.",
                f"{f'Did you mean {near[0]!r}? ' if near else ''}`kappa savepoint list` shows them.",
                name=name,
                known=sorted(known),
            )
        ]
    if named.epoch == live:
        return []
    return [
        refuse(
            "savepoint-of-other-epoch",
            f"Savepoint {name!r} is seq {named.seq} of epoch {named.epoch}, and epoch {live} is live: the tables of "
            f"epoch {named.epoch} were computed by other code, what it has sent since is not in them.",
            "Choose a savepoint of the live epoch, or `kappa rollback` to that epoch first.",
            name=name,
            epoch=named.epoch,
            seq=named.seq,
            live=live,
        )
    ]


def unknown_epoch(epoch: int | None, markers: tuple[MarkerFacts, ...]) -> list[Finding]:
    """No epoch of that number left a marker to continue from."""
    known = sorted(marker.epoch for marker in markers)
    wanted = "No epoch left the marker of a slice that it sent" if epoch is None else f"No epoch {epoch} left a marker"
    return [
        refuse(
            "unknown-epoch",
            f"{wanted} on this broker; epochs with any marker are {known}.",
            "Name one of those." if known else "Without changelog and marker, replay --to-earliest.",
            epoch=epoch,
            known=known,
        )
    ]


def last_sender(markers: Iterable[MarkerFacts]) -> MarkerFacts | None:
    """The marker of the epoch that sent last: of the highest turn, and where turns have no number the furthest that sent."""
    last: MarkerFacts | None = None
    for marker in sorted(markers, key=lambda marker: marker.epoch):
        if marker.sends == "live" and (
            last is None
            or marker.turn > last.turn
            or (marker.turn == last.turn and marker.position.dominates(last.position))
        ):
            last = marker
    return last


def other_lakes_epoch(marker: MarkerFacts) -> list[Finding]:
    """A rebuild takes over from an epoch of another lake, which ends for good."""
    if not marker.owner:
        return []
    return [
        warn(
            "other-lake-superseded",
            f"Epoch {marker.epoch} belongs to {marker.owner}, not to this lake: the rebuild ends it for good, and a driver of it that is alive stops.",
            "Nothing if that lake is lost. If it is not, set KAPPA_LAKE to it instead of rebuilding.",
            epoch=marker.epoch,
            owner=marker.owner,
        )
    ]


def growing_changelog(marker: MarkerFacts) -> list[Finding]:
    """A changelog says what its tables are after its last slice; while more follow, that is never the plan's."""
    if not marker.is_growing:
        return []
    return [
        refuse(
            "changelog-goes-on",
            f"The driver of epoch {marker.epoch}{f' of {marker.owner}' if marker.owner else ''} runs: its changelog, at slice {marker.seq} now, goes on and cannot be folded as of a slice.",
            "Stop that driver first, with `kappa stop` in its lake; or start from a savepoint, which has the same tables as of any slice that is kept.",
            epoch=marker.epoch,
            seq=marker.seq,
        )
    ]


def marker_behind_last_sender(marker: MarkerFacts, markers: Iterable[MarkerFacts]) -> list[Finding]:
    """An epoch that goes live from this marker would send again what another one has sent after it."""
    last = last_sender(markers)
    if last is None or marker.position.dominates(last.position):
        return []
    return [
        refuse(
            "marker-behind-last-sender",
            f"The marker of epoch {marker.epoch} ends at {marker.position.to_json()}, epoch {last.epoch} has sent up "
            f"to {last.position.to_json()}: going live from there would send records twice.",
            f"Rebuild from the changelog of epoch {last.epoch}.",
            epoch=marker.epoch,
            last_epoch=last.epoch,
            position=marker.position.as_dict(),
            sent=last.position.as_dict(),
        )
    ]


def partial_history(start: Offsets) -> list[Finding]:
    """The tables start empty and the plan does not begin at the first offset."""
    later = [(at, offset) for at, offset in start.items() if offset > 0]
    if not later:
        return []
    names = ", ".join(f"{topic}[{partition}] at {offset}" for (topic, partition), offset in later)
    return [
        warn(
            "partial-history",
            f"The tables start empty and the plan begins late: {names}. Results that need earlier records lack them.",
            "Nothing, if that is meant; otherwise replay --to-earliest or seed from a savepoint.",
            start=start.as_dict(),
        )
    ]


def append_outputs_lost(appends: tuple[str, ...]) -> list[Finding]:
    """A changelog holds tables only."""
    if not appends:
        return []
    return [
        warn(
            "append-outputs-lost",
            f"A changelog holds tables only: the earlier rows of {sorted(appends)} do not come back.",
            "Nothing, if only tables matter; replay --to-earliest computes the rows anew while the log has them.",
            outputs=sorted(appends),
        )
    ]
