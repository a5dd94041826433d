"""Operators that read what others emit, with what plain Python makes of the rows that were emitted; and histories."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kappa import Append, Source, Topic, Topology
from kappa.operators import (
    agg,
    at_most_every,
    deduplicate,
    hopping_window,
    interval_join,
    session_window,
    sliding_window,
    table_join,
    tumbling_window,
    versions_by,
)
from kappa.operators.joins.join_columns import How
from kappa.testing import Input
from kappa.topology.operator import Operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kappa import Slice

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GRACE_MS = 2_000
#: A record of the end, behind which everything is closed.
END_MS = 10**6
SUMS = {"rows": agg.count(), "amount": agg.sum("amount")}


def source(topic: str) -> Source:
    return Source(
        topic=topic, schema=f"id STRING, amount BIGINT, {topic}_at BIGINT", time=f"{topic}_at", grace="2 seconds"
    )


LEFT, RIGHT, THIRD = source("lefts"), source("rights"), source("thirds")


def ms(time: datetime) -> float:
    return (time - EPOCH) / timedelta(milliseconds=1)


def at(millis: float) -> datetime:
    return EPOCH + timedelta(milliseconds=millis)


def windows_of(rows: Iterable[Row], time: Callable[[Row], float], size: int, every: int) -> list[Row]:
    """Sums of rows in windows on a grid, by key."""
    windows: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row["id"] is None:
            continue
        last = int(time(row) // every) * every
        for start in range(last, last - size, -every):
            windows[row["id"], start].append(row)
    return [
        {
            "id": key,
            "window_start": at(start),
            "window_end": at(start + size),
            "rows": len(own),
            "amount": sum(row["amount"] or 0 for row in own),
        }
        for (key, start), own in windows.items()
    ]


def sessions_of(rows: Iterable[Row], time: Callable[[Row], float], gap: int) -> list[Row]:
    """Runs of rows of a key that are at most a gap apart."""
    sessions, by_key = [], defaultdict(list)
    for row in rows:
        if row["id"] is not None:
            by_key[row["id"]].append(row)
    for key, own in by_key.items():
        runs: list[list[Row]] = []
        for row in sorted(own, key=time):
            if runs and time(row) <= time(runs[-1][-1]) + gap:
                runs[-1].append(row)
            else:
                runs.append([row])
        sessions += [
            {
                "id": key,
                "session_start": at(time(run[0])),
                "session_end": at(time(run[-1])),
                "rows": len(run),
                "amount": sum(row["amount"] or 0 for row in run),
            }
            for run in runs
        ]
    return sessions


def pairs_of(lefts: Iterable[Row], rights: Sequence[Row], within: int, *, is_left: bool) -> list[Row]:
    """Rows that are near each other, by the later time of the left pair."""
    pairs = []
    for left in lefts:
        time = max(left["lefts_at"], left["rights_at"] or left["lefts_at"])
        partners = [
            right
            for right in rights
            if left["id"] is not None and right["id"] == left["id"] and abs(right["thirds_at"] - time) <= within
        ]
        pairs += [{**left, "thirds_at": right["thirds_at"]} for right in partners]
        if not partners and is_left:
            pairs.append({**left, "thirds_at": None})
    return pairs


def last_instant(row: Row) -> float:
    """The event time of a window's row: a microsecond before its end."""
    return ms(row["window_end"]) - 0.001


def session_end(row: Row) -> float:
    return ms(row["session_end"])


@dataclass(frozen=True, kw_only=True)
class Composition:
    """Operators that follow each other, and what the last one gives.

    Attributes:
        sources: what is read.
        operators: in order.
        oracle: the rows of each operator before the last one, by output, and the records that are not late -> those of
            the last one.
        step: None where operators are all there is.
    """

    sources: tuple[Source, ...]
    operators: tuple[Operator[Any], ...]
    oracle: Callable[[Mapping[str, list[Row]], list[Row]], list[Row]]
    step: Callable[[Slice], Mapping[str, DataFrame]] | None = None

    def topology(self) -> Topology:
        outputs = [
            Append(name=f"out_{number}", of=operator.emits)
            for number, operator in enumerate(self.operators)
            if operator.emits is not None
        ]
        # Topics that can be followed: no row in them may be earlier than what was told to be final.
        followed = [
            Topic(name=f"{output.name}-{time}", of=output.name, key="id", time=time, on_replay="versioned")
            for output in outputs
            if output.of is not None
            for time in output.of.times
        ]
        return Topology(
            name="test.composition",
            version="1",
            sources=self.sources,
            operators=self.operators,
            step=self.step,
            outputs=[*outputs, *followed],
        )


def tumbling(of: Any, seconds: int, table: str) -> Any:
    return tumbling_window(of, key="id", size=f"{seconds} seconds", aggregates=SUMS, table=table)


