"""Records that a decision would set aside: those at named offsets, or those that fail alike. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from kappa import clock
from kappa.config import Config
from kappa.control.setting_aside import LIMIT, SAMPLES, ListedRecord, Listing, Subject, check_offsets, decided
from kappa.errors import RefusedError, UsageError
from kappa.kafka.broker import Broker
from kappa.names import EpochPaths
from kappa.offsets import set_asides
from kappa.offsets.coverage import common
from kappa.offsets.set_asides import MOST, UNREADABLE, value_hash
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.record import code as code_store
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import begun
from kappa.slices.places import check_topics
from kappa.slices.run import MASK
from kappa.topology import Topology, registry
from kappa.topology.masking import fingerprint

if TYPE_CHECKING:
    from confluent_kafka import Message
    from pyspark.sql import SparkSession

#: Offsets that lie so near to one another are read in one go.
_GAP = 1_000


def named(config: Config, about: Subject, offsets: Sequence[int], *, is_readable: bool = True) -> Listing:
    """The records at these offsets. Reads only.

    Args:
        offsets: sorted, each once.
        is_readable: whether they can be read; otherwise they are set aside without a value, and what a reader passes
            without an error is known to be no record.

    Raises:
        UsageError: the topic has no such partition, or its log does not hold one of them.
        RefusedError: one was committed, is not a record, or is set aside already.
    """
    check_offsets(about, offsets)
    values: dict[int, bytes | None] = {}
    with Broker(config.bootstrap_servers) as broker:
        _check_log(broker, about, offsets)
        if is_readable:
            values = dict(_values(broker, about, offsets))
            holes = [offset for offset in offsets if offset not in values]
        else:
            read = partial(_offsets, broker, about)
            holes = [hole for run in _runs(offsets) for hole in set_asides.holes(run, read)]
    if holes:
        raise RefusedError(
            f"{about.topic}[{about.partition}] has no record at {set_asides.shown(holes)}: compaction, an aborted "
            "transaction or the marker of one. Only records are set aside. Leave these offsets out: --offset N",
            findings=(),
        )
    return _listing(config, about, {offset: values.get(offset) for offset in offsets}, is_readable=is_readable)


def failing(
    config: Config,
    about: Subject,
    error: str,
    begin: int | None,
    end: int | None,
    *,
    limit: int = LIMIT,
    session: SparkSession | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Listing:
    """The records of a span that fail with an error class, each of them alone. Reads only, and starts Spark.

    They are computed by the epoch's code, on its tables as its last commit left them.

    Args:
        error: the class, as the message of a stuck epoch says it.
        begin: first offset; None for where the epoch stands.
        end: first offset after the span; None for the end of the log.
        limit: most records.
        session: Spark, of a caller that has it; None starts one.
        progress: called with each attempt.

    Raises:
        UsageError: the topic has no such partition.
        RefusedError: the span begins before where the epoch stands, or none of its records fails so.
    """
    first = about.next_offset if begin is None else begin
    check_offsets(about, [first], is_listed=False)
    most = min(limit, MOST)
    with Broker(config.bootstrap_servers) as broker:
        _check_log(broker, about, ())
        stable = broker.stable_offsets([about.topic]).get(about.topic, about.partition) or 0
        last = stable if end is None else min(end, stable)
        span = OffsetRange(topic=about.topic, partition=about.partition, start=first, end=max(first, last))
        set_aside_offsets = {offset for one in decided(about) if one.at == span.at for offset in one.offsets}
        tried = (
            o for o in _failing(config, broker, about, span, error, session, progress) if o not in set_aside_offsets
        )
        offsets = list(islice(tried, most))
        values = dict(_values(broker, about, offsets))
    if not offsets:
        raise RefusedError(
            f"No record of {span} fails alone with {error}. See what the epoch is stuck at: kappa status "
            f"{about.record.topology}",
            findings=(),
        )
    return _listing(config, about, values, failing=error, is_capped=len(offsets) == most)


def _check_log(broker: Broker, about: Subject, offsets: Sequence[int]) -> None:
    """Raise where the topic is another one, has no such partition, or its log holds none of these offsets."""
    check_topics(broker, {about.topic: about.topic_id})
    lows, ends, at = broker.low_watermarks([about.topic]), broker.stable_offsets([about.topic]), about.partition
    first, end = lows.get(about.topic, at), ends.get(about.topic, at)
    if first is None or end is None:
        there = ", ".join(map(str, sorted(ends.partitions(about.topic))))
        raise UsageError(f"Topic {about.topic!r} has no partition {at}; it has {there}. Name one: --partition N")
    if outside := [offset for offset in offsets if not first <= offset < end]:
        span = f"holds {first} to {end - 1}" if first < end else "is empty"
        raise UsageError(
            f"The log of {about.topic}[{at}] {span}, without {set_asides.shown(outside)}. Name offsets of records in "
            "it: --offset N"
        )


def _values(broker: Broker, about: Subject, offsets: Sequence[int]) -> Iterator[tuple[int, bytes | None]]:
    """The offsets that have a record, with its value."""
    selection, at = set(offsets), (about.topic, about.partition)
    for run in _runs(offsets):
        batches: Iterator[list[Message]] = broker.read(Offsets.of([(at, run[0])]), Offsets.of([(at, run[-1] + 1)]))
        for message in (message for batch in batches for message in batch):
            if message.offset() in selection:
                yield message.offset() or 0, message.value()


def _offsets(broker: Broker, about: Subject, start: int, end: int) -> Iterator[int]:
    """The offsets of the records of a span."""
    at = (about.topic, about.partition)
    for batch in broker.read(Offsets.of([(at, start)]), Offsets.of([(at, end)])):
        yield from (message.offset() or 0 for message in batch)


def _runs(offsets: Sequence[int]) -> Iterator[list[int]]:
    """The offsets in runs of those that lie close together."""
    run: list[int] = []
    for offset in offsets:
        if run and offset - run[-1] > _GAP:
            yield run
            run = []
        run.append(offset)
    if run:
        yield run


def _listing(
    config: Config,
    about: Subject,
    values: dict[int, bytes | None],
    *,
    failing: str = "",
    is_capped: bool = False,
    is_readable: bool = True,
) -> Listing:
    mask = _mask(config, about)
    key = config.mask_key if mask else ""
    hashes = {offset: value_hash(value, key) if is_readable else UNREADABLE for offset, value in values.items()}
    samples = (
        ListedRecord(offset=offset, size=None if value is None else len(value), hash=hashes[offset])
        for offset, value in values.items()
    )
    return Listing(
        topology=about.record.topology,
        epoch=about.epoch.epoch,
        topic=about.topic,
        topic_id=about.topic_id,
        partition=about.partition,
        offsets=hashes,
        samples=tuple(islice(samples, SAMPLES)),
        mask=mask,
        failing=failing,
        is_capped=is_capped,
    )


def _mask(config: Config, about: Subject) -> str:
    """Fingerprint of the key of the hashes of a sensitive source; empty for any other source.

    Raises:
        RefusedError: the epoch has another key.
    """
    (source,) = (one for one in _topology(config, about).sources if one.topic == about.topic)
    if not source.sensitive:
        return ""
    mask, of_epoch = fingerprint(config.mask_key), about.state.commits[0].detail.get(MASK)
    if mask != of_epoch:
        raise RefusedError(
            f"Source {about.topic!r} is sensitive: a decision keeps hashes of values, under the key of masked values. "
            f"Epoch {about.epoch.epoch} has the key with fingerprint {of_epoch}, and KAPPA_MASK_KEY has {mask}. Set "
            f"KAPPA_MASK_KEY to the key of the epoch, and repeat: kappa set-aside {about.record.topology}",
            findings=(),
        )
    return mask


def _topology(config: Config, about: Subject) -> Topology:
    """The code that the epoch runs."""
    root = code_store.extract(config.lake, about.epoch.code, config.home)
    return registry.load_stored(root / "topologies", about.record.topology)


def _failing(
    config: Config,
    broker: Broker,
    about: Subject,
    span: OffsetRange,
    error: str,
    session: SparkSession | None,
    progress: Callable[[str], None],
) -> Iterator[int]:
    from kappa.slices import probing
    from kappa.slices.probing import Probe
    from kappa.slices.protocol import archived_detail
    from kappa.spark.session import LazySession
    from kappa.verify.second_run import beside

    topology, state = _topology(config, about), begun(about.state)
    paths = EpochPaths(lake=config.lake, topology=topology.name, epoch=about.epoch.epoch)
    code, archived = about.epoch.code, about.epoch.plan.archived
    with LazySession(config=config, name=f"kappa set-aside {topology.name}") as spark:
        engine = spark.session if session is None else session
        run = beside(config, engine, broker, paths, topology, writer="set-aside", code=code, archived=archived)
        for start in range(span.start, span.end, config.small_slice):
            part = replace(span, start=start, end=min(span.end, start + config.small_slice))
            others = [r for r in state.position.span_to(state.position) if r.at != part.at]
            ranges = tuple(sorted([part, *others]))
            plan = LedgerRow(
                kind="plan",
                seq=state.seq + 1,
                writer=run.writer,
                at=clock.now(),
                ranges=ranges,
                detail=archived_detail(common(ranges, archived)),
            )
            progress(f"trying {part}")
            with Probe(run, plan, state) as probe:
                yield from probing.failing(probe.fails, part, error)
