"""(e) What a small slice costs, and how many bytes it writes, at two sizes of state.

Each size is a synthetic epoch (see :mod:`benchmarks.synthetic`) that a driver process takes live. Then slices of 4,000
invoices are produced, each in one Kafka transaction, so that the stream sees all of it at once, and each only when the
one before is committed. Cost: from the plan row to the commit row. Bytes: files that the slice added to the epoch's
Delta tables.
"""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

from confluent_kafka import Producer

from benchmarks.result import Figure
from benchmarks.site import SOURCE, TABLE, Site, say
from benchmarks.site import site as another
from benchmarks.synthetic import invoices, seeded
from kappa.kafka.connection import producer_settings
from kappa.record.ledger_rows import LedgerRow

SLICE = 4_000
WARM_UP, COUNTED = 4, 10
SIZES = (100_000, 10_000_000)


def measure(site: Site) -> list[Figure]:
    """Run it."""
    sizes = [site.scale.of(size) for size in SIZES]
    few = _at(site, sizes[0])
    # A lake of its own: in one, the second epoch would be a replay beside the first. And a broker of its own: what was
    # sent there from one lake is not sent again from another.
    with another(Path(site.config.home).with_name("larger"), site.scale) as larger:
        many = _at(larger, sizes[1])
    ratio = Figure(
        part="e",
        name="slice at the larger state, over one at the smaller",
        value=many[0].value / few[0].value,
        unit="x",
        wanted="<= 2.0",
        detail={"keys": sizes},
    )
    return [ratio, *few, *many]


def _at(site: Site, keys: int) -> list[Figure]:
    site.deploy(2)
    site.generate(1)  # the topic
    epoch = live(site, keys)
    start = time.monotonic()
    produce(site, epoch, keys)
    say(f"{WARM_UP + COUNTED} slices in {time.monotonic() - start:.1f} s")
    site.stop(epoch)
    rows = [row for row in site.rows(epoch) if row.kind in ("plan", "commit")]
    plans = {row.seq: row for row in rows if row.kind == "plan"}
    commits = [row for row in rows if row.kind == "commit"]
    pairs = [(before, after) for before, after in pairwise(commits) if after.rows_read >= SLICE // 2][-COUNTED:]
    seconds = median((after.at - plans[after.seq].at).total_seconds() for _, after in pairs)
    written = [_bytes(site, epoch, before, after) for before, after in pairs]
    table, total = median(w[f"tables/{TABLE}"] for w in written), median(sum(w.values()) for w in written)
    detail = {"keys": keys, "slices": len(pairs), "records": [after.rows_read for _, after in pairs]}
    return [
        Figure(
            part="e",
            name=f"slice of {SLICE:,} records, {keys:,} keys: plan to commit",
            value=seconds,
            unit="s",
            detail=detail,
        ),
        Figure(
            part="e",
            name=f"slice of {SLICE:,} records, {keys:,} keys: written in all",
            value=total / 1e6,
            unit="MB",
            detail={"slices": written},
        ),
        Figure(
            part="e", name=f"slice of {SLICE:,} records, {keys:,} keys: of that the table", value=table / 1e6, unit="MB"
        ),
    ]


def live(site: Site, keys: int) -> int:
    """An epoch with so many keys that is live and has read what is there."""
    epoch = seeded(site, keys)
    site.start()
    site.settle(epoch)
    return epoch


def produce(site: Site, epoch: int, keys: int) -> None:
    """Slices of invoices, each when the one before is committed."""
    producer = Producer({**producer_settings(site.config.bootstrap_servers), "transactional.id": f"benchmark-{keys}"})
    producer.init_transactions(30)
    for number in range(WARM_UP + COUNTED):
        producer.begin_transaction()
        for key, value, timestamp in invoices(keys).records(number * SLICE, (number + 1) * SLICE):
            producer.produce(SOURCE, value, key, timestamp=timestamp)
        producer.commit_transaction(30)
        site.settle(epoch)


def _bytes(site: Site, epoch: int, before: LedgerRow, after: LedgerRow) -> dict[str, int]:
    """Bytes that were added to each Delta table between two commits."""
    root = Path(site.paths(epoch).root)
    return {
        place: sum(
            _added(root / place, version) for version in range(before.delta_versions.get(place, -1) + 1, newest + 1)
        )
        for place, newest in after.delta_versions.items()
    }


def _added(table: Path, version: int) -> int:
    actions = map(json.loads, (table / "_delta_log" / f"{version:020}.json").read_text().splitlines())
    return sum(action["add"]["size"] for action in actions if "add" in action)
