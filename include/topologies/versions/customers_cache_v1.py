"""The customers of a database, those that it deleted too, kept from the changes that Debezium reads out of its log."""

from kappa import Effects, Slice, Source, Table, Topology
from kappa.operators import newest

ROW = "STRUCT<id: BIGINT, first_name: STRING, last_name: STRING, email: STRING>"
CHANGE = f"after {ROW}, op STRING NOT NULL"
CUSTOMER = "id BIGINT NOT NULL, first_name STRING, last_name STRING, email STRING"


def keep(slice: Slice) -> Effects:
    """The newest row that each customer ever had."""
    rows = slice["customers"].where("after IS NOT NULL").selectExpr("* EXCEPT (after)", "after.*")
    return {"cache": newest(rows, key="id")}


cache = Topology(
    name="customers.cache",
    version="1",
    sources=[Source(topic="customers", schema=CHANGE)],
    tables=[Table(name="cache", key=["id"], schema=CUSTOMER, masked=["first_name", "last_name", "email"])],
    step=keep,
)
