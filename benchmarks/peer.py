"""(n) The work of ``retail.loyalty`` version 2 beside Kafka Streams, each as whole processes on one broker.

One topic of four partitions. Each of these has the machine for itself, and is measured from the start of its process:

- a first epoch from the beginning: notifications sent, state in its changelog; to its last commit;
- a held replay of the same code from Kafka, and one from the archive; to stage ``REPLAYED``;
- Kafka Streams, exactly-once: notifications sent, state in its changelog; to the last notification that a consumer of
  committed records can see;
- Kafka Streams with its state taken away, until it runs again; and the rebuild of the same table after the lake was
  deleted, from the request until it is live.

Before any figure counts, the notifications in both output topics are compared, invoice by invoice, and the balances
that follow from them, customer by customer. Order among partitions is not defined, so the balance in between is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import rebuild, replay
from benchmarks.peers.kafka_streams import KafkaStreams, Restore, Run
from benchmarks.result import Figure
from benchmarks.site import LOOK_SECONDS, OUTPUT, SOURCE, TABLE, TOPOLOGY, Site, now, say
from kappa import serving
from kappa.archive.writer import Archiver, run
from kappa.kafka.broker import Broker

if TYPE_CHECKING:
    import polars as pl

PARTITIONS, PEER_OUTPUT = 4, "peer-loyalty"
#: Digits behind the point that are compared: all that a decimal of the topology has.
_DIGITS = 4


def measure(site: Site) -> list[Figure]:
    """Run it."""
    records = site.scale.records
    site.generate(records, partitions=PARTITIONS)
    site = site.with_slices(min(site.config.slice_records, -(-records // replay.SLICES)))
    site.deploy(2)
    start = now()
    first = site.start(pause=LOOK_SECONDS)
    site.settle(first, pause=LOOK_SECONDS)
    (*_, last) = [row for row in site.state(first).commits if row.rows_read]
    kappa = {"first epoch": (last.at - start).total_seconds()}
    say(f"the first epoch has read all of it {kappa['first epoch']:.1f} s after its launch")
    site.stop(first)
    kappa["held replay from Kafka"] = replay.whole_process(site, archive=False)
    with Archiver(site.config, SOURCE) as archiver:
        run([archiver])
    kappa["held replay from the archive"] = replay.whole_process(site)

    ours = _notifications(site, OUTPUT)
    peer, restore = _kafka_streams(site, len(ours))
    theirs = _notifications(site, PEER_OUTPUT)
    keys = _compare(site, ours, theirs)
    _, rebuilt = rebuild.whole_process(site)
    say(f"rebuild of {keys:,} keys {rebuilt:.1f} s")
    return _figures(site, kappa, peer, restore, rebuilt, keys=keys, notifications=len(ours))


def _figures(
    site: Site, kappa: dict[str, float], peer: Run, restore: Restore, rebuilt: float, *, keys: int, notifications: int
) -> list[Figure]:
    targets = {"first epoch": 0.5, "held replay from Kafka": 0.6, "held replay from the archive": 1.0}
    if site.scale.records > site.scale.full:  # the start of processes is a smaller part
        targets = {"first epoch": 0.8, "held replay from Kafka": 1.0, "held replay from the archive": 2.0}
    records = site.scale.records
    detail = {"records": records, "notifications": notifications, "customers": keys}
    rates = [
        Figure(
            part="n",
            name=f"{name}, whole process, over Kafka Streams",
            value=peer.seconds / seconds,
            unit="x",
            wanted=f">= {targets[name]}",
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
            value=rebuilt / restore.seconds,
            unit="x",
            detail={"seconds": rebuilt, "keys": keys, "peer_seconds": restore.seconds, "peer_records": restore.records},
        ),
    ]


def _kafka_streams(site: Site, expected: int) -> tuple[Run, Restore]:
    with Broker(site.config.bootstrap_servers) as broker:
        # Its records have the times of the invoices, which the broker's own retention may take for old.
        broker.create_topic(PEER_OUTPUT, PARTITIONS, {"retention.ms": "-1"})
    peer = KafkaStreams(
        site.config.home / "peer",
        cache=site.config.cache,
        bootstrap_servers=site.config.bootstrap_servers,
        source=SOURCE,
        output=PEER_OUTPUT,
        partitions=PARTITIONS,
    )
    peer_run = peer.run(expected)
    say(f"Kafka Streams has sent all of it {peer_run.seconds:.1f} s after its launch")
    restore = peer.restore()
    say(f"Kafka Streams runs {restore.seconds:.1f} s after its launch, {restore.records:,} records restored")
    return peer_run, restore


def _notifications(site: Site, topic: str) -> pl.DataFrame:
    """Committed records of a topic: invoice, customer, points of the invoice, balance; by invoice."""
    import polars as pl

    with Broker(site.config.bootstrap_servers) as broker:
        batches = broker.read(broker.low_watermarks([topic]), broker.stable_offsets([topic]))
        texts = [(message.value() or b"").decode() for batch in batches for message in batch]
    columns = {
        "InvoiceNumber": pl.String,
        "CustomerCardNo": pl.String,
        "EarnedLoyaltyPoints": pl.Float64,
        "TotalLoyaltyPoints": pl.Float64,
    }
    rows = pl.Series(texts, dtype=pl.String).str.json_decode(pl.Struct(columns)).struct.unnest()
    return rows.with_columns(pl.selectors.float().round(_DIGITS)).sort("InvoiceNumber")


def _compare(site: Site, ours: pl.DataFrame, theirs: pl.DataFrame) -> int:
    """Check both outputs against each other, and the table against the balances that were sent; number of customers."""
    import polars as pl

    earned = ["InvoiceNumber", "CustomerCardNo", "EarnedLoyaltyPoints"]
    if not ours.select(earned).equals(theirs.select(earned)):
        raise AssertionError(f"Both engines sent other notifications: {len(ours):,} and {len(theirs):,} of them.")
    balances = [
        frame.group_by("CustomerCardNo").agg(pl.col("TotalLoyaltyPoints").max()).sort("CustomerCardNo")
        for frame in (ours, theirs)
    ]
    snapshot = serving.snapshot(site.config, TOPOLOGY)
    table = pl.from_arrow(
        snapshot.rows(TABLE, select='"CustomerCardNo", CAST("TotalLoyaltyPoints" AS DOUBLE) AS "TotalLoyaltyPoints"')
    )
    assert isinstance(table, pl.DataFrame)
    for name, frame in (("Kafka Streams", balances[1]), ("the table", table.sort("CustomerCardNo"))):
        if not balances[0].equals(frame.with_columns(pl.col("TotalLoyaltyPoints").round(_DIGITS))):
            raise AssertionError(f"The balances that were sent are not those of {name}.")
    say(f"{len(ours):,} notifications and {len(balances[0]):,} balances are equal")
    return len(balances[0])
