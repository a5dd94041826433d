"""SQL over tables of several topologies: the meaning of names, and queries refused before the engine runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support import epoch_record
from support.epoch_record import tell
from support.slices import TOPOLOGY, Epoch

from kappa import serving
from kappa.config import Config
from kappa.errors import UnknownEpochError, UnknownTableError, UnknownTopologyError, UsageError
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.serving.sql import Name, selection, statement
from kappa.topology import Topology

SHOP, DEEP = replace(TOPOLOGY, name="shop.sums"), replace(TOPOLOGY, name="a.b.c.sums")


def put(config: Config, topology: Topology, epoch: int, total: int) -> None:
    """An epoch of which slice 1 is merged, and slice 2 is changes beside the table: keys a, b and c."""
    new_epoch = Epoch(Path(config.lake), topology, epoch, merge_seconds=0.0)
    new_epoch.slice({("a", 0): total, ("b", 0): total, ("gone", 0): 0})
    new_epoch.merge_after(3600.0)
    new_epoch.slice({("b", 0): total + 1, ("c", 0): total + 2, ("gone", 0): None})


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Config]:
    """Three live topologies, with one dot, with none and with three."""
    with pytest.MonkeyPatch.context() as patch:
        config = epoch_record.empty_lake(tmp_path_factory.mktemp("sql"), patch)
        for number, topology in enumerate((TOPOLOGY, SHOP, DEEP)):
            put(config, topology, 1, number * 10)
            tell(config, topology.name, 1, *epoch_record.FIRST, by_event={})
        tell(config, "shop.empty", 1, *epoch_record.FIRST[:-1], by_event={})
        yield config


@pytest.fixture(scope="module")
def many(lake: Config) -> Config:
    """The same with a topology of more rows than the engine takes at once."""
    topology = replace(TOPOLOGY, name="many.sums")
    Epoch(Path(lake.lake), topology).slice({(str(number), 0): number for number in range(20_001)})
    tell(lake, topology.name, 1, *epoch_record.FIRST, by_event={})
    return lake


def values(config: Config, query: str, **how: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in serving.sql(config, query, **how).to_pylist()]


SHOPS = [("a", 10), ("b", 11), ("c", 12)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, total FROM shop.sums.sums ORDER BY id",
        "select sums.id, sums.total from shop.sums.sums order by 1;",
        "SELECT s.id, s.total FROM shop.sums.sums AS s ORDER BY s.id -- all; of /* them",
        'SELECT id, total FROM "shop.sums".sums ORDER BY id',
        'SELECT id, total FROM "shop"."sums"."sums" ORDER BY id',
        "SELECT shop.sums.sums.id, shop.sums.sums.total FROM shop.sums.sums ORDER BY shop.sums.sums.id",
        "SELECT id, total FROM shop . /* the; table */ sums\n.\tsums ORDER BY id",
        "SELECT id, total FROM (SELECT * FROM shop.sums.sums) t WHERE id IN (SELECT id FROM shop.sums.sums) ORDER BY 1",
        "WITH t AS (SELECT * FROM shop.sums.sums) SELECT id, total FROM t ORDER BY id",
        "SELECT id, total FROM shop.sums.sums WHERE EXISTS (SELECT 1 FROM sums.sums o WHERE o.id = sums.id) ORDER BY 1",
        "(SELECT id, total FROM shop.sums.sums WHERE id < 'b') UNION ALL "
        "(SELECT id, total FROM shop.sums.sums WHERE id >= 'b') ORDER BY id",
    ],
)
def test_a_name_is_topology_and_table_in_any_notation(lake: Config, query: str) -> None:
    assert values(lake, query) == SHOPS


def test_tables_of_all_topologies_join_with_unmerged_changes(lake: Config) -> None:
    query = """
        SELECT x.id, x.total, y.total AS shop, z.total AS deep FROM sums.sums x
        JOIN shop.sums.sums y USING (id) JOIN a.b.c.sums.sums z
        ON z.id = x.id AND a.b.c.sums.sums.total > 0 ORDER BY 1"""
    plain = query.replace("a.b.c.sums.sums.total", "z.total")
    assert values(lake, plain) == [("a", 0, 10, 20), ("b", 1, 11, 21), ("c", 2, 12, 22)]
    with pytest.raises(UsageError, match="The query engine ended the query"):
        values(lake, query)  # rows that got another name have no other, as everywhere in SQL
    whole = "SELECT COUNT(*) AS n FROM a.b.c.sums.sums WHERE a.b.c.sums.sums.total > 20"
    assert values(lake, whole) == [(2,)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # a name of WITH hides no table of a topology, and no relation behind one
        ("WITH sums AS (SELECT 'x' AS id, 7 AS total) SELECT id, total FROM sums", [("x", 7)]),
        ("WITH sums AS (SELECT 'x' AS id) SELECT COUNT(*) AS n FROM shop.sums.sums AS s, sums", [(3,)]),
        ('WITH "shop.sums.sums" AS (SELECT 7 AS n) SELECT n FROM "shop.sums.sums"', [(7,)]),
        ("WITH _kappa0_0 AS (SELECT 'x' AS id) SELECT COUNT(*) AS n FROM shop.sums.sums, _kappa0_0", [(3,)]),
        (
            "WITH _table AS (SELECT 'x' AS id), _newest AS (SELECT 'y' AS id), _changes AS (SELECT 'z' AS id) "
            "SELECT COUNT(*) AS n FROM shop.sums.sums, _table, _newest, _changes",
            [(3,)],
        ),
        # what looks like names, comments and ends of statements within texts is text
        (
            "SELECT 'shop.sums.sums; -- it''s /* \\' AS t FROM shop.sums.sums LIMIT 1",
            [("shop.sums.sums; -- it's /* \\",)],
        ),
        ('SELECT total AS "a""; --" FROM shop.sums.sums WHERE id = \'a\'', [(10,)]),
        ("VALUES (1, 'x')", [(1, "x")]),
        ("SELECT * FROM generate_series(1, 2)", [(1,), (2,)]),
        ("SELECT strpos('abc', 'b') AS at, 7 / 2 AS half", [(2, 3)]),
    ],
)
def test_a_tricky_query_returns_the_expected_values(lake: Config, query: str, expected: list[Any]) -> None:
    assert values(lake, query) == expected


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "The query is empty"),
        ("-- nothing", "The query is empty"),
        ("SELECT 1; SELECT 2", "has several statements"),
        ("SELECT 1; COPY (SELECT 1) TO '{out}'", "has several statements"),
        ("COPY (SELECT 1) TO '{out}'", "'COPY' does not begin a query"),
        ("CREATE TABLE t AS SELECT 1", "'CREATE' does not begin a query"),
        ("INSERT INTO shop.sums.sums VALUES (1)", "'INSERT' does not begin a query"),
        ("DROP TABLE shop.sums.sums", "'DROP' does not begin a query"),
        ("EXPLAIN SELECT 1", "'EXPLAIN' does not begin a query"),
        ("SET x = 1", "'SET' does not begin a query"),
        ("SELECT id INTO t FROM shop.sums.sums", "holds 'INTO'"),
        ("WITH t AS (DELETE FROM shop.sums.sums RETURNING *) SELECT * FROM t", "holds DELETE"),
        ("SELECT * FROM read_parquet('{out}')", "calls read_parquet"),
        ("SELECT * FROM read_csv('{out}') AS t", "calls read_csv"),
        ("SELECT * FROM shop.sums.sums, LATERAL read_json('{out}')", "calls read_json"),
        ("SELECT * FROM whatever(1)", "calls whatever"),
        ("SELECT * FROM (SELECT delta_scan('{out}') AS x)", "calls delta_scan"),
        ("SELECT /*+ BROADCAST(t) */ 1", "holds '/*+ BROADCAST"),
        ("SELECT {% x %} 1", "The query "),
        ("SELECT * FROM shop.sums.sums TABLESAMPLE (10 PERCENT)", "holds 'TABLESAMPLE (10 PERCENT)'"),
        ("SELECT * FROM shop.sums.sums FOR SYSTEM_TIME AS OF '2026-01-01'", "which the engine would pass over"),
        ("SELECT `id` FROM shop.sums.sums", "holds '`'"),
        ("SELECT e'\\' , '; COPY (SELECT 1) TO ''{out}'' --'", "The query "),
        ("SELECT 'x", "is not SQL"),
        ("SELECT FROM WHERE", "is not SQL"),
        (
            "SELECT nope FROM shop.sums.sums",
            "No field named nope. See the columns of a table: kappa query shop.sums sums",
        ),
        ("SELECT 1 / (total - 10) FROM shop.sums.sums", "The query engine ended the query: "),
    ],
)
def test_anything_but_a_single_query_over_tables_is_refused(
    lake: Config, tmp_path: Path, query: str, message: str
) -> None:
    with pytest.raises(UsageError) as error:
        values(lake, query.replace("{out}", str(tmp_path / "out.csv")))
    assert message in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id FROM sums.sums AS x WHERE EXISTS (SELECT 1 FROM shop.sums.sums AS y WHERE x.total = y.total)", []),
        (
            "SELECT sums.sums.id FROM sums.sums WHERE EXISTS "
            "(SELECT 1 FROM shop.sums.sums AS x WHERE x.total = sums.sums.total + 10 AND x.id = 'b')",
            [("b",)],
        ),
        (
            "SELECT sums.sums.total FROM sums.sums WHERE id = 'a' UNION ALL "
            "SELECT shop.sums.sums.total FROM shop.sums.sums WHERE id = 'a' ORDER BY 1",
            [(0,), (10,)],
        ),
        ("SELECT MIN(sums.sums.total) AS n FROM sums.sums, (SELECT * FROM shop.sums.sums) AS SUMS", [(0,)]),
    ],
)
def test_a_column_belongs_to_the_topology_before_it(lake: Config, query: str, expected: list[Any]) -> None:
    assert values(lake, query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT 'x' AS x FROM many.sums.sums LIMIT 2", [("x",), ("x",)]),
        ("SELECT 7 AS n FROM many.sums.sums LIMIT 5 OFFSET 20000", [(7,)]),
        ("SELECT SUM(2) AS n FROM (SELECT id FROM many.sums.sums LIMIT 3) AS few", [(6,)]),
        ("SELECT id IS NULL AS x FROM many.sums.sums LIMIT 2", [(False,), (False,)]),
        ("SELECT COUNT(*) AS n FROM many.sums.sums", [(20_001,)]),
    ],
)
def test_a_limit_holds_for_rows_without_a_column(many: Config, query: str, expected: list[Any]) -> None:
    assert values(many, query) == expected
    assert serving.snapshot(many, "many.sums").rows("sums", select="1 AS one", limit=3).num_rows == 3


@pytest.mark.parametrize(
    "inner",
    [
        "SELECT 1 FROM shop.sums.sums WHERE shop.sums.sums.total = sums.sums.total",
        "SELECT 1 FROM shop.sums.sums AS sums WHERE sums.total = sums.sums.total",
        "SELECT 1 FROM sums WHERE sums.total = sums.sums.total",
        "SELECT 1 FROM UNNEST([7]) AS sums(total) WHERE total = sums.sums.total",
        "SELECT 1 FROM (SELECT * FROM shop.sums.sums) AS sums WHERE sums.total = sums.sums.total",
        "SELECT 1 FROM (shop.sums.sums JOIN a.b.c.sums.sums AS y ON TRUE) WHERE y.total = sums.sums.total",
        "SELECT 1 FROM shop.sums.sums WHERE EXISTS (SELECT 1 FROM a.b.c.sums.sums AS y WHERE y.total > sums.sums.id)",
    ],
)
def test_a_column_that_the_engine_would_take_for_another_tables_is_refused(lake: Config, inner: str) -> None:
    query = f"WITH sums AS (SELECT 7 AS total) SELECT sums.sums.id FROM sums.sums WHERE EXISTS ({inner})"
    with pytest.raises(UsageError, match="rows of another table have the name 'sums' too"):
        values(lake, query)


@pytest.mark.parametrize(
    ("query", "near"),
    [
        ("SELECT 1 FROM shop.sums.sum", "shop.sums.sums"),
        ("SELECT 1 FROM shop.sum.sums", "shop.sums.sums"),
        ("SELECT 1 FROM sums", "sums.sums"),
        ("SELECT 1 FROM 'shop.sums.sums'", "shop.sums.sums"),
        ("SELECT * FROM (WITH t AS (SELECT 1) SELECT * FROM t) AS x, shop.SUMS.sums", "shop.sums.sums"),
    ],
)
def test_an_unknown_table_is_named_with_similar_ones(lake: Config, query: str, near: str) -> None:
    with pytest.raises(UnknownTableError) as error:
        values(lake, query)
    assert near in error.value.data["near"] and near in str(error.value)
    assert str(error.value).endswith("is listed by: kappa topologies")


def test_files_of_the_host_are_not_readable_as_tables(lake: Config) -> None:
    with pytest.raises(UnknownTableError, match=r"There is no table '/etc/passwd'"):
        values(lake, "SELECT * FROM '/etc/passwd'")


def test_a_slice_and_an_epoch_can_be_chosen_for_each_topology(lake: Config) -> None:
    query = "SELECT (SELECT COUNT(*) FROM sums.sums) AS one, (SELECT MAX(total) FROM shop.sums.sums) AS two"
    assert values(lake, query) == [(3, 12)]
    assert values(lake, query, seqs={"shop.sums": 1}, epochs={"sums": 1}) == [(3, 10)]
    with pytest.raises(UnknownEpochError, match="has no slice 9"):
        values(lake, query, seqs={"sums": 9})
    with pytest.raises(UnknownEpochError, match="has no epoch 2"):
        values(lake, query, epochs={"sums": 2})
    with pytest.raises(UsageError, match=r"given for \['retail.x'\], and the query reads \['shop.sums', 'sums'\] only"):
        values(lake, query, epochs={"retail.x": 2})
    with pytest.raises(UnknownTopologyError, match=r"'shop.empty' has no live epoch"):
        values(lake, "SELECT 1 FROM shop.empty.sums")


def test_each_name_in_a_query_is_found_once_in_order() -> None:
    parsed = statement("SELECT 1 FROM a.b x, c.d.e, a.b y WHERE a.b.z IN (SELECT 1 FROM x)")
    assert parsed.names[:2] == (Name(topology="a", table="b"), Name(topology="c.d", table="e"))


def test_topologies_that_move_together_are_read_before_or_after_the_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = epoch_record.empty_lake(tmp_path, monkeypatch)
    for topology in (SHOP, DEEP):
        for epoch, path in ((1, epoch_record.FIRST), (2, epoch_record.SECOND)):
            put(config, topology, epoch, epoch * 100)
            tell(config, topology.name, epoch, *path, by_event={})
    resolved: list[str] = []

    def meanwhile(path: str) -> Ledger:
        if not resolved:
            move = Event(
                topology=SHOP.name, epoch=2, event="moved", at=datetime.now(UTC), actor="test", detail={"from": 1}
            )
            Epochs(config.lake).change(SHOP.name, lambda _: [move, replace(move, topology=DEEP.name)])
        resolved.append(path)
        return Ledger(path)

    monkeypatch.setattr(serving, "Ledger", meanwhile)
    query = "SELECT MIN(x.total) AS x, MIN(y.total) AS y FROM shop.sums.sums x JOIN a.b.c.sums.sums y USING (id)"
    assert values(config, query) == [(100, 100)], "the move came between the two"
    assert values(config, query) == [(200, 200)]
    assert values(config, query, epochs={"shop.sums": 1}) == [(100, 200)]


@pytest.mark.parametrize(
    ("where", "order_by"),
    [
        ("total = 10 OR total = 12 -- why", None),
        ("id <> 'it''s' AND total IS NOT NULL AND total <> 11", "lower(id) ASC NULLS LAST -- first"),
        ("total::int <> 11", "id, total DESC"),
        ("sums.total BETWEEN 0 AND 10 OR id LIKE 'c%'", "shop.sums.sums.id"),
        ("regexp_like(id, '^a') OR arrow_cast(id, 'Binary') = decode('63', 'hex') OR id = chr(10)", None),
    ],
)
def test_rows_are_selected_by_one_condition_and_one_order(lake: Config, where: str, order_by: str | None) -> None:
    rows = serving.sql(lake, selection("shop.sums", "sums", where, order_by, 2))
    assert sorted(rows["id"].to_pylist()) == ["a", "c"]


@pytest.mark.parametrize(
    "where",
    [
        "1=1 UNION ALL SELECT * FROM t",
        "1=1) UNION ALL SELECT * FROM t WHERE (1=1",
        "a = 1) GROUP BY (b",
        "a = 1; DROP TABLE t",
        "a =",
        "a = 1 LIMIT 3",
        "a IN (SELECT b FROM t)",
        "EXISTS (SELECT 1)",
        "a = X'0a'",
        "a = E'\\n'",
        "a ~ 'b'",
    ],
)
def test_anything_beyond_a_condition_is_refused(where: str) -> None:
    with pytest.raises(UsageError, match="kappa sql"):
        selection("shop.sums", "sums", where, None, 20)


@pytest.mark.parametrize(
    "order_by", ["a LIMIT 3", "a LIMIT 3 --", "a; DROP TABLE t", "a UNION ALL SELECT 1", " ", "(SELECT 1)"]
)
def test_anything_beyond_an_order_is_refused(order_by: str) -> None:
    with pytest.raises(UsageError, match="kappa sql"):
        selection("shop.sums", "sums", "a = 1", order_by, 20)
