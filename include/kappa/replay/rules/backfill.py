"""Rules about a backfill: outputs and intervals that cannot be computed again on their own. One function each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kappa.offsets.vector import OffsetRange, Offsets, TopicPartition
from kappa.replay.findings import Finding, refuses, warns

BACKFILL_WITHOUT_OUTPUTS = refuses(
    "backfill-without-outputs",
    "{topology!r} has no append output, and no table that keeps closed windows. A row of its tables is made from all "
    "records of its key, or is removed when it is final: no interval of rows can be computed again.",
    "`kappa replay {topology}` computes the tables again.",
)
BACKFILL_UNKNOWN_OUTPUT = refuses(
    "backfill-unknown-output",
    "{topology!r} has no append output {output!r}, and no table of that name that keeps closed windows.",
    "Name one of {known}.",
    way_out="Name one of those in the message.",
)


def no_such_output(topology: str, outputs: Iterable[str], all_outputs: Sequence[str]) -> list[Finding]:
    """A backfill replaces rows of append outputs."""
    if not all_outputs:
        return [BACKFILL_WITHOUT_OUTPUTS({"topology": topology})]
    words = {"topology": topology, "known": ", ".join(all_outputs)}
    return [BACKFILL_UNKNOWN_OUTPUT(words, output=name) for name in outputs if name not in all_outputs]


BACKFILL_CUMULATIVE = refuses(
    "backfill-cumulative",
    "Rows of {output!r} are not computed record by record: the step {why}. The records of an interval do not determine "
    "them.",
    "`kappa replay {topology}` computes them from the beginning, `kappa replay {topology} --from-savepoint NAME` from "
    "a savepoint.",
    way_out="`kappa replay` computes them from the beginning or from a savepoint. Such rows are a running total, the "
    "newest row of a table, a session, and an aggregate of the author's own. To leave them out, name the other outputs "
    "with `--output`.",
)


def cumulative(topology: str, reasons: Mapping[str, Sequence[str]]) -> list[Finding]:
    """A row that depends on more than its record cannot be computed from the records of an interval.

    Args:
        reasons: output -> what its rows depend on besides their record; empty if on nothing.
    """
    return [
        BACKFILL_CUMULATIVE({"topology": topology, "why": _together(causes)}, output=output, reasons=list(causes))
        for output, causes in reasons.items()
        if causes
    ]


BACKFILL_WITHOUT_TIME = refuses(
    "backfill-without-time",
    "Rows of {output!r} come from table {tables}, and no column says to which interval a row belongs.",
    "Declare it with Append(name={output!r}, ..., time=COLUMN), then `kappa upgrade {topology}`. Until then `kappa "
    "replay {topology}` computes all of them.",
    way_out="Declare `Append(time=...)`, for a join the event time of its left side, then `kappa upgrade`. A column "
    "`window_start` needs no declaration. Or `kappa replay`.",
)


def without_time(topology: str, tables: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Rows computed from several records belong to an interval by a column.

    Args:
        tables: output without such a column -> the tables that its rows come from.
    """
    return [
        BACKFILL_WITHOUT_TIME({"topology": topology, "tables": " and ".join(map(repr, names))}, output=output)
        for output, names in tables.items()
    ]


BACKFILL_OFF_GRID = refuses(
    "backfill-off-grid",
    "{edge} {at} lies within a window of {output!r}: windows begin every {step}.",
    "Choose {before} or {after}. Runs of Airflow are days in UTC, or in the zone that the form names; `kappa backfill` "
    "takes any edge.",
    way_out="Choose an edge on the grid; the message names the nearest two. Runs of Airflow are days in UTC, or in the "
    "zone that the form names; `kappa backfill` takes any edges, and days of a `--zone`.",
)


def off_grid(output: str, edge: str, at: str, step: str, nearest: tuple[str, str]) -> list[Finding]:
    """An edge of the interval that is not the beginning of a window."""
    before, after = nearest
    return [BACKFILL_OFF_GRID({"step": step}, output=output, edge=edge, at=at, before=before, after=after)]


BACKFILL_STILL_OPEN = refuses(
    "backfill-still-open",
    "Rows of {output!r} up to {end} are final when event time, less the grace, has passed {needed}. It has reached "
    "{reached}.",
    "Wait, or choose an earlier --to.",
    way_out="Wait, or choose an earlier `--to`.",
)


