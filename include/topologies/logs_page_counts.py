"""How often each page is viewed, and an alert when the thousandth view comes."""

from kappa import Append, Effects, Slice, Source, Table, Topic, Topology
from kappa.operators import newest, running_total, threshold_crossings

VIEW = "page STRING NOT NULL, agent STRING"
COUNT = "page STRING NOT NULL, views BIGINT NOT NULL"


def count(slice: Slice) -> Effects:
    """Views by people: the count at each, and the one that makes a page popular, also within a slice of thousands."""
    by_people = slice["page-views"].where("page IS NOT NULL AND NOT COALESCE(agent, '') LIKE '%Bot'")
    counted = running_total(
        by_people.selectExpr("*", "1 AS one"), key="page", amount="one", total="views", before=slice.table("counts")
    )
    popular = threshold_crossings(counted, key="page", total="views", thresholds=[1000], before=slice.table("counts"))
    return {"counts": newest(counted, key="page"), "popular": popular}


page_counts = Topology(
    name="logs.page_counts",
    version="2",
    sources=[Source(topic="page-views", schema=VIEW)],
    tables=[Table(name="counts", key=["page"], schema=COUNT)],
    outputs=[
        Topic(name="counter_topic", of="counts", key="page", on_replay="reconcile"),
        Append(name="popular", schema=f"{COUNT}, threshold BIGINT NOT NULL"),
        Topic(name="alerts", of="popular", key="page"),
    ],
    step=count,
)
