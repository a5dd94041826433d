"""How many log events each browser causes within five seconds, every two seconds."""

from kappa import Append, Effects, Slice, Source, Topic, Topology
from kappa.operators import agg, hopping_window

EVENT = "browser STRING NOT NULL, level STRING, action STRING, CreatedTime BIGINT NOT NULL"

browsing = hopping_window(
    rows=EVENT, key="browser", size="5 seconds", every="2 seconds", aggregates={"events": agg.count()}
)


def watch(slice: Slice) -> Effects:
    """Events of each window."""
    windows = browsing(slice["logs"], before=slice.table("windows"), frontier=slice.frontier("logs"))
    return {"windows": windows.changes, "visits": windows.final, "late_records": windows.late}


browser_windows = Topology(
    name="logs.browser_windows",
    version="1",
    sources=[Source(topic="logs", schema=EVENT, time="CreatedTime", grace="5 seconds")],
    tables=[browsing.table("windows")],
    outputs=[
        Append(name="visits", schema=browsing.schema),
        Topic(name="browser-windows", of="visits", key="browser", time="window_end"),
    ],
    step=watch,
)
