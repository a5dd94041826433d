"""Intervals of event time computed apart, from one commit to another: the rows of a run over everything, or refused."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import oracle_joins, oracle_windows
from support.windowing import SUMMARY, led, ms, tick

from kappa import Append, Source, Topology
from kappa.control.backfills.backfill_plan import Computed
from kappa.control.backfills.backfill_reading import codes_between, spanned
from kappa.control.backfills.backfill_span import (
    IntervalSpan,
    SpannedMember,
    changed,
    edges,
    edges_ms,
    member_of,
    off_grid,
    span,
)
from kappa.control.backfills.proposal import Backfill
from kappa.offsets.notation import local_time
from kappa.offsets.vector import OffsetRange
from kappa.operators import at_most_every, hopping_window, interval_join, table_join, tumbling_window, versions_by
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState
from kappa.record.past_commits import commit_with
from kappa.record.rollup import is_due, rolled_up
from kappa.replay.proof.determinism import Twice
from kappa.testing import Input, TopologyDriver
from kappa.topology.operator import Operator
from kappa.topology.times.grid import CalendarGrid, EvenGrid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = datetime(2026, 1, 1, tzinfo=UTC)
GRACES = {"ticks": 1000}


def commit(seq: int, *times: int | None, topic: str = "ticks") -> LedgerRow:
    """A commit after which partitions have come so far."""
    return LedgerRow(
        kind="commit",
        seq=seq,
        writer="w",
        at=T0,
        ranges=tuple(
            OffsetRange(topic=topic, partition=partition, start=seq, end=seq) for partition in range(len(times))
        ),
        stream_times={topic: {partition: at for partition, at in enumerate(times) if at is not None}},
    )


def numbers(interval: IntervalSpan) -> tuple[int | None, int | None]:
    return (interval.since and interval.since.seq, interval.until and interval.until.seq)


#: Of rows from 10 to 12 seconds, made from records up to 5 seconds from them.
EDGES = [edges(GRACES, 10_000, 12_000, 5_000)]


def test_it_begins_where_every_partition_is_before_the_reach_and_ends_where_the_frontier_is_past_it() -> None:
    commits = [commit(0, None, None), commit(1, 4999, 7000), commit(2, 4999, 4999), commit(3, 5000, 4999)]
    commits += [commit(4, 30_000, 17_000), commit(5, 18_000, 18_000), commit(6, 18_001, 18_001)]
    assert numbers(span(commits[:1] + commits[2:], EDGES)) == (2, 6)
    assert numbers(span(commits[:6], EDGES)) == (2, None)
    # Only a commit whose state can be begun with; without one there is no beginning.
    assert numbers(span(commits, EDGES, may_begin=lambda row: row.seq != 2)) == (0, 6)
    assert numbers(span(commits[3:], EDGES)) == (None, 6)
    # Of several outputs the earliest beginning and the latest end.
    assert numbers(span(commits, [*EDGES, edges(GRACES, 10_000, 11_000, 5_000)])) == (2, 6)
    assert numbers(span(commits, [*EDGES, edges(GRACES, 4_000, 11_000, 0)])) == (0, 6)


def test_a_partition_without_a_record_holds_the_end_and_not_the_beginning() -> None:
    commits = [commit(0, None, None), commit(1, None, 4000), commit(2, None, 99_000)]
    assert numbers(span(commits, EDGES)) == (1, None)


class Epoch:
    """The ledger of an epoch with a commit each six hours, rolled up as its driver does it, and what its times say."""

    HOUR = 3_600_000
    STEP = 6 * HOUR
    A_DAY = 4

    def __init__(self, folder: Path, commits: int, *, upgraded_at: int = -1, rolled_every: int = 8) -> None:
        self.ledger = Ledger(str(folder / "ledger"))
        self.ledger.create()
        self.ledger.claim("w", "old", self.ledger.state())
        self.seq = -1
        for seq in range(commits + 1):
            self.slice("new" if -1 < upgraded_at < seq else "old")
            if seq == upgraded_at:
                detail = {"asked": 1, "from": "old", "at": {}, "savepoint": "s"}
                self.add("upgrade", "new", detail=detail)
            state = self.ledger.state()
            if is_due(state, rolled_every):
                savepoints = sorted(row.seq for row in state.readable if row.seq >= seq - 20 and row.seq % 5 == 0)
                gone = {"readable_from": seq - 3, "merges": {}, "recent_from": 0, "forgotten": {}}
                self.add("maintain", "old", detail={**gone, "savepoints": savepoints})
                rolled = rolled_up(self.ledger.state(), writer="w", code="old", at=T0)
                if rolled is not None:
                    self.ledger.roll_up(rolled)

    def slice(self, code: str) -> None:
        self.seq += 1
        at = OffsetRange(topic="ticks", partition=0, start=10 * max(self.seq - 1, 0), end=10 * self.seq)
        if self.seq:
            self.add("plan", code, ranges=(at,))
        times = {"ticks": {0: self.seq * self.STEP}} if self.seq else {}
        detail = {} if self.seq else {"seed": "empty", "shapes": {}}
        self.add("commit", code, ranges=(at,), stream_times=times, detail=detail)

    def add(self, kind: Any, code: str, **values: Any) -> None:
        self.ledger.append(LedgerRow(kind=kind, seq=self.seq, writer="w", at=T0, code=code, **values))

    def day(self, number: int, reach_hours: int = 1) -> IntervalSpan:
        begin = number * 24 * self.HOUR
        interval = [edges(GRACES, begin, begin + 24 * self.HOUR, reach_hours * self.HOUR)]
        state = self.ledger.state()
        assert state.rolled is not None
        past, upto = self.ledger.past_commits(), state.rolled.detail["seq"]
        return span(state.commits, interval, past=past, rolled_up_to=upto)


@pytest.fixture(scope="module")
def rolled(tmp_path_factory: pytest.TempPathFactory) -> Epoch:
    """Fifteen days, rolled up a few times; other code from the sixth on."""
    epoch = Epoch(tmp_path_factory.mktemp("rolled"), 15 * Epoch.A_DAY, upgraded_at=5 * Epoch.A_DAY)
    assert len(list(epoch.ledger.past_commits())) > 2
    return epoch


def test_a_day_of_an_epoch_that_was_rolled_up_reads_what_it_needs_however_long_ago(rolled: Epoch) -> None:
    assert len(rolled.ledger.state().commits) < 30
    for number in range(14):
        interval = rolled.day(number)
        assert interval.since is not None and interval.until is not None
        begin = number * rolled.A_DAY
        assert (interval.since.seq, interval.until.seq) == (max(0, begin - 1), begin + rolled.A_DAY + 1), number


def test_code_that_read_the_interval_is_seen_after_its_slices_were_rolled_up(rolled: Epoch) -> None:
    state = rolled.ledger.state()
    assert codes_between(state, 4, 8) == {"old"}
    assert codes_between(state, 19, 21) == {"old", "new"}
    assert codes_between(state, 20, 21) == {"new"}
    assert codes_between(state, 19, 20) == {"old"}
    assert codes_between(state, 30, 40) == {"new"}


def test_a_commit_that_was_rolled_up_is_there_to_go_on_with_its_times(rolled: Epoch) -> None:
    for seq in (1, 10, 19):
        row = commit_with(seq, rolled.ledger.past_commits())
        assert row is not None and row.stream_times == {"ticks": {0: seq * rolled.STEP}}
    assert commit_with(10_000, rolled.ledger.past_commits()) is None


@pytest.mark.parametrize("read_later", [40, 5])
def test_records_of_the_interval_are_read_to_their_end_where_rows_by_time_end_earlier(read_later: int) -> None:
    """As where event time is ahead of the time of records, or a partition that was idle has late records."""
    ticks = Source(topic="ticks", schema="id STRING", grace="1 second")
    window = tumbling_window(ticks, key="id", size="2 seconds", aggregates=SUMMARY_OF_ID, table="open")
    output = Append(name="windows", of=window.final)
    topology = Topology(name="a.b", version="1", sources=[ticks], operators=[window], outputs=[output])
    member = member_of(topology, output, topology.tables, ("ticks",))
    commits = [
        replace(one, code="c") for one in (commit(0, None, None), commit(9, 9_000, 9_000), commit(20, 99_000, 99_000))
    ]
    state = BegunState(commits=commits)
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    interval = Backfill(
        topology="a.b",
        epoch=1,
        code="c",
        version="1",
        begin=begin,
        end=begin + timedelta(seconds=2),
        outputs=("windows",),
    )
    assert member is not None
    ranges = [OffsetRange(topic="ticks", partition=n, start=2, end=read_later + n) for n in range(3)]
    anything: Any = None
    reading, findings = spanned(anything, interval, anything, state, topology, [member], ranges)
    assert findings == [] and reading.since == 0
    assert dict(reading.end.items()) == {("ticks", n): max(9 if n < 2 else 0, read_later + n) for n in range(3)}


def test_an_edge_off_the_grid_names_the_points_beside_it() -> None:
    hour, half = EvenGrid(size_ms=7_200_000, every_ms=3_600_000), timedelta(minutes=30)
    two_hours = EvenGrid(size_ms=7_200_000, every_ms=7_200_000)
    assert off_grid(T0, [hour, two_hours]) is None
    assert off_grid(T0 + half, [hour]) == (hour, T0, T0 + 2 * half)
    assert off_grid(T0 + timedelta(microseconds=1), [hour]) == (hour, T0, T0 + 2 * half)
    early = datetime(1969, 12, 31, 23, 30, tzinfo=UTC)
    assert off_grid(early, [hour]) == (hour, early - half, early + half)


def test_edges_of_local_days_are_on_their_grid_and_those_of_utc_are_not() -> None:
    days = CalendarGrid(unit="day", zone="Europe/Berlin")
    begin, end = datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 3, 29, 22, tzinfo=UTC)
    assert off_grid(begin, [days]) is None and off_grid(end, [days]) is None
    assert off_grid(datetime(2026, 3, 29, tzinfo=UTC), [days]) == (days, begin, end)
    micro = timedelta(microseconds=1)
    assert off_grid(end - micro, [days]) == (days, begin, end)
    weeks = CalendarGrid(unit="week", zone="Europe/Berlin", week_begins="sunday")
    assert off_grid(begin, [days, weeks]) is None  # the 29th was a Sunday
    assert off_grid(end, [days, weeks]) == (weeks, begin, datetime(2026, 4, 4, 22, tzinfo=UTC))


def test_edges_are_widened_to_whole_milliseconds() -> None:
    micro = timedelta(microseconds=1)
    at = ms(T0)
    assert edges_ms(T0, T0) == (at, at)
    assert edges_ms(T0 + micro, T0 + micro) == (at, at + 1)


def test_what_an_output_belongs_by_and_reaches_is_told_by_its_state() -> None:
    ticks = Source(topic="ticks", schema="id STRING, at BIGINT", grace="1 second")
    paid = Source(topic="paid", schema="id STRING, n BIGINT", grace="1 second")
    window = hopping_window(ticks, key="id", size="2 hours", every="1 hour", aggregates=SUMMARY_OF_ID, table="open")
    pairs = interval_join(ticks, paid, key="id", before="5 minutes", tables=("lefts", "rights"))
    tables = [*window.tables, *pairs.tables]
    outputs = [
        Append(name="windows", of=window.final),
        Append(name="bare", schema="id STRING"),
        Append(name="pairs", of=pairs.rows, time="at"),
    ]
    topology = Topology(
        name="a.b",
        version="1",
        sources=[ticks, paid, Source(topic="plain", schema="id STRING")],
        operators=[window, pairs],
        outputs=outputs,
        step=lambda _: {},
    )
    member = member_of(topology, outputs[0], tables[:1], ("plain", "ticks"))
    assert member == SpannedMember(
        name="windows",
        time="window_start",
        reach_ms=7_200_000,
        grids=(EvenGrid(size_ms=7_200_000, every_ms=3_600_000),),
        sources=("ticks",),
        tables=("open",),
        is_bounded=True,
    )
    assert member_of(topology, outputs[1], tables[:1], ("ticks",)) is None
    member = member_of(topology, outputs[2], tables[1:], ("ticks",))
    # Two tables of one join reach once.
    assert member is not None and (member.time, member.reach_ms, member.grids) == ("at", 300_000, ())
    # A window of what was joined reaches further.
    assert (member := member_of(topology, outputs[0], tables, ("ticks",))) is not None and member.reach_ms == 7_500_000


def test_what_was_computed_names_records_of_outputs_and_keys_of_tables() -> None:
    def compared(kind: Any, sample: dict[str, str]) -> str:
        counts = {"rows": 2, "rows_again": 3, "hash": "a", "hash_again": "b", "columns": ("counted",)}
        twice = Twice(name="hours", kind=kind, samples=(sample,), **counts)
        (line,) = Computed(writer="w", rows={}, compared=(twice,)).render()
        return line

    line = "  hours: 3 rows, the live epoch has 2 others. Columns that differ: counted. For example "
    assert compared("output", {"record": "pos[0] at 7"}) == f"{line}pos[0] at 7."
    assert compared("table", {"id": "a", "window_start": "2026-01-01"}) == f"{line}a/2026-01-01."


def test_changed_parameters_of_time_and_of_state_are_told() -> None:
    def definition(grace: str, size: str, **reading: Any) -> tuple[Topology, SpannedMember]:
        ticks = Source(topic="ticks", schema="id STRING", grace=grace, **reading)
        window = tumbling_window(ticks, key="id", size=size, aggregates=SUMMARY_OF_ID, table="open")
        output = Append(name="windows", of=window.final)
        topology = Topology(name="a.b", version="1", sources=[ticks], operators=[window], outputs=[output])
        member = member_of(topology, output, topology.tables, ("ticks",))
        assert member is not None
        return topology, member

    (before, _), (after, member) = definition("1 second", "1 hour"), definition("2 seconds", "2 hours")
    assert changed(before, before, [member]) == []
    grace, table = changed(before, after, [member])
    assert "grace of source 'ticks' was '1 second' and is '2 seconds'" in grace
    assert "size=1 hour" in table and "size=2 hours" in table
    other, member = definition("1 second", "1 hour", timestamps="epoch_ms")
    assert changed(before, other, [member]) == ["timestamps of source 'ticks' was 'text' and is 'epoch_ms'"]


SUMMARY_OF_ID = {"rows": SUMMARY["trades"]}


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A span that is not refused."""

    since: LedgerRow
    until: LedgerRow


