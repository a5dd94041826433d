"""(h) A day of small slices: what a table and its changes take on disk as commits, savepoints and merges come and go.

One slice a minute changes random keys of a table. Everything that a driver does with the table's files is done as a
driver does it: line 4 and 5 of the slice protocol, merges while nothing comes, and the looks after files when they are
due; there is no step and no Kafka. The clock is moved on by hand. Delta's own clock cannot be: removed files are named
in the logs for ``REMEMBERED`` seconds of the run instead of two hours, which should be more than these take (it is
printed how long an hour of the day took). Measured after every act is all that is in the folders of the table and of
its changes, logs included, over the size of the table's own newest files.
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.result import Figure
from benchmarks.site import Site, say
from kappa import clock
from kappa.delta import table_files, tables
from kappa.driver.maintenance import is_due, maintain
from kappa.names import EpochPaths
from kappa.offsets.vector import OffsetRange
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.slices.merging import merge_between
from kappa.slices.places import create_tables
from kappa.slices.protocol import apply_changes, commit_slice
from kappa.slices.run import Engines, EpochRun
from kappa.topology import Source, Table, Topology

if TYPE_CHECKING:
    import pyarrow as pa

KEYS, CHANGES = 100_000, 4_000
#: At full size an hour of the day takes one to two minutes.
REMEMBERED = 240
TABLE = Table(name="rewards", key=["card"], schema="card STRING NOT NULL, points DECIMAL(18, 4), seen BIGINT")
TOPOLOGY = Topology(
    name="benchmark.day",
    version="1",
    sources=[Source(topic="pos", schema="card STRING NOT NULL")],
    tables=[TABLE],
    step=lambda _: {},
)


def measure(site: Site) -> list[Figure]:
    """Run it."""
    keys, changes, slices = site.scale.of(KEYS), site.scale.of(CHANGES), site.scale.slices
    at, real, configuration = datetime(2026, 3, 1, tzinfo=UTC), clock.now, dict(tables.CONFIGURATION)
    clock.now = lambda: at
    tables.CONFIGURATION["delta.deletedFileRetentionDuration"] = f"interval {REMEMBERED} seconds"
    try:
        epoch = _Epoch(site, keys)
        peak: dict[str, float] = {"all": 0.0}
        start, merges, looks, written, sizes = time.monotonic(), 0, 0, 0, {}
        for number in range(slices):
            for _ in range(2):  # nothing comes for half a minute, twice
                at += timedelta(seconds=30)
                merges += merge_between(epoch.run)
            epoch.slice(changes)
            current = epoch.ratios()
            peak = max(peak, current, key=lambda ratios: ratios["all"])
            new = {file: file.stat().st_size for file in epoch.files(".parquet") if file not in sizes}
            sizes.update(new)
            written += sum(new.values())
            if is_due(epoch.run.ledger.state(), site.config, at):
                maintain(epoch.run, site.config, at)
                looks += 1
            if number % 120 == 119:
                say(
                    f"{number + 1} slices in {time.monotonic() - start:.0f} s: peak {peak['all']:.1f}, now "
                    f"{epoch.ratios()['all']:.1f}; an hour takes {(time.monotonic() - start) * 60 / (number + 1):.0f} s"
                )
        state = epoch.run.ledger.state()
        detail = {
            "keys": keys,
            "changes": changes,
            "slices": slices,
            "looks": looks,
            "merges while idle": merges,
            "readable": len(state.readable),
            "at the peak": peak,
            "table_bytes": epoch.table_bytes(),
            "seconds of an hour": (time.monotonic() - start) * 60 / slices,
        }
        name = f"{slices:,} slices of {changes:,} changes, {keys:,} keys"
        return [
            Figure(
                part="h",
                name=f"{name}: most on disk over the table",
                value=peak["all"],
                unit="x",
                wanted="<= 20",
                detail=detail,
            ),
            Figure(part="h", name=f"{name}: of that copies of the table", value=peak["tables"], unit="x"),
            Figure(part="h", name=f"{name}: of that changes", value=peak["changes"], unit="x"),
            Figure(part="h", name=f"{name}: of that logs", value=peak["logs"], unit="x"),
            Figure(
                part="h",
                name=f"{name}: written over the table, each slice",
                value=written / slices / epoch.table_bytes(),
                unit="x",
            ),
        ]
    finally:
        clock.now = real
        tables.CONFIGURATION.update(configuration)


class _Epoch:
    """An epoch whose slices are made up."""

    def __init__(self, site: Site, keys: int) -> None:
        import pyarrow as pa

        self.paths = EpochPaths(lake=str(site.config.home / "day"), topology=TOPOLOGY.name, epoch=1)
        self.cards = pa.array([str(2_000_000_000 + number) for number in range(keys)])
        self.chance = random.Random(0)
        ledger = Ledger(self.paths.ledger)
        ledger.create()
        ledger.claim("benchmark", "code", ledger.state())
        create_tables(TOPOLOGY, self.paths)
        tables.append(self.paths.table("rewards"), self._rows(range(keys), 0).drop_columns(["_seq", "_deleted"]), 0)
        self.run = EpochRun(
            topology=TOPOLOGY,
            paths=self.paths,
            writer="benchmark",
            code="code",
            ledger=ledger,
            topic_ids={},
            engines=Engines(
                session=None,  # type: ignore[arg-type]
                broker=None,  # type: ignore[arg-type]
                bootstrap_servers="",
                merge_seconds=site.config.merge_seconds,
                savepoint_grain=timedelta(minutes=site.config.savepoint_minutes),
            ),
        )
        versions = {"tables/rewards": 1, "changes/rewards": 0, "dead_letters": 0}
        ledger.append(LedgerRow(kind="commit", seq=0, writer="benchmark", at=clock.now(), delta_versions=versions))

    def slice(self, changes: int) -> None:
        """One slice that changes so many keys, any of them as likely as another."""
        ledger = self.run.ledger
        seq = ledger.state().seq + 1
        ranges = (OffsetRange(topic="pos", partition=0, start=seq, end=seq + 1),)
        row = LedgerRow(kind="plan", seq=seq, writer="benchmark", at=clock.now(), ranges=ranges)
        plan = ledger.append(row)
        rows = self._rows(self.chance.sample(range(len(self.cards)), changes), seq)
        self.run.scratch.written = {"changes/rewards": rows}
        tables.append(self.paths.changes("rewards"), rows, seq)
        versions = {"changes/rewards": tables.version(self.paths.changes("rewards")), "dead_letters": 0}
        effects = ledger.append(
            LedgerRow(kind="effects", seq=seq, writer="benchmark", at=clock.now(), delta_versions=versions)
        )
        apply_changes(self.run, plan, effects)
        commit_slice(self.run, plan, effects)

    def _rows(self, numbers: range | list[int], seq: int) -> pa.Table:
        import pyarrow as pa

        count = len(numbers)
        points = [Decimal(self.chance.randrange(10**7)) for _ in range(count)]
        return pa.table(
            {
                "_seq": pa.array([seq] * count, pa.int64()),
                "_deleted": pa.array([False] * count),
                "card": self.cards.take(pa.array(numbers)),
                "seen": pa.array([seq] * count, pa.int64()),
                "points": pa.array(points, pa.decimal128(18, 4)),
            }
        ).select(["_seq", "_deleted", "card", "points", "seen"])

    def table_bytes(self) -> int:
        """Size of the table's newest files."""
        path = self.paths.table("rewards")
        return table_files.size_bytes(path, tables.version(path))

    def files(self, ending: str) -> list[Path]:
        """What is on disk of the table and its changes, logs left out."""
        places = (self.paths.table("rewards"), self.paths.changes("rewards"))
        return [file for place in places for file in Path(place).glob(f"*{ending}")]

    def ratios(self) -> dict[str, float]:
        """What is on disk over the table's size."""
        table, changes = self.paths.table("rewards"), self.paths.changes("rewards")
        sizes = {
            "tables": sum(file.stat().st_size for file in Path(table).glob("*.parquet")),
            "changes": sum(file.stat().st_size for file in Path(changes).glob("*.parquet")),
            "logs": sum(file.stat().st_size for at in (table, changes) for file in Path(at, "_delta_log").glob("*")),
        }
        whole = self.table_bytes()
        return {name: size / whole for name, size in {**sizes, "all": sum(sizes.values())}.items()}
