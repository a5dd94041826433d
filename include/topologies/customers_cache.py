"""The customers of a database, kept from the changes that Debezium reads out of its log."""

from kappa import Effects, Slice, Source, Table, Topology
from kappa.operators import newest, tombstones
from kappa.topology import ORDER

ROW = "STRUCT<first_name: STRING, last_name: STRING, email: STRING>"
CHANGE = f"after {ROW}, op STRING NOT NULL"
CUSTOMER = "id BIGINT NOT NULL, first_name STRING, last_name STRING, email STRING"


def keep(slice: Slice) -> Effects:
    """The newest row of each customer; a change of kind ``d`` deletes, and so does the null value that follows it."""
    changes = tombstones(slice["customers"], key="id")
    rows = changes.selectExpr(
        "id", "after.first_name", "after.last_name", "after.email", "_deleted OR op = 'd' AS _deleted", *ORDER
    )
    return {"cache": newest(rows, key="id")}


cache = Topology(
    name="customers.cache",
    version="2",
    sources=[Source(topic="customers", schema=CHANGE, key_schema="id BIGINT", key_format="json", tombstones=True)],
    tables=[Table(name="cache", key=["id"], schema=CUSTOMER, masked=["first_name", "last_name", "email"])],
    step=keep,
)
