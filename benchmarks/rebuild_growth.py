"""(k) Time of a rebuild from the changelog, against the number of keys and against the length of history.

``customers.cache`` runs live twice, under two names, on one session with a driver's settings. Rounds of changes go
through both, each with one change of every customer, so that a changelog gets one record a customer and round. The
broker compacts one of the changelogs; that takes closed segments and a cleaner that is in no hurry to wait. The other
one stays as it was written. At each size the product's rebuild makes a candidate from a changelog, and the time from
``REWOUND`` to ``SEEDED`` counts: reading, folding and writing the table. It is done twice, the faster one counts; three
rebuilds before the first warm the session up.

History: 100,000 customers after 1, 2, 4 and 8 rounds. Keys: 50,000 and 100,000 customers before that, 200,000 and
400,000 behind it, each new one written once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import orjson
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from benchmarks.result import Figure
from benchmarks.site import ACTOR, TOPOLOGIES, Site, say
from kappa import control, serving
from kappa.kafka.broker import Broker
from kappa_local.generators.generator import TOPIC_CONFIG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE, TABLE = "customers", "cache"
PARTITIONS = 3
#: Customers of the history; half as many, twice and four times as many are measured too.
KEYS = 100_000
ROUNDS = (1, 2, 4, 8)
#: A change of so many customers closes the segments of all partitions of a changelog.
NUDGE = 100
_EAGER = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "100"}
_AS_BEFORE = {"segment.ms": str(3600 * 1000), "min.cleanable.dirty.ratio": "0.5", "max.compaction.lag.ms": str(2**62)}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One rebuild.

    Attributes:
        keys: rows of the table.
        rounds: how often each of the first customers was changed.
        records: what the changelog held.
        seconds: how long the rebuild took.
    """

    keys: int
    rounds: int
    records: int
    seconds: float


