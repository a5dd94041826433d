"""Number of log events of each browser within five seconds, every two seconds."""

from kappa import Append, Source, Topic, Topology
from kappa.operators import agg, hopping_window

EVENT = "browser STRING NOT NULL, level STRING, action STRING, CreatedTime BIGINT NOT NULL"

logs = Source(topic="logs", schema=EVENT, time="CreatedTime", grace="5 seconds")
visits = hopping_window(
    logs, key="browser", size="5 seconds", every="2 seconds", aggregates={"events": agg.count()}, table="windows"
)

browser_windows = Topology(
    name="logs.browser_windows",
    version="1",
    sources=[logs],
    operators=[visits],
    outputs=[
        Append(name="visits", of=visits.final),
        Topic(name="browser-windows", of="visits", key="browser", time="window_end"),
    ],
)
