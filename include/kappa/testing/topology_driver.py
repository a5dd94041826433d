"""A topology and its tables in memory, driven slice by slice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from kappa.errors import TopologyError, UsageError
from kappa.offsets import releases
from kappa.offsets.floors import Floors, least_frontiers, of_longer_grace
from kappa.offsets.releases import Releases
from kappa.offsets.small_logs import time_of
from kappa.offsets.vector import Offsets, ranges_end
from kappa.operators.origin import Order, order_of
from kappa.replay.chains import Final
from kappa.slices import state
from kappa.slices.input.records import in_memory
from kappa.slices.rows.contract import check_rows
from kappa.slices.rows.effects import collect, conformed, held, stored_type
from kappa.slices.rows.final_times import final_times, promised
from kappa.slices.state import newest
from kappa.slices.step import call_step
from kappa.spark.catalyst import is_union
from kappa.spark.session import frame_of
from kappa.spark.tuning import tune
from kappa.topology import ORDER, Append, Slice, Source, Topology
from kappa.topology.ddl import ddl_of
from kappa.topology.shapes import timings_of
from kappa.topology.times.event_time import Frontier, frontier_of, least
from kappa.wire.batches import Start
from kappa.wire.encoding import topic_records
from kappa.wire.inputs import input_key, input_schemas, input_value, output_encoder
from kappa.wire.json.json_forms import python_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


#: The key of masked values in tests.
MASK_KEY = "the key of tests, and of nothing else"
#: Where a driver's clock begins by default.
BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Input:
    """A record of a source topic.

    Attributes:
        topic: the source.
        value: a mapping becomes JSON or Avro, as the source reads it, text UTF-8; bytes stay; None is a tombstone.
        key: the record's key; a mapping or a number is encoded as the source's ``key_format`` says, text is UTF-8.
        partition: where it lies; offsets count up within a partition.
        timestamp_ms: its time, epoch milliseconds; None for what the driver's clock shows.
        headers: its headers, name and value, in order; a source without ``headers=True`` passes over them.
    """

    topic: str
    value: Mapping[str, Any] | bytes | str | None
    key: Mapping[str, Any] | bytes | str | int | None = None
    partition: int = 0
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class TopologyDriver:
    """A topology and its tables, in memory.

    Args:
        session: Spark, as :func:`kappa.spark.session.build_session` makes it.
        now: what the clock shows at first, aware. It moves by :meth:`advance` only.
        partitions: topic -> how many partitions it has. A frontier waits for all of them; of a topic that is not named,
            for those that had records.
        released: attribute :attr:`released` of another driver of the same records, to release what it did. Without it
            the driver releases idle partitions as a live stream does: each slice has all the records there are.

    Attributes:
        released: where each slice ended, with the idle partitions that it released.
        dead_letters: records that did not parse: topic, partition, offset, value and reason.
        orders: append output -> the order in which its operator declares that its rows come to a topic; None of rows
            that say nothing.
    """

    def __init__(
        self,
        topology: Topology,
        session: SparkSession,
        *,
        now: datetime = BEGIN,
        partitions: Mapping[str, int] | None = None,
        released: Sequence[tuple[Offsets, Releases]] | None = None,
    ) -> None:
        if now.tzinfo is None:
            raise UsageError(f"The clock cannot begin at {now}, which has no time zone. Add one: tzinfo=UTC.")
        self.topology = topology
        self._check_sources(partitions or {})
        self.dead_letters: list[dict[str, Any]] = []
        self.orders: dict[str, Order | None] = {}
        self._session = session
        self._now = now
        self._seq = 0
        self._offsets: Counter[tuple[str, int]] = Counter()
        self._times: dict[str, dict[int, int]] = {}
        self._stream_times: dict[str, dict[int, int]] = {}
        self._followed: dict[str, int] = {}
        self._promised: dict[str, Final] = {}
        self._partition_counts = partitions or {}
        self._copied = released
        self.released: list[tuple[Offsets, Releases]] = []
        self._graces: dict[str, int] = {}
        self._floors: Floors = {}
        self._tables: dict[str, pa.Table] = {}
        self._outputs: dict[str, pa.Table] = {}
        self._sent: dict[str, list[tuple[bytes | None, bytes | None]]] = {topic.name: [] for topic in topology.topics}

    @property
    def now(self) -> datetime:
        """The clock's time: that of records that bring none of their own."""
        return self._now

    @property
    def final(self) -> dict[str, datetime | None]:
        """Versioned topic output whose readers can follow it -> up to when its rows are final; None while the sources
        have no frontier. Pass it on to the driver of a topology that reads the topic.
        """
        return {topic: None if one.ms is None else time_at(one.ms) for topic, one in self._promised.items()}

    def advance(self, by: timedelta) -> datetime:
        """Move the clock; return its time then. Records may be late, a clock goes forward.

        Raises:
            UsageError: ``by`` is negative.
        """
        if by < timedelta(0):
            raise UsageError(f"The clock goes forward only, not by {by}. A late record brings its own timestamp_ms.")
        self._now += by
        return self._now

    def pipe(self, inputs: Iterable[Input], *, final: Mapping[str, datetime | None] | None = None) -> None:
        """Run one slice of exactly these records; those of one partition in the order given. A slice that is refused
        leaves everything as it was before.

        Args:
            inputs: the records.
            final: source that follows a topology -> up to when its rows are final after the slice, as that topology's
                driver has it; of one that is not named, what it was.

        Raises:
            UsageError: ``final`` goes back.
            TopologyError: a record's topic is not a source, or lacks its partition, or an effect is not what the
                topology declares.
        """
        timed = with_times(inputs, self._now)
        self._check_sources({item.topic for item in timed})
        for item in timed:
            count = self._partition_counts.get(item.topic)
            if item.partition < 0 or (count is not None and item.partition >= count):
                numbers = "begin at 0" if count is None else f"are 0 to {count - 1}"
                raise TopologyError(f"Topic {item.topic!r} has no partition {item.partition}: its numbers {numbers}.")
        before = {name: copy(value) if isinstance(value, dict | list) else value for name, value in vars(self).items()}
        try:
            self._run(timed, final or {})
        except BaseException:
            vars(self).update(before)
            raise

    def _run(self, timed: list[Input], final: Mapping[str, datetime | None]) -> None:
        import pyarrow as pa

        self._seq += 1
        self._follow(final)
        self._hold_frontiers()
        large = frozenset(table.name for table in self.topology.tables if self._keys(table.name) >= state.LARGE_ROWS)
        tune(self._session, is_small=True, is_compiled=bool(large))
        slice_releases = self._releases(timed)
        records = {
            source.topic: self._records(source, [i for i in timed if i.topic == source.topic], slice_releases)
            for source in self.topology.sources
        }
        before = {table.name: self._before(table.name) for table in self.topology.tables}
        frontiers = {
            source.topic: self._frontier(source, source.grace_ms)
            for source in self.topology.sources
            if source.grace_ms is not None
        }
        slice = Slice(
            seq=self._seq,
            records=records,
            tables=before,
            frontiers=frontiers,
            operators=self.topology.operators,
            large_tables=large,
            secret=MASK_KEY,
            hold=held(self.topology, self._session),
        )
        returned = call_step(self.topology, slice)
        frames = conformed(self.topology, returned)
        effects = collect(frames)
        self.orders = {append.name: _order(returned[append.name]) for append in self.topology.appends}
        check_rows(self.topology, returned, frames, effects, promised(self.topology, self._promised))
        self._promised = final_times(self.topology, lambda topics: least(frontiers[topic] for topic in topics))
        for append in self.topology.appends:
            rows = effects[append.name]
            earlier_rows = self._outputs.get(append.name)
            self._outputs[append.name] = rows if earlier_rows is None else pa.concat_tables([earlier_rows, rows])
        for table in self.topology.tables:
            self._tables[table.name] = newest(self._tables.get(table.name), effects[table.name], table.key)
        for topic in self.topology.topics:
            columns = self.topology.sent_columns(topic)
            names, encode = [column.name for column in columns], output_encoder(topic, columns)
            sent = topic_records(topic, names, effects[topic.of], encode=encode)
            self._sent[topic.name] = [*self._sent[topic.name], *((record.key, record.value) for record in sent)]

    def _follow(self, final: Mapping[str, datetime | None]) -> None:
        """Take up to when rows of followed sources are final from now on.

        Raises:
            UsageError: a time is earlier than it was.
        """
        for topic, at in final.items():
            if at is None:
                continue
            was, ms = self._followed.get(topic), _millis(at)
            if was is not None and ms < was:
                raise UsageError(
                    f"final={{{topic!r}: ...}} goes back from {time_at(was)} to {at}. Rows up to then are final, and a "
                    "topology that is followed takes none of them back. Give a time that is not before the last one; "
                    "if it is that of another driver, name the partitions of its sources: "
                    "TopologyDriver(topology, session, partitions={'orders': 2})."
                )
            self._followed[topic] = ms

    def _frontier(self, source: Source, grace_ms: int) -> Frontier:
        topic = source.topic
        if source.follows_upstream:
            return Frontier(ms=self._followed.get(topic))
        floors = least_frontiers(self._floors.get(topic, {}))
        return frontier_of(self._stream_times.get(topic, {}), self._partitions(topic), grace_ms, floors)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Rows of a table, sorted by key, or of an append output, in the order of the records they come from.

        Of a table that an operator keeps they have the columns that readers get.
        """
        if name in {table.name for table in self.topology.tables}:
            hidden = self.topology.table(name).hidden
            return [{column: row[column] for column in row if column not in hidden} for row in self.state(name)]
        columns = [column.name for column in self._append(name).columns]
        return [
            {column: row[column] for column in columns} for row in _sorted(self._listed(self._outputs, name), ORDER)
        ]

    def state(self, name: str) -> list[dict[str, Any]]:
        """Rows of a table, sorted by key, with what its operator keeps for itself."""
        table = self.topology.table(name)
        rows = [row for row in self._listed(self._tables, name) if not row["_deleted"]]
        return [{column.name: row[column.name] for column in table.columns} for row in _sorted(rows, table.key)]

    def rows_in_order(self, name: str) -> list[dict[str, Any]]:
        """Rows of an append output with the place of the record they come from, in the total order.

        Several rows of one record, and rows that say of no record that they come from it, are ordered by their content.
        """
        columns = [*ORDER, *(column.name for column in self._append(name).columns)]
        rows = [{column: row[column] for column in columns} for row in self._listed(self._outputs, name)]
        rows.sort(key=lambda row: ([(row[at] is not None, row[at]) for at in ORDER], repr(row)))
        return rows

    def sent(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Key and value of every record that was sent to a topic output, in order."""
        if topic not in self._sent:
            raise TopologyError(
                f"Topology {self.topology.name!r} has no topic output {topic!r}; it has {list(self._sent)}.", name=topic
            )
        return self._sent[topic]

    def _check_sources(self, topics: Collection[str]) -> None:
        if strangers := sorted(set(topics) - set(self.topology.source_topics)):
            raise TopologyError(
                f"{strangers} are not sources of {self.topology.name!r}; it reads {list(self.topology.source_topics)}."
            )

    def _append(self, name: str) -> Append:
        """The append output of that name.

        Raises:
            TopologyError: there is none; the message has the names of tables too.
        """
        for append in self.topology.appends:
            if append.name == name:
                return append
        raise TopologyError(
            f"Topology {self.topology.name!r} has no append output {name!r}; it has "
            f"{[append.name for append in self.topology.appends]}, and tables "
            f"{[table.name for table in self.topology.tables]}.",
            name=name,
        )

    def _hold_frontiers(self) -> None:
        """A longer grace of the topology than that of the slice before takes effect from the old frontier on."""
        after = {topic: timing.grace_ms for topic, timing in timings_of(self.topology.sources).items()}
        position = Offsets.of(self._offsets.items())
        longer = of_longer_grace(position, self._stream_times, self._graces, after, self._floors)
        self._floors, self._graces = releases.merged([self._floors, longer]), after

    def _releases(self, inputs: list[Input]) -> Releases:
        """The releases of the next slice: its own, or those of another run."""
        idle_after = self.topology.idle_after
        if not idle_after:
            return {}
        counts = Counter((item.topic, item.partition) for item in inputs)
        places = {(topic, p) for topic in self.topology.source_topics for p in self._partitions(topic)} | set(counts)
        start = Offsets.of((at, self._offsets[at]) for at in places)
        ranges = start.span_to(Offsets.of((at, self._offsets[at] + counts[at]) for at in places))
        if self._copied is None:
            # Every partition is known from the start, and each slice has all the records there are.
            end = ranges_end(ranges)
            slice_releases = releases.of_live_slice(ranges, end, idle_after, self._stream_times, lambda: end)
        else:
            earlier_releases = releases.merged(one for _, one in self.released)
            slice_releases = releases.copied(self._copied, earlier_releases, ranges)
        self.released.append((ranges_end(ranges), slice_releases))
        return slice_releases

    def _records(self, source: Source, inputs: list[Input], slice_releases: Releases) -> DataFrame:
        topic = source.topic
        is_timed = source.has_event_time
        released = releases.merged([slice_releases, *(one for _, one in self.released)])
        start = Start(
            timestamps=self._times.get(topic, {}),
            stream_times=self._stream_times.get(topic, {}) if is_timed else {},
            released=released.get(topic, {}) if is_timed else {},
            floors=self._floors.get(topic, {}) if is_timed else {},
            now_ms=_millis(self._now),
        )
        records = in_memory(self._session, self._log(source, inputs), source, start, partial(input_schemas, source))
        after = records.after(start)
        self._times[topic] = dict(after.timestamps)
        if source.follows_upstream:
            if topic in self._followed:  # its records say nothing of those that are still to come
                self._stream_times[topic] = dict.fromkeys(self._partitions(topic), self._followed[topic])
        elif is_timed:
            self._stream_times[topic] = releases.times_after(after.stream_times, start.released)
        if records.dead is not None:
            names = ["_topic", "_partition", "_offset", "_value", "_dead"]
            self.dead_letters.extend(records.dead.select(names).to_pylist())
        return records.frame

    def _partitions(self, topic: str) -> Sequence[int]:
        """Partitions of a topic: those that the driver was told of, else those that had records."""
        return (
            range(self._partition_counts[topic])
            if topic in self._partition_counts
            else sorted(self._times.get(topic, {}))
        )

    def _log(self, source: Source, inputs: list[Input]) -> pa.Table:
        """Records as a reader of the log gives them; each takes the next offset of its partition."""
        import pyarrow as pa

        rows = []
        for item in inputs:
            at = (source.topic, item.partition)
            rows.append(
                {
                    "_key": input_key(source, item.key),
                    "_partition": item.partition,
                    "_offset": self._offsets[at],
                    "_timestamp": time_of(item) * 1000,
                    "_value": input_value(source, item.value),
                }
            )
            self._offsets[at] += 1
        kinds = {"_key": pa.binary(), "_partition": pa.int32(), "_offset": pa.int64()}
        kinds |= {"_timestamp": pa.timestamp("us", tz="UTC"), "_value": pa.binary()}
        records = pa.Table.from_pylist(rows, pa.schema(kinds))
        headers = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
        if not source.headers:
            return records
        pairs = [[{"key": key, "value": value} for key, value in item.headers] or None for item in inputs]
        return records.append_column("_headers", pa.array(pairs, headers))

    @staticmethod
    def _listed(rows: Mapping[str, pa.Table], name: str) -> list[dict[str, Any]]:
        return python_rows(rows[name]) if name in rows else []

    def _keys(self, name: str) -> int:
        """How many keys a table had so far, deleted ones included."""
        return self._tables[name].num_rows if name in self._tables else 0

    def _before(self, name: str) -> DataFrame:
        import pyarrow.compute as pc

        columns = self.topology.table(name).columns
        if name not in self._tables:
            return self._session.createDataFrame([], ddl_of(columns)).coalesce(1)
        rows = self._tables[name].filter(pc.invert(self._tables[name]["_deleted"]))
        return frame_of(self._session, rows.select([column.name for column in columns]), stored_type(columns))


def _sorted(rows: list[dict[str, Any]], order: Iterable[str]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: [(row[at] is not None, row[at]) for at in order if at in row])


def with_times(inputs: Iterable[Input], now: datetime) -> list[Input]:
    """Records with a time each: that of the clock where they bring none."""
    millis = _millis(now)
    return [item if item.timestamp_ms is not None else replace(item, timestamp_ms=millis) for item in inputs]


def _millis(at: datetime) -> int:
    return (at - BEGIN) // timedelta(milliseconds=1)


def time_at(ms: int) -> datetime:
    """The time of epoch milliseconds, the nearest that Python has outside the years 1 to 9999."""
    try:
        return BEGIN + timedelta(milliseconds=ms)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if ms > 0 else datetime.min.replace(tzinfo=UTC)


def _order(effect: DataFrame) -> Order | None:
    """The order that rows are marked with. What several operators emit into one topic is in order of each key."""
    order = order_of(effect)
    return "key" if order == "topic" and is_union(effect) else order
