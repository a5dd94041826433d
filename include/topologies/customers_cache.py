"""The customers of a database, from the changes that Debezium reads from its log."""

from dataclasses import replace

from kappa import Source, Topology
from kappa.operators import cdc_table

PERSON = "first_name STRING, last_name STRING, email STRING"

customers = Source(topic="customers", schema=PERSON, key_schema="id BIGINT", envelope="debezium")
people = cdc_table(customers, key="id", table="cache")

cache = Topology(
    name="customers.cache",
    version="2",
    sources=[customers],
    operators=[people],
    tables=[replace(people.tables[0], masked=["first_name", "last_name", "email"])],
)
