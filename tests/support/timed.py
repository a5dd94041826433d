"""A topology of windows and a join on event time: days of records out of order, some late across midnight."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import orjson
from confluent_kafka import Producer

from kappa import serving
from kappa.record.epochs import Epochs
from kappa.record.events import Event

if TYPE_CHECKING:
    from support.epochs import Lab
else:
    Lab = object

TIMED = '''
"""Amounts by the hour, and pairs of near ones, version {version}: each counts {factor} times."""

from kappa.operators import agg, hopping_window, interval_join, running_total, session_window, tumbling_window
from kappa.topology import Append, Source, Topology

MOVES = Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL", grace="{grace}")
SUMS = {{
    "key": "id",
    "aggregates": {{"of.records": agg.count(), "counted": agg.sum("counted")}},
    "rows": "id STRING, counted BIGINT",
}}
hours = tumbling_window(MOVES, size="1 hour", keep="3 days", table="open_hours", **SUMS)
hops = hopping_window(MOVES, size="4 hours", every="2 hours", table="open_hops", **SUMS)
visits = session_window(MOVES, gap="2 hours", table="open_visits", **SUMS)
totals = running_total(
    MOVES, rows="id STRING, counted BIGINT", key="id", amount="counted", total="total", table="balances"
)
pairs = interval_join(
    MOVES, MOVES, key="id", within="1 hour", how="left", tables=("evens", "odds"),
    left_rows="id STRING, amount BIGINT, at TIMESTAMP", right_rows="id STRING, counted BIGINT",
)
each = [hours, hops{more_operators}]


def step(slice):
    """Windows, sessions, pairs and running totals of what is counted."""
    counted = slice["{topic}"].selectExpr("*", "CAST(amount * {factor} AS BIGINT) AS counted", "_event_time AS at")
    for operator in each:
        operator(slice, counted)
    pairs(slice, counted.where("amount % 2 = 0"), counted.where("amount % 2 = 1"))
    return {{"moves": counted}}


amounts = Topology(
    name="{name}",
    version="{version}",
    sources=[MOVES],
    operators=[*each, pairs],
    outputs=[
        Append(name="hours", of=hours.final),
        Append(name="hops", of=hops.final),
        Append(name="pairs", of=pairs.rows, time="at"),
        Append(name="moves", schema="id STRING NOT NULL, counted BIGINT"),
        {more_outputs}
    ],
    step=step,
)
'''
#: Outputs that no interval bounds, and one that names no time.
MORE = {
    "more_operators": ", visits, totals",
    "more_outputs": """
        Append(name="visits", of=visits.final), Append(name="untimed", of=pairs.rows),
        Append(name="totals", of=totals.rows, schema="id STRING NOT NULL, total BIGINT"),
""",
}
BEGIN = datetime(2023, 11, 14, tzinfo=UTC)
DAY = timedelta(days=1)
#: The outputs that an interval of event time bounds, and the table that keeps closed windows.
BOUNDED = ("hours", "hops", "pairs", "open_hours")


class TimedMixin(Lab):
    """For labs and rigs: days of records out of order."""

    template: ClassVar[str] = TIMED
    more: ClassVar[dict[str, str]] = dict.fromkeys(MORE, "")

    def deploy(self, version: int, factor: int | str | None = None, grace: str = "3 hours") -> None:
        """Change the file in the topologies folder."""
        text = self.template.format(
            version=version, factor=factor or version, topic=self.topic, name=self.name, grace=grace, **self.more
        )
        (self.config.topologies / "balances.py").write_text(text)

    def day(self, number: int, records: int = 60) -> None:
        """Records of one day, in both partitions: out of order by up to two hours, so that some of them come after
        midnight, others after the grace.
        """
        chance = random.Random(number)
        # Sent by the flush, those of a partition in one batch.
        producer = Producer({"bootstrap.servers": self.config.bootstrap_servers, "linger.ms": 60_000})
        start_ms = int((BEGIN + number * DAY).timestamp() * 1000)
        for partition in (0, 1):
            times = [(at + chance.randint(0, 120), at) for at in range(0, 24 * 60, 24 * 60 // records)]
            times.append((100, -30))  # of the day before, within the grace
            times.append((600, -30))  # and beyond it
            for _, minute in sorted(times):
                value = orjson.dumps({"id": f"k{chance.randint(0, 3)}", "amount": chance.randint(0, 99)})
                producer.produce(self.topic, value, partition=partition, timestamp=start_ms + minute * 60_000)
        assert producer.flush(30) == 0

    def rows(self, name: str, epoch: int | None = None) -> list[dict[str, Any]]:
        """Rows of an output as a reader has them, sorted, without the slice that wrote them."""
        table_rows = serving.snapshot(self.config, self.name, epoch=epoch).rows(name).to_pylist()
        bare_rows = [{column: value for column, value in row.items() if column != "_seq"} for row in table_rows]
        return sorted(bare_rows, key=lambda row: sorted(map(str, row.items())))

    def ended(self, backfill: Event) -> list[Event]:
        """The event that ended a backfill, if any."""
        return [e for e in Epochs(self.config.lake).events() if e.detail.get("backfill") == backfill.n]


def split(rows: list[dict[str, Any]], name: str, first: int, last: int) -> tuple[list[Any], list[Any]]:
    """Rows of some days, and the others."""
    column = "at" if name == "pairs" else "window_start"
    begin, end = BEGIN + first * DAY, BEGIN + last * DAY
    inside = [row for row in rows if begin <= row[column] < end]
    return inside, [row for row in rows if row not in inside]
