"""Statistics of each symbol over the last five seconds, every second, by the time of the ticks.

The table has every update of a window, and the topic only its last one.
"""

from kappa import Append, Source, Topic, Topology
from kappa.operators import agg, hopping_window

TICK = "symbol STRING NOT NULL, CreatedTime BIGINT NOT NULL, price DECIMAL(12,2) NOT NULL"
PRICES = {"lowest": agg.min("price"), "highest": agg.max("price"), "average": agg.avg("price")}
STATS = {"trades": agg.count(), **PRICES}

ticks = Source(topic="ticks", schema=TICK, time="CreatedTime", grace="10 seconds")
prices = hopping_window(
    ticks, key="symbol", size="5 seconds", every="1 second", aggregates=STATS, table="windows", keep="1 hour"
)

stats = Topology(
    name="stocks.stats",
    version="2",
    sources=[ticks],
    operators=[prices],
    outputs=[
        Append(name="stats", of=prices.final),
        Topic(name="stats-out", of="stats", key="symbol", time="window_end"),
    ],
)
