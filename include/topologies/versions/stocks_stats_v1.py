"""Trades and price range of each symbol, in windows of five seconds.

The table has every update of a window, and the topic only its last one.
"""

from kappa import Append, Source, Topic, Topology
from kappa.operators import agg, tumbling_window

TICK = "symbol STRING NOT NULL, CreatedTime BIGINT NOT NULL, price DECIMAL(12,2) NOT NULL"

ticks = Source(topic="ticks", schema=TICK, time="CreatedTime", grace="10 seconds")
prices = tumbling_window(
    ticks,
    key="symbol",
    size="5 seconds",
    aggregates={"trades": agg.count(), "lowest": agg.min("price"), "highest": agg.max("price")},
    table="windows",
    keep="1 hour",
)

stats = Topology(
    name="stocks.stats",
    version="1",
    sources=[ticks],
    operators=[prices],
    outputs=[
        Append(name="stats", of=prices.final),
        Topic(name="stats-out", of="stats", key="symbol", time="window_end"),
    ],
)
