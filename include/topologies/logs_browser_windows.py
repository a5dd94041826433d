"""What each browser does within five seconds, every two seconds; twice, and only the time differs.

- `logs.browser_windows` goes by a field of the record: a replay of a day of old logs gives the windows of that day. (A
  source with `grace` and no `time` goes by Kafka's timestamp.)
- `logs.browser_windows_now` goes by the wall clock: it counts what is seen now, whenever it happened. Nothing can
  compute that again, so `kappa replay` refuses it.
"""

from kappa import Append, Effects, Slice, Source, Topic, Topology
from kappa.operators import agg, hopping_window

EVENT = "browser STRING NOT NULL, level STRING, action STRING, CreatedTime BIGINT NOT NULL"

browsing = hopping_window(
    rows=f"{EVENT}, error STRING",
    key="browser",
    size="5 seconds",
    every="2 seconds",
    aggregates={"events": agg.count(), "errors": agg.count("error"), "actions": agg.distinct("action")},
)


def watch(slice: Slice) -> Effects:
    """Events, errors and different actions of each window."""
    events = slice["logs"].selectExpr("*", "IF(level = 'ERROR', action, NULL) AS error")
    windows = browsing(events, before=slice.table("windows"), frontier=slice.frontier("logs"))
    return {"windows": windows.changes, "visits": windows.final, "late_records": windows.late}


browser_windows = Topology(
    name="logs.browser_windows",
    version="2",
    sources=[Source(topic="logs", schema=EVENT, time="CreatedTime", grace="5 seconds")],
    tables=[browsing.table("windows")],
    outputs=[
        Append(name="visits", schema=browsing.schema),
        Topic(name="browser-windows", of="visits", key="browser", time="window_end"),
    ],
    step=watch,
)

browser_windows_now = Topology(
    name="logs.browser_windows_now",
    version="2",
    sources=[Source(topic="logs", schema=EVENT, time="wall clock", grace="0 seconds")],
    tables=[browsing.table("windows")],
    outputs=[Append(name="visits", schema=browsing.schema)],
    step=watch,
)
