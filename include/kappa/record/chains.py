"""Topologies that read each other's versioned topics, from the record: readers, their input, and its ends.

The rules are in :mod:`kappa.replay.rules.chain`; this module looks at ledgers and the record of epochs for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from kappa.errors import MoveRefusedError, RefusedError
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState
from kappa.record.rollup import sent_before
from kappa.record.topology_records import TopologyRecords
from kappa.replay.chains import Binding, ChainFacts, SentEnd, UpstreamFacts, topics_of
from kappa.replay.facts import TopologyFacts
from kappa.replay.findings import Finding
from kappa.replay.request import ReplayRequest
from kappa.replay.rules.chain import (
    Link,
    move_refusals,
    removal_refusals,
    upstream_cycle,
    upstream_missing,
    upstream_not_followed,
    upstream_not_live_yet,
    upstream_not_read,
    upstream_silent,
    upstream_twice,
    upstream_without_topic,
)


def links(records: TopologyRecords) -> list[Link]:
    """All epochs that have not ended, with their upstream epochs."""
    return [
        Link(
            topology=record.topology,
            epoch=epoch.epoch,
            stage=epoch.stage,
            is_live=epoch.epoch == record.live,
            is_building=epoch.is_building or epoch.is_recalled,
            bound=epoch.bound,
        )
        for record in records
        for epoch in record.recent.values()
        if not epoch.stage.is_ended
    ]


def is_read_by_replay(records: TopologyRecords, topology: str, epoch: int) -> bool:
    """Whether an epoch being built reads this one's versioned topics: its slices end where commits of this one do."""
    return any(link.is_building and (topology, epoch) in topics_of(link.bound) for link in links(records))


def stands_of_readers(lake: str, records: TopologyRecords, topology: str, epoch: int) -> list[Offsets]:
    """Where the live epochs stand that read this one's versioned topics, and where their named savepoints do.

    Other epochs follow them and end where they do, or begin there.
    """
    stands: list[Offsets] = []
    for reader in links(records):
        if not reader.is_live or (topology, epoch) not in reader.upstreams:
            continue
        state = Ledger(EpochPaths(lake=lake, topology=reader.topology, epoch=reader.epoch).ledger).state()
        named = records.of(reader.topology).named_seqs(reader.epoch)
        stands += [row.standing for row in state.commits if row.seq in named or row is state.committed]
    return stands


def check_moves(records: TopologyRecords, moves: Mapping[str, int]) -> None:
    """Refuse moves of pointers after which a live epoch would read one that is not.

    Raises:
        MoveRefusedError: a reader would stop; the message names it and the way out.
    """
    reasons = move_refusals(links(records), moves)
    if reasons:
        raise MoveRefusedError(
            f"{' and '.join(sorted(moves))} cannot be moved, nothing was changed: {' '.join(reasons)}", reasons=reasons
        )


def check_removal(records: TopologyRecords, topology: str, epoch: int) -> None:
    """Refuse to remove an epoch whose versioned topics another epoch needs.

    Raises:
        RefusedError: another epoch reads it; the message names what to remove first.
    """
    reasons = removal_refusals(links(records), topology, epoch)
    if reasons:
        raise RefusedError(
            f"Epoch {epoch} of {topology!r} cannot be removed, nothing was changed: {' '.join(reasons)}", findings=()
        )


def check_bindings(records: TopologyRecords, bound: Mapping[str, Binding], *, is_first: bool) -> None:
    """Refuse to put a plan on record whose upstream epochs have changed since it was made.

    Raises:
        RefusedError: one has ended; or the epoch would go live by itself, and one is not live any more.
    """
    for topology, epoch in topics_of(bound):
        record = records.of(topology)
        upstream = record.epochs.get(epoch)
        if upstream is None or upstream.stage.is_ended:
            raise RefusedError(
                f"Epoch {epoch} of {topology!r}, which the plan reads, has ended. Plan again.", findings=()
            )
        if is_first and record.live != epoch:
            raise RefusedError(
                f"The plan is of a first epoch, which goes live by itself, and reads epoch {epoch} of {topology!r}; "
                f"live is {record.live}. Plan again.",
                findings=(),
            )


