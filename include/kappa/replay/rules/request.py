"""Rules about the request: the topology, the start, the end and the seed; one function each, as in ``log``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from kappa.offsets.vector import Offsets, TopicPartition
from kappa.replay.facts import ActiveFacts, LiveFacts, MarkerFacts, NamedSavepoint, SavepointFacts, TopologyFacts
from kappa.replay.findings import Finding, refuses, warns
from kappa.topology.masking import SHORTEST
from kappa.topology.thresholds import unknown

UNKNOWN_TOPOLOGY = refuses(
    "unknown-topology",
    "No topology {name!r} is deployed; these are: {known}.",
    "{hint}`kappa topologies` lists them and names files that do not import.",
    way_out="Correct the name, or KAPPA_TOPOLOGIES, the folder whose files declare topologies. `kappa topologies` "
    "lists them and names files that do not import.",
)


def unknown_topology(name: str, topologies: tuple[str, ...]) -> list[Finding]:
    """No topology of that name is deployed."""
    return [UNKNOWN_TOPOLOGY({"known": sorted(topologies), "hint": _nearest(name, topologies)}, name=name)]


CODE_DOES_NOT_IMPORT = refuses(
    "code-does-not-import",
    "The code of {name!r} does not import: {error}",
    "Correct it and plan again; the live epoch keeps running on its own stored code.",
)


def code_does_not_import(topology: TopologyFacts) -> list[Finding]:
    """The topology's code raises when it is imported."""
    if topology.error is None:
        return []
    return [CODE_DOES_NOT_IMPORT({"name": topology.name}, error=topology.error)]


UNKNOWN_THRESHOLD = refuses(
    "unknown-threshold",
    "Topology {topology!r} has nothing that threshold {name!r} could limit: there is no such table or output, or the "
    "column is not a number, is a key or is masked.",
    "{hint}",
    way_out="Use the nearest name, which the message gives.",
)


def unknown_thresholds(names: Iterable[str], topology: TopologyFacts) -> list[Finding]:
    """A threshold names a member that the topology does not have, or a measure that does not apply."""
    hints = unknown(names, topology.measures)
    return [UNKNOWN_THRESHOLD({"topology": topology.name, "hint": hint}, name=name) for name, hint in hints.items()]


MASK_KEY_MISSING = refuses(
    "mask-key-missing",
    "Topology {topology!r} has a sensitive source and KAPPA_MASK_KEY is not set, or shorter than {shortest} "
    "characters.",
    "Set KAPPA_MASK_KEY here and where drivers start; keep it out of the lake and out of code.",
)


def mask_key_missing(topology: TopologyFacts) -> list[Finding]:
    """A sensitive source needs a key: none of its values is stored in the clear."""
    if not topology.is_sensitive or topology.mask:
        return []
    return [MASK_KEY_MISSING({"topology": topology.name}, shortest=SHORTEST)]


DETERMINISM_WITHOUT_LIVE_EPOCH = refuses(
    "determinism-without-live-epoch",
    "No epoch is live, so this one goes live as soon as it is seeded: it has no range that could be computed twice.",
    "Start it without --determinism, then `kappa replay --determinism` beside it.",
)


def determinism_without_live_epoch(is_wanted: bool, live: int | None) -> list[Finding]:
    """A first epoch goes live before it has computed anything: there is no range that could be computed again."""
    return [DETERMINISM_WITHOUT_LIVE_EPOCH()] if is_wanted and live is None else []


LIVE_CUTS_UNKNOWN = refuses(
    "live-cuts-unknown",
    "The replay should end its slices where those of the live epoch ended, but {why}.",
    "Omit --cuts live; or start at a commit of the live epoch: --from-savepoint.",
    way_out="Omit --cuts live. It needs a live epoch without versioned sources, and a start at its first slice "
    "or at one of its commits: --from-savepoint.",
)