def still_open(output: str, end: str, needed: str, reached: str) -> list[Finding]:
    """The live epoch itself has rows of the interval still to compute."""
    return [BACKFILL_STILL_OPEN(output=output, end=end, needed=needed, reached=reached)]


BACKFILL_STATE_GONE = refuses(
    "backfill-state-gone",
    "Rows of {output!r} from {begin} on reach back to {since}. The live epoch has no earlier commit to begin "
    "with{why}.",
    "`kappa replay {topology} --to-datetime TIME` computes them in an epoch that begins earlier.",
    way_out="`kappa replay` with an earlier start. It cannot begin with state of other code, or with state that "
    "is no longer kept.",
)


def state_is_gone(topology: str, output: str, begin: str, since: str, *, is_bounded: bool) -> list[Finding]:
    """No commit is early enough to begin with.

    Args:
        is_bounded: whether the rows need no state from before the interval.
    """
    why = "" if is_bounded else " that was computed by the same code and whose tables are kept"
    return [BACKFILL_STATE_GONE({"topology": topology, "why": why}, output=output, begin=begin, since=since)]


BACKFILL_OTHER_PARAMETERS = refuses(
    "backfill-other-parameters",
    "An upgrade has changed event time, grace, operators or the reading of a source since: {changes}. Other records "
    "would be late or dead letters now than were then.",
    "`kappa replay {topology}` computes all of them with the new parameters.",
)


def other_parameters(topology: str, changes: Sequence[str]) -> list[Finding]:
    """The live epoch has read the interval with other parameters of event time, operators or sources."""
    words = {"topology": topology, "changes": "; ".join(changes)}
    return [BACKFILL_OTHER_PARAMETERS(words, changes=list(changes))] if changes else []


BACKFILL_NOT_INSPECTED = refuses(
    "backfill-not-inspected",
    "Whether rows are computed record by record is unknown: the step failed without records: {error}",
    "Let the step return empty DataFrames for empty input, and upgrade the live epoch.",
)


def not_inspected(error: str) -> list[Finding]:
    """The step raised when it was called without records."""
    return [BACKFILL_NOT_INSPECTED(error=error)]


BACKFILL_VERSIONED_TOPIC = refuses(
    "backfill-versioned-topic",
    "Topic {topic!r} is versioned and holds every row of {output!r}. Rows that are replaced cannot be taken back from "
    "it.",
    "`kappa replay {topology}` fills a new topic.",
)


def versioned_topic(topology: str, topics: Mapping[str, str]) -> list[Finding]:
    """A versioned topic holds exactly the rows of its output; a record in it cannot be taken back.

    Args:
        topics: output -> its versioned topic.
    """
    words = {"topology": topology}
    return [BACKFILL_VERSIONED_TOPIC(words, output=output, topic=topic) for output, topic in topics.items()]


BACKFILL_OF_CHAIN = refuses(
    "backfill-of-chain",
    "{topology!r} reads topics that {names} filled. Records in them have the time at which they were sent.",
    "`kappa replay {topology}` computes it again from its upstream epoch.",
)


def reads_upstream(topology: str, upstreams: Iterable[str]) -> list[Finding]:
    """Record times in a topic that another topology fills are the times of its sends."""
    names = sorted(upstreams)
    return [BACKFILL_OF_CHAIN({"topology": topology, "names": ", ".join(names)}, upstreams=names)] if names else []


BACKFILL_BEFORE_EPOCH = refuses(
    "backfill-before-epoch",
    "The interval begins at offset {wanted} of {where}; the live epoch begins at {begin} and has no rows of earlier "
    "records.",
    "`kappa replay {topology} --to-datetime TIME` builds an epoch that begins earlier.",
)


def begins_before_epoch(topology: str, start: Offsets, begin: Offsets) -> list[Finding]:
    """The epoch has no rows of records before its beginning."""
    earlier = _behind(start, begin)
    if not earlier:
        return []
    at, offset = earlier[0]
    names = [f"{topic}[{partition}]" for (topic, partition), _ in earlier]
    words = {"topology": topology, "wanted": offset, "where": names[0], "begin": begin[at]}
    return [BACKFILL_BEFORE_EPOCH(words, partitions=names)]


