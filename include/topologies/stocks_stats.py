"""Statistics of each symbol over the last five seconds, every second, by the time of the ticks."""

from kappa import Append, Effects, Slice, Source, Topic, Topology
from kappa.operators import agg, hopping_window

TICK = "symbol STRING NOT NULL, CreatedTime BIGINT NOT NULL, price DECIMAL(12,2) NOT NULL"

prices = hopping_window(
    rows=TICK,
    key="symbol",
    size="5 seconds",
    every="1 second",
    aggregates={
        "trades": agg.count(),
        "lowest": agg.min("price"),
        "highest": agg.max("price"),
        "average": agg.avg("price"),
    },
    keep="1 hour",
)


def measure(slice: Slice) -> Effects:
    """Every update of a window for the table; its last one, once, for the topic."""
    windows = prices(slice["ticks"], before=slice.table("windows"), frontier=slice.frontier("ticks"))
    return {"windows": windows.changes, "stats": windows.final, "late_records": windows.late}


stats = Topology(
    name="stocks.stats",
    version="2",
    sources=[Source(topic="ticks", schema=TICK, time="CreatedTime", grace="10 seconds")],
    tables=[prices.table("windows")],
    outputs=[
        Append(name="stats", schema=prices.schema),
        Topic(name="stats-out", of="stats", key="symbol", time="window_end"),
    ],
    step=measure,
)
