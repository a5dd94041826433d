"""An epoch whose table has as many keys as wanted, without the history that would lead to them.

The epoch is planned by the product. Then, instead of its driver, this claims its ledger, creates its tables, writes the
rows in one Delta commit as slice 0, and lets the product seed it as empty: commit 0 then names the Delta version that
holds the rows. The driver that comes next finds a seeded epoch, goes live, and writes the whole state to the changelog.
The keys are customers as the generator makes them, so that invoices hit them.
"""

from __future__ import annotations

from decimal import Decimal

from benchmarks.site import TABLE, TOPOLOGY, Site, now, say
from kappa.delta import tables
from kappa.kafka.broker import Broker
from kappa.record.epochs import epochs_of
from kappa.record.events import Event, EventKind
from kappa.record.ledger import Ledger
from kappa.slices.places import create_tables
from kappa.slices.run import Engines, EpochRun
from kappa.slices.seeding import SeedSource, seed
from kappa.slices.topics import changelog
from kappa.topology import registry
from kappa_local.generators.invoices import Invoices

FIRST_CARD = 2_000_000_000
WRITER = "benchmark:seed"


def seeded(site: Site, keys: int) -> int:
    """Plan an epoch and seed it with so many keys; the epoch. Its driver is not running."""
    import pyarrow as pa

    unlaunched = site.without_launcher()
    epoch = unlaunched.replay()
    plan = site.record().epoch(epoch).plan
    topology, paths, ledger = (
        registry.load(site.config.topologies, TOPOLOGY),
        site.paths(epoch),
        Ledger(site.paths(epoch).ledger),
    )
    ledger.create()
    ledger.claim(WRITER, plan.code, ledger.state())
    with Broker(site.config.bootstrap_servers) as broker:
        broker.set_group_offsets(paths.name, plan.start)
        changelog.create_topics(broker, topology, paths, len(plan.start))
        _event(site, epoch, "rewound")
        create_tables(topology, paths)
        cards = pa.array([str(FIRST_CARD + number) for number in range(keys)])
        points = pa.array([Decimal("1.0000")], pa.decimal128(18, 4)).take(pa.array([0] * keys))
        tables.append(paths.table(TABLE), pa.table({"CustomerCardNo": cards, "TotalLoyaltyPoints": points}), 0)
        run = EpochRun(
            topology=topology,
            paths=paths,
            writer=WRITER,
            code=plan.code,
            ledger=ledger,
            topic_ids=dict(plan.topic_ids),
            engines=Engines(session=None, broker=broker, bootstrap_servers=site.config.bootstrap_servers),  # type: ignore[arg-type]
        )
        seed(run, SeedSource(kind="empty"), plan.start)
        _event(site, epoch, "seeded")
    say(f"an epoch with {keys:,} keys is seeded")
    return epoch


def _event(site: Site, epoch: int, event: EventKind) -> None:
    epochs_of(site.config.lake).change(
        TOPOLOGY, lambda _: [Event(topology=TOPOLOGY, epoch=epoch, event=event, at=now(), actor="benchmark")]
    )


def invoices(keys: int) -> Invoices:
    """Invoices of that many customers, any of them as likely as another."""
    return Invoices(customers=keys)