@dataclass(kw_only=True)
class History:
    """A topology led through slices, and what a driver knows after each."""

    topology: Topology
    session: Any
    partitions: dict[str, int]
    slices: list[list[Input]]
    is_seeded: bool = False

    def __post_init__(self) -> None:
        self.driver = self._fresh()
        self.states: list[tuple[LedgerRow, Any, dict[str, Any]]] = [self._state(0)]
        for number, batch in enumerate(self.slices, start=1):
            self.driver.pipe(batch)
            self.states.append(self._state(number))

    @property
    def commits(self) -> list[LedgerRow]:
        return [row for row, _, _ in self.states]

    def again(self, whole: Whole, chance: random.Random) -> TopologyDriver:
        """What lies between two commits, in other slices; with no state from before unless the history keeps it."""
        driver = self._fresh()
        state, tables = self.states[whole.since.seq][1:]
        driver._offsets, driver._times, driver._stream_times = copy.deepcopy(state)
        driver._tables = dict(tables) if self.is_seeded else {}
        inputs = [one for batch in self.slices[whole.since.seq : whole.until.seq] for one in batch]
        cuts = sorted(chance.randint(0, len(inputs)) for _ in range(2))
        for first, last in zip([0, *cuts], [*cuts, len(inputs)], strict=True):
            driver.pipe(inputs[first:last])
        return driver

    def _fresh(self) -> TopologyDriver:
        return TopologyDriver(self.topology, self.session, partitions=self.partitions)

    def _state(self, seq: int) -> tuple[LedgerRow, Any, dict[str, Any]]:
        driver = self.driver
        state = copy.deepcopy((driver._offsets, driver._times, driver._stream_times))
        ranges = [
            OffsetRange(topic=topic, partition=p, start=driver._offsets[topic, p], end=driver._offsets[topic, p])
            for topic, count in self.partitions.items()
            for p in range(count)
        ]
        row = LedgerRow(kind="commit", seq=seq, writer="w", at=T0, ranges=tuple(ranges), stream_times=state[2])
        return row, state, dict(driver._tables)


