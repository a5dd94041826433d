"""(n) The work of ``retail.loyalty`` version 2 beside Kafka Streams, each as whole processes on one broker.

One topic of four partitions. Each of these has the machine for itself, and is measured from the start of its process:

- a first epoch from the beginning: notifications sent, state in its changelog; to its last commit;
- a held replay of the same code from Kafka, and one from the archive; to their last commits;
- Kafka Streams, exactly-once: notifications sent, state in its changelog; to the last notification that a consumer of
  committed records can see;
- Kafka Streams with its state taken away, until it runs again; and the rebuild of the same table after the lake was
  deleted, from the request until it is live.

Before any figure counts, the notifications in both output topics are compared, invoice by invoice, and the balances
that follow from them, customer by customer. Order among partitions is not defined, so the balance in between is not.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, TopicPartition

from benchmarks.peers.kafka_streams import KafkaStreams, Restore, Run
from benchmarks.rebuild import rebuilt
from benchmarks.replay import SLICES
from benchmarks.result import Figure
from benchmarks.site import ACTOR, OUTPUT, SOURCE, TABLE, TOPOLOGY, Site, now, say
from kappa import control, serving
from kappa.archive.writer import Archiver, run
from kappa.kafka.broker import Broker
from kappa.kafka.connection import client_settings
from kappa_local import generator

if TYPE_CHECKING:
    import polars as pl

PARTITIONS, PEER_OUTPUT = 4, "peer-loyalty"
#: Digits behind the point that are compared: all that a decimal of the topology has.
_DIGITS = 4


def measure(site: Site) -> list[Figure]:
    """Run it."""
    records = site.scale.records
    made = generator.produce(site.config, "retail", records=records, partitions=PARTITIONS)
    say(f"{made.records:,} invoices produced in {made.seconds:.0f} s")
    site = site.with_slices(min(site.config.slice_records, -(-records // SLICES)))
    site.deploy(2)
    begun = now()
    first = site.start()
    site.settle(first)
    kappa = {"first epoch": _until_last_commit(site, first, begun)}
    site.stop(first)
    kappa["held replay from Kafka"] = _held(site, archive=False)
    with Archiver(site.config, SOURCE) as archiver:
        run([archiver])
    kappa["held replay from the archive"] = _held(site, archive=True)

    ours = _notifications(site, OUTPUT)
    peer, restore = _kafka_streams(site, len(ours))
    theirs = _notifications(site, PEER_OUTPUT)
    keys = _compare(site, ours, theirs)
    shutil.rmtree(site.config.lake)
    begun = now()
    epoch = rebuilt(site)
    site.until(lambda: site.record().live == epoch and site.state(epoch).has_sent, "the rebuilt epoch is live", epoch)
    rebuild = (now() - begun).total_seconds()
    say(f"rebuild of {keys:,} keys {rebuild:.1f} s")
    return _figures(site, kappa, peer, restore, rebuild, keys=keys, notifications=len(ours))


def _figures(
    site: Site, kappa: dict[str, float], peer: Run, restore: Restore, rebuild: float, *, keys: int, notifications: int
) -> list[Figure]:
    wanted = {"first epoch": 0.5, "held replay from Kafka": 0.6, "held replay from the archive": 1.0}
    if site.scale.records > site.scale.full:  # the start of processes is a smaller part
        wanted = {"first epoch": 0.8, "held replay from Kafka": 1.0, "held replay from the archive": 2.0}
    records = site.scale.records
    detail = {"records": records, "notifications": notifications, "customers": keys}
    rates = [
        Figure(
            part="n",
            name=f"{name}, whole process, over Kafka Streams",
            value=peer.seconds / seconds,
            unit="x",
            wanted=f">= {wanted[name]}",
            detail={**detail, "seconds": seconds, "peer_seconds": peer.seconds},
        )
        for name, seconds in kappa.items()
    ]
    return [
        *rates,
        Figure(part="n", name="Kafka Streams, whole process", value=records / peer.seconds, unit="records/s"),
        Figure(part="n", name="first epoch, whole process", value=records / kappa["first epoch"], unit="records/s"),
        Figure(part="n", name="Kafka Streams, most memory of its process", value=peer.memory / 2**20, unit="MiB"),
        Figure(
            part="n",
            name="rebuild from the changelog, request to live again, over Kafka Streams' restore",
            value=rebuild / restore.seconds,
            unit="x",
            detail={"seconds": rebuild, "keys": keys, "peer_seconds": restore.seconds, "peer_records": restore.records},
        ),
    ]


def _held(site: Site, *, archive: bool) -> float:
    """Seconds of a replay by a driver process; its epoch is aborted."""
    begun = now()
    epoch = site.replay(archive=archive)
    site.until(lambda: site.at(epoch, "replayed"), "the replay ends", epoch, pause=0.5)
    seconds = _until_last_commit(site, epoch, begun)
    control.abort(site.config, TOPOLOGY, epoch, **ACTOR)
    return seconds


def _until_last_commit(site: Site, epoch: int, begun: datetime) -> float:
    (*_, last) = [row for row in site.state(epoch).commits if row.rows_read]
    seconds = (last.at - begun).total_seconds()
    say(f"epoch {epoch} has read all of it {seconds:.1f} s after its launch")
    return seconds


def _kafka_streams(site: Site, expected: int) -> tuple[Run, Restore]:
    with Broker(site.config.bootstrap_servers) as broker:
        broker.create_topic(PEER_OUTPUT, PARTITIONS, {})
    peer = KafkaStreams(
        site.config.home / "peer",
        cache=site.config.cache,
        bootstrap_servers=site.config.bootstrap_servers,
        source=SOURCE,
        output=PEER_OUTPUT,
        partitions=PARTITIONS,
    )
    done = peer.run(expected)
    say(f"Kafka Streams has sent all of it {done.seconds:.1f} s after its launch")
    restore = peer.restore()
    say(f"Kafka Streams runs {restore.seconds:.1f} s after its launch, {restore.records:,} records restored")
    return done, restore


def _notifications(site: Site, topic: str) -> pl.DataFrame:
    """Committed records of a topic: invoice, customer, points of the invoice, balance; by invoice."""
    import polars as pl

    columns = {
        "InvoiceNumber": pl.String,
        "CustomerCardNo": pl.String,
        "EarnedLoyaltyPoints": pl.Float64,
        "TotalLoyaltyPoints": pl.Float64,
    }
    found = pl.Series(_values(site, topic), dtype=pl.String).str.json_decode(pl.Struct(columns)).struct.unnest()
    return found.with_columns(pl.selectors.float().round(_DIGITS)).sort("InvoiceNumber")


def _values(site: Site, topic: str) -> Sequence[str]:
    consumer = Consumer(
        {
            **client_settings(site.config.bootstrap_servers),
            "group.id": "benchmark",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    with Broker(site.config.bootstrap_servers) as broker:
        partitions = broker.partitions(topic)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found, ended = [], 0
    while ended < partitions:
        for message in consumer.consume(10_000, 1.0):
            error = message.error()
            if error is None:
                found.append((message.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended += 1
            else:
                raise AssertionError(str(error))
    consumer.close()
    return found


def _compare(site: Site, ours: pl.DataFrame, theirs: pl.DataFrame) -> int:
    """Hold both outputs against each other, and the table against the balances that were sent; number of customers."""
    import polars as pl

    earned = ["InvoiceNumber", "CustomerCardNo", "EarnedLoyaltyPoints"]
    if not ours.select(earned).equals(theirs.select(earned)):
        raise AssertionError(f"Both engines sent other notifications: {len(ours):,} and {len(theirs):,} of them.")
    balances = [
        found.group_by("CustomerCardNo").agg(pl.col("TotalLoyaltyPoints").max()).sort("CustomerCardNo")
        for found in (ours, theirs)
    ]
    snapshot = serving.snapshot(site.config, TOPOLOGY)
    table = pl.from_arrow(
        snapshot.rows(TABLE, select='"CustomerCardNo", CAST("TotalLoyaltyPoints" AS DOUBLE) AS "TotalLoyaltyPoints"')
    )
    assert isinstance(table, pl.DataFrame)
    for name, found in (("Kafka Streams", balances[1]), ("the table", table.sort("CustomerCardNo"))):
        if not balances[0].equals(found.with_columns(pl.col("TotalLoyaltyPoints").round(_DIGITS))):
            raise AssertionError(f"The balances that were sent are not those of {name}.")
    say(f"{len(ours):,} notifications and {len(balances[0]):,} balances are equal")
    return len(balances[0])
