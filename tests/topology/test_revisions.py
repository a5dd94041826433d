"""The revision of an operator is part of what its tables say they were made by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kappa.operators import (
    agg,
    aggregate,
    aggregate_table,
    deduplicate,
    foreign_key_join,
    interval_join,
    session_window,
    table_join,
    table_table_join,
    tumbling_window,
    versions_by,
)
from kappa.topology import Source, Table
from kappa.topology.operator import Operator
from kappa.topology.readers import made_alone, may_go_on
from kappa.topology.revisions import operator_of, revised, revision_of

MOVES = Source(topic="moves", schema="id STRING NOT NULL, amount BIGINT", time="amount", grace="1 minute")
ITEMS = Source(topic="items", schema="id STRING NOT NULL, price BIGINT", time="price", grace="1 minute")


def test_state_of_another_revision_is_not_reused_and_the_first_one_is_not_written() -> None:
    counts = aggregate(MOVES, key="id", aggregates={"n": agg.count()}, table="counts")
    (now,) = counts.tables
    (next_,) = replace(counts, revision=2).tables
    assert now.made_by.startswith("aggregate(")
    assert next_.made_by == now.made_by.replace("aggregate(", "aggregate@2(", 1)
    assert may_go_on(now.made_by, now.made_by) and may_go_on(next_.made_by, next_.made_by)
    assert not may_go_on(next_.made_by, now.made_by) and not may_go_on(now.made_by, next_.made_by)
    (again,) = replace(counts, revision=2, name="again").tables
    assert again.made_by == next_.made_by


def test_versions_of_another_revision_are_not_reused_whoever_reads_them() -> None:
    now, later = versions_by(ITEMS, key="id", table="prices"), versions_by(ITEMS, key="id", table="prices")
    later = replace(later, revision=3)
    tables = []
    for versions in (now, later):
        join = table_join(MOVES, versions, key="id", tables="waiting")
        tables += versions.tables_beside([versions, join])
    assert [revision_of(table.made_by) for table in tables] == [1, 3]
    assert [made_alone(table.made_by) for table in tables] == [now.tables[0].made_by, later.tables[0].made_by]
    assert not may_go_on(tables[1].made_by, tables[0].made_by)


def test_state_goes_on_under_the_frontiers_by_which_its_rows_were_emitted() -> None:
    def windows(*of: Source) -> Operator[Any]:
        return tumbling_window(of, key="id", size="1 hour", aggregates={"n": agg.count()}, rows="id STRING", table="w")

    def made_by(operator: Operator[Any]) -> str:
        return operator.tables[0].made_by

    one, both = windows(MOVES), windows(ITEMS, MOVES)
    visits = session_window(MOVES, key="id", gap="1 second", aggregates={"n": agg.count()}, table="visits")
    of_visits = deduplicate(visits.final, key="id", within="1 minute", table="seen")
    assert made_by(one).endswith(" of (moves)") and made_by(both).endswith(" of (items+moves)")
    assert made_by(of_visits) == "deduplicate(key=`id`, within=1 minute) of (moves less 1000 ms)"
    assert made_by(interval_join(MOVES, ITEMS, key="id", within="1 minute", tables=("a", "b"))).endswith(
        "(moves, items)"
    )
    assert made_by(replace(both, name="again")) == made_by(both)
    assert may_go_on(made_by(both), made_by(windows(MOVES, ITEMS)))
    assert not may_go_on(made_by(both), made_by(one))
    # Earlier code named no frontiers, and nobody knows them.
    assert may_go_on(made_by(both), made_by(both).removesuffix(" of (items+moves)"))


def test_state_goes_on_over_the_tables_that_its_rows_were_made_of() -> None:
    names, towns, cities = (
        Table(name=name, key="id", schema="id STRING NOT NULL, place STRING") for name in ("names", "towns", "cities")
    )

    def joined(left: Table, right: Table) -> str:
        return table_table_join(left, right, key="id", table="people").tables[0].made_by

    def by_foreign_key(right: Table) -> str:
        return foreign_key_join(names, right, foreign_key={"place": "id"}, table="people").tables[0].made_by

    def counted(table: Table) -> str:
        return aggregate_table(table, key="place", aggregates={"n": agg.count()}, table="counts").tables[0].made_by

    assert joined(names, cities) == "table_table_join(key=(id=id), how=inner) of (names, cities)"
    for one, other in (
        (joined(names, cities), joined(names, towns)),
        (joined(names, cities), joined(cities, names)),
        (by_foreign_key(cities), by_foreign_key(towns)),
        (counted(cities), counted(towns)),
    ):
        assert may_go_on(one, one) and not may_go_on(other, one)
        # Earlier code named no tables, and nobody knows them.
        assert may_go_on(one, one.partition(" of (")[0])


@pytest.mark.parametrize(
    ("made_by", "operator", "revision"),
    [
        ("", "", 1),
        ("aggregate(key=['id'], n=count())", "aggregate", 1),
        ("aggregate@12(key=['id'], n=count())", "aggregate", 12),
        ("newest_by@2(key=`a@3(`, scope=all) deletions", "newest_by", 2),
        ("two_phase@2(key=['id']), salts=8 parts", "two_phase", 2),
    ],
)
def test_operator_and_revision_are_read_from_the_maker_of_a_state(made_by: str, operator: str, revision: int) -> None:
    assert (operator_of(made_by), revision_of(made_by)) == (operator, revision)
    assert revised(made_by, revision) == made_by
    assert revision_of(revised(made_by, 7)) == (7 if made_by else 1)
