"""Rules about new code for a live epoch: changes that do not fit its history, and acts that are under way. One function
each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kappa.replay.findings import Declaration, Finding, refuses, warns
from kappa.topology import Append, Source, Table, Topic, Topology
from kappa.topology.ddl import Column, columns_of
from kappa.topology.members.source import READING
from kappa.topology.readers import may_go_on
from kappa.topology.revisions import operator_of, revision_of
from kappa.topology.shapes import Shape, changed_graces, changed_times, timings_of
from kappa.topology.times import durations

#: Slices that are computed again by default.
SLICES = 3

_REPLAY = "`kappa replay` computes history with the deployed code into an epoch of its own."


def needs_replay(before: Topology, after: Topology) -> list[Finding]:
    """The differences between two versions that would leave existing rows wrong, or missing."""
    return [
        *sources_changed(before.sources, after.sources),
        *times_changed(before.sources, after.sources),
        *tables_changed(before.tables, after.tables),
        *operators_changed(before.tables, after.tables),
        *outputs_changed(before.appends, after.appends),
        *topics_changed(before, after),
    ]


UPGRADE_CHANGES_SOURCES = refuses(
    "upgrade-changes-sources",
    "The deployed code reads its sources in another way: {changes}. Earlier records were read in the old way.",
    f"{_REPLAY} A column that may be null can be added or removed without one.",
    way_out=f"{_REPLAY} A column that may be null can be added or removed without one. So can `headers`, `keyed` and "
    "`sensitive`; another `ahead` or `idle_after` takes effect from the next slice on.",
)


def sources_changed(before: Iterable[Source], after: Iterable[Source]) -> list[Finding]:
    """Other topics, or records that are read in another way. A column that may be null can be added or removed."""
    old, new = {source.topic: source for source in before}, {source.topic: source for source in after}
    changes = _came_and_went("source", old.keys(), new.keys())
    for topic in sorted(old.keys() & new.keys()):
        if old[topic].of != new[topic].of:
            changes.append(f"source {topic!r} is of {new[topic].of or 'no topology'}, not of {old[topic].of or 'none'}")
        if old[topic].format != new[topic].format:
            changes.append(f"source {topic!r} is read as {new[topic].format}, not as {old[topic].format}")
            continue
        changes += _changed_columns(f"source {topic!r}", old[topic].columns, new[topic].columns, may_come=True)
        was, now = (_reading(one, old[topic], new[topic]) for one in (old[topic], new[topic]))
        changes += [
            f"source {topic!r} has {name} {now[name]!r}, not {was[name]!r}" for name in was if was[name] != now[name]
        ]
    return _changes(UPGRADE_CHANGES_SOURCES, changes)


def _reading(source: Source, *both: Source) -> dict[str, object]:
    """How its records are read, in columns that both versions of it have."""
    common = set.intersection(*({column.name for column in one.columns} for one in both))
    return {
        **{name: getattr(source, name) for name in READING},
        "record": sorted(source.record),
        "defaults": {name: value for name, value in source.defaults.items() if name in common},
        "key_schema": ", ".join(f"{column.name} {_said(column)}" for column in source.key_columns),
    }


_COMPUTED_AGAIN = (
    "`kappa replay --to-earliest` computes history from the first record on, `--to-datetime TIME` from a time on."
)
UPGRADE_CHANGES_TIME = refuses(
    "upgrade-changes-time",
    "The deployed code takes event time from elsewhere, or no longer has any: {changes}. The old times decided which "
    "rows are open and which records are late.",
    _COMPUTED_AGAIN,
)
UPGRADE_CHANGES_GRACE = warns(
    "upgrade-changes-grace",
    "The grace of source {topic!r} was {was} and is {now}. {effect}",
    "No action needed if that is meant; `kappa replay` computes history with the new grace.",
    way_out="No action needed if that is meant: a longer grace does not reopen anything, and with a shorter one rows "
    "become final sooner from the next slice on. `kappa replay` computes history with the new grace.",
)
#: What another grace does to an epoch that continues.
LONGER_GRACE = "It takes effect from where the frontiers stand: what is closed stays closed."
SHORTER_GRACE = "Windows that the longer grace held open close with the next slice; records that were accepted stay."


def times_changed(before: Iterable[Source], after: Iterable[Source]) -> list[Finding]:
    """Other event times, or another grace, of sources that both versions read."""
    old, new = timings_of(before), timings_of(after)
    both = {source.topic for source in before} & {source.topic for source in after}
    old, new = ({topic: one for topic, one in timings.items() if topic in both} for timings in (old, new))
    return [
        *_changes(UPGRADE_CHANGES_TIME, changed_times(old, new)),
        *(
            UPGRADE_CHANGES_GRACE(
                {"effect": LONGER_GRACE if now > was else SHORTER_GRACE},
                topic=topic,
                was=durations.shown(was),
                now=durations.shown(now),
            )
            for topic, was, now in changed_graces(old, new)
        ),
    ]


UPGRADE_CHANGES_OPERATORS = refuses(
    "upgrade-changes-operators",
    "The deployed code keeps the state of other operators or parameters: {changes}. It would mistake the existing rows "
    "for its own.",
    _COMPUTED_AGAIN,
)


def operators_changed(before: Iterable[Table], after: Iterable[Table]) -> list[Finding]:
    """Tables of both versions that are the state of another operator, or of one with other parameters."""
    old, new = {table.name: table for table in before}, {table.name: table for table in after}
    return _changes(
        UPGRADE_CHANGES_OPERATORS,
        [
            f"table {name!r} is that of {new[name].made_by or 'no operator'}, not that of "
            f"{old[name].made_by or 'no operator'}"
            for name in sorted(old.keys() & new.keys())
            if not may_go_on(new[name].made_by, old[name].made_by)
        ],
    )


UPGRADE_REVISES_OPERATORS = refuses(
    "upgrade-revises-operators",
    "This release of Kappa computes or keeps rows otherwise than the one that wrote them: {changes}.",
    f"The live epoch goes on with the release that it runs. {_COMPUTED_AGAIN}",
)


def operators_revised(written: Mapping[str, Shape], after: Mapping[str, Shape]) -> list[Finding]:
    """Tables and outputs whose rows the platform of the new code would not have written, by their shapes on record.

    Args:
        written: the shapes that the epoch's ledger has, by place.
        after: those of the new code on the platform that runs here.
    """
    return _changes(
        UPGRADE_REVISES_OPERATORS,
        [
            *_came_and_went("place", written.keys(), after.keys()),
            *(
                change
                for place in sorted(written.keys() & after.keys())
                for change in _revised(place, written[place], after[place])
            ),
        ],
    )


def _revised(place: str, was: Shape, now: Shape) -> Iterator[str]:
    if not may_go_on(now.made_by, was.made_by):
        old, new = revision_of(was.made_by), revision_of(now.made_by)
        if operator_of(was.made_by) == operator_of(now.made_by) and old != new:
            yield f"operator {operator_of(now.made_by)!r} has revision {new}, and {place} was made by revision {old}"
        else:
            yield f"{place} is that of {now.made_by or 'no operator'}, not that of {was.made_by or 'no operator'}"
    if was.key != now.key:
        yield f"{place} is keyed by {list(now.key)}, not by {list(was.key)}"
    yield from _came_and_went(f"in {place} column", was.columns, now.columns)
    for name in was.columns.keys() & now.columns.keys():
        if _stored_type(was.columns[name]) != _stored_type(now.columns[name]):
            yield f"column {name!r} of {place} is {now.columns[name]}, not {was.columns[name]}"
        if (name in was.required) != (name in now.required):
            yield f"column {name!r} of {place} may {'not ' if name in now.required else ''}be null"


def _stored_type(ddl: str) -> object:
    """A type as Delta has it: its words in DDL may be others in another release."""
    return columns_of(f"c {ddl}", "a stored column")[0].delta


UPGRADE_CHANGES_TABLES = refuses(
    "upgrade-changes-tables",
    "The deployed code keeps other tables, columns or keys: {changes}. Existing rows have the old shape.",
    f"{_REPLAY} With --from-savepoint it starts from the tables as they are, if those have what it needs.",
)


def tables_changed(before: Iterable[Table], after: Iterable[Table]) -> list[Finding]:
    """Tables that came or went, other keys, other columns."""
    old, new = {table.name: table for table in before}, {table.name: table for table in after}
    changes = _came_and_went("table", old.keys(), new.keys())
    for name in sorted(old.keys() & new.keys()):
        if old[name].key != new[name].key:
            changes.append(f"table {name!r} is keyed by {list(new[name].key)}, not by {list(old[name].key)}")
        changes += _changed_columns(f"table {name!r}", old[name].columns, new[name].columns)
    return _changes(UPGRADE_CHANGES_TABLES, changes)


UPGRADE_CHANGES_OUTPUTS = refuses(
    "upgrade-changes-outputs",
    "The deployed code appends other outputs or columns: {changes}. Existing rows have the old shape.",
    _REPLAY,
)


def outputs_changed(before: Iterable[Append], after: Iterable[Append]) -> list[Finding]:
    """Append outputs that came or went, or have other columns."""
    old, new = {append.name: append for append in before}, {append.name: append for append in after}
    changes = _came_and_went("output", old.keys(), new.keys())
    for name in sorted(old.keys() & new.keys()):
        changes += _changed_columns(f"output {name!r}", old[name].columns, new[name].columns)
    return _changes(UPGRADE_CHANGES_OUTPUTS, changes)


UPGRADE_CHANGES_TOPICS = refuses(
    "upgrade-changes-topics",
    "The deployed code sends other records: {changes}. Consumers would meet both in one topic.",
    f"{_REPLAY} Its cutover begins to send at an exact offset.",
    way_out="`kappa replay` computes history with the deployed code into an epoch of its own. Its cutover begins to "
    "send at an exact offset. What counts is a topic output that was added or removed, has another origin, key, "
    "format, `columns`, `time` or `on_replay`, or no longer reports up to when its rows are final.",
)


def topics_changed(before: Topology, after: Topology) -> list[Finding]:
    """Topic outputs that came or went, or whose records have another origin, key, value or time.

    Readers of a versioned topic may close windows by its time: it has to go on to report final rows.
    """
    old, new = ({topic.name: topic for topic in one.topics} for one in (before, after))
    changes = _came_and_went("topic", old.keys(), new.keys())
    for name in sorted(old.keys() & new.keys()):
        was, now = old[name], new[name]
        if was.on_replay != now.on_replay:
            changes.append(f"topic {name!r} is on_replay={now.on_replay!r}, not {was.on_replay!r}")
        if was.format != now.format:
            changes.append(f"topic {name!r} is sent as {now.format}, not as {was.format}")
        if (was.of, was.key) != (now.of, now.key):
            changes.append(f"topic {name!r} is of {now.of!r} by {list(now.key)}, not of {was.of!r} by {list(was.key)}")
        sides = ((before, was), (after, now))
        # Columns that the rows gained or lost are findings of their own.
        common = set.intersection(*({column.name for column in one.rows_of(topic).columns} for one, topic in sides))
        old_columns, new_columns = (
            [column.name for column in one.sent_columns(topic) if column.name in common] for one, topic in sides
        )
        if was.of == now.of and old_columns != new_columns:
            changes.append(f"topic {name!r} sends columns {new_columns}, not {old_columns}")
        if was.time != now.time:
            changes.append(f"topic {name!r} has the time of {_time(now)}, not that of {_time(was)}")
        if was.is_versioned and before.followed(was) and not (was.time == now.time and after.followed(now)):
            changes.append(
                f"topic {name!r} no longer reports final rows by {was.time!r}, and its readers may close windows by "
                "that"
            )
    return _changes(UPGRADE_CHANGES_TOPICS, changes)


def _time(topic: Topic) -> str:
    return "sending" if topic.time is None else f"column {topic.time!r}"


UPGRADE_SAME_CODE = refuses(
    "upgrade-same-code",
    "The live epoch runs the deployed code already ({short}).",
    "Deploy the new file first; `kappa topologies` shows what is deployed.",
)


def same_code(running: str, deployed: str) -> list[Finding]:
    """The epoch runs what is deployed."""
    return [UPGRADE_SAME_CODE({"short": deployed[:12]}, deployed=deployed)] if running == deployed else []


UPGRADE_BESIDE_CANDIDATE = refuses(
    "upgrade-beside-candidate",
    "Epoch {epoch} of {topology!r} is being built and is compared with the live one, whose code would change under it.",
    "`kappa cutover {topology}` finishes it, `kappa abort {topology} {epoch}` removes it.",
)
UPGRADE_DURING_HANDOVER = refuses(
    "upgrade-during-handover",
    "{topology!r} is being handed over to epoch {epoch}.",
    "Wait until `kappa history {topology}` shows `moved` or `withdrawn`.",
)
UPGRADE_PENDING = refuses(
    "upgrade-pending",
    "{asked_by} has already asked for an upgrade of {topology!r}, which its driver makes at its next slice boundary.",
    "Wait for it. `kappa status {topology}` shows whether its driver runs, `kappa start {topology}` starts it.",
)


def epoch_is_busy(topology: str, candidate: int | None, handover: int | None, pending: str | None) -> list[Finding]:
    """An epoch is built beside the live one, readers are moved, or an upgrade is pending."""
    words = {"topology": topology}
    findings = [UPGRADE_BESIDE_CANDIDATE(words, epoch=candidate)] if candidate is not None else []
    findings += [UPGRADE_DURING_HANDOVER(words, epoch=handover)] if handover is not None else []
    return findings + ([UPGRADE_PENDING(words, asked_by=pending)] if pending is not None else [])


UPGRADE_FAILS = refuses(
    "upgrade-fails",
    "The deployed code failed on the last slices of the live epoch: {error}",
    "Correct it. As it is, it would leave the live epoch stuck.",
)


def fails_on_real_records(error: str) -> list[Finding]:
    """The deployed code raised on slices that the running code has read."""
    return [UPGRADE_FAILS(error=error)]


UPGRADE_OTHER_ENVIRONMENT = warns(
    "upgrade-other-environment",
    "The deployed code was tried in the environment of this command, not in that of live epoch {epoch}, in which it is "
    "to run{differences}.",
    "Run the command with the Python in which the epoch's driver runs: `kappa status {topology}` names its "
    "environment. Or stop the epoch, and bring it into this environment: `kappa start {topology} "
    "--in-this-environment`.",
    way_out="Run the command with the Python in which the epoch's driver runs: `kappa status` names its environment. "
    "Or stop the epoch, and bring it into this environment: `kappa start --in-this-environment`. A driver goes on in "
    "its epoch's own environment; code that cannot be imported there is withdrawn.",
)


def other_environment(topology: str, epoch: int, environment: str, differences: str) -> list[Finding]:
    """Libraries of another version ran the deployed code."""
    words = {"topology": topology, "differences": differences}
    return [UPGRADE_OTHER_ENVIRONMENT(words, epoch=epoch, environment=environment)]


UPGRADE_WITHOUT_EVIDENCE = warns(
    "upgrade-without-evidence",
    "No row shows whether the deployed code gives the same: {reason}",
    "No action needed if its author knows what the new code does; otherwise `kappa replay`, which compares all of "
    "history.",
)


def without_evidence(reason: str) -> list[Finding]:
    """No slice could be computed again, or none was to be, or those that were wrote nothing."""
    return [UPGRADE_WITHOUT_EVIDENCE(reason=reason)]


def _changes(declared: Declaration, changes: list[str]) -> list[Finding]:
    return [declared({"changes": "; ".join(changes)}, changes=changes)] if changes else []


def _came_and_went(what: str, old: Iterable[str], new: Iterable[str]) -> list[str]:
    before, after = set(old), set(new)
    return [f"{what} {name!r} is new" for name in sorted(after - before)] + [
        f"{what} {name!r} is gone" for name in sorted(before - after)
    ]


def _changed_columns(what: str, old: Iterable[Column], new: Iterable[Column], *, may_come: bool = False) -> list[str]:
    before, after = {column.name: column for column in old}, {column.name: column for column in new}
    changes = []
    for name in [*before, *(name for name in after if name not in before)]:
        was, now = before.get(name), after.get(name)
        if was is None or now is None:
            one = was or now
            if not (may_come and one is not None and one.nullable):
                changes.append(f"column {name!r} of {what} is {'new' if was is None else 'gone'}")
        elif (was.delta, was.nullable, was.required) != (now.delta, now.nullable, now.required):
            changes.append(f"column {name!r} of {what} is {_said(now)}, not {_said(was)}")
    return changes


def _said(column: Column) -> str:
    return column.type + ("" if column.nullable else " NOT NULL")