def rows_in(driver: TopologyDriver, member: SpannedMember, begin_ms: int, end_ms: int) -> list[Any]:
    """Rows of an interval, with where they come from."""
    rows = driver.rows_in_order(member.name)
    times = [ms(row[member.time]) if isinstance(row[member.time], datetime) else row[member.time] for row in rows]
    return sorted((row for row, at in zip(rows, times, strict=True) if begin_ms <= at < end_ms), key=repr)


def held(
    history: History, members: Sequence[SpannedMember], times: Sequence[int], chance: random.Random, intervals: int = 2
) -> tuple[int, int]:
    """Assert that intervals come out as in the whole history; how many rows, and how many intervals left out both ends.

    An interval whose rows are not final, or that begins too early, is left out: it is refused.
    """
    rows = apart = 0
    read = {topic for member in members for topic in member.sources}
    graces = {s.topic: s.grace_ms for s in history.topology.sources if s.topic in read and s.grace_ms is not None}
    spans = []
    for begin_ms, end_ms in [(first, last) for first in times for last in times if first < last]:
        whole = whole_of(
            span(history.commits, [edges(graces, begin_ms, end_ms, member.reach_ms) for member in members])
        )
        if whole is not None and any(rows_in(history.driver, member, begin_ms, end_ms) for member in members):
            spans.append((begin_ms, end_ms, whole))
    # Those first that leave out what comes before and what comes after.
    spans.sort(key=lambda one: ((one[2].since.seq == 0) + (one[2].until.seq == len(history.slices)), chance.random()))
    for begin_ms, end_ms, whole in spans[:intervals]:
        again = history.again(whole, chance)
        for member in members:
            expected = rows_in(history.driver, member, begin_ms, end_ms)
            assert rows_in(again, member, begin_ms, end_ms) == expected, f"{member.name} [{begin_ms}, {end_ms})"
            rows += len(expected)
        apart += whole.since.seq > 0 and whole.until.seq < len(history.slices)
    return rows, apart