def live_cuts_unknown(live: LiveFacts | None, start: Offsets | None, *, is_chained: bool) -> list[Finding]:
    """Why a replay cannot end its slices where the live epoch did: a ledger has the cuts of its own epoch, from its
    first slice on.
    """
    if start is None:
        return []
    if live is None:
        return [LIVE_CUTS_UNKNOWN(why="no epoch is live")]
    if is_chained or live.upstreams:
        return [LIVE_CUTS_UNKNOWN(why="it reads versioned topics, which each epoch fills anew")]
    commits = [live.begin, *(savepoint.offsets for savepoint in live.savepoints)]
    if any(commit is not None and start.is_level_with(commit) for commit in commits):
        return []
    begin = "" if live.begin is None else f" at {live.begin.to_json()}"
    return [LIVE_CUTS_UNKNOWN(why=f"its slices begin{begin}; the replay would begin at {start.to_json()}")]


REPLAY_ALREADY_ACTIVE = refuses(
    "replay-already-active",
    "Epoch {epoch} of {topology!r} is being replayed, it is {stage}: a topology has one replay at a time.",
    "`kappa cutover {topology}` finishes it, `kappa abort {topology} {epoch}` removes it.",
    way_out="`kappa cutover` finishes it, `kappa abort` removes it. A retired epoch on its way back counts too.",
)


def replay_already_active(name: str, active: ActiveFacts | None) -> list[Finding]:
    """A replay of the topology is not finished."""
    if active is None:
        return []
    return [REPLAY_ALREADY_ACTIVE({"topology": name}, epoch=active.epoch, stage=active.stage, plan=active.plan)]


END_AHEAD_OF_LIVE = refuses(
    "end-ahead-of-live",
    "The live epoch has committed {topic}[{partition}] up to {committed}, the plan ends at {end}: a candidate follows "
    "the live epoch and never passes it.",
    "Omit the end, or wait until the live epoch is there.",
)


def end_ahead_of_live(end: Offsets, position: Offsets) -> list[Finding]:
    """The plan ends after the live epoch's last commit, which a candidate may not overtake in a topic of both."""
    both = [(at, offset, position.get(*at) or 0) for at, offset in end.items() if at[0] in position.topics]
    return [
        END_AHEAD_OF_LIVE(topic=topic, partition=partition, committed=committed, end=offset)
        for (topic, partition), offset, committed in both
        if offset > committed
    ]


START_AFTER_END = refuses(
    "start-after-end",
    "The plan begins at offset {start} of {topic}[{partition}] and ends at {end}, which is as far as the live epoch "
    "has committed unless an end was given.",
    "Choose an earlier start, or wait until the live epoch has passed it.",
)


def start_after_end(start: Offsets, end: Offsets) -> list[Finding]:
    """The plan begins after its own end."""
    both = [(at, start[at], offset) for at, offset in end.items() if at in start]
    return [
        START_AFTER_END(topic=topic, partition=partition, start=begin, end=offset)
        for (topic, partition), begin, offset in both
        if begin > offset
    ]


QUIET_PARTITIONS = warns(
    "quiet-partitions",
    "{count} of {all} partitions have no record from {at} on and begin at their end: {names}.",
    "No action needed if those partitions are quiet; check the time if they should not be.",
)
TIME_WITHOUT_RECORD = refuses(
    "time-without-record",
    "No record has a time of {at} or later, {latest}: {where}.",
    "Choose a time that is not after the last record; times are UTC unless they carry an offset.",
)


def time_without_record(
    at: datetime,
    first_records: Mapping[TopicPartition, int | None],
    last_times: Mapping[TopicPartition, datetime],
    stable: Offsets,
) -> list[Finding]:
    """No record is as late as the requested time: Kafka's tools would move to the end; a plan refuses.

    A single partition without such a record begins at its end, where the first one will be, and is named in a warning.
    """
    quiet = [where for where, offset in sorted(first_records.items()) if offset is None]
    if not quiet:
        return []
    if len(quiet) < len(first_records):
        names = ", ".join(f"{topic}[{partition}] at {stable[topic, partition]}" for topic, partition in quiet)
        words = {"count": len(quiet), "all": len(first_records), "at": at.isoformat(), "names": names}
        return [QUIET_PARTITIONS(words, partitions=[f"{topic}[{partition}]" for topic, partition in quiet])]
    last = max((last_times[where] for where in quiet if where in last_times), default=None)
    words = {
        "latest": f"the last one is of {last.isoformat()}" if last else "all of them are earlier",
        "where": ", ".join(f"{topic}[{partition}] ends at {stable[topic, partition]}" for topic, partition in quiet),
    }
    return [
        TIME_WITHOUT_RECORD(words, at=at.isoformat(), last=last.isoformat() if last else None, ends=stable.as_dict())
    ]