def measure(site: Site) -> list[Figure]:
    """Run it."""
    text = (TOPOLOGIES / "customers_cache.py").read_text()
    site = site.without_launcher()
    keys, sites = site.scale.of(KEYS), []
    with Broker(site.config.bootstrap_servers) as broker:
        broker.create_topic(SOURCE, PARTITIONS, TOPIC_CONFIG)
    for name in ("customers.compacted", "customers.written"):
        file = site.config.topologies / f"{name.replace('.', '_')}.py"
        file.write_text(text.replace('name="customers.cache"', f'name="{name}"'))
        sites.append(site.with_topology(name))
    with site.session("benchmark k") as session:
        compacting, as_it_was = streams = [_Stream(each, session) for each in sites]
        _write(streams, range(keys // 2))
        for _ in range(3):  # the JVM compiles what a rebuild runs: the first sizes would pay for it
            compacting.rebuilt("warm-up", 1)
        by_keys = [compacting.rebuilt("keys", 1)]
        _write(streams, range(keys // 2, keys))
        first = compacting.rebuilt("keys", 1)
        by_keys.append(first)
        written, compacted, rounds = [first], [first], 1
        for goal in ROUNDS[1:]:
            for _ in range(goal - rounds):
                _write(streams, range(keys))  # a slice of its own for each round: one that has a key twice logs it once
            rounds = goal
            written.append(as_it_was.rebuilt("history, as written", rounds))
            compacting.compact()
            compacted.append(compacting.rebuilt("history, compacted", rounds))
        for more in (2 * keys, 4 * keys):
            _write(streams, range(more // 2, more))
            by_keys.append(compacting.rebuilt("keys", rounds))
    points = {"keys": by_keys, "written": written, "compacted": compacted}
    last = compacted[-1]
    return [
        Figure(
            part="k",
            name=f"rebuild after {last.rounds} rounds of changes, compacted, over one after the first",
            value=last.seconds / first.seconds,
            unit="x",
            wanted="<= 1.5",
            detail={name: [asdict(point) for point in series] for name, series in points.items()},
        ),
        Figure(
            part="k",
            name="the same from a changelog that was not compacted",
            value=written[-1].seconds / first.seconds,
            unit="x",
        ),
        Figure(
            part="k",
            name=f"rebuild of {by_keys[-1].keys:,} keys over one of {by_keys[0].keys:,}",
            value=by_keys[-1].seconds / by_keys[0].seconds,
            unit="x",
        ),
    ]


class _Stream:
    """A live stream of the customers, and rebuilds of its table."""

    def __init__(self, site: Site, session: SparkSession) -> None:
        self._site, self._session, self.server = site, session, site.config.bootstrap_servers
        self._epoch = control.start(site.config, site.topology, **ACTOR)
        self._changelog = site.paths(self._epoch).changelog(TABLE)

    @contextmanager
    def running(self) -> Iterator[None]:
        """With its driver: a changelog is rebuilt from while no driver writes it."""
        control.start(self._site.config, self._site.topology, **ACTOR)
        with self._site.driver(self._epoch, self._session):
            yield
            self._site.until(lambda: self._site.record().live == self._epoch, "the stream is live")
            self._site.settle(self._epoch, [SOURCE])

    def rebuilt(self, what: str, rounds: int) -> Point:
        """The faster of two rebuilds."""
        keys, records = self._rows(self._epoch), self._records()
        seconds = min(self._seconds(keys) for _ in range(2))
        say(f"{what}: {keys:,} keys of {records:,} records in the changelog rebuilt in {seconds:.2f} s")
        return Point(keys=keys, rounds=rounds, records=records, seconds=round(seconds, 3))

    def compact(self) -> None:
        """Let the broker compact what is in the changelog now."""
        _configure(self.server, ResourceType.BROKER, "1", {"log.cleaner.backoff.ms": "200"})
        _configure(self.server, ResourceType.TOPIC, self._changelog, _EAGER)
        with Broker(self.server) as broker:
            end = broker.stable_offsets([self._changelog])

        def is_compacted() -> bool:
            # Only a record closes a segment, and only a closed one is cleaned.
            _produce(self.server, range(NUDGE))
            self._site.settle(self._epoch, [SOURCE])
            cleaned = self._cleaned()
            return all(cleaned.get(partition, 0) >= offset for (_, partition), offset in end.items())

        with self.running():
            self._site.until(is_compacted, "the changelog is compacted", pause=0.5)
        _configure(self.server, ResourceType.TOPIC, self._changelog, _AS_BEFORE)

    def _cleaned(self) -> dict[int, int]:
        """Partition -> offset up to which the broker's cleaner has been."""
        file = self._site.config.home.parent / "kafka" / "log" / "cleaner-offset-checkpoint"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return {int(line[1]): int(line[2]) for line in lines if len(line) == 3 and line[0] == self._changelog}

    def _records(self) -> int:
        with Broker(self._site.config.bootstrap_servers) as broker:
            return sum(len(batch) for batch in broker.fold(self._changelog))

    def _rows(self, epoch: int) -> int:
        snapshot = serving.snapshot(self._site.config, self._site.topology, epoch=epoch)
        return int(snapshot.rows(TABLE, select="COUNT(*) AS n").to_pylist()[0]["n"])

    def _seconds(self, keys: int) -> float:
        site = self._site
        request = control.rebuild_request(site.config, site.topology, **ACTOR)
        epoch = control.replay(site.config, control.plan(site.config, request), **ACTOR)
        with site.driver(epoch, self._session):
            site.until(lambda: site.at(epoch, "seeded") is not None, "the candidate is seeded")
        begin, end = site.at(epoch, "rewound"), site.at(epoch, "seeded")
        assert begin is not None
        assert end is not None
        if (count := self._rows(epoch)) != keys:
            raise AssertionError(f"{count:,} keys came back of {keys:,}")
        control.abort(site.config, site.topology, epoch, **ACTOR)
        return (end - begin).total_seconds()


def _write(streams: Sequence[_Stream], customers: Iterable[int]) -> None:
    """One change of each of these customers, through all streams."""
    _produce(streams[0].server, customers)
    for stream in streams:
        with stream.running():
            pass


def _produce(server: str, customers: Iterable[int]) -> None:
    at = time.time_ns()
    producer = Producer({"bootstrap.servers": server, "linger.ms": 50})
    for id in customers:
        row = {"first_name": f"Asha {id}", "last_name": f"Rao {at}", "email": f"{id}@shop.example"}
        value = orjson.dumps({"after": row, "op": "u"})
        while True:
            try:
                producer.produce(SOURCE, value, orjson.dumps({"id": id}))
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(120):
        raise AssertionError("the broker did not take all changes")


def _configure(server: str, kind: ResourceType, name: str, settings: dict[str, str]) -> None:
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()]
    changes = [ConfigResource(kind, name, incremental_configs=entries)]
    admin = AdminClient({"bootstrap.servers": server})  # it has to live until the answer
    for answer in admin.incremental_alter_configs(changes).values():
        answer.result(30)
