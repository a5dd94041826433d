"""What the demonstration proves at its end, each from outside: by a reader, plain Python, and Kafka's own tool."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from threading import Event

import orjson
from confluent_kafka import Consumer, TopicPartition

from kappa import control, serving
from kappa.config import Config
from kappa.kafka.broker import Broker
from kappa.names import EpochPaths
from kappa.record.epochs import epochs_of
from kappa_local import kafka

TOPOLOGY = "retail.loyalty"
SOURCE, OUTPUT = "pos", "loyalty"


class Reader:
    """A reader that polls the served tables throughout and checks every snapshot against what a snapshot promises."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.polls = 0
        self.epochs: Counter[int] = Counter()
        self.complaints: list[str] = []

    def run(self, stopping: Event) -> None:
        """Poll until told to stop."""
        position = None
        while not stopping.wait(0.2):
            snapshot = serving.snapshot(self._config, TOPOLOGY)
            self.polls += 1
            self.epochs[snapshot.epoch] += 1
            if position is not None and not snapshot.position.dominates(position):
                self.complaints.append(f"older: {snapshot.position} after {position}")
            position = snapshot.position
            if "tables/rewards" not in snapshot.versions:
                if not snapshot.rows("notifications", select="COUNT(*) AS n").to_pylist()[0]["n"]:
                    self.complaints.append(
                        f"missing: epoch {snapshot.epoch} slice {snapshot.seq} serves no notification"
                    )
                continue
            # Half a slice would show here: what customers earned by their notifications is what their balances add up
            # to.
            earned = snapshot.rows("notifications", select="SUM(EarnedLoyaltyPoints) AS s").to_pylist()[0]["s"]
            balance = snapshot.rows("rewards", select="SUM(TotalLoyaltyPoints) AS s").to_pylist()[0]["s"]
            if earned != balance:
                self.complaints.append(
                    f"mixed: epoch {snapshot.epoch} slice {snapshot.seq} earned {earned}, balances {balance}"
                )


def proofs(config: Config, reader: Reader) -> bool:
    """Print each proof; whether all held."""
    balances, numbers, bad = recomputed(config)
    served = {
        row["CustomerCardNo"]: row["TotalLoyaltyPoints"]
        for row in serving.snapshot(config, TOPOLOGY).rows("rewards").to_pylist()
    }
    sent = Counter(orjson.loads(value)["InvoiceNumber"] for value in read(config, OUTPUT))
    certificate = control.certify(config, TOPOLOGY)
    live = epochs_of(config.lake).record(TOPOLOGY).live or 0
    group = EpochPaths(lake=config.lake, topology=TOPOLOGY, epoch=live).name
    witness = group_lag(config, group)
    wrong = sum(1 for customer, balance in balances.items() if served.get(customer) != balance) + len(
        served.keys() - balances.keys()
    )
    results = [
        (
            wrong == 0,
            f"balances recomputed in plain Python from topic {SOURCE!r} equal the served table: {len(balances):,} "
            f"customers, {wrong} differ; {bad:,} bad records left aside",
        ),
        (
            sent == numbers,
            f"topic {OUTPUT!r} under read_committed holds each notification exactly once: {sum(sent.values()):,} "
            f"records, {len(sent):,} invoices, {len(numbers):,} expected",
        ),
        (
            not reader.complaints and reader.polls > 0,
            f"a reader that polled {reader.polls:,} times "
            f"({', '.join(f'epoch {e}: {n}' for e, n in sorted(reader.epochs.items()))}) met no mixed, missing or "
            "older state",
        ),
        (
            certificate.complete,
            f"the certificate is complete: {certificate.rows_read:,} records read = {certificate.rows_parsed:,} parsed "
            f"+ {certificate.rows_dead:,} dead letters",
        ),
        (witness == 0, f"Kafka's own kafka-consumer-groups sees group {group} with a lag of {witness}"),
    ]
    for held, text in results:
        print(f"{'PROVED ' if held else 'FAILED '} {text}")
    for complaint in reader.complaints[:5]:
        print(f"        {complaint}")
    return all(held for held, _ in results)


def recomputed(config: Config) -> tuple[dict[str, Decimal], Counter[str], int]:
    """Balances and notified invoices, from the raw topic, with the standard library and a JSON parser."""
    import json

    balances: dict[str, Decimal] = {}
    numbers: Counter[str] = Counter()
    bad = 0
    for value in read(config, SOURCE):
        try:
            invoice = json.loads(value, parse_float=Decimal)
            number, kind, amount = invoice["InvoiceNumber"], invoice["CustomerType"], Decimal(invoice["TotalAmount"])
        except (ValueError, KeyError, TypeError):
            bad += 1
            continue
        card = invoice.get("CustomerCardNo")
        if kind == "PRIME" and card is not None:
            numbers[number] += 1
            balances[card] = balances.get(card, Decimal(0)) + amount * Decimal("0.02")
    return balances, numbers, bad


def read(config: Config, topic: str) -> Iterator[bytes]:
    """Values of the committed records of a topic, by a plain consumer."""
    consumer = Consumer(
        {
            "bootstrap.servers": config.bootstrap_servers,
            "group.id": "witness",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    rest = set(partitions)
    while rest:
        for message in consumer.consume(10_000, 1.0):
            if message.error():
                rest.discard(message.partition())
            else:
                yield message.value() or b""
    consumer.close()


def group_lag(config: Config, group: str) -> int:
    """Lag of a consumer group as Kafka's own tool prints it."""
    command = kafka.tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "--bootstrap-server",
        config.bootstrap_servers,
        "--describe",
        "--group",
        group,
        cache=config.cache,
    )
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in output.splitlines() if line.startswith(group)]
    print("\n".join(line for line in output.splitlines() if line.strip()))
    # The last marker of a transaction takes an offset of its own, after the last record: not read, not lag.
    with Broker(config.bootstrap_servers) as broker:
        end, committed = broker.stable_offsets([SOURCE]), broker.group_offsets(group)
    return sum(int(row[5]) for row in rows) if rows else committed.count_to(end) or -1
