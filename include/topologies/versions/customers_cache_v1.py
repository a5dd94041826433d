"""The customers of a database, including deleted ones, from the changes that Debezium reads from its log."""

from dataclasses import replace

from kappa import Slice, Source, Topology
from kappa.operators import newest_by

ROW = "STRUCT<id: BIGINT, first_name: STRING, last_name: STRING, email: STRING>"
CUSTOMER = "id BIGINT, first_name STRING, last_name STRING, email STRING"

customers = Source(topic="customers", schema=f"after {ROW}, op STRING NOT NULL")
people = newest_by(customers, rows=CUSTOMER, key="id", table="cache")


def keep(slice: Slice) -> None:
    """The newest row that each customer ever had."""
    people(slice, slice["customers"].where("after IS NOT NULL").selectExpr("* EXCEPT (after)", "after.*"))


cache = Topology(
    name="customers.cache",
    version="1",
    sources=[customers],
    operators=[people],
    tables=[replace(people.tables[0], masked=["first_name", "last_name", "email"])],
    step=keep,
)