def sent_ends_of(state: LedgerState, topics: Collection[str]) -> Iterator[SentEnd]:
    """The ends of an epoch's versioned topics at its commits, newest commit first.

    Commit 0 is left out: the seed is in the topics after the baseline, which stands at the same place. Commits of
    earlier platforms have no ends, and close the list. Of commits that are rolled up, some are in it, well apart.
    """
    upto = 0 if state.rolled is None else state.rolled.detail["upto"]
    early: list[SentEnd] = []
    for row in reversed(state.commits):
        if row.seq == 0:
            break
        if "sent" not in row.detail:
            return
        if row.n <= upto:  # those that are still rows lie between the places of the roll-up
            early.append(_sent_end(row, row.standing))
            continue
        yield _of_topics(_sent_end(row, row.standing), topics)
    standings = {one.standing for one in early}
    early += [one for one in sent_before(state) if one.standing not in standings]
    for one in sorted(early, key=lambda one: sum(end for _, end in one.ends.items()), reverse=True):
        yield _of_topics(one, topics)
    if state.baseline is not None and "sent" in state.baseline.detail and state.baseline.seq == 0:
        yield _of_topics(_sent_end(state.baseline, state.commits[0].standing), topics)


def _sent_end(row: LedgerRow, standing: Offsets) -> SentEnd:
    return SentEnd(ends=Offsets.from_json(row.detail["sent"]), standing=standing, final=row.final)


def _of_topics(one: SentEnd, topics: Collection[str]) -> SentEnd:
    final = {topic: until for topic, until in one.final.items() if topic in topics}
    return replace(one, ends=one.ends.only(topics), final=final)


def surveyed(lake: str, epochs: Epochs, request: ReplayRequest, topology: TopologyFacts | None) -> ChainFacts:
    """The bindings that a plan made now would give the sources of a deployed topology."""
    if topology is None:
        return ChainFacts()
    sources = {source.topic: source for source in topology.sources}
    chained = {name: source.of for name, source in sources.items() if source.of is not None}
    findings: list[Finding] = upstream_not_read(request.upstream, set(chained.values()))
    direct = tuple(sorted(sources.keys() - chained.keys()))
    records = epochs.records()
    bound: dict[str, Binding] = {}
    is_first = records.of(topology.name).live is None
    for name, of in sorted(chained.items()):
        record = records.of(of)
        refusals, binding = _binding(record, name, request.upstream.get(of))
        if is_first and binding is not None:
            refusals += upstream_not_live_yet(of, binding.epoch, record.live)
        findings += [one for one in refusals if one not in findings]
        if binding is not None:
            bound[name] = binding
    findings += upstream_cycle(topology.name, _above(records, bound.values()))
    if findings:
        return ChainFacts(bound=bound, direct=direct, findings=tuple(findings))
    upstreams = tuple(_facts(lake, records.of(key[0]), key[1], topics) for key, topics in topics_of(bound).items())
    chain = ChainFacts(bound=bound, upstreams=upstreams, direct=direct)
    silent = [finding for one in upstreams for finding in upstream_silent(one.topology, one.epoch, bool(one.sent))]
    newest = {(one.topology, one.epoch): one.sent[-1] for one in upstreams if one.sent}
    unheard = [
        finding
        for name, binding in sorted(bound.items())
        if (column := sources[name].follows) is not None and binding.key in newest
        for finding in upstream_not_followed(name, binding, column, newest[binding.key].final.get(binding.topic))
    ]
    findings = [*silent, *unheard, *upstream_twice(chain)]
    return ChainFacts(bound=bound, upstreams=upstreams, direct=direct, findings=tuple(findings))


def _binding(record: TopologyRecord, source: str, request: int | None) -> tuple[list[Finding], Binding | None]:
    epochs = [epoch.epoch for epoch in record.recent.values() if not epoch.stage.is_ended]
    findings = upstream_missing(record.topology, source, request, epochs, record.live)
    epoch = request if request is not None else record.live
    if findings or epoch is None:
        return findings, None
    topics = record.epoch(epoch).topics
    findings = upstream_without_topic(record.topology, epoch, source, topics)
    if findings:
        return findings, None
    return [], Binding(topology=record.topology, epoch=epoch, topic=topics[source])


def _above(records: TopologyRecords, bound: Collection[Binding]) -> set[str]:
    """Topologies whose output is read, directly or through others."""
    topologies: set[str] = set()
    waiting = list(bound)
    while waiting:
        binding = waiting.pop()
        topologies.add(binding.topology)
        waiting += records.of(binding.topology).epoch(binding.epoch).bound.values()
    return topologies


def _facts(lake: str, record: TopologyRecord, epoch: int, topics: tuple[str, ...]) -> UpstreamFacts:
    state = Ledger(EpochPaths(lake=lake, topology=record.topology, epoch=epoch).ledger).state()
    return UpstreamFacts(
        topology=record.topology,
        epoch=epoch,
        topics=topics,
        origin=_origin(record.epoch(epoch), state),
        sent=tuple(reversed(list(sent_ends_of(state, topics)))),
    )


def _origin(epoch: EpochRecord, state: LedgerState) -> Offsets:
    """Where its history begins; an epoch without origin began on an empty broker, where it was seeded."""
    return epoch.origin if len(epoch.origin) or not state.commits else state.commits[0].standing