def windows_of_windows() -> Composition:
    hours = tumbling(LEFT, 3, "open_3")
    days = tumbling_window(
        hours.final,
        key="id",
        size="12 seconds",
        aggregates={"rows": agg.sum("rows"), "amount": agg.sum("amount")},
        table="open_12",
    )

    def oracle(outputs: Mapping[str, list[Row]], _: list[Row]) -> list[Row]:
        whole = windows_of(outputs["out_0"], last_instant, 12_000, 12_000)
        sums: dict[tuple[str, int], int] = defaultdict(int)
        for row in outputs["out_0"]:
            sums[row["id"], int(last_instant(row) // 12_000)] += row["rows"]
        return [{**row, "rows": sums[row["id"], int(ms(row["window_start"]) // 12_000)]} for row in whole]

    return Composition(sources=(LEFT,), operators=(hours, days), oracle=oracle)


def three_windows() -> Composition:
    one = hopping_window(LEFT, key="id", size="4 seconds", every="2 seconds", aggregates=SUMS, table="open_4")
    two = tumbling(one.final, 6, "open_6")
    three = session_window(two.final, key="id", gap="7 seconds", aggregates=SUMS, table="open_runs")
    return Composition(
        sources=(LEFT,),
        operators=(one, two, three),
        oracle=lambda outputs, _: sessions_of(outputs["out_1"], last_instant, 7_000),
    )


def window_of_sessions() -> Composition:
    runs = session_window(LEFT, key="id", gap="2 seconds", aggregates=SUMS, table="open_runs")
    minutes = tumbling(runs.final, 10, "open_10")
    return Composition(
        sources=(LEFT,),
        operators=(runs, minutes),
        oracle=lambda outputs, _: windows_of(outputs["out_0"], session_end, 10_000, 10_000),
    )


def window_of_sliding_windows() -> Composition:
    near = sliding_window(LEFT, key="id", size="2 seconds", aggregates=SUMS, table="recent")
    minutes = tumbling(near.final, 10, "open_10")
    return Composition(
        sources=(LEFT,),
        operators=(near, minutes),
        oracle=lambda outputs, _: windows_of(outputs["out_0"], lambda row: ms(row["window_end"]), 10_000, 10_000),
    )


def window_of_a_join(how: How) -> Composition:
    joined = interval_join(LEFT, RIGHT, key="id", before="1 second", after="4 seconds", how=how, tables=("l", "r"))
    minutes = tumbling(joined.rows, 5, "open_5")

    def time(row: Row) -> float:
        return float(max(at for at in (row["lefts_at"], row["rights_at"]) if at is not None))

    return Composition(
        sources=(LEFT, RIGHT),
        operators=(joined, minutes),
        oracle=lambda outputs, _: windows_of(outputs["out_0"], time, 5_000, 5_000),
    )


def join_of_a_join(how: How) -> Composition:
    one = interval_join(LEFT, RIGHT, key="id", within="3 seconds", how="left", tables=("l", "r"))
    third = "id STRING, thirds_at BIGINT"
    two = interval_join(one.rows, THIRD, key="id", within="2 seconds", how=how, tables=("pairs", "t"), right_rows=third)
    return Composition(
        sources=(LEFT, RIGHT, THIRD),
        operators=(one, two),
        oracle=lambda outputs, records: pairs_of(
            outputs["out_0"], [row for row in records if "thirds_at" in row], 2_000, is_left=how == "left"
        ),
    )


def window_of_first_records() -> Composition:
    # Records of one key have one time here, which is that of the run too.
    first = deduplicate(LEFT, key=["id", "amount", "lefts_at"], within="3 seconds", table="seen", emit="final")
    minutes = tumbling(first.rows, 5, "open_5")

    return Composition(
        sources=(LEFT,),
        operators=(first, minutes),
        oracle=lambda outputs, _: windows_of(outputs["out_0"], lambda row: float(row["lefts_at"]), 5_000, 5_000),
    )


def newest_window_at_most_every() -> Composition:
    near = hopping_window(LEFT, key="id", size="4 seconds", every="1 second", aggregates=SUMS, table="open_4")
    calm = at_most_every(near.final, key="id", every="6 seconds", table="due")

    def oracle(outputs: Mapping[str, list[Row]], _: list[Row]) -> list[Row]:
        newest: dict[tuple[str, float], Row] = {}
        for row in sorted(outputs["out_0"], key=last_instant):
            newest[row["id"], (last_instant(row) // 6_000 + 1) * 6_000] = row
        return [{**row, "boundary": at(boundary)} for (_, boundary), row in newest.items()]

    return Composition(sources=(LEFT,), operators=(near, calm), oracle=oracle)


def window_of_rows_with_their_version() -> Composition:
    priced = table_join(LEFT, RIGHT, key="id", tables=("waiting", "versions"))
    minutes = tumbling(priced.rows, 5, "open_5")
    return Composition(
        sources=(LEFT, RIGHT),
        operators=(priced, minutes),
        oracle=lambda outputs, _: windows_of(outputs["out_0"], lambda row: float(row["lefts_at"]), 5_000, 5_000),
    )


def join_of_rows_with_one_table() -> Composition:
    """Rows of two streams, each with its version of the same table, and then with each other."""
    versions = versions_by(RIGHT, key="id", table="versions", rows="id STRING, rights_at BIGINT")
    one = table_join(LEFT, versions, key="id", tables="waiting_lefts")
    third, both = "id STRING, thirds_at BIGINT", "id STRING, thirds_at BIGINT, rights_at BIGINT"
    two = table_join(THIRD, versions, key="id", how="inner", tables="waiting_thirds", left_rows=third)
    pairs = interval_join(one.rows, two.rows, key="id", within="2 seconds", tables=("l", "t"), right_rows=both)

    def oracle(outputs: Mapping[str, list[Row]], _: list[Row]) -> list[Row]:
        return [
            {**left, "thirds_at": right["thirds_at"], "rights_at_right": right["rights_at"]}
            for left in outputs["out_1"]
            for right in outputs["out_2"]
            if left["id"] == right["id"] and abs(left["lefts_at"] - right["thirds_at"]) <= 2_000
        ]

    return Composition(sources=(LEFT, RIGHT, THIRD), operators=(versions, one, two, pairs), oracle=oracle)


COMPOSITIONS: dict[str, Callable[[], Composition]] = {
    "windows of windows": windows_of_windows,
    "window of a left join": lambda: window_of_a_join("left"),
    "left join of a join": lambda: join_of_a_join("left"),
    "newest window at most every 6 seconds": newest_window_at_most_every,
    "three windows": three_windows,
    "window of sessions": window_of_sessions,
    "window of sliding windows": window_of_sliding_windows,
    "window of an outer join": lambda: window_of_a_join("outer"),
    "window of an inner join": lambda: window_of_a_join("inner"),
    "inner join of a join": lambda: join_of_a_join("inner"),
    "window of first records": window_of_first_records,
    "window of rows with their version": window_of_rows_with_their_version,
    "join of rows with one table of versions": join_of_rows_with_one_table,
}


def history(chance: random.Random, sources: Sequence[Source], records: int = 70) -> list[Input]:
    """Records of all sources in two partitions: out of order, some late, some without a key; then one of the end."""
    log, clocks = [], {(source.topic, number): chance.randint(0, 4) * 500 for source in sources for number in (0, 1)}
    for _ in range(records * len(sources)):
        (topic, partition), _ = chance.choice(list(clocks.items()))
        clocks[topic, partition] += chance.choice([0, 0, 250, 500, 1000])
        log.append(
            record(
                topic,
                partition,
                chance.choice(["a", "a", "b", None]),
                chance.choice([None, 1, 2, 5]),
                clocks[topic, partition] - chance.choice([0, 0, 0, 500, 1900, 9_000]),
            )
        )
    ends = [record(source.topic, number, "z", 0, END_MS) for source in sources for number in (0, 1)]
    return [*log, *ends]


def record(topic: str, partition: int, key: str | None, amount: int | None, millis: int) -> Input:
    value = {"id": key, "amount": amount, f"{topic}_at": millis}
    # Keys lie in any partition, as rows of the streams of a company do.
    return Input(topic=topic, partition=partition, value=value, timestamp_ms=max(0, millis))


def in_time(log: Iterable[Input]) -> list[Row]:
    """Values of the records that are not late by the stream time of their partition."""
    reached: dict[tuple[str, int], int] = {}
    values = []
    for item in log:
        assert isinstance(item.value, dict)
        lane, millis = (item.topic, item.partition), item.value[f"{item.topic}_at"]
        reached[lane] = max(millis, reached.get(lane, millis))
        if millis >= reached[lane] - GRACE_MS:
            values.append(item.value)
    return values


def cut(chance: random.Random, log: list[Input], slices: int) -> list[list[Input]]:
    """Slices in which a partition may lag the others: each keeps its own order."""
    lanes: dict[tuple[str, int], list[Input]] = defaultdict(list)
    for item in log:
        lanes[item.topic, item.partition].append(item)
    batches: list[list[Input]] = [[] for _ in range(slices)]
    for lane in lanes.values():
        edges = sorted(chance.randint(0, len(lane)) for _ in range(slices - 1))
        for number, (begin, end) in enumerate(zip([0, *edges], [*edges, len(lane)], strict=True)):
            batches[number].extend(lane[begin:end])
    return batches


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: sorted((name, str(value)) for name, value in row.items()))