BACKFILL_RECORDS_GONE = refuses(
    "backfill-records-gone",
    "{topic}[{partition}] can be read from offset {first} on. Earlier records of the interval may be gone.",
    "Choose a later --from. An archive keeps records that Kafka removes: kappa archive start {topic}.",
    way_out="Choose a later `--from`. An [archive](archive.md) keeps records that Kafka removes.",
)


def log_is_gone(start: Offsets, first: Offsets, begin: Offsets) -> list[Finding]:
    """Retention may have removed records at the beginning of the interval.

    Args:
        start: where the interval begins in what can be read.
        first: the first offset that can be read.
        begin: where the epoch begins: nothing before it is needed.
    """
    for (topic, partition), offset in start.items():
        at = (topic, partition)
        if at in first and offset == first[at] and offset > (begin.get(*at) or 0):
            return [BACKFILL_RECORDS_GONE(topic=topic, partition=partition, first=offset)]
    return []


BACKFILL_NOT_FINAL = warns(
    "backfill-not-final",
    "The live epoch has yet to read {offsets:,} offsets of the interval. The backfill leaves them to it.",
    "No action needed if both run the same code.",
)


def records_are_gone(logged: Iterable[OffsetRange], first: Offsets) -> list[Finding]:
    """Retention removed records from which rows of the interval are computed.

    Args:
        logged: what no archive gives of the ranges that are read.
        first: the first offset that can be read.
    """
    for item in logged:
        held = first.get(*item.at) or 0
        if item.start < held:
            return [BACKFILL_RECORDS_GONE(topic=item.topic, partition=item.partition, first=held)]
    return []


def unread_yet(end: Offsets, position: Offsets) -> list[Finding]:
    """The live epoch has not read the interval to its end."""
    count = sum(end[at] - offset for at, offset in _behind(position, end))
    return [BACKFILL_NOT_FINAL(offsets=count)] if count else []


BACKFILL_SENDS_NOTHING = warns(
    "backfill-sends-nothing",
    "The backfill sends nothing to topic {topic!r} of {output!r}. Its readers keep the records that they have "
    "received.",
    "No action needed if they can do without the new rows.",
    way_out="No action needed if readers of the topic can do without the new rows; otherwise replay.",
)


BACKFILL_LEAVES_TABLES = warns(
    "backfill-leaves-tables",
    "{said}. A backfill does not replace their rows: they keep what the old rows of the interval contributed.",
    "No action needed if they may differ from the new rows; otherwise `kappa replay {topology}`, which computes all.",
    way_out="No action needed if tables that are made from the same rows, such as a total over windows, may differ "
    "from the new rows; otherwise `kappa replay`.",
)


def leaves_tables(topology: str, tables: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Tables made from the same rows as an output stay unchanged.

    Args:
        topology: its name.
        tables: output -> the tables.
    """
    clauses = [
        f"{_together([repr(name) for name in names])} {'is' if len(names) == 1 else 'are'} made from the same rows "
        f"as {output!r}"
        for output, names in tables.items()
        if names
    ]
    words = {"said": "; ".join(clauses), "topology": topology}
    return (
        [BACKFILL_LEAVES_TABLES(words, tables={name: list(of) for name, of in tables.items() if of})] if clauses else []
    )


def holds_topics(topics: Mapping[str, str]) -> list[Finding]:
    """Readers of a topic keep what they have received.

    Args:
        topics: output -> the topic that is made from it.
    """
    return [BACKFILL_SENDS_NOTHING(output=output, topic=topic) for output, topic in topics.items()]


def _together(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _behind(offsets: Offsets, other: Offsets) -> list[tuple[TopicPartition, int]]:
    return [(at, offset) for at, offset in offsets.items() if at in other and offset < other[at]]


BACKFILL_OTHER_ENVIRONMENT = warns(
    "backfill-other-environment",
    "The rows are computed in the environment of this command, not in that of live epoch {epoch}{differences}.",
    "Run the command with the Python in which the epoch's driver runs: `kappa status {topology}` names its "
    "environment.",
    way_out="Run the command with the Python in which the epoch's driver runs: `kappa status` names its environment.",
)


def other_environment(topology: str, epoch: int, environment: str, differences: str) -> list[Finding]:
    """Libraries of another version compute the rows."""
    words = {"topology": topology, "differences": differences}
    return [BACKFILL_OTHER_ENVIRONMENT(words, epoch=epoch, environment=environment)]
