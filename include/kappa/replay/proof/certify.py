"""The claims that ledgers and moves prove, and those that they do not. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from kappa.offsets.coverage import is_within, joined
from kappa.offsets.vector import OffsetRange, Offsets, TopicPartition, by_partition, ranges_end, ranges_start, uncovered
from kappa.replay.proof.certificate import Certificate, MoveFacts, PartitionProof, SliceFacts, Span


def certify(
    topology: str,
    moves: tuple[MoveFacts, ...],
    ledgers: Mapping[int, tuple[SliceFacts, ...]],
    *,
    starts: Mapping[int, Offsets] | None = None,
    read_starts: Mapping[int, Offsets] | None = None,
) -> Certificate:
    """Check what is on record.

    1. In each epoch the committed ranges of each partition join end to end, from its start if that is known. For an
       epoch that reads versioned topics of others, this holds for those topics and for the root topics that they are
       made from.
    2. Over all epochs the sending ranges cover, from the first move to the live epoch's last commit, each offset of
       a topic that the live epoch of that time reads exactly once, and each epoch sent only while the pointer was at
       it. Nothing that an earlier turn sent lies ahead of the live epoch.
    3. In each slice, rows read = rows parsed + dead letters + records set aside, and no more than the offsets spanned.

    Args:
        moves: all moves of its pointer, oldest first.
        ledgers: epoch -> its committed slices, in any order. Epochs that were never live may be left out; if
            one that was live is left out, because it was dropped, the certificate says what it could not show.
        starts: epoch -> where its plan begins, to check that its first slice begins there.
        read_starts: the same in Kafka's own names, for epochs whose ranges are those of root topics.
    """
    problems: list[str] = []
    for epoch, slices in sorted(ledgers.items()):
        problems += _unjoined(epoch, slices, (starts or {}).get(epoch))
        read = tuple(replace(slice_, ranges=slice_.read) for slice_ in slices if slice_.read)
        problems += _unjoined(epoch, read, (read_starts or {}).get(epoch))
        problems += _miscounted(epoch, slices)
        problems += _archived_elsewhere(epoch, slices)
    at_epoch = moves[-1].epoch if moves else None
    sending = [
        (epoch, slice_) for epoch, slices in sorted(ledgers.items()) for slice_ in slices if slice_.sends == "live"
    ]
    at = _position(ledgers.get(at_epoch, ()) if at_epoch is not None else ())
    if at_epoch is None or at_epoch not in ledgers:
        problems.append(
            f"The ledger of the live epoch {at_epoch} is not there." if moves else "No epoch was ever live."
        )
    turns = _turns(moves, at)
    dropped = [turn for turn in turns[:-1] if turn.epoch not in ledgers]
    problems += _unbroken(moves, at if at_epoch in ledgers else None)
    problems += _not_once(sending, turns, dropped)
    problems += _out_of_turn(sending, turns)
    problems += _sent_again(turns, at)
    return Certificate(
        topology=topology,
        at_epoch=at_epoch,
        at=at,
        complete=not problems,
        problems=tuple(problems),
        unproved=tuple(_unproved(dropped)),
        partitions=_proofs(sending),
        rows_read=sum(slice_.rows_read for _, slice_ in sending),
        rows_parsed=sum(slice_.rows_parsed for _, slice_ in sending),
        rows_dead=sum(slice_.rows_dead for _, slice_ in sending),
        rows_late=sum(slice_.rows_late for _, slice_ in sending),
        rows_set_aside=sum(slice_.rows_set_aside for _, slice_ in sending),
        codes={epoch: tuple(sorted({s.code for s in slices})) for epoch, slices in sorted(ledgers.items())},
        archived={
            epoch: ranges
            for epoch, slices in sorted(ledgers.items())
            if (ranges := joined(r for s in slices for r in s.archived))
        },
    )


def _unjoined(epoch: int, slices: tuple[SliceFacts, ...], start: Offsets | None) -> list[str]:
    problems = []
    reached = dict((start or Offsets()).items())
    first = True
    last_seq = -1
    for slice_ in sorted(slices, key=lambda item: item.seq):
        if slice_.seq <= last_seq:
            problems.append(f"Epoch {epoch} committed {slice_.name} more than once.")
        last_seq = max(last_seq, slice_.last)
        for range_ in slice_.ranges:
            # Without a known start the first slice says where the epoch begins; later partitions begin at 0.
            expected = reached.get(range_.at, range_.start if first and start is None else 0)
            if range_.start != expected:
                problems.append(
                    f"Epoch {epoch}, {slice_.name}: {range_} does not start at {expected}, the end before it."
                )
            reached[range_.at] = range_.end
        first = False
    return problems


def _miscounted(epoch: int, slices: tuple[SliceFacts, ...]) -> list[str]:
    problems = []
    for slice_ in slices:
        name = f"Epoch {epoch}, {slice_.name}: {slice_.rows_read} records read"
        if not slice_.is_counted:
            aside = f", {slice_.rows_set_aside} set aside" if slice_.rows_set_aside else ""
            problems.append(f"{name}, but {slice_.rows_parsed} parsed and {slice_.rows_dead} dead letters{aside}.")
        span = sum(range_.count for range_ in slice_.offsets)
        if slice_.rows_read > span:
            problems.append(f"{name} from {span} offsets.")
    return problems


def _position(slices: tuple[SliceFacts, ...]) -> Offsets:
    position = Offsets()
    for slice_ in sorted(slices, key=lambda item: item.seq):
        position = position.merge(ranges_end(slice_.ranges))
    return position


@dataclass(frozen=True, kw_only=True)
class _Turn:
    """The time from one move of the pointer to the next.

    Attributes:
        epoch: the live epoch.
        start: the offsets from which it sends.
        end: the offsets up to which it sends, in the topics whose end is on record.
    """

    epoch: int
    start: Offsets
    end: Offsets

    @property
    def spans(self) -> tuple[OffsetRange, ...]:
        """What it has to send, as far as that is on record."""
        firsts = self.start.naming(self.end)
        return tuple(
            OffsetRange(topic=at[0], partition=at[1], start=firsts[at], end=last)
            for at, last in self.end.items()
            if firsts[at] < last
        )

    @property
    def endless(self) -> tuple[str, ...]:
        """What it has to send in the other topics, for people."""
        ended = self.end.topics
        return tuple(
            f"{topic}[{part}] from {first}" for (topic, part), first in self.start.items() if topic not in ended
        )


def _turns(moves: Sequence[MoveFacts], at: Offsets) -> list[_Turn]:
    """All turns, oldest first; the last one ends where the live epoch stands.

    A turn ends where the next one begins. The next epoch may not read a topic: there the old one has sent up to the
    offset at which it yielded.
    """
    ends = [(after.yielded or Offsets()).merge(after.at).only(move.at.topics) for move, after in pairwise(moves)]
    return [_Turn(epoch=move.epoch, start=move.at, end=end) for move, end in zip(moves, (*ends, at), strict=False)]


def sent_upto(moves: Sequence[MoveFacts]) -> Offsets:
    """The furthest offset of each partition that was sent in the turns that are over.

    An epoch that goes live stands there or beyond in the topics that it reads: it would send the rest again.
    """
    ends = [span for turn in _turns(moves, Offsets())[:-1] for span in turn.spans]
    return Offsets.of((span.at, span.end) for span in sorted(ends, key=lambda span: span.end))


def _unbroken(moves: Sequence[MoveFacts], at: Offsets | None) -> list[str]:
    problems = []
    for before, move in zip((None, *moves), moves, strict=False):
        came_from = before.epoch if before else None
        if move.from_epoch != came_from:
            problems.append(
                f"The pointer moved from epoch {move.from_epoch} to {move.epoch}, but {came_from} was live."
            )
        if before and not move.at.dominates(before.at.only(move.at.topics)):
            problems.append(
                f"The pointer moved to epoch {move.epoch} at {move.at}, after the move before at {before.at}."
            )
    if moves and at is not None and not at.dominates(moves[-1].at):
        problems.append(f"Live epoch {moves[-1].epoch} has committed up to {at}, but it went live at {moves[-1].at}.")
    return problems


def _not_once(sending: Sequence[tuple[int, SliceFacts]], turns: Iterable[_Turn], dropped: Iterable[_Turn]) -> list[str]:
    """Offsets of the turns that were not sent, or more than once. Epochs without a ledger are taken at their word."""
    sent = (range_ for _, slice_ in sending for range_ in slice_.ranges)
    own = by_partition((*sent, *(span for turn in dropped for span in turn.spans)))
    coverages = [
        uncovered(own.get(span.at, ()), ranges_start([span]), ranges_end([span]))
        for span in joined(span for turn in turns for span in turn.spans)
    ]
    return [
        *(f"{gap}: no epoch has sent it." for coverage in coverages for gap in coverage.gaps),
        *(
            f"{overlap}: {_senders(sending, overlap)} have sent it, once too often."
            for coverage in coverages
            for overlap in coverage.overlaps
        ),
    ]


def _archived_elsewhere(epoch: int, slices: tuple[SliceFacts, ...]) -> list[str]:
    return [
        f"Epoch {epoch}, {slice_.name}: it is recorded to have read {', '.join(map(str, slice_.archived))} from the "
        "archive, which is not part of its ranges."
        for slice_ in slices
        if not is_within(slice_.archived, slice_.offsets)
    ]


def _senders(sending: Sequence[tuple[int, SliceFacts]], part: OffsetRange) -> str:
    return " and ".join(
        f"epoch {epoch} ({slice_.name})"
        for epoch, slice_ in sending
        for range_ in slice_.ranges
        if range_.at == part.at and range_.start < part.end and part.start < range_.end
    )


def _out_of_turn(sending: Sequence[tuple[int, SliceFacts]], turns: Sequence[_Turn]) -> list[str]:
    """Slices that sent outside their epoch's turns."""
    own_turns: dict[int, list[tuple[_Turn, frozenset[str]]]] = {}
    for turn in turns:
        own_turns.setdefault(turn.epoch, []).append((turn, frozenset(turn.end.topics)))

    def is_in_turn(epoch: int, range_: OffsetRange) -> bool:
        return range_.is_empty or any(
            range_.start >= (turn.start.get(*range_.at) or 0)
            and (range_.topic not in ended or range_.end <= (turn.end.get(*range_.at) or 0))
            for turn, ended in own_turns.get(epoch, ())
        )

    return [
        f"Epoch {epoch}, {slice_.name}: {range_} was sent while the pointer was not at epoch {epoch}."
        for epoch, slice_ in sending
        for range_ in slice_.ranges
        if not is_in_turn(epoch, range_)
    ]


