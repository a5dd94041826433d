"""Sources, tables and outputs with arguments of a wrong type are refused by their names, with what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kappa import Append, Source, Table
from kappa.errors import TopologyError
from kappa.operators import agg, tumbling_window
from kappa.topology.earlier_code import earlier_code


def source(**changes: Any) -> Source:
    return Source(**{"topic": "in", "schema": "id STRING", **changes})


def table(**changes: Any) -> Table:
    return Table(**{"name": "t", "key": "id", "schema": "id STRING NOT NULL", **changes})


def output(**changes: Any) -> Append:
    return Append(**{"name": "o", "schema": "id STRING, n INT", **changes})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: source(topic=None),
            r"^Source None is not a topic that Kafka can have: .* Write it like topic='orders'",
        ),
        (lambda: source(topic=["a"]), r"^Source \['a'\] is not a topic that Kafka can have"),
        (lambda: source(topic="a b"), r"^Source 'a b' is not a topic that Kafka can have"),
        (lambda: source(topic=""), r"^Source '' is not a topic that Kafka can have"),
        (lambda: source(of=5), r"^Source 'in': of=5 is not a name of a topology"),
        (
            lambda: source(schema=["id STRING"]),
            r"^The schema of source 'in' is \['id STRING'\], which is not a text\. W",
        ),
        (
            lambda: source(schema=5),
            r"^The schema of source 'in' is 5, which is not a text\. Write names and types: 'id",
        ),
        (lambda: source(key_schema=5), r"^The schema of the keys of source 'in' is 5, which is not a text\. Write"),
        (lambda: source(grace=60), r"^Source 'in': grace 60 is not a length of time\. Write it as '10 seconds'\."),
        (lambda: source(grace="1 second", ahead=5), r"^Source 'in': ahead 5 is not a length of time\. Write it as"),
        (
            lambda: source(grace="1 second", idle_after=5),
            r"^Source 'in': idle_after 5 is not a length of time\. Write it as",
        ),
        (
            lambda: source(format="avro", record=5),
            r"^Source 'in' has record=5, which is not a name .* Write record='Or",
        ),
        (
            lambda: source(format="avro", defaults=["id"]),
            r"^Source 'in' has defaults=\['id'\], which is not a dict .* W",
        ),
        (lambda: table(name=None), r"^The name of table None must be one lower-case word .* Write it like name='spend"),
        (
            lambda: table(key=None),
            r"^Table 't' has key=None, which is not a name or a list of names\. Write key='id'\.",
        ),
        (lambda: table(schema=None), r"^The schema of table 't' is None, which is not a text\. Write names and types"),
        (
            lambda: table(masked=5),
            r"^Table 't' has masked=5, which is not a name or a list of names\. Write masked='id'",
        ),
        (lambda: output(name=5), r"^The name of output 5 must be one lower-case word .* Write it like name='spending'"),
        (lambda: output(schema=["id STRING"]), r"^The schema of output 'o' is \['id STRING'\], which is not a text\."),
        (
            lambda: output(partition_by=5),
            r"^Output 'o' has partition_by=5, which is not a name or a list of names\. Wri",
        ),
        (lambda: output(schema="id ARRAY"), r"uses type ARRAY with 0 parts\. Write it like ARRAY<STRING>\."),
        (lambda: output(schema="id ARRAY<INT, INT>"), r"uses type ARRAY<INT, INT> with 2 parts\. Write it like ARRAY<"),
        (lambda: output(schema="m MAP<STRING>"), r"uses type MAP<STRING> with 1 parts\. Write it like MAP<STRING, BIG"),
        (lambda: output(schema="s STRUCT"), r"uses type STRUCT with 0 parts\. Write it like STRUCT<id: STRING>\."),
        (lambda: output(schema="n INT(5)"), r"uses type INT\(5\) with 1 parts\. Write it like INT\."),
        (lambda: output(schema="id CHAR(5)"), r"uses type CHAR\(5\), which Kappa does not keep in Delta\. Use another"),
    ],
)
def test_a_member_of_a_wrong_type_is_refused_with_what_to_write(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        make()


@pytest.mark.parametrize("argument", ["grace", "ahead", "idle_after"])
def test_a_time_of_more_than_ten_thousand_years_is_refused_in_new_code_alone(argument: str) -> None:
    assert source(**{"grace": "1 day", argument: "3650000 days"}).topic == "in"
    times = {"grace": "1 day", argument: "3650000 days 1 millisecond"}
    with earlier_code():
        assert source(**times).topic == "in"
    with pytest.raises(
        TopologyError, match=f"^Source 'in': {argument} .* is longer than 3,650,000 days.*Use a shorter"
    ):
        source(**times)


def test_a_window_of_more_than_ten_thousand_years_is_refused() -> None:
    of = source(grace="1 day")
    with pytest.raises(TopologyError, match=r"^tumbling_window: size '9+ days' is longer than 3,650,000 days.*Use a"):
        tumbling_window(of, key="id", size="99999999999999 days", aggregates={"n": agg.count()}, table="w")