def whole_of(interval: IntervalSpan) -> Whole | None:
    """What holds all of them; None where one is refused."""
    since, until = interval.since, interval.until
    return None if since is None or until is None else Whole(since=since, until=until)


def windows_held(spark: SparkSession, seed: int, *, slices: int = 6, records: int = 90) -> tuple[int, int]:
    """Windows on two grids, and rows at boundaries, over one history with late and out-of-order records."""
    operators = {
        "tumbling": partial(tumbling_window, key="symbol", size="4 seconds", aggregates=SUMMARY),
        "hopping": partial(hopping_window, key="symbol", size="4 seconds", every="2 seconds", aggregates=SUMMARY),
        "every": partial(at_most_every, key="symbol", every="4 seconds"),
    }
    topology = led(spark, operators, grace="1 second").topology
    batches = oracle_windows.history(seed, slices=slices, records=records)
    inputs = [[one.input for one in batch] for batch in batches]
    history = History(topology=topology, session=spark, partitions={oracle_windows.TOPIC: 2}, slices=inputs)
    outputs = [append for append in topology.appends if append.name.endswith("_final")]
    tables = {f"{table.name}_final": [table] for table in topology.tables}
    members = [member_of(topology, one, tables[one.name], [oracle_windows.TOPIC]) for one in outputs]
    assert len(members) == 3 and None not in members
    edges = range(-8_000, 40_000, 4_000)
    return held(history, [one for one in members if one is not None], edges, random.Random(seed))