def _sent_again(turns: Sequence[_Turn], at: Offsets) -> list[str]:
    """Offsets of earlier turns that lie ahead of the live epoch, which sends what it reads."""
    return [
        f"{replace(span, start=max(span.start, position))}: epoch {turn.epoch} has sent it, and epoch "
        f"{turns[-1].epoch}, which stands at {position}, would send it again."
        for turn in turns[:-1]
        for span in turn.spans
        if span.topic in at.topics and (position := at.get(*span.at) or 0) < span.end
    ]


def _unproved(dropped: Iterable[_Turn]) -> Iterator[str]:
    """What was sent in turns whose ledgers were dropped. Turns that read on from one another are one line: an epoch
    each night would make a line of each partition more.
    """
    spans: dict[TopicPartition, list[tuple[OffsetRange, set[int]]]] = {}
    endless: list[str] = []
    for turn in dropped:
        for span in turn.spans:
            own_spans = spans.setdefault(span.at, [])
            if own_spans and own_spans[-1][0].end == span.start:
                before, epochs = own_spans.pop()
                own_spans.append((replace(before, end=span.end), epochs))
            else:
                own_spans.append((span, set()))
            own_spans[-1][1].add(turn.epoch)
        endless += [f"{part} by {_whose([turn.epoch])}" for part in turn.endless]
    yield from (f"{span} by {_whose(epochs)}" for _, own in sorted(spans.items()) for span, epochs in own)
    yield from endless


