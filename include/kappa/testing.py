"""Runs a topology without Kafka, Delta or a driver process: records in, rows out, tables kept in between.

    driver = TopologyDriver(loyalty, session)
    driver.pipe([Input(topic="pos", value={"InvoiceNumber": "1", "CustomerType": "PRIME", ...})])
    assert driver.rows("rewards") == [{"CustomerCardNo": "c1", "TotalLoyaltyPoints": Decimal("2.0000")}]

Parsing, order, the step and the checks of its effects are those of a stream (:mod:`kappa.slices`), so that what passes here
does the same there. Not here: Kafka's transactions, Delta's types at rest, crashes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from kappa.effects import collect
from kappa.encoding import topic_records
from kappa.errors import TopologyError
from kappa.parsing.small import parse_rows
from kappa.runtime.session import frame_of
from kappa.schema import ddl_of
from kappa.slices import step_effects
from kappa.state import newest
from kappa.topology import ORDER, Source, Topology

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class Input:
    """A record of a source topic.

    Attributes:
        topic: the source.
        value: a mapping becomes JSON, text UTF-8; bytes are taken as they are; None is a tombstone.
        key: the record's key.
        partition: where it lies; offsets count up within a partition.
        timestamp_ms: its time, epoch milliseconds.
    """

    topic: str
    value: Mapping[str, Any] | bytes | str | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int = 0


class TopologyDriver:
    """A topology and its tables, in memory.

    Args:
        topology: the topology.
        session: Spark, as :func:`kappa.runtime.session.build_session` makes it.
    """

    def __init__(self, topology: Topology, session: SparkSession) -> None:
        self.topology = topology
        self.dead_letters: list[dict[str, Any]] = []
        self._session = session
        self._seq = 0
        self._offsets: Counter[tuple[str, int]] = Counter()
        self._times: dict[str, dict[int, int]] = {}
        self._tables: dict[str, pa.Table] = {}
        self._outputs: dict[str, pa.Table] = {}
        self._sent: dict[str, list[tuple[bytes | None, bytes | None]]] = {topic.name: [] for topic in topology.topics}

    def pipe(self, inputs: Iterable[Input]) -> None:
        """Run one slice of exactly these records; those of one partition in the order given.

        Raises:
            TopologyError: a record's topic is not a source, or an effect is not what the topology declares.
        """
        import pyarrow as pa

        given = list(inputs)
        strangers = sorted({item.topic for item in given} - set(self.topology.source_topics))
        if strangers:
            raise TopologyError(
                f"{strangers} are no sources of {self.topology.name!r}; it reads {list(self.topology.source_topics)}."
            )
        self._seq += 1
        records = {
            source.topic: self._parsed(source, [i for i in given if i.topic == source.topic])
            for source in self.topology.sources
        }
        before = {table.name: self._before(table.name) for table in self.topology.tables}
        effects = collect(step_effects(self.topology, self._seq, records, before))
        for append in self.topology.appends:
            rows = effects[append.name]
            known = self._outputs.get(append.name)
            self._outputs[append.name] = rows if known is None else pa.concat_tables([known, rows])
        for table in self.topology.tables:
            self._tables[table.name] = newest(self._tables.get(table.name), effects[table.name], table.key)
        for topic in self.topology.topics:
            member = next(m for m in (*self.topology.appends, *self.topology.tables) if m.name == topic.of)
            sent = topic_records(topic, [column.name for column in member.columns], effects[topic.of])
            self._sent[topic.name].extend((record.key, record.value) for record in sent)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Rows of a table, sorted by key, or of an append output, in the order of the records they come from."""
        if name in {table.name for table in self.topology.tables}:
            table = self.topology.table(name)
            kept = [row for row in _listed(self._tables.get(name)) if not row["_deleted"]]
            columns, order = [column.name for column in table.columns], list(table.key)
        else:
            append = next(append for append in self.topology.appends if append.name == name)
            kept = _listed(self._outputs.get(name))
            columns, order = [column.name for column in append.columns], list(ORDER)
        kept.sort(key=lambda row: [(row[at] is not None, row[at]) for at in order if at in row])
        return [{column: row[column] for column in columns} for row in kept]

    def sent(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Key and value of every record that was sent to a topic output, in order."""
        return self._sent[topic]

    def _parsed(self, source: Source, inputs: list[Input]) -> DataFrame:
        import pyarrow.compute as pc

        times = self._times.setdefault(source.topic, {})
        rows = parse_rows(self._raw(source.topic, inputs), source, times)
        for item in inputs:
            times[item.partition] = max(item.timestamp_ms, times.get(item.partition, item.timestamp_ms))
        is_good = pc.is_null(rows["_dead"])
        self.dead_letters.extend(
            rows.filter(pc.invert(is_good)).select(["_topic", "_partition", "_offset", "_value", "_dead"]).to_pylist()
        )
        columns = [*(c.name for c in source.columns), *source.record_columns]
        return frame_of(self._session, rows.filter(is_good).select(columns))

    def _raw(self, topic: str, inputs: list[Input]) -> DataFrame:
        rows = []
        for item in inputs:
            at = (topic, item.partition)
            rows.append((item.key, _bytes(item.value), topic, item.partition, self._offsets[at], item.timestamp_ms))
            self._offsets[at] += 1
        columns = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, time BIGINT"
        frame = self._session.createDataFrame(rows, columns).coalesce(1)
        headers = "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers"
        return frame.selectExpr("* EXCEPT (time)", "timestamp_millis(time) AS timestamp", "0 AS timestampType", headers)

    def _before(self, name: str) -> DataFrame:
        import pyarrow.compute as pc

        columns = self.topology.table(name).columns
        if name not in self._tables:
            return self._session.createDataFrame([], ddl_of(columns))
        kept = self._tables[name].filter(pc.invert(self._tables[name]["_deleted"]))
        return frame_of(self._session, kept.select([column.name for column in columns]), ddl_of(columns))


def _listed(rows: pa.Table | None) -> list[dict[str, Any]]:
    return [] if rows is None else rows.to_pylist()


def _bytes(value: Mapping[str, Any] | bytes | str | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else orjson.dumps(value)
