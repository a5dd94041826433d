"""What each browser does within five seconds, every two seconds; twice, and only the time differs.

- `logs.browser_windows` goes by a field of the record: a replay of a day of old logs gives the windows of that day. (A
  source with `grace` and no `time` goes by Kafka's timestamp.)
- `logs.browser_windows_now` goes by the wall clock: it counts what is seen now, whenever it happened. Nothing can
  compute that again, so `kappa replay` refuses it.
"""

from typing import Any

from kappa import Append, Slice, Source, Topic, Topology
from kappa.operators import agg, hopping_window

EVENT = "browser STRING NOT NULL, level STRING, action STRING, CreatedTime BIGINT NOT NULL"
COUNTS = {"events": agg.count(), "errors": agg.count("error"), "actions": agg.distinct("action")}


def windows_by(time: str, grace: str, *topics: Topic) -> dict[str, Any]:
    """Events, errors and different actions of each window by that time, as parts of a topology."""
    logs, rows = Source(topic="logs", schema=EVENT, time=time, grace=grace), f"{EVENT}, error STRING"
    visits = hopping_window(
        logs, rows=rows, key="browser", size="5 seconds", every="2 seconds", aggregates=COUNTS, table="windows"
    )

    def watch(slice: Slice) -> None:
        visits(slice, slice["logs"].selectExpr("*", "IF(level = 'ERROR', action, NULL) AS error"))

    outputs = [Append(name="visits", of=visits.final), *topics]
    return {"sources": [logs], "operators": [visits], "outputs": outputs, "step": watch}


sent = Topic(name="browser-windows", of="visits", key="browser", time="window_end")
browser_windows = Topology(name="logs.browser_windows", version="2", **windows_by("CreatedTime", "5 seconds", sent))
browser_windows_now = Topology(name="logs.browser_windows_now", version="2", **windows_by("wall clock", "0 seconds"))