UNKNOWN_SAVEPOINT = refuses(
    "unknown-savepoint",
    "The live epoch has no savepoint {wanted}: {those}.",
    "Choose one of those, or replay --to-earliest.",
    way_out="Choose one of those in the message, or replay --to-earliest.",
)


def unknown_savepoint(place: str, savepoints: tuple[SavepointFacts, ...]) -> list[Finding]:
    """The live epoch has no savepoint there."""
    those = "none is kept"
    if savepoints:
        first, last = savepoints[0], savepoints[-1]
        those = (
            f"{len(savepoints)} are kept, from seq {first.seq} ({first.finished_at.isoformat()}) "
            f"to seq {last.seq} ({last.finished_at.isoformat()})"
        )
    return [UNKNOWN_SAVEPOINT({"those": those}, wanted=place, kept=[savepoint.seq for savepoint in savepoints])]


UNKNOWN_SAVEPOINT_NAME = refuses(
    "unknown-savepoint-name",
    "No savepoint is called {name!r}; there are {known}.",
    "{hint}`kappa savepoint list` shows them.",
    way_out="Choose one of those in the message. `kappa savepoint list` shows them.",
)
SAVEPOINT_OF_OTHER_EPOCH = refuses(
    "savepoint-of-other-epoch",
    "Savepoint {name!r} is seq {seq} of epoch {epoch}, and epoch {live} is live: the tables of epoch {epoch} were "
    "computed by other code, and do not have what was sent since.",
    "Choose a savepoint of the live epoch, or `kappa rollback` to that epoch first.",
)


def unusable_savepoint_name(
    name: str, named: NamedSavepoint | None, savepoints: Mapping[str, NamedSavepoint], live: int | None
) -> list[Finding]:
    """No savepoint has this name, or it belongs to an epoch that is not live: its tables are not the live ones."""
    if named is None:
        return [UNKNOWN_SAVEPOINT_NAME({"hint": _nearest(name, savepoints)}, name=name, known=sorted(savepoints))]
    if named.epoch == live:
        return []
    return [SAVEPOINT_OF_OTHER_EPOCH(name=name, epoch=named.epoch, seq=named.seq, live=live)]


UNKNOWN_EPOCH = refuses(
    "unknown-epoch",
    "No epoch{number} left a marker{sent} on this broker; epochs with any marker are {known}.",
    "Name one of those.",
    way_out="Name one of those in the message. Without changelog and marker, replay --to-earliest.",
)
_NO_EPOCH_KNOWN = replace(UNKNOWN_EPOCH, remedy="Without changelog and marker, replay --to-earliest.")


def unknown_epoch(epoch: int | None, markers: tuple[MarkerFacts, ...]) -> list[Finding]:
    """No epoch of that number left a marker to continue from."""
    epochs = sorted(marker.epoch for marker in markers)
    words = {"number": "", "sent": " of a slice that it sent"} if epoch is None else {"number": f" {epoch}", "sent": ""}
    return [(UNKNOWN_EPOCH if epochs else _NO_EPOCH_KNOWN)(words, epoch=epoch, known=epochs)]


def last_sender(markers: Iterable[MarkerFacts]) -> MarkerFacts | None:
    """The marker of the last epoch that sent: of the highest turn, or the furthest where turns have no number."""
    last: MarkerFacts | None = None
    for marker in sorted(markers, key=lambda marker: marker.epoch):
        if marker.sends == "live" and (
            last is None
            or marker.turn > last.turn
            or (marker.turn == last.turn and marker.position.dominates(last.position))
        ):
            last = marker
    return last


OTHER_LAKE_SUPERSEDED = warns(
    "other-lake-superseded",
    "Epoch {epoch} belongs to {owner}, not to this lake: the rebuild ends it for good, and its driver stops if it "
    "still runs.",
    "No action needed if that lake is lost. If it is not, set KAPPA_LAKE to it instead of rebuilding.",
)


