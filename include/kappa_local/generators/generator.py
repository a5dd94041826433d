"""Producing a scenario's generated records to Kafka."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kappa import clock
from kappa.config import Config
from kappa.errors import UsageError
from kappa.kafka.broker import Broker
from kappa.kafka.client_file import creator_options
from kappa.kafka.connection import explained, producer_settings, unreachable
from kappa_local.generators import customers as customers_module
from kappa_local.generators import invoices, logs, movies_music, orders, stocks, text_inventory
from kappa_local.generators.draws import DEFAULT_START, Block, Course, Made, Stream

_AHEAD = "message.timestamp.after.max.ms"
#: Kafka applies retention to the time in a record, and generated times are old. No time is more than an hour ahead, as
#: with brokers since Kafka 4.0: one record of the far future would make all later ones late.
TOPIC_CONFIG = {"retention.ms": "-1", _AHEAD: "3600000"}


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The kind of generated records, and their topic.

    Attributes:
        topic: default topic of its records.
        make: function that makes its records; None for invoices, which have options of their own.
        is_text: whether values are text instead of JSON.
        time_step: default time between two records.
    """

    topic: str
    make: Callable[[Block], Iterable[Made]] | None = None
    is_text: bool = False
    time_step: timedelta = timedelta(milliseconds=100)


SCENARIOS = {
    "retail": Scenario(topic=invoices.TOPIC),
    "stocks": Scenario(topic=stocks.TICKS, make=stocks.ticks),
    "logs": Scenario(topic=logs.LOGS, make=logs.actions),
    "page-views": Scenario(topic=logs.PAGE_VIEWS, make=logs.page_views),
    "captcha": Scenario(topic=logs.CAPTCHA, make=logs.captchas),
    "text": Scenario(topic=text_inventory.LINES, make=text_inventory.lines, is_text=True),
    "inventory": Scenario(topic=text_inventory.ITEMS, make=text_inventory.items),
    "movies": Scenario(topic=movies_music.RATINGS, make=movies_music.ratings),
    "music": Scenario(topic=movies_music.PLAYS, make=movies_music.plays),
    "customers": Scenario(topic=customers_module.CUSTOMERS, make=customers_module.changes),
    "order-events": Scenario(topic=orders.ORDER_EVENTS, make=orders.events, time_step=orders.STEP),
    "payments": Scenario(topic=orders.PAYMENTS, make=orders.payments, time_step=orders.STEP),
    "products": Scenario(topic=orders.PRODUCTS, make=orders.products, time_step=orders.STEP),
}

_CONNECT_SECONDS = 8.0
_DELIVERY_SECONDS = 120.0
_TICK_SECONDS = 0.01
_REPORT_SECONDS = 0.5
#: The longest delivery at a rate: ten years.
_MOST_SECONDS = 315_360_000


@dataclass(frozen=True, kw_only=True)
class Produced:
    """The result of a delivery.

    Attributes:
        topic: the topic.
        first: index of the first record.
        records: number of delivered records, each acknowledged by all replicas in sync.
        bad: number of intentionally bad records among them.
        repeated: number of records that are in the topic twice: Kafka drops a producer's state when the newest time in
            its records is more than a day old (``producer.id.expiration.ms``), so a restarted broker stores a batch
            again that it had stored but not acknowledged. Records with times of today are never repeated. Includes
            records of other producers.
        seconds: from the first record to the last acknowledgement.
    """

    topic: str
    first: int
    records: int
    bad: int
    repeated: int
    seconds: float

    @property
    def next_index(self) -> int:
        """Index of the next record."""
        return self.first + self.records


