"""Rules about the live epoch beside which a replay runs: its readers, its group, its cuts.

One function each, as in ``log``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kappa.offsets.vector import Offsets
from kappa.replay.facts import LiveFacts, LogFacts, TopologyFacts
from kappa.replay.findings import Finding, refuses, warns
from kappa.replay.rules import log as log_rules
from kappa.topology.shapes import Shape


def live_findings(topology: TopologyFacts, log: LogFacts, live: LiveFacts) -> list[Finding]:
    """Objections to a replay beside that live epoch, wherever it starts."""
    keeper = f"The live epoch {live.epoch}"
    keyed = [source.topic for source in topology.sources if source.keyed]
    return [
        *log_rules.recreated_topics(live.topic_ids, log.topic_ids, keeper),
        *log_rules.partition_counts_changed(keyed, live.origin, log.high),
        *log_rules.vector_beyond_log(live.position.only(log.high.topics), log.high, keeper),
        *mask_key_changed(topology.mask, live.mask, live.epoch),
        *reader_schema_changed(topology.shapes, live.shapes, live.epoch),
        *topics_ended(topology, live),
        *group_moved(f"kappa.{topology.name}.e{live.epoch:04d}", live.group, live.position),
    ]


WALL_CLOCK_TIME = refuses(
    "wall-clock-time",
    "The event time of {topics} is the wall clock: records of live epoch {epoch} got their times on arrival, and a "
    "replay would give them times of today.",
    "Rebuild from the changelog, which computes nothing again; or declare the record's time at the source and start "
    "the topology under another name.",
)


def wall_clock_time(topology: TopologyFacts, epoch: int) -> list[Finding]:
    """Results that depend on the time of processing cannot be computed again from the log."""
    topics = sorted(source.topic for source in topology.sources if source.is_wall_clock)
    return [WALL_CLOCK_TIME(topics=topics, epoch=epoch)] if topics else []


RELEASES_LOST = warns(
    "releases-lost",
    "Live epoch {epoch} was rebuilt from a changelog, which does not say when partitions of {topics} were idle: "
    "windows of that time wait for those partitions, and fewer records are late.",
    "Compare the difference before the cutover; or start at a savepoint of the live epoch.",
)


def releases_lost(topology: TopologyFacts, live: LiveFacts) -> list[Finding]:
    """A release is made by a live stream and kept in the lake."""
    topics = sorted(source.topic for source in topology.sources if source.has_idle)
    return [RELEASES_LOST(topics=topics, epoch=live.epoch)] if topics and live.has_lost_releases else []


MASK_KEY_CHANGED = refuses(
    "mask-key-changed",
    "Live epoch {epoch} masks values under the key with fingerprint {live}; KAPPA_MASK_KEY has {now}. Every masked "
    "value would differ and would not join with earlier ones.",
    "Set the key of the live epoch; or --allow mask-key-changed if that key is to be replaced.",
    may_be_allowed=True,
)


def mask_key_changed(now: str, live: str, epoch: int) -> list[Finding]:
    """Masks under two keys do not join."""
    return [MASK_KEY_CHANGED(epoch=epoch, live=live, now=now)] if now and live and now != live else []


READER_SCHEMA_CHANGED = refuses(
    "reader-schema-changed",
    "{what} of the deployed code {changes}: readers of live epoch {epoch} would meet that at the cutover.",
    "Tell them first, then --allow reader-schema-changed; or keep what they read and add beside it.",
    way_out="Tell readers what is gone or has another type or key, then --allow reader-schema-changed; or keep what "
    "they read and add beside it.",
    may_be_allowed=True,
)


def reader_schema_changed(shapes: Mapping[str, Shape], live: Mapping[str, Shape], epoch: int) -> list[Finding]:
    """A cutover would take tables, outputs or columns from readers, or change their type or key. Additions are fine.

    Readers do not have the columns that an operator keeps for itself. Where the live epoch's code did not tell those
    apart, the release notes name the columns that are hidden now.
    """
    findings = []
    for place, was in sorted(live.items()):
        now = shapes.get(place)
        kind, _, name = place.partition("/")
        what = f"{'Table' if kind == 'tables' else 'Output'} {name!r}"
        shown = {} if now is None else now.results
        missing = [column for column in was.results if column not in shown]
        dropped = [] if now is None else [c for c in missing if was.hidden is not None or c not in (now.hidden or ())]
        retyped = [c for c, t in was.results.items() if shown.get(c, t) != t]
        is_rekeyed = now is not None and now.typed_key != was.typed_key
        if now is not None and not (dropped or retyped or is_rekeyed):
            continue
        parts = ["is gone"] if now is None else []
        parts += [f"lacks the columns {dropped}"] if dropped else []
        if now is not None and retyped:
            parts.append(f"has other types in {', '.join(f'{c} ({was.columns[c]} -> {shown[c]})' for c in retyped)}")
        if now is not None and is_rekeyed:
            parts.append(f"is keyed by {now.typed_key}, not by {was.typed_key}")
        findings.append(
            READER_SCHEMA_CHANGED(
                {"what": what, "changes": " and ".join(parts), "epoch": epoch},
                name=name,
                gone=now is None,
                dropped=dropped,
                retyped=retyped,
                key=None if now is None else list(now.key),
                live_key=list(was.key),
            )
        )
    return findings


def topics_ended(topology: TopologyFacts, live: LiveFacts) -> list[Finding]:
    """A cutover would end a topic: its readers would wait for records, and nothing would tell them."""
    gone = dict.fromkeys(set(live.topics) - set(topology.topics), "is gone")
    shared = set(live.topics) - set(live.versioned)
    renamed = dict.fromkeys(
        shared & topology.versioned.keys(), "is versioned, so that its records go to a topic of each epoch"
    )
    return [
        READER_SCHEMA_CHANGED(
            {"what": f"Topic {name!r}", "changes": changes, "epoch": live.epoch},
            name=name,
            gone=True,
            dropped=[],
            retyped=[],
            key=None,
            live_key=[],
        )
        for name, changes in sorted({**gone, **renamed}.items())
    ]


GROUP_MOVED = warns(
    "group-moved",
    "Group {group!r} was moved from outside: {names}. The ledger decides where the epoch is; the group only shows it.",
    "Find out what moved it: Kafka's tools show a wrong lag until the next slice corrects it. Nothing is lost.",
)


def group_moved(group: str, group_position: Offsets | None, position: Offsets) -> list[Finding]:
    """The live epoch's consumer group stands where no slice of its ledger ended; ``None`` where it does not."""
    if group_position is None:
        return []
    moved = [at for at, offset in group_position.items() if position.get(*at) != offset]
    names = ", ".join(
        f"{topic}[{p}] at {group_position[topic, p]} instead of {position.get(topic, p)}" for topic, p in moved
    )
    return [GROUP_MOVED({"names": names}, group=group, found=group_position.as_dict(), ledger=position.as_dict())]


