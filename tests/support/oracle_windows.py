"""Windows, sessions and their like in plain Python: what the operators must give, by dicts and loops."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from kappa.testing import Input

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOPIC = "ticks"
#: Value of a record as the topologies of these tests read it.
TICK = "symbol STRING, amount DECIMAL(12,2), at BIGINT"


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A record, and where it lies once it is placed.

    Attributes:
        at: its event time, epoch milliseconds.
        sent: Kafka's timestamp.
        frontier: the frontier at the record.
    """

    symbol: str | None
    amount: int | None
    at: int
    sent: int = 0
    partition: int = 0
    offset: int = -1
    order_ms: int = -1
    frontier: int = 0

    @property
    def input(self) -> Input:
        value = {"symbol": self.symbol, "amount": self.amount, "at": self.at}
        return Input(topic=TOPIC, value=value, partition=self.partition, timestamp_ms=self.sent)

    @property
    def order(self) -> tuple[int, str, int, int]:
        return (self.order_ms, TOPIC, self.partition, self.offset)


def history(seed: int, *, slices: int = 6, records: int = 60, partitions: int = 2, spread: int = 8) -> list[list[Tick]]:
    """Slices of random records: partitions lag each other, times go back and forth around 1970, some far back."""
    chance = random.Random(seed)
    clocks = [chance.randint(-6, 0) * 1000 for _ in range(partitions)]
    sent = [0] * partitions
    batches: list[list[Tick]] = []
    for _ in range(slices):
        batch = []
        for _ in range(chance.randint(0, 2 * records // slices)):
            partition = chance.randrange(partitions)
            clocks[partition] += chance.choice([0, 0, 250, 500, 1000, 2500])
            sent[partition] += chance.choice([0, 1, 1, 7])
            late = chance.choice([0, 0, 0, 500, 1000, 2000, spread * 1000])
            batch.append(
                Tick(
                    symbol=chance.choice(["a", "a", "b", "c", None]),
                    amount=chance.choice([None, 1, 2, 5, 100]),
                    at=clocks[partition] - late,
                    sent=sent[partition],
                    partition=partition,
                )
            )
        batches.append(batch)
    # Behind it all, so that everything closes.
    batches.append([Tick(symbol="z", amount=0, at=10**6, sent=10**6, partition=number) for number in range(partitions)])
    return batches


@dataclass(kw_only=True)
class Placing:
    """Gives records their offsets, their place in the total order and the frontier at them, slice after slice.

    Attributes:
        grace: how late a record may be, milliseconds.
        partitions: how many there are; the frontier waits for all of them.
    """

    grace: int
    partitions: int = 2
    _offsets: dict[int, int] = field(default_factory=dict)
    _order: dict[int, int] = field(default_factory=dict)
    _stream: dict[int, int] = field(default_factory=dict)

    def place(self, batch: Iterable[Tick]) -> list[Tick]:
        placed = []
        for tick in batch:
            at = tick.partition
            self._order[at] = max(tick.sent, self._order.get(at, tick.sent))
            self._stream[at] = max(tick.at, self._stream.get(at, tick.at))
            offset = self._offsets.get(at, 0)
            self._offsets[at] = offset + 1
            placed.append(
                replace(tick, offset=offset, order_ms=self._order[at], frontier=self._stream[at] - self.grace)
            )
        return placed

    @property
    def frontier(self) -> int | None:
        """The frontier behind what was placed."""
        return min(self._stream.values()) - self.grace if len(self._stream) == self.partitions else None


@dataclass(kw_only=True)
class OperatorResult:
    """What an operator gives for a history.

    Attributes:
        tables: the table's rows after each slice, sorted.
        final: rows emitted, sorted.
        late: refused records with the reason, sorted.
    """

    tables: list[list[dict[str, Any]]] = field(default_factory=list)
    final: list[dict[str, Any]] = field(default_factory=list)
    late: list[tuple[str, int, int]] = field(default_factory=list)


def summary(ticks: Iterable[Tick]) -> dict[str, Any]:
    """Count of records; sum, least and last of their amounts."""
    in_order = sorted(ticks, key=lambda tick: tick.order)
    amounts = [Decimal(tick.amount) for tick in in_order if tick.amount is not None]
    return {
        "trades": len(in_order),
        "volume": sum(amounts, Decimal(0)),
        "low": min(amounts, default=None),
        "close": amounts[-1] if amounts else None,
    }


def origin(ticks: Iterable[Tick]) -> dict[str, Any]:
    """Where the emitted row comes from."""
    last = max(tick.order for tick in ticks)
    return {"_order_timestamp": instant(last[0]), "_topic": last[1], "_partition": last[2], "_offset": last[3]}


def instant(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def hopping(
    slices: Sequence[Sequence[Tick]], *, grace: int, size: int, every: int, keep: int | None = None, partitions: int = 2
) -> OperatorResult:
    """Windows of equal steps."""

    def held_by(at: int) -> dict[int, int]:
        first = next(start for start in range(at - size + 1, at + 1) if start % every == 0)
        return {start: start + size for start in range(first, at + 1, every)}

    return windows_of(slices, held_by, grace=grace, keep=keep, is_apart=every == size, partitions=partitions)


def windows_of(
    slices: Sequence[Sequence[Tick]],
    held_by: Callable[[int], dict[int, int]],
    *,
    grace: int,
    keep: int | None = None,
    is_apart: bool,
    partitions: int = 2,
) -> OperatorResult:
    """Windows; one refuses what comes when its end is not after the frontier at the record.

    Args:
        held_by: of a time, the start of each window that it is in, with the end.
        is_apart: whether that is one window.
    """
    ends: dict[int, int] = {}
    result, placing = OperatorResult(), Placing(grace=grace, partitions=partitions)
    windows: dict[tuple[str, int], list[Tick]] = {}
    closed: set[tuple[str, int]] = set()
    for batch in slices:
        for tick in placing.place(batch):
            if tick.symbol is None:
                continue
            starts = held_by(tick.at)
            ends |= starts
            refused = [start for start in starts if ends[start] <= tick.frontier]
            if refused:
                reason = "" if is_apart else f"{len(refused)} of its {len(starts)} windows are closed"
                result.late.append((reason or "its window is closed", tick.partition, tick.offset))
            for start in starts:
                if start not in refused:
                    windows.setdefault((tick.symbol, start), []).append(tick)
        frontier = placing.frontier
        rows = {}
        for (symbol, start), ticks in sorted(windows.items()):
            row = {
                "symbol": symbol,
                "window_start": instant(start),
                "window_end": instant(ends[start]),
                **summary(ticks),
            }
            row = rows[symbol, start] = {**row, "origin": origin(ticks)}
            if frontier is None or ends[start] > frontier:
                continue
            if (symbol, start) not in closed:
                result.final.append(emitted(row, final=ends[start]))
                closed.add((symbol, start))
            if keep is None or ends[start] + keep <= frontier:
                del windows[symbol, start], rows[symbol, start]
        if keep is not None:
            rows = {at: {**row, "is_closed": at in closed} for at, row in rows.items()}
        result.tables.append(list(rows.values()))
    return finished(result)


def sessions(slices: Sequence[Sequence[Tick]], *, grace: int, gap: int, partitions: int = 2) -> OperatorResult:
    """Runs of records of which none is further than the gap from the next."""
    result, placing = OperatorResult(), Placing(grace=grace, partitions=partitions)
    standing: dict[str, list[Tick]] = {}
    for batch in slices:
        for tick in admitted(result, placing.place(batch)):
            standing.setdefault(str(tick.symbol), []).append(tick)
        frontier = placing.frontier
        rows = []
        for symbol, ticks in sorted(standing.items()):
            for run in _runs(ticks, gap):
                first, last = min(tick.at for tick in run), max(tick.at for tick in run)
                row = {"symbol": symbol, "session_start": instant(first), "session_end": instant(last), **summary(run)}
                row = {**row, "origin": origin(run)}
                if frontier is not None and last + gap < frontier:
                    result.final.append(emitted(row, final=last + gap))
                    standing[symbol] = [tick for tick in standing[symbol] if tick not in run]
                else:
                    rows.append(row)
        result.tables.append(rows)
    return finished(result)


def distinct(slices: Sequence[Sequence[Tick]], *, grace: int, within: int, partitions: int = 2) -> OperatorResult:
    """Of each run of records the one that is first in the total order, once the run is over."""
    result, placing = OperatorResult(), Placing(grace=grace, partitions=partitions)
    taken = [tick for batch in slices for tick in admitted(result, placing.place(batch))]
    frontier = placing.frontier
    assert frontier is not None
    for symbol in {tick.symbol for tick in taken}:
        for run in _runs([tick for tick in taken if tick.symbol == symbol], within):
            final = max(tick.at for tick in run) + within
            if final < frontier:
                first = min(run, key=lambda tick: tick.order)
                amount = None if first.amount is None else Decimal(first.amount)
                row = {"symbol": symbol, "amount": amount, "at": first.at, "origin": origin([first])}
                result.final.append(emitted(row, final=final))
    return finished(result)


def sliding(slices: Sequence[Sequence[Tick]], *, grace: int, size: int, partitions: int = 2) -> OperatorResult:
    """A window ends at each record; one begins a millisecond behind each record if there is a record in it."""
    result, placing = OperatorResult(), Placing(grace=grace, partitions=partitions)
    taken: dict[str, list[Tick]] = {}
    for batch in slices:
        for tick in admitted(result, placing.place(batch)):
            taken.setdefault(str(tick.symbol), []).append(tick)
    frontier = placing.frontier
    assert frontier is not None
    for symbol, ticks in taken.items():
        for start in {start for tick in ticks for start in (tick.at - size, tick.at + 1)}:
            within = [tick for tick in ticks if start <= tick.at <= start + size]
            if within and start + size < frontier:
                row = {"symbol": symbol, "window_start": instant(start), "window_end": instant(start + size)}
                row |= {**summary(within), "origin": origin(within)}
                result.final.append(emitted(row, final=start + size))
    return finished(result)


def at_most_every(slices: Sequence[Sequence[Tick]], *, grace: int, every: int, partitions: int = 2) -> OperatorResult:
    """The last record of each key before each of equal steps."""
    return at_boundaries(slices, lambda at: (at // every + 1) * every, grace=grace, partitions=partitions)


def at_boundaries(
    slices: Sequence[Sequence[Tick]], after: Callable[[int], int], *, grace: int, partitions: int = 2
) -> OperatorResult:
    """The last record of each key before each boundary; what is late counts at the frontier.

    Args:
        after: of a time, the boundary that comes after it.
    """
    result, placing = OperatorResult(), Placing(grace=grace, partitions=partitions)
    standing: dict[tuple[str, int], Tick] = {}
    for batch in slices:
        for tick in placing.place(batch):
            if tick.symbol is None:
                continue
            cell = (tick.symbol, after(max(tick.at, tick.frontier)))
            held = standing.setdefault(cell, tick)
            if _counts(tick) > _counts(held):
                standing[cell] = tick
        for (symbol, boundary), tick in sorted(standing.items()):
            if placing.frontier is not None and boundary <= placing.frontier:
                amount = None if tick.amount is None else Decimal(tick.amount)
                row = {"symbol": symbol, "boundary": instant(boundary), "amount": amount, "at": tick.at}
                result.final.append(emitted({**row, "origin": origin([tick])}, final=boundary))
                del standing[symbol, boundary]
    return finished(result)


def _counts(tick: Tick) -> tuple[Any, ...]:
    return (max(tick.at, tick.frontier), tick.order)


def admitted(result: OperatorResult, ticks: Iterable[Tick]) -> list[Tick]:
    """Records with a key that are not before the frontier at them."""
    keyed = [tick for tick in ticks if tick.symbol is not None]
    result.late += [
        ("its time is before the frontier", tick.partition, tick.offset) for tick in keyed if tick.at < tick.frontier
    ]
    return [tick for tick in keyed if tick.at >= tick.frontier]


def emitted(row: dict[str, Any], *, final: int) -> dict[str, Any]:
    """A row of a table as an output has it: the fields of its origin are columns, its place is the time it is final."""
    values = {name: value for name, value in row.items() if name != "origin"}
    return {**values, **row["origin"], "_order_timestamp": instant(final)}


def finished(result: OperatorResult) -> OperatorResult:
    result.final.sort(key=repr)
    result.late.sort()
    return result


def _runs(ticks: Iterable[Tick], gap: int) -> list[list[Tick]]:
    runs: list[list[Tick]] = []
    for tick in sorted(ticks, key=lambda tick: tick.at):
        if not runs or tick.at - runs[-1][-1].at > gap:
            runs.append([])
        runs[-1].append(tick)
    return runs
