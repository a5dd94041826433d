"""Trades and the range of prices of each symbol, five seconds after five seconds."""

from kappa import Append, Effects, Slice, Source, Topic, Topology
from kappa.operators import agg, tumbling_window

TICK = "symbol STRING NOT NULL, CreatedTime BIGINT NOT NULL, price DECIMAL(12,2) NOT NULL"

prices = tumbling_window(
    rows=TICK,
    key="symbol",
    size="5 seconds",
    aggregates={"trades": agg.count(), "lowest": agg.min("price"), "highest": agg.max("price")},
    keep="1 hour",
)


def measure(slice: Slice) -> Effects:
    """Every update of a window for the table; its last one, once, for the topic."""
    windows = prices(slice["ticks"], before=slice.table("windows"), frontier=slice.frontier("ticks"))
    return {"windows": windows.changes, "stats": windows.final, "late_records": windows.late}


stats = Topology(
    name="stocks.stats",
    version="1",
    sources=[Source(topic="ticks", schema=TICK, time="CreatedTime", grace="10 seconds")],
    tables=[prices.table("windows")],
    outputs=[
        Append(name="stats", schema=prices.schema),
        Topic(name="stats-out", of="stats", key="symbol", time="window_end"),
    ],
    step=measure,
)