def produce(
    config: Config,
    scenario: str,
    *,
    records: int,
    rate: float | None = None,
    bad_share: float = 0.0,
    out_of_order: float = 0.0,
    rogue_future: bool = False,
    seed: int = 1,
    stores: int = 24,
    customers: int | None = None,
    partitions: int = 3,
    start_time: datetime = DEFAULT_START,
    time_step: timedelta | None = None,
    first: int | None = None,
    topic: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Produced:
    """Produce generated records and wait for their delivery; a missing topic is created without a retention limit.

    Args:
        config: names the brokers.
        scenario: one of :data:`SCENARIOS`.
        records: number of records.
        rate: records per second; None means as fast as possible.
        bad_share: share of bad values.
        out_of_order: share of records with an earlier time.
        rogue_future: whether some of those lie far in the future.
        seed: another seed, other records.
        stores: number of stores, which are the keys; only for ``retail``.
        customers: number of customers, only for ``retail``; None lets it grow with the records.
        partitions: partitions of a new topic; an existing one must have the same number.
        start_time: time of record 0.
        time_step: time between two records; by default the scenario's.
        first: index of the first record; by default the end of the topic, so that two runs give the records of one.
        topic: by default the scenario's.
        progress: called about twice a second with the records handed over so far and ``records``.

    A crash leaves a part of the records in the topic, in order; call again to continue. A broker that dies meanwhile
    loses no record, and repeated records are counted. A new topic accepts no record more than an hour ahead of the
    clock, unless ``rogue_future`` is set.

    Raises:
        UsageError: unknown scenario, a number that makes no sense, or times that the topic refuses.
        TopologyError: the topic exists with another number of partitions, or refuses a record.
        BrokerUnreachableError: Kafka does not answer, or a record was not delivered; then start with a new topic.
    """
    recipe = scenario_of(scenario)
    topic = topic or recipe.topic
    if records < 0 or (rate is not None and not 0 < rate < math.inf):
        raise UsageError(
            f"records={records} and rate={rate} must be positive numbers. Write them like 1000 and 0.5.",
            records=records,
            rate=rate,
        )
    if rate is not None and records / rate > _MOST_SECONDS:
        raise UsageError(
            f"{records} records at rate={rate} per second would take longer than {_MOST_SECONDS // 31_536_000} years. "
            "Use a higher rate, or fewer records.",
            records=records,
            rate=rate,
        )
    options: dict[str, Any] = {
        "seed": seed,
        "bad_share": bad_share,
        "out_of_order": out_of_order,
        "rogue_future": rogue_future,
        "start_time": start_time,
        "time_step": recipe.time_step if time_step is None else time_step,
    }
    course: Course
    if recipe.make is None:
        course = invoices.Invoices(stores=stores, customers=customers, **options)
    else:
        course = Stream(make=recipe.make, is_text=recipe.is_text, **options)
    with Broker(config.bootstrap_servers) as broker:
        any_time = {_AHEAD: str(2**63 - 1)} if rogue_future else {}
        broker.create_topic(topic, partitions, TOPIC_CONFIG | any_time)
        before = _ends(broker, topic)
        first = before if first is None else first
        last = _last_time(start_time, first + records, options["time_step"])
        _check_ahead(broker, config.bootstrap_servers, topic, None if rogue_future else last)
        delivery = _Delivery(config.bootstrap_servers, topic, linger_ms=5 if rate else 50)
        seconds = delivery.run(course, first, records, rate, progress)
        repeated = _ends(broker, topic) - before - records
    bad = course.bad(first, first + records)
    return Produced(topic=topic, first=first, records=records, bad=bad, repeated=repeated, seconds=seconds)


def _last_time(start: datetime, records: int, step: timedelta) -> datetime:
    """The time after this many records.

    Raises:
        UsageError: no calendar has it.
    """
    try:
        return start + records * step
    except OverflowError:
        raise UsageError(
            f"{records:,} records, one every {step} from {start} on, end after the year 9999. Use fewer records.",
            records=records,
        ) from None


def _check_ahead(broker: Broker, servers: str, topic: str, last: datetime | None) -> None:
    """Raise an error if the topic would refuse a record because of its time.

    Args:
        last: time of the last record; None if records may have any future time.

    Raises:
        UsageError: it accepts no record of that time.
    """
    settings = broker.topic_configs([topic])[topic]
    if settings.get("message.timestamp.type") != "CreateTime" or _AHEAD not in settings:
        return
    ahead = (last - clock.now()) // timedelta(milliseconds=1) if last is not None else 10 * 366 * 24 * 3_600_000
    if ahead > int(settings[_AHEAD]):
        what = "years" if last is None else f"{last - clock.now()}"
        raise UsageError(
            f"Some records are {what} ahead of the clock, and topic {topic!r} accepts none that is more than "
            f"{timedelta(milliseconds=int(settings[_AHEAD]))} ahead ({_AHEAD}={settings[_AHEAD]}). Name another "
            f"--topic, or raise it: kafka-configs.sh {creator_options(servers)} --alter --entity-type topics "
            f"--entity-name {topic} --add-config {_AHEAD}={2**63 - 1}",
            topic=topic,
        )


def _ends(broker: Broker, topic: str) -> int:
    return sum(offset for _, offset in broker.high_watermarks([topic]).items())


class _Delivery:
    """One run of a producer whose failures are counted."""

    def __init__(self, bootstrap_servers: str, topic: str, *, linger_ms: int) -> None:
        self._bootstrap_servers, self._topic = bootstrap_servers, topic
        self._producer = Producer(
            producer_settings(bootstrap_servers)
            | {"linger.ms": linger_ms, "queue.buffering.max.messages": 200_000}
            | {"message.timeout.ms": int(_DELIVERY_SECONDS * 1000)}
        )
        self._failures = 0
        self._failure: KafkaError | None = None

    def run(
        self, course: Course, first: int, count: int, rate: float | None, progress: Callable[[int, int], None] | None
    ) -> float:
        producer, topic, failed = self._producer, self._topic, self._failed
        produce, start, reported = producer.produce, time.monotonic(), time.monotonic()
        tick = 1000 if rate is None else max(1, int(rate * _TICK_SECONDS))
        try:
            for number, (key, value, timestamp) in enumerate(course.records(first, first + count)):
                if number % tick == 0:
                    producer.poll(0)
                    self._check(number)
                    now = time.monotonic()
                    if progress and now - reported > _REPORT_SECONDS:
                        progress(number, count)
                        reported = now
                    if rate is not None and (ahead := start + number / rate - now) > 0:
                        time.sleep(ahead)
                while True:
                    try:
                        produce(topic, value, key, on_delivery=failed, timestamp=timestamp)
                        break
                    except BufferError:
                        producer.poll(0.05)
                        self._check(number)
        except KafkaException as error:
            raise explained(error, self._bootstrap_servers, f"producing to {topic!r}") from error
        finally:
            rest = producer.flush(_DELIVERY_SECONDS)
        self._check(count)
        if rest:
            raise unreachable(self._bootstrap_servers, f"{rest} of {count} records for {topic!r} were not acknowledged")
        if progress:
            progress(count, count)
        return time.monotonic() - start

    def _failed(self, error: KafkaError | None, message: Message) -> Any:
        if error is not None:
            self._failures += 1
            self._failure = self._failure or error

    def _check(self, count: int) -> None:
        if self._failure is not None:
            raise explained(
                self._failure,
                self._bootstrap_servers,
                f"producing to {self._topic!r}: {self._failures} of {count} records were not delivered",
            )


def scenario_of(name: str) -> Scenario:
    """The scenario of that name.

    Raises:
        UsageError: there is none; the message has the nearest name.
    """
    if name not in SCENARIOS:
        near = get_close_matches(name, SCENARIOS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else f" There is: {', '.join(sorted(SCENARIOS))}."
        raise UsageError(f"Unknown scenario {name!r}.{hint}", scenario=name)
    return SCENARIOS[name]