def joins_held(spark: SparkSession, seed: int, *, slices: int = 6, records: int = 30) -> tuple[int, int]:
    """An interval join by the left row's time, of two topics of which one may be behind."""
    row = "id STRING, value INT, at BIGINT"
    graces = {"orders": 1_000, "payments": 1_500}
    sources = [Source(topic=t, schema=row, time="at", grace=f"{g} milliseconds") for t, g in graces.items()]
    pairs = interval_join(
        *sources, key="id", before="2 seconds", after="1 second", how="left", tables=("lefts", "rights")
    )
    output = Append(name="pairs", of=pairs.rows, time="at")
    topology = Topology(name="inventory.matched", version="1", sources=sources, operators=[pairs], outputs=[output])
    chance = random.Random(seed)
    behind = chance.choice(["orders", "payments", ""])
    logs = oracle_joins.logs(chance, list(graces), records=records)
    batches = [*oracle_joins.arrivals(chance, logs, slices=slices, behind=behind), oracle_joins.closing(graces)]
    inputs = [[one.input for one in batch] for batch in batches]
    history = History(topology=topology, session=spark, partitions=dict.fromkeys(graces, 2), slices=inputs)
    member = member_of(topology, output, topology.tables, list(graces))
    assert member is not None
    return held(history, [member], range(0, 20_000, 500), chance)