def _whose(epochs: Collection[int]) -> str:
    """The epochs that sent something, and why nothing else shows it."""
    if len(epochs) == 1:
        return f"epoch {min(epochs)}: its ledger was dropped, only the moves show it"
    several = f"{len(epochs)} epochs, {min(epochs)} to {max(epochs)}"
    return f"{several}: their ledgers were dropped, only the moves show it"


def _proofs(sending: Sequence[tuple[int, SliceFacts]]) -> tuple[PartitionProof, ...]:
    spans: dict[TopicPartition, list[Span]] = {}
    ordered = sorted(
        (range_.at, range_.start, slice_.seq, epoch, range_.end, slice_.last)
        for epoch, slice_ in sending
        for range_ in slice_.ranges
    )
    for at, start, seq, epoch, end, seq_last in ordered:
        own_spans = spans.setdefault(at, [])
        if start == end:
            continue
        last = own_spans[-1] if own_spans else None
        if last and last.epoch == epoch and last.end == start:
            own_spans[-1] = Span(epoch=epoch, seq_first=last.seq_first, seq_last=seq_last, start=last.start, end=end)
        else:
            own_spans.append(Span(epoch=epoch, seq_first=seq, seq_last=seq_last, start=start, end=end))
    return tuple(
        PartitionProof(topic=topic, partition=partition, spans=tuple(own_spans))
        for (topic, partition), own_spans in sorted(spans.items())
    )
