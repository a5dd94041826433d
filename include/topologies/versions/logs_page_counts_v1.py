"""Number of views of each page, including those by crawlers, and an alert at the thousandth view."""

from kappa import Append, Source, Topic, Topology
from kappa.operators import running_total

views = Source(topic="page-views", schema="page STRING NOT NULL")
counts = running_total(views, key="page", total="views", table="counts", thresholds=[1000])

page_counts = Topology(
    name="logs.page_counts",
    version="1",
    sources=[views],
    operators=[counts],
    outputs=[
        Topic(name="counter_topic", of="counts", key="page", on_replay="reconcile"),
        Append(name="popular", of=counts.crossings),
        Topic(name="alerts", of="popular", key="page"),
    ],
)