def versions_held(
    spark: SparkSession, seed: int, *, slices: int = 6, records: int = 30, is_shared: bool = False
) -> tuple[int, int]:
    """A join with the versions of a table as of the left row's time, begun with the tables of a commit.

    Args:
        is_shared: whether another stream, which is behind, is joined with the same versions.
    """
    row = "id STRING, value INT, at BIGINT"
    graces = {"orders": 1_000, "prices": 1_500} | ({"returns": 500} if is_shared else {})
    sources = [Source(topic=t, schema=row, time="at", grace=f"{g} milliseconds") for t, g in graces.items()]
    orders, prices, *others = sources
    priced = table_join(orders, prices, key="id", tables=("waiting", "versions"))
    operators: list[Operator[Any]] = [priced]
    if is_shared:
        shared = versions_by(prices, key="id", table="versions")
        priced = table_join(orders, shared, key="id", tables="waiting")
        operators = [shared, priced, *(table_join(one, shared, key="id", tables="others") for one in others)]
    output = Append(name="priced", of=priced.rows, time="at")
    topology = Topology(name="inventory.priced", version="1", sources=sources, operators=operators, outputs=[output])
    chance = random.Random(seed)
    logs = oracle_joins.logs(chance, list(graces), records=records)
    behind = "returns" if is_shared else ""
    batches = [*oracle_joins.arrivals(chance, logs, slices=slices, behind=behind), oracle_joins.closing(graces)]
    inputs = [[one.input for one in batch] for batch in batches]
    partitions = dict.fromkeys(graces, 2)
    history = History(topology=topology, session=spark, partitions=partitions, slices=inputs, is_seeded=True)
    tables = [topology.table(name) for name in ("waiting", "versions")]
    member = member_of(topology, output, tables, ["orders", "prices"])
    assert member is not None and not member.is_bounded and member.reach_ms == 0
    return held(history, [member], range(0, 20_000, 500), chance)


@pytest.mark.spark
@pytest.mark.usefixtures("small_slices")
def test_local_days_over_both_changes_of_a_clock_come_out_as_in_the_whole_history(spark: SparkSession) -> None:
    zone, chance = "Europe/Berlin", random.Random(2026)
    days = partial(tumbling_window, key="symbol", size="1 day", zone=zone, aggregates=SUMMARY)
    topology = led(spark, {"days": days}, grace="3 hours").topology
    slices = []
    for day in (-3, -1, 0, 1, 209, 210, 211, 213, 214):  # around 2026-03-29 and 2026-10-25
        begin = ms(datetime(2026, 3, 29, tzinfo=UTC) + day * timedelta(days=1))
        batch = []
        for number, at in enumerate(sorted(begin + chance.randint(0, 86_399_999) for _ in range(10))):
            late = chance.choice([0, 0, 7_200_000, 14_400_000])
            batch.append(tick("a", at - late, sent=at, partition=number % 2).input)
        slices.append(batch)
    history = History(topology=topology, session=spark, partitions={oracle_windows.TOPIC: 2}, slices=slices)
    member = member_of(topology, topology.appends[0], topology.tables, [oracle_windows.TOPIC])
    assert member is not None
    for first, last, hours in (("2026-03-29", "2026-03-30", 23), ("2026-10-25", "2026-10-26", 25)):
        begun, ended = local_time(first, zone), local_time(last, zone)
        assert ended - begun == timedelta(hours=hours)
        assert off_grid(begun, member.grids) is None and off_grid(ended, member.grids) is None
        assert held(history, [member], [ms(begun), ms(ended)], chance) == (1, 1)


@pytest.mark.spark
@pytest.mark.usefixtures("small_slices")
def test_rows_with_the_version_of_their_time_come_out_as_in_the_whole_history(spark: SparkSession) -> None:
    assert all(versions_held(spark, 4))


@pytest.mark.spark
@pytest.mark.usefixtures("small_slices")
def test_rows_with_a_shared_version_come_out_as_in_the_whole_history(spark: SparkSession) -> None:
    assert all(versions_held(spark, 4, is_shared=True))


@pytest.mark.spark
@pytest.mark.usefixtures("small_slices")
def test_windows_of_an_interval_come_out_as_in_the_whole_history(spark: SparkSession) -> None:
    assert all(windows_held(spark, 3))


@pytest.mark.spark
@pytest.mark.usefixtures("small_slices")
def test_joined_rows_of_an_interval_come_out_as_in_the_whole_history(spark: SparkSession) -> None:
    assert all(joins_held(spark, 4))


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("seed", range(5, 20))
def test_more_histories_give_the_same_by_interval(spark: SparkSession, seed: int) -> None:
    windows_held(spark, seed, slices=12, records=120)
    joins_held(spark, seed, slices=12, records=60)
    versions_held(spark, seed, slices=12, records=60)
    versions_held(spark, seed, slices=12, records=60, is_shared=True)
