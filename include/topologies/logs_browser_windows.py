"""Activity of each browser within five seconds, every two seconds, in two topologies that differ only in their time.

- `logs.browser_windows` uses a field of the record: a replay of a day of old logs gives the windows of that day. (A
  source with `grace` and no `time` uses Kafka's timestamp.)
- `logs.browser_windows_now` uses the wall clock: it counts records as they arrive, whenever they happened. That cannot
  be computed again, so `kappa replay` refuses it.
"""

from functools import partial

from kappa import Append, Slice, Source, Topic, Topology
from kappa.operators import agg, hopping_window

EVENT = "browser STRING NOT NULL, level STRING, action STRING, CreatedTime BIGINT NOT NULL"
COUNTS = {"events": agg.count(), "errors": agg.count("error"), "actions": agg.distinct("action")}
ROWS = f"{EVENT}, error STRING"

windows = partial(hopping_window, rows=ROWS, key="browser", size="5 seconds", every="2 seconds", aggregates=COUNTS)
logs = Source(topic="logs", schema=EVENT, time="CreatedTime", grace="5 seconds")
visits = windows(logs, table="windows")
logs_now = Source(topic="logs", schema=EVENT, time="wall clock", grace="0 seconds")
visits_now = windows(logs_now, table="windows")


def watch(slice: Slice) -> None:
    """Events, errors and different actions of each window, by the time of the topology."""
    for operator in slice.operators:
        operator(slice, slice["logs"].selectExpr("*", "IF(level = 'ERROR', action, NULL) AS error"))


sent = Topic(name="browser-windows", of="visits", key="browser", time="window_end")
browser_windows = Topology(
    name="logs.browser_windows",
    version="2",
    sources=[logs],
    operators=[visits],
    outputs=[Append(name="visits", of=visits.final), sent],
    step=watch,
)

browser_windows_now = Topology(
    name="logs.browser_windows_now",
    version="2",
    sources=[logs_now],
    operators=[visits_now],
    outputs=[Append(name="visits", of=visits_now.final)],
    step=watch,
)
