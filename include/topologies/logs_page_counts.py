"""Number of views of each page, and an alert at the thousandth view."""

from kappa import Append, Slice, Source, Topic, Topology
from kappa.operators import running_total

views = Source(topic="page-views", schema="page STRING NOT NULL, agent STRING")
counts = running_total(views, rows="page STRING NOT NULL", key="page", total="views", table="counts", thresholds=[1000])


def count(slice: Slice) -> None:
    """Count views by people, and emit the one that makes a page popular, even within a slice of thousands."""
    counts(slice, slice["page-views"].where("page IS NOT NULL AND NOT COALESCE(agent, '') LIKE '%Bot'"))


page_counts = Topology(
    name="logs.page_counts",
    version="2",
    sources=[views],
    operators=[counts],
    outputs=[
        Topic(name="counter_topic", of="counts", key="page", on_replay="reconcile"),
        Append(name="popular", of=counts.crossings),
        Topic(name="alerts", of="popular", key="page"),
    ],
    step=count,
)
