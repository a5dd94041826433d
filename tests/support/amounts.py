"""A topology with an output made record by record beside one of running totals: some days of records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

from kappa import serving
from kappa.record.epochs import Epochs
from kappa.record.events import Event

if TYPE_CHECKING:
    from support.epochs import Lab
else:
    Lab = object

#: Rows of ``moves`` are made from one record each, those of ``totals`` are not.
STATELESS = '''
"""Amounts, version {version}: each counts {factor} times."""

from kappa.operators import running_total
from kappa.topology import Append, Source, Topic, Topology

MOVES = Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL")
balances = running_total(
    MOVES, rows="id STRING, counted BIGINT", key="id", amount="counted", total="total", table="balances"
)

def step(slice):
    """A move for each record, and running totals of the accounts."""
    moves = slice["{topic}"].selectExpr("*", "CAST(amount * {factor} AS BIGINT) AS counted")
    return {{"moves": moves.where("amount >= 0"), "totals": balances(slice, moves).rows}}


amounts = Topology(
    name="{name}",
    version="{version}",
    sources=[MOVES],
    operators=[balances],
    outputs=[
        Append(name="moves", schema="id STRING NOT NULL, counted BIGINT"),
        Append(name="totals", schema="id STRING NOT NULL, total BIGINT"),
        Topic(name="{topic}.moves", of="moves", key="id"),
    ],
    step=step,
)
'''
BEGIN = datetime(2023, 11, 14, tzinfo=UTC)
DAY = timedelta(days=1)
#: Partition, offset, account, amount as the code counts it.
Move = tuple[int, int, str, int]


class AmountsMixin(Lab):
    """For labs and rigs: days of a hundred records."""

    template: ClassVar[str] = STATELESS

    def day(self, number: int, records: int = 100) -> None:
        """Records of one day, in both partitions; the last one of each is late by a day."""
        start_ms = int((BEGIN + number * DAY).timestamp() * 1000)
        for partition in (0, 1):
            rows = [(f"k{partition}{i % 7}", i) for i in range(records // 2)]
            self.produce(rows[:-1], partition=partition, start_ms=start_ms, step_ms=60_000)
            self.produce(rows[-1:], partition=partition, start_ms=start_ms - 86_000_000)

    def moves(self) -> list[Move]:
        """Rows of ``moves`` as a reader has them."""
        rows = serving.snapshot(self.config, self.name).rows("moves").to_pylist()
        return sorted((r["_partition"], r["_offset"], r["id"], r["counted"]) for r in rows)

    def ended(self, backfill: Event) -> list[Event]:
        """The event that ended a backfill, if any."""
        return [e for e in Epochs(self.config.lake).events() if e.detail.get("backfill") == backfill.n]


def doubled(rows: list[Move], first: int, last: int) -> list[Move]:
    """Rows of three days in which those of some days count twice: 50 records of a partition are a day."""
    return [(p, o, k, n * (2 if first * 50 <= o < last * 50 else 1)) for p, o, k, n in rows]