def other_lakes_epoch(marker: MarkerFacts) -> list[Finding]:
    """A rebuild takes over from an epoch of another lake, which ends for good."""
    return [OTHER_LAKE_SUPERSEDED(epoch=marker.epoch, owner=marker.owner)] if marker.owner else []


CHANGELOG_GOES_ON = refuses(
    "changelog-goes-on",
    "The driver of epoch {epoch}{of} runs: its changelog, at slice {seq} now, keeps growing and cannot be folded as of "
    "a slice.",
    "Stop that driver first, with `kappa stop` in its lake; or start from a savepoint, which has the tables as of any "
    "slice that is kept.",
)


def growing_changelog(marker: MarkerFacts) -> list[Finding]:
    """A changelog gives its tables after its last slice; while more slices follow, that is never the plan's."""
    words = {"of": f" of {marker.owner}" if marker.owner else ""}
    return [CHANGELOG_GOES_ON(words, epoch=marker.epoch, seq=marker.seq)] if marker.is_growing else []


MARKER_BEHIND_LAST_SENDER = refuses(
    "marker-behind-last-sender",
    "The marker of epoch {epoch} ends at {ends}, epoch {last_epoch} has sent up to {sent_to}: going live from there "
    "would send records twice.",
    "Rebuild from the changelog of epoch {last_epoch}.",
    way_out="Rebuild from the changelog of the epoch that sent last; that is the default.",
)


def marker_behind_last_sender(marker: MarkerFacts, markers: Iterable[MarkerFacts]) -> list[Finding]:
    """An epoch that goes live from this marker would repeat what another one has sent after it."""
    last = last_sender(markers)
    if last is None or marker.position.dominates(last.position):
        return []
    return [
        MARKER_BEHIND_LAST_SENDER(
            {"ends": marker.position.to_json(), "sent_to": last.position.to_json()},
            epoch=marker.epoch,
            last_epoch=last.epoch,
            position=marker.position.as_dict(),
            sent=last.position.as_dict(),
        )
    ]


PARTIAL_HISTORY = warns(
    "partial-history",
    "The tables start empty and the plan begins late: {names}. Results that need earlier records lack them.",
    "No action needed if that is meant; otherwise replay --to-earliest or seed from a savepoint.",
    way_out="No action needed if that is meant; otherwise replay --to-earliest or seed from a savepoint. Where the "
    "remedy of a refusal names it, --allow partial-history lifts that refusal: the plan begins with what is left.",
    may_be_allowed=True,
)


def partial_history(start: Offsets) -> list[Finding]:
    """The tables start empty and the plan does not begin at the first offset."""
    names = ", ".join(f"{topic}[{partition}] at {offset}" for (topic, partition), offset in start.items() if offset > 0)
    return [PARTIAL_HISTORY({"names": names}, start=start.as_dict())] if names else []


APPEND_OUTPUTS_LOST = warns(
    "append-outputs-lost",
    "A changelog holds tables only: the earlier rows of {outputs} do not come back.",
    "No action needed if only tables matter; replay --to-earliest computes the rows again while the log has their "
    "records.",
)


def append_outputs_lost(appends: tuple[str, ...]) -> list[Finding]:
    """A changelog holds tables only."""
    return [APPEND_OUTPUTS_LOST(outputs=sorted(appends))] if appends else []


def _nearest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"Did you mean {near[0]!r}? " if near else ""


LIBRARY_UNVERSIONED = warns(
    "library-unversioned",
    "Distributions {listing} are installed from folders, editable or on the import path: their versions say nothing of "
    "their content, and a change of it is on no record. A rollback could run other code of them.",
    "No action needed for what the topology does not import. Otherwise build a wheel of it and install that, or put "
    "its modules beside the topology's file, where they are stored with the epoch.",
)


def library_unversioned(names: tuple[str, ...]) -> list[Finding]:
    """Code that the topology may import can change without a trace."""
    return [LIBRARY_UNVERSIONED({"listing": ", ".join(names)}, names=list(names))] if names else []
