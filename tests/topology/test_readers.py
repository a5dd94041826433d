"""State kept for several operators: which state may continue as which."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kappa import Append, Source, Topology
from kappa.control.backfills.backfill_span import changed, member_of
from kappa.operators import table_join, versions_by
from kappa.replay.findings import Finding, Severity
from kappa.replay.rules.seed import unlike_seed
from kappa.replay.rules.upgrade import needs_replay, operators_changed
from kappa.topology.operator import Operator
from kappa.topology.readers import kept_for, made_alone, may_go_on
from kappa.topology.shapes import shapes_as_dict, shapes_from_dict, shapes_of

ROW = "id STRING, value INT, at BIGINT"
ORDERS, RETURNS, REFUNDS, PRODUCTS = (
    Source(topic=topic, schema=ROW, time="at", grace="1 second")
    for topic in ("orders", "returns", "refunds", "products")
)


def joined(*streams: Source, key: str = "id", waiting: str = "waiting_{}") -> Topology:
    """Streams with one table of products; all sources are read, whoever joins them."""
    products = versions_by(PRODUCTS, key=key, table="versions")
    joins = [table_join(one, products, key=key, tables=waiting.format(one.topic)) for one in streams]
    return Topology(
        name="inventory.joined",
        version="1",
        sources=[ORDERS, RETURNS, REFUNDS, PRODUCTS],
        operators=[products, *joins],
        outputs=[Append(name=one.topic, of=join.rows, time="at") for one, join in zip(streams, joins, strict=True)],
    )


def own(stream: Source) -> Topology:
    """The same with versions of its own, in tables of the same names."""
    join = table_join(stream, PRODUCTS, key="id", tables=(f"waiting_{stream.topic}", "versions"))
    return replace(joined(stream), operators=[join], outputs=[Append(name=stream.topic, of=join.rows)], tables=[])


def seeded(before: Topology, after: Topology) -> list[Finding]:
    """Objections to beginning with a savepoint of other code; through the text that it is kept as."""
    stored = shapes_from_dict(shapes_as_dict(shapes_of(before)))
    return unlike_seed(shapes_of(after), stored, "The savepoint")


def test_versions_continue_for_the_same_joins_in_any_order_and_for_fewer() -> None:
    assert seeded(joined(ORDERS, RETURNS), joined(RETURNS, ORDERS)) == []
    assert seeded(joined(ORDERS, RETURNS, REFUNDS), joined(REFUNDS)) == []


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (joined(ORDERS), joined(ORDERS, RETURNS), "waiting_orders of orders, waiting_returns of returns;"),
        (joined(ORDERS, RETURNS), joined(ORDERS, REFUNDS), "waiting_refunds of refunds"),
        (
            joined(ORDERS, waiting="w"),
            joined(RETURNS, waiting="w"),
            "w of returns; in the savepoint .* for w of orders",
        ),
        (joined(ORDERS), joined(ORDERS, key="value"), r"key=\(value\)"),
        (own(ORDERS), joined(ORDERS), r"is the state of versions_by\(.*it is that of table_join\("),
        (joined(ORDERS), own(ORDERS), r"is the state of table_join\(.*it is that of versions_by\("),
    ],
)
def test_versions_do_not_continue_for_a_join_that_may_need_forgotten_rows(
    before: Topology, after: Topology, words: str
) -> None:
    (finding,) = (
        one
        for one in seeded(before, after)
        if one.code == "seed-operator-changed" and one.numbers["name"] == "versions"
    )

    assert finding.severity is Severity.REFUSE and "--to-earliest" in finding.remedy
    assert re.search(words, finding.message)


def test_an_upgrade_to_more_joins_is_refused_and_names_them() -> None:
    codes = {finding.code for finding in needs_replay(joined(ORDERS), joined(ORDERS, RETURNS))}
    assert codes == {"upgrade-changes-operators", "upgrade-changes-tables", "upgrade-changes-outputs"}
    # One join less: only what it left behind is in the way.
    assert operators_changed(joined(ORDERS, RETURNS).tables, joined(ORDERS).tables) == []


def test_rows_of_an_interval_do_not_depend_on_other_readers_of_the_versions() -> None:
    more, fewer = joined(ORDERS, RETURNS), joined(ORDERS)
    tables = [fewer.table(name) for name in ("waiting_orders", "versions")]
    member = member_of(fewer, fewer.appends[0], tables, ["orders", "products"])

    assert member is not None and not member.is_bounded and member.reach_ms == 0
    assert changed(more, fewer, [member]) == []
    (objection,) = changed(own(ORDERS), fewer, [member])
    assert "was the state of table_join" in objection


def test_the_name_of_a_column_is_not_taken_for_a_reader() -> None:
    awkward = replace(PRODUCTS, schema="`a) for b of c` STRING, at BIGINT")
    key = "a) for b of c"
    products = versions_by(awkward, key=key, table="versions")
    join: Operator[object] = table_join(awkward, products, key=key, tables="waiting")
    made_by = products.tables[0].made_by

    assert made_alone(made_by) == made_by
    assert made_alone(kept_for(made_by, [join])) == made_by
    assert may_go_on(made_by, made_by) and not may_go_on(made_by, kept_for(made_by, [join]))
    assert not may_go_on("newest_by(key=a) for b of c)", "newest_by(key=a) for b of c, b of d)")
    assert not may_go_on("", made_by) and not may_go_on(made_by, "")
