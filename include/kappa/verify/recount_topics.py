"""What an epoch sent, counted again: its changelogs and topic outputs on Kafka, checked against its Delta tables.

A stream may go on meanwhile: what is counted is the state after one slice, and keys that change after it are left out
on both sides. A topic is read several times where it is long, each time for a share of its keys, so that memory does
not grow with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from zlib import crc32

import orjson

from kappa.config import Config
from kappa.delta import queries
from kappa.errors import CodeError, DataLossError, LedgerError, Transient, first_line
from kappa.kafka import changelogs
from kappa.kafka.broker import Broker
from kappa.kafka.changelogs import changelog_records
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.record import rollup, schemas
from kappa.record.code import extract
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState
from kappa.record.merge_on_read import chunks, contents_of
from kappa.topology import Append, Table, Topic, Topology, registry
from kappa.topology.schemas.value_schemas import value_schema
from kappa.verify.recount import Recount
from kappa.wire.avro_values import Encode
from kappa.wire.encoding import Record, topic_records
from kappa.wire.wire_values import decoder, encoder

if TYPE_CHECKING:
    from confluent_kafka import Message

#: Records of a topic that are looked at in one reading: about 200 bytes of memory each.
RECORDS = 2_000_000
#: Rows that are in memory at a time.
_ROWS = 50_000

#: Whether a record is one of those that are looked at in this reading.
Share = Callable[[bytes | None, bytes | None], bool]


def recount_topics(
    config: Config, paths: EpochPaths, broker: Broker, progress: Callable[[str], None] = lambda _: None
) -> Recount:
    """Count again what an epoch sent.

    Args:
        broker: Kafka.
        progress: told what is read next.

    Raises:
        BrokerUnreachableError: Kafka does not answer.
        DataLossError: records went while they were counted: try again.
    """
    record = Epochs(config.lake).record(paths.topology)
    try:
        state = Ledger(paths.ledger).state()
        folder = extract(config.lake, record.epoch(paths.epoch).code, config.home) / "topologies"
        topology = registry.load_apart(folder, paths.topology)
    except (CodeError, LedgerError) as error:
        return Recount(epoch=paths.epoch, problems=(), read=(), unread=(f"Topics on Kafka: {error}",))
    count = _Count(paths=paths, topology=topology, broker=broker, record=record, state=state)
    present = broker.topics("")
    for table in topology.tables:
        progress(f"changelog of {table.name}")
        count.tried(f"changelog of {table.name}", partial(count.changelog, table, present))
    for topic in topology.topics:
        progress(f"topic {topic.name}")
        count.tried(f"topic {topic.name}", partial(count.output, topic, present))
    return Recount(
        epoch=paths.epoch, problems=tuple(count.problems), read=tuple(count.read), unread=tuple(count.unread)
    )


@dataclass(kw_only=True)
class _Count:
    """One counting.

    Attributes:
        topology: its code.
        broker: Kafka.
        state: the ledger; counted is the state after its last commit.
        problems, read, unread: what was found, as :class:`Recount` has it.
        decode, encode: how values of the topic that is counted are read and made; JSON unless it says otherwise.
    """

    paths: EpochPaths
    topology: Topology
    broker: Broker
    record: TopologyRecord
    state: LedgerState
    problems: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    decode: Callable[[bytes], Any] = orjson.loads
    encode: Encode | None = None

    @property
    def committed(self) -> LedgerRow:
        """The slice after which it is counted."""
        assert self.state.committed is not None
        return self.state.committed

    @property
    def way(self) -> str:
        """What makes a topic right again."""
        return f"Compute it anew in another epoch: kappa replay {self.paths.topology}"

    def tried(self, what: str, look: Callable[[], None]) -> None:
        """Look at a topic. Rows to compare it with that cannot be read are a problem like any other."""
        try:
            look()
        except (Transient, DataLossError):
            raise
        except Exception as error:  # a file may be damaged in any way, and each library has errors of its own
            self.problems.append(
                f"{what} cannot be compared with its rows: {type(error).__name__}: {first_line(error)} {self.way}"
            )
            self.unread.append(f"{what}, after what is wrong with its rows")

    def changelog(self, table: Table, present: Iterable[str]) -> None:
        """Hold a changelog against its table: the newest record of each key."""
        name = self.paths.changelog(table.name)
        self.decode, self.encode = orjson.loads, None
        if self.state.baseline_seq is None:
            self.unread.append(f"Changelog {name}: the epoch has not written one yet.")
            return
        if name not in present:
            self.problems.append(f"changelog {name} is gone: the epoch cannot be rebuilt from it. {self.way}")
            return
        seq = self.committed.seq
        names = [column.name for column in table.columns]

        def expected() -> Iterator[Record]:
            for rows in chunks(contents_of(self.paths, self.committed, table.name), names, _ROWS):
                yield from changelog_records(name, table, rows, seq)

        self._fold(
            f"changelog {name}", name, table.name, expected, lambda message: changelogs.seq_of(message) > seq, set
        )

    def output(self, topic: Topic, present: Iterable[str]) -> None:
        """Hold a topic output against the rows that it is made of."""
        name = self.paths.versioned(topic.name) if topic.is_versioned else topic.name
        of = self.topology.rows_of(topic)
        if name not in present:
            if any(
                run.facts.sends == "live" or topic.is_versioned for run in rollup.runs_of(self.state) if run.facts.seq
            ):
                self.problems.append(f"topic {name} is gone. {self.way}")
            return
        if not self._has_schema(topic):
            self.unread.append(f"Topic {name}: the lake has no schema with which its values were written.")
            return
        if isinstance(of, Append):
            self._append(topic, name, of)
        elif topic.is_versioned or (topic.on_replay == "reconcile" and self.record.live == self.paths.epoch):
            self._table(topic, name, of)
        else:
            self.unread.append(
                f"Topic {name}: it holds changes of table {of.name}, of which the lake keeps only the last ones."
            )

    def _has_schema(self, topic: Topic) -> bool:
        """Whether values of a topic can be read and made, by what is in the lake."""
        self.decode, self.encode = orjson.loads, None
        if topic.format == "json":
            return True
        known = {number: one for number, one in schemas.load(self.paths.lake, topic.name).items() if one.subject}
        columns = self.topology.sent_columns(topic)
        schema = value_schema(topic.format, topic.name, columns)
        mine = [one.id for one in known.values() if schemas.is_same(one.schema, schema)]
        if mine:
            self.decode = decoder({number: one.schema for number, one in known.items()})
            self.encode = encoder(mine[0], schema, [column.name for column in columns])
        return bool(mine)

    def _table(self, topic: Topic, name: str, table: Table) -> None:
        columns = [column.name for column in table.columns]
        sent = [column.name for column in self.topology.sent_columns(topic)]

        def expected() -> Iterator[Record]:
            for rows in chunks(contents_of(self.paths, self.committed, table.name), columns, _ROWS):
                yield from topic_records(topic, sent, rows, name=name, encode=self.encode)

        def moved() -> set[bytes]:
            changes, since = self.paths.changes(table.name), f"_seq > {self.committed.seq}"
            parts = queries.chunks(changes, None, [*columns, "_deleted"], _ROWS, where=since)
            return {
                record.key or b""
                for rows in parts
                for record in topic_records(topic, sent, rows, name=name, encode=self.encode)
            }

        self._fold(f"topic {name}", name, table.name, expected, lambda _: False, moved)

    def _fold(
        self,
        what: str,
        name: str,
        table: str,
        expected: Callable[[], Iterator[Record]],
        is_later: Callable[[Message], bool],
        moved: Callable[[], set[bytes]],
    ) -> None:
        """Compare the newest value of each key of a topic with a table's rows."""
        start, end = self.broker.low_watermarks([name]), self.broker.decided_ends([name])
        lacking, other, beyond, keys, first = 0, 0, 0, 0, b""
        for share in _shares(start, end):
            newest: dict[bytes, bytes | None] = {}
            later: set[bytes] = set()
            for message in self._messages(start, end):
                key = message.key() or b""
                if share(key, None):
                    newest[key] = None if message.value() is None else _digest(message.value(), decode=self.decode)
                    if is_later(message):
                        later.add(key)
            later |= moved()
            for record in expected():
                key = record.key or b""
                if not share(key, None):
                    continue
                keys += 1
                found = newest.pop(key, None)
                if key in later:
                    continue
                if found is None:
                    lacking, first = lacking + 1, first or key
                elif found != _digest(record.value, decode=self.decode):
                    other, first = other + 1, first or key
            gone = [key for key, value in newest.items() if value is not None and key not in later]
            beyond, first = beyond + len(gone), first or next(iter(gone), b"")
        said = [
            text.format(count)
            for count, text in (
                (lacking, "{} keys of the table are not in it"),
                (other, "{} keys have other values"),
                (beyond, "{} keys are not in the table"),
            )
            if count
        ]
        if lacking and not other and not beyond and any(offset for _, offset in start.items()):
            self.unread.append(f"{what.capitalize()}: {lacking:,} keys whose records may have gone with retention.")
        elif said:
            example = first.decode(errors="replace")
            self.problems.append(
                f"{what} is not what table {table} holds: {', '.join(said)}; key {example} is one. {self.way}"
            )
        self.read.append(f"{what}: {_records(start, end):,} offsets, {keys:,} keys of table {table}")

    def _append(self, topic: Topic, name: str, of: Append) -> None:
        """Look for each row of an append output among the records of its topic."""
        start, end = self.broker.low_watermarks([name]), self.broker.decided_ends([name])
        columns = [column.name for column in of.columns]
        sent = [column.name for column in self.topology.sent_columns(topic)]
        runs = [
            (run.facts.seq, run.facts.last)
            for run in rollup.runs_of(self.state)
            if run.facts.sends == "live" or (topic.is_versioned and run.facts.sends == "versioned")
        ]
        wanted = " OR ".join(f"(_seq >= {first} AND _seq <= {last})" for first, last in runs) or "FALSE"
        backfilled = ", ".join(str(e.detail["seq"]) for e in self.record.epoch(self.paths.epoch).backfilled)
        if backfilled:  # such rows were sent, if at all, as those that they replaced
            wanted = f"({wanted}) AND _seq NOT IN ({backfilled})"
        path, version = self.paths.output(of.name), self.committed.delta_versions[f"outputs/{of.name}"]
        missing, again, others, rows = 0, 0, 0, 0
        for share in _shares(start, end):
            expected: Counter[bytes] = Counter()
            for part in queries.chunks(path, version, columns, _ROWS, where=wanted):
                for record in topic_records(topic, sent, part, name=name, encode=self.encode):
                    if share(record.key, record.value):
                        expected[_digest(record.value, record.key, decode=self.decode)] += 1
            rows += expected.total()
            for message in self._messages(start, end):
                if not share(message.key(), message.value()):
                    continue
                digest = _digest(message.value(), message.key(), decode=self.decode)
                if expected[digest] > 0:
                    expected[digest] -= 1
                elif digest in expected:
                    again += 1
                else:
                    others += 1
            missing += expected.total()
        first = any(offset for _, offset in start.items())
        self.read.append(
            f"topic {name}: {rows:,} rows sent, {rows - missing:,} found, {others + again:,} other records"
        )
        if missing and first:
            self.unread.append(
                f"Topic {name}: {missing:,} of {rows:,} records, whose offsets may have gone with retention."
            )
        elif missing:
            self.problems.append(
                f"topic {name} lacks {missing:,} of {rows:,} records that the ledger says were sent. {self.way}"
            )
        if again and backfilled:
            self.unread.append(
                f"Topic {name}: {again:,} records equal others. They are repeated, or of rows that a backfill has "
                "replaced."
            )
        elif again and self._is_alone(topic):
            self.problems.append(f"topic {name} holds {again:,} records more than once. {self.way}")

    def _is_alone(self, topic: Topic) -> bool:
        """Whether only this epoch sent to a topic, and nothing since the commit that is counted."""
        is_sole = topic.is_versioned or {move.epoch for move in self.record.moves} <= {self.paths.epoch}
        return is_sole and Ledger(self.paths.ledger).state().last == self.state.last

    def _messages(self, start: Offsets, end: Offsets) -> Iterator[Message]:
        for batch in self.broker.read(start, end):
            yield from batch


def _shares(start: Offsets, end: Offsets) -> Iterator[Share]:
    """Shares of a topic's records, each small enough for one reading; records of one key are in one share."""
    count = 1 + _records(start, end) // RECORDS
    for number in range(count):
        yield lambda key, value, number=number: crc32(key if key is not None else value or b"") % count == number  # type: ignore[misc]


def _records(start: Offsets, end: Offsets) -> int:
    return sum(offset - (start.get(*at) or 0) for at, offset in end.items())


def _digest(value: bytes | None, key: bytes | None = b"", *, decode: Callable[[bytes], Any] = orjson.loads) -> bytes:
    """Of a record; a column that was added later is null in its row and absent from its value."""
    if value is None:
        return b""
    content = decode(value)
    if isinstance(content, dict):
        kept = {name: part for name, part in content.items() if part is not None}
        value = orjson.dumps(kept, option=orjson.OPT_SORT_KEYS, default=repr)  # Avro has bytes and decimals
    return blake2b(b"%d:%s%s" % (len(key or b""), key or b"-", value), digest_size=16).digest()