ORDER_ACROSS_CUTS = warns(
    "order-across-cuts",
    "Live epoch {epoch} cut its slices as records arrived, the replay cuts by time, and {whys}: results that depend on "
    "the order of such records, such as a running total at each of them, may differ for that reason alone.",
    "No action needed if changes commute, as sums do in the end; `kappa replay --determinism` checks that. {live_cuts}"
    "keyed=False in the sources declares it permanently.",
    way_out="No action needed if changes commute, as sums do in the end; `kappa replay --determinism` checks that. "
    "`kappa replay --cuts live` ends the slices where those of the live epoch ended, and compares the order too; it "
    "needs a start at the live epoch's first slice or at one of its commits. keyed=False in the sources declares it "
    "permanently. Records of one key lie in several partitions where a table's key was seen in two, two sources are "
    "keyed, or partitions were added.",
)
_LIVE_CUTS = (
    "`kappa replay --cuts live` ends the slices where those of the live epoch ended, and compares the order too. "
)


def order_across_cuts(
    keyed: Iterable[str],
    origin: Offsets,
    high: Offsets,
    epoch: int,
    *,
    is_cut_by_arrival: bool,
    spread: Iterable[str] = (),
    has_live_cuts: bool = False,
) -> list[Finding]:
    """Records of one key may lie in several partitions, and the two epochs cut those into slices in different ways.

    ``spread`` tables have a key that was seen in several partitions. ``has_live_cuts`` says whether the replay could
    end its slices where the live epoch ended them.

    Inside a slice their order is that of time; from slice to slice it is that of the cuts, by arrival in a live stream
    and by time in a replay. Sources that are declared ``keyed=False`` do not depend on it.
    """
    topics, tables = sorted(keyed), sorted(spread)
    more = [topic for topic in topics if 0 < len(origin.partitions(topic)) < len(high.partitions(topic))]
    whys = [f"keys of {tables} were seen in several partitions"] if tables else []
    whys += [f"sources {topics} may all have records of one key"] if len(topics) > 1 else []
    whys += [f"{more} got more partitions, so that records of one key lie in several"] if more else []
    if not is_cut_by_arrival or not whys:
        return []
    words = {"whys": "; ".join(whys), "live_cuts": _LIVE_CUTS if has_live_cuts else ""}
    return [ORDER_ACROSS_CUTS(words, epoch=epoch, topics=topics, more_partitions=more, tables=tables)]
