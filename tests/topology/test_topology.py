"""Mistakes in a topology show when it is defined."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kappa.errors import TopologyError
from kappa.topology import Append, Check, Slice, Source, Table, Threshold, Topic, Topology

SOURCE = Source(topic="in", schema="id STRING NOT NULL")
ROWS = Append(name="rows", schema="id STRING NOT NULL, n BIGINT")
STATE = Table(name="state", key=["id"], schema="id STRING NOT NULL, n BIGINT")
OWN = Topic(name="out", of="rows", key="id", on_replay="versioned")


def topology(**changes: Any) -> Topology:
    return Topology(
        **{"name": "a.b", "version": "1", "sources": [SOURCE], "outputs": [ROWS], "step": lambda s: {}, **changes}
    )


def test_a_topology_without_mistakes_knows_its_parts() -> None:
    valid = topology(
        tables=[Table(name="t", key=["id"], schema="id STRING NOT NULL")],
        outputs=[ROWS, Topic(name="out", of="rows", key="id")],
    )
    assert [a.name for a in valid.appends] == ["rows"]
    assert [t.key for t in valid.topics] == [("id",)]
    assert valid.table("t").key == ("id",)
    with pytest.raises(TopologyError, match="no table 'u'"):
        valid.table("u")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: topology(name="A b"), "lower-case"),
        (lambda: topology(name="a.e0001"), "number of an epoch"),
        (lambda: topology(name="a.e00012.b"), "number of an epoch"),
        (lambda: topology(version=""), "no version"),
        (lambda: topology(name="a" * 100, tables=[replace(STATE, name="t" * 127)]), "250 characters: Kafka allows 249"),
        (lambda: topology(sources=[]), "no source"),
        (lambda: topology(sources=[SOURCE, SOURCE]), "more than once"),
        (lambda: topology(outputs=[]), "do nothing"),
        (lambda: topology(outputs=[ROWS, ROWS]), "more than once"),
        (lambda: topology(tables=[Table(name="rows", key=["id"], schema="id STRING NOT NULL")]), "more than once"),
        (lambda: topology(outputs=[ROWS, Topic(name="out", of="row", key="id")]), "not one of"),
        (lambda: topology(outputs=[ROWS, Topic(name="out", of="rows", key="ident")]), "not columns"),
        (lambda: topology(outputs=[ROWS, Topic(name="in", of="rows", key="id")]), "feed itself"),
        (lambda: Topic(name="no spaces", of="rows", key="id"), "Kafka allows"),
        (lambda: Topic(name="out", of="rows", key="id", on_replay="replace"), "not one of hold, versioned, reconcile"),  # type: ignore[arg-type]
        (lambda: Topic(name="o" * 241, of="rows", key="id", on_replay="versioned"), "at most 240"),
        (lambda: topology(outputs=[ROWS, OWN, Topic(name="out.e0002", of="rows", key="id")]), "one of its epochs"),
        (
            lambda: topology(outputs=[ROWS, OWN], sources=[Source(topic="out_e00012", format="string")]),
            "one of its epochs",
        ),
        (
            lambda: topology(
                outputs=[ROWS, *(Topic(name=n, of="rows", key="id", on_replay="versioned") for n in ("o.t", "o_t"))]
            ),
            "collide",
        ),
        (lambda: topology(outputs=[ROWS, replace(OWN, on_replay="reconcile")]), "Make it of a table"),
        (
            lambda: topology(tables=[STATE], outputs=[Topic(name="o", of="state", key="n", on_replay="reconcile")]),
            "Use key=.'id'.",
        ),
        (
            lambda: topology(
                tables=[STATE], outputs=[Topic(name="o", of="state", key=["id", "n"], on_replay="reconcile")]
            ),
            "keyed by",
        ),
        (lambda: Table(name="t", key=["id"], schema="id STRING"), "may be null"),
        (lambda: Table(name="t", key=["no"], schema="id STRING NOT NULL"), "not in its schema"),
        (lambda: Table(name="t", key=[], schema="id STRING NOT NULL"), "no key"),
        (lambda: Table(name="t", key=["id"], schema="id STRING NOT NULL", masked=["ids"]), "masked column 'ids'"),
        (lambda: Append(name="t", schema="id STRING", masked=["Id"]), "masked column 'Id'"),
        (lambda: Check(name="c"), "exactly one"),
        (lambda: Check(name="c", sql="SELECT 1", function=lambda tables: True), "exactly one"),
        (lambda: topology(thresholds=[Threshold(table="row", rows=0)]), "Did you mean 'rows.rows'"),
        (lambda: topology(thresholds=[Threshold(table="rows", keys_added=0)]), "could limit"),
        (lambda: topology(thresholds=[Threshold(table="rows", rows=0)] * 2), "more than once"),
        (
            lambda: topology(owner="payments, loyalty"),
            "has the owner 'payments, loyalty': an owner is a text of at most",
        ),
        (lambda: topology(owner="<!channel>"), "has the owner '<!channel>'"),
        (lambda: topology(owner="o" * 101), "at most 100 letters"),
        (lambda: topology(owner=None), "has the owner None"),
        (lambda: Source(topic="in"), "no schema"),
        (lambda: Source(topic="in", schema="_key STRING"), "a name of Kappa's own"),
        (lambda: Source(topic="in", schema="a STRING", format="xml"), "not one of"),  # type: ignore[arg-type]
    ],
)
def test_mistakes_are_refused_with_the_reason(make: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        make()


def test_a_step_that_reads_an_undeclared_name_is_shown_the_declared_ones() -> None:
    empty = Slice(seq=1, records={"in": None}, tables={"t": None})  # type: ignore[dict-item]
    with pytest.raises(TopologyError, match=r"sources are \['in'\]"):
        empty["out"]
    with pytest.raises(TopologyError, match=r"tables are \['t'\]"):
        empty.table("u")


def test_a_threshold_may_limit_counts_and_the_drift_of_visible_numbers() -> None:
    schema = "id STRING NOT NULL, a BIGINT, b DECIMAL(9,2), c STRING, secret DOUBLE"
    table = Table(name="t", key=["id"], schema=schema, masked=["secret"])
    limited = topology(tables=[table], thresholds=[Threshold(table="t", keys_removed=0, drift={"b": 0.1})])
    counts = {f"t.{name}" for name in ("keys_added", "keys_removed", "keys_changed", "rows", "drift.a", "drift.b")}
    assert set(limited.measures) == counts | {"rows.rows", "rows.rows_added", "rows.rows_removed"}
    with pytest.raises(TopologyError, match=r"t\.drift\.secret"):
        topology(tables=[table], thresholds=[Threshold(table="t", drift={"secret": 0.1})])


def test_names_that_only_resemble_those_of_an_epoch_are_accepted() -> None:
    others = [Topic(name=name, of="rows", key="id") for name in ("out.e12", "out.e0002x", "outer.e0002", "out")]
    others[-1] = replace(OWN, name="out.e0002.more")
    valid = topology(outputs=[ROWS, OWN, *others])
    assert [topic.name for topic in valid.versioned_topics] == ["out", "out.e0002.more"]
    assert valid.rows_of(OWN) is ROWS


def test_a_topic_reconciles_a_table_by_its_key() -> None:
    topic = Topic(name="o", of="state", key="id", on_replay="reconcile")
    reconciling = topology(tables=[STATE], outputs=[topic])
    assert reconciling.reconciled_topics == (topic,)
    assert reconciling.versioned_topics == ()


def test_a_topic_of_expiring_state_is_refused() -> None:
    windows = Table(
        name="windows", key=["id"], schema="id STRING NOT NULL", made_by="tumbling_window(size=1 day)", expires=True
    )
    with pytest.raises(
        TopologyError, match="the state of tumbling_window, whose rows are removed when their time is over"
    ):
        Topology(
            name="a.b",
            version="1",
            sources=[Source(topic="t", schema="id STRING")],
            tables=[windows],
            outputs=[Topic(name="out", of="windows", key="id")],
            step=lambda slice: {},
        )


def test_a_key_of_one_column_is_a_name_or_a_list() -> None:
    assert Table(name="state", key="id", schema="id STRING NOT NULL, n BIGINT") == STATE
    assert Topic(name="t", of="state", key="id") == Topic(name="t", of="state", key=["id"])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"record": "OrderPlaced"}, "has record, but format='json' has neither record types"),
        ({"defaults": {"id": "x"}}, "has defaults, but format='json' has neither record types"),
        ({"format": "avro", "record": ["Order Placed"]}, "is not a name of an Avro record"),
        (
            {"format": "avro", "defaults": {"none": 1}},
            r"defaults are given for \['none'\], which are not in its schema",
        ),
    ],
)
def test_record_types_and_defaults_are_those_of_avro(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(TopologyError, match=reason):
        Source(topic="pos", schema="id STRING", **values)
    assert Source(topic="pos", schema="id STRING", format="avro", record="A", defaults={"id": "x"}).record == ("A",)
