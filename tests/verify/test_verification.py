"""What a comparison finds on three rows, and what it never shows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from kappa.delta import queries
from kappa.offsets.vector import OffsetRange, Offsets, ranges_end
from kappa.replay.proof.verdict import DiffReport, Drift, judged
from kappa.topology import Append, Check, Source, Table, Topology
from kappa.topology.thresholds import Threshold, limits_of
from kappa.verify.checks import checked
from kappa.verify.content_hash import twice
from kappa.verify.diff import Mask, output_diff, table_diff
from kappa.verify.key_comparison import differing
from kappa.verify.values import equal, row_hashes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

REWARDS = Table(name="rewards", key=["card"], schema="card STRING NOT NULL, points DECIMAL(12,2), tier STRING")
ROWS = Append(name="rows", schema="card STRING, n BIGINT")
LINEAGE = "_topic STRING, _partition INT, _offset BIGINT, _order_timestamp TIMESTAMP, _seq BIGINT"


@pytest.fixture
def rewards(spark: SparkSession) -> Any:
    def frame(*rows: tuple[Any, ...], ddl: str = "card STRING, points DECIMAL(12,2), tier STRING") -> DataFrame:
        values = [tuple(Decimal(str(v)) if i == 1 and v is not None else v for i, v in enumerate(row)) for row in rows]
        return spark.createDataFrame(values, ddl)

    return frame


@pytest.mark.parametrize(
    ("kind", "live", "candidate"),
    [
        ("BIGINT", "9007199254740992", "9007199254740993"),
        ("DECIMAL(38,2)", "123456789012345678901234567890.11", "123456789012345678901234567890.12"),
        ("DOUBLE", "1", "1.5"),
    ],
)
def test_a_drift_of_long_numbers_is_that_of_their_digits(
    spark: SparkSession, kind: str, live: str, candidate: str
) -> None:
    table = Table(name="t", key=["id"], schema=f"id STRING NOT NULL, v {kind}")
    frames = (spark.sql(f"SELECT 'a' AS id, CAST('{value}' AS {kind}) AS v") for value in (live, candidate))
    drift = table_diff(table, *frames).drift["v"]
    assert drift.max_difference == float(Decimal(candidate) - Decimal(live)) and drift.share


#: Types of numbers, those without room for a common type among them.
NUMBERS = ("TINYINT", "BIGINT", "DECIMAL(38,0)", "DECIMAL(38,6)", "DECIMAL(38,18)", "DECIMAL(38,38)", "FLOAT", "DOUBLE")
VALUES = [
    *("0", "-0.0", "1", "-1.25", "100", "0.1", "0.49", "1.123456789", "0.000001", "1E-30", "16777217", "1E22", "NaN"),
    *("9007199254740993", "9007199254740992", "12345678901234567890.000000000000000001", "-Infinity"),
]


def test_numbers_of_two_types_are_equal_by_their_digits(spark: SparkSession) -> None:
    listed = ", ".join(f"('{value}')" for value in VALUES)
    typed = [f"TRY_CAST(text AS {kind}) AS v{i}" for i, kind in enumerate(NUMBERS)]
    frame = spark.sql(f"SELECT text, {', '.join(typed)} FROM VALUES {listed} AS t(text)")
    was, now = frame.alias("was"), frame.alias("now")
    types = {column: frame.schema[column].dataType for column in frame.columns[1:]}
    columns = []
    for one, other in product(types, repeat=2):
        pair = F.col(f"was.{one}"), F.col(f"now.{other}")
        columns.append(F.struct(*(side.cast("string") for side in pair), equal(*pair, types[one], types[other])))

    def number(text: str | None) -> Decimal | str | None:
        return text if text in (None, "NaN", "Infinity", "-Infinity") else Decimal(text)

    for row in was.crossJoin(now).select(*columns).collect():
        for (one, other), (a, b, is_equal) in zip(product(NUMBERS, repeat=2), row, strict=True):
            assert is_equal == (number(a) == number(b)), (one, a, other, b)


@pytest.mark.parametrize(
    ("live", "candidate"),
    [
        ("1.123456789 DECIMAL(38,18)", "1.123457 DECIMAL(38,6)"),
        ("1.25 DECIMAL(38,18)", "1 DECIMAL(38,0)"),
        ("9007199254740993 BIGINT", "9007199254740992 DOUBLE"),
    ],
)
def test_a_number_that_lost_digits_to_its_type_differs(spark: SparkSession, live: str, candidate: str) -> None:
    (was, before), (now, after) = live.split(), candidate.split()
    place = "'t' AS _topic, 0 AS _partition, 1L AS _offset"
    frames = [
        spark.sql(f"SELECT 'a' AS id, CAST('{v}' AS {t}) AS v, {place}") for v, t in ((was, before), (now, after))
    ]
    table = Table(name="t", key=["id"], schema=f"id STRING NOT NULL, v {after}")
    diff = table_diff(table, *(frame.select("id", "v") for frame in frames))
    assert diff.keys_changed == 1
    assert not judged({"t.drift.v": 0}, [diff], [])[0].ok
    assert not output_diff(Append(name="o", schema=f"id STRING, v {after}"), *frames).is_same
    assert output_diff(Append(name="o", schema=f"id STRING, v {before}"), frames[0], frames[0]).is_same


@pytest.fixture
def rows(spark: SparkSession) -> Any:
    """Rows of (card, n, offset, slice)."""

    def frame(*records: tuple[Any, ...], ddl: str = "card STRING, n BIGINT") -> DataFrame:
        full = [
            (
                *row[:-2],
                "pos" if row[-2] is not None else None,
                0 if row[-2] is not None else None,
                row[-2],
                None,
                row[-1],
            )
            for row in records
        ]
        return spark.createDataFrame(full, f"{ddl}, {LINEAGE}")

    return frame


def test_changed_keys_are_reported_with_counts_columns_and_drift(rewards: Any) -> None:
    live = rewards(("a", 10, "x"), ("b", 20, "x"), ("c", None, "x"), ("d", 70, "x"))
    candidate = rewards(("a", 10, "x"), ("b", 25, "y"), ("c", -5, "x"), ("e", 1, "x"))
    diff = table_diff(REWARDS, live, candidate)
    assert (diff.keys_added, diff.keys_removed, diff.keys_changed) == (1, 1, 2)
    assert diff.changed_columns == {"points": 2, "tier": 1}
    assert diff.drift == {
        "points": Drift(
            keys=2, sum_live=20.0, sum_candidate=20.0, mean_difference=5.0, max_difference=5.0, share=10 / 30
        )
    }
    assert [sample.key["card"] for sample in diff.samples] == ["b", "c", "d", "e"]
    assert diff.samples[1].live == {"points": None, "tier": "x"}
    assert diff.samples[2].candidate is None


def test_masked_values_never_appear_and_masked_keys_can_be_told_apart(rewards: Any) -> None:
    table = replace(REWARDS, masked=("card", "points"))
    live = rewards(("secret-1", 4711, "x"), ("secret-2", 4712, "x"))
    diff = table_diff(table, live, rewards(("secret-1", 4713, "x"), ("secret-2", 4714, "y")))
    text = json.dumps([diff.samples, diff.drift, diff.changed_columns], default=vars)
    stripped = re.sub(r"\*[0-9a-f]{8}", "*", text)  # a keyed hash may have any digits
    assert stripped != text and "secret" not in stripped and "471" not in stripped
    assert diff.changed_columns == {"points": 2, "tier": 1} and diff.drift == {}
    first, second = (sample.key["card"] for sample in diff.samples)
    assert first != second and first.startswith("*") and len(first) == 9
    assert diff.samples[1].candidate == {"points": "***", "tier": "y"}
    again = table_diff(table, live, rewards(("secret-1", 1, "x"), ("secret-2", 1, "y")))
    assert again.samples[0].key["card"] != first  # the hash's key belongs to one report


def test_added_removed_and_retyped_columns_are_named(rewards: Any, spark: SparkSession) -> None:
    live = spark.createDataFrame([("a", "10.00", 1)], "card STRING, points STRING, old INT")
    diff = table_diff(REWARDS, live, rewards(("a", 10, "x")))
    assert (diff.columns_added, diff.columns_removed, diff.columns_retyped) == (("tier",), ("old",), ("points",))
    assert diff.keys_changed == 0 and not diff.is_same
    assert table_diff(REWARDS, live, rewards(("a", 11, "x"))).changed_columns == {"points": 1}


def test_a_table_of_its_key_only_and_one_with_a_map_are_compared(spark: SparkSession) -> None:
    only = Table(name="t", key=["id"], schema="id STRING NOT NULL")
    ids = spark.createDataFrame([("a",), ("b",)], "id STRING")
    diff = table_diff(only, ids, ids.where("id = 'a'"))
    assert (diff.rows_live, diff.keys_removed, diff.samples[0].live) == (2, 1, {})
    mapped = Table(name="t", key=["id"], schema="id STRING NOT NULL, m MAP<STRING, INT>")
    one = spark.createDataFrame([("a", {"x": 1, "y": 2})], "id STRING, m MAP<STRING, INT>")
    other = spark.createDataFrame([("a", {"y": 2, "x": 1})], "id STRING, m MAP<STRING, INT>")
    assert table_diff(mapped, one, other).is_same
    assert table_diff(mapped, one, other.selectExpr("id", "map('x', 9) AS m")).keys_changed == 1


@pytest.mark.parametrize(
    ("kind", "live", "candidate", "texts"),
    [
        ("DATE", "DATE'+10000-01-05'", "DATE'-0001-01-06'", ("+10000-01-05", "-0001-01-06")),
        (
            "TIMESTAMP",
            "TIMESTAMP_MICROS(1772323200000000000)",
            "TIMESTAMP_MICROS(1772323200000000001)",
            ("+58132-09-08T00:00:00.000000Z", "+58132-09-08T00:00:00.000001Z"),
        ),
        (
            "STRUCT<at: ARRAY<DATE>>",
            "NAMED_STRUCT('at', ARRAY(DATE'+10000-01-05'))",
            "NAMED_STRUCT('at', ARRAY(DATE'2026-01-05'))",
            ('{"at":["+10000-01-05"]}', '{"at":["2026-01-05"]}'),
        ),
    ],
)
def test_rows_with_times_beyond_pythons_years_are_compared_and_shown(
    kind: str, live: str, candidate: str, texts: tuple[str, str], spark: SparkSession
) -> None:
    table = Table(name="t", key=["id", "day"], schema=f"id STRING NOT NULL, day DATE NOT NULL, v {kind}")
    far = "DATE'+10000-01-01'"
    was = spark.sql(f"SELECT 'a' AS id, {far} AS day, {live} AS v UNION ALL SELECT 'b', {far}, {live}")
    now = spark.sql(f"SELECT 'a' AS id, {far} AS day, {candidate} AS v UNION ALL SELECT 'c', {far}, {live}")
    diff = table_diff(table, was, now)
    assert (diff.keys_changed, diff.keys_added, diff.keys_removed) == (1, 1, 1)
    assert [sample.key for sample in diff.samples] == [{"id": key, "day": "+10000-01-01"} for key in "abc"]
    assert (diff.samples[0].live, diff.samples[0].candidate) == ({"v": texts[0]}, {"v": texts[1]})
    again = twice(table, was, now, Mask())
    assert again.columns == ("v",) and len(again.samples) == 3


_DAY = "TIMESTAMP'2026-03-01 00:00:00.000001Z'"
_LATER = "TIMESTAMP'2026-03-01 00:00:00.000002Z'"
#: Type -> a value, the same written otherwise, and values that differ from it.
NESTED = {
    "MAP<STRING, MAP<STRING, INT>>": (
        "MAP('a', MAP('x', 1, 'y', 2), 'b', NULL)",
        "MAP('b', NULL, 'a', MAP('y', 2, 'x', 1))",
        ["MAP('a', MAP('x', 1, 'y', 3), 'b', NULL)", "MAP('a', MAP('x', 1, 'y', 2))", "NULL"],
    ),
    "ARRAY<MAP<INT, BOOLEAN>>": (
        "ARRAY(MAP(1, TRUE, 2, NULL), NULL)",
        "ARRAY(MAP(2, NULL, 1, TRUE), NULL)",
        ["ARRAY(NULL, MAP(1, TRUE, 2, NULL))", "ARRAY(MAP(1, TRUE), NULL)", "ARRAY(MAP(1, TRUE, 2, NULL))"],
    ),
    "STRUCT<`a.b`: TIMESTAMP, m: MAP<TIMESTAMP, DATE>>": (
        f"NAMED_STRUCT('a.b', {_DAY}, 'm', MAP({_DAY}, NULL, {_LATER}, DATE'2026-03-01'))",
        f"NAMED_STRUCT('a.b', {_DAY}, 'm', MAP({_LATER}, DATE'2026-03-01', {_DAY}, NULL))",
        [
            f"NAMED_STRUCT('a.b', {_LATER}, 'm', MAP({_DAY}, NULL, {_LATER}, DATE'2026-03-01'))",
            f"NAMED_STRUCT('a.b', {_DAY}, 'm', MAP({_LATER}, NULL, {_DAY}, DATE'2026-03-01'))",
            "NAMED_STRUCT('a.b', NULL, 'm', NULL)",
            "NULL",
        ],
    ),
    "ARRAY<TIMESTAMP>": (f"ARRAY({_DAY}, NULL)", f"ARRAY({_DAY}, NULL)", [f"ARRAY({_LATER}, NULL)", f"ARRAY({_DAY})"]),
    "MAP<STRUCT<k: BINARY>, DOUBLE>": (
        "MAP(NAMED_STRUCT('k', X'00'), 1D, NAMED_STRUCT('k', X'01'), DOUBLE('NaN'))",
        "MAP(NAMED_STRUCT('k', X'01'), DOUBLE('NaN'), NAMED_STRUCT('k', X'00'), 1D)",
        ["MAP(NAMED_STRUCT('k', X'01'), 1D, NAMED_STRUCT('k', X'00'), DOUBLE('NaN'))"],
    ),
}


@pytest.mark.parametrize("kind", NESTED)
def test_nested_values_are_compared_by_content(spark: SparkSession, kind: str) -> None:
    value, same, others = NESTED[kind]
    table, append = (
        Table(name="t", key=["id"], schema=f"id STRING NOT NULL, v {kind}"),
        Append(name="o", schema=f"id STRING, v {kind}"),
    )

    def row(sql: str) -> DataFrame:
        place = "CAST(NULL AS STRING) AS _topic, CAST(NULL AS INT) AS _partition, CAST(NULL AS BIGINT) AS _offset"
        return spark.sql(f"SELECT 'a' AS id, CAST({sql} AS {kind}) AS v, {place}")

    def hashed(sql: str) -> tuple[int, int]:
        first = row(sql).select(*row_hashes(row(sql), ["v"])).first()
        assert first is not None
        return first[0], first[1]

    assert table_diff(table, row(value).select("id", "v"), row(same).select("id", "v")).is_same
    assert output_diff(append, row(value), row(same)).is_same
    assert hashed(value) == hashed(same)
    for other in others:
        assert table_diff(table, row(value), row(other)).keys_changed == 1, other
        assert not output_diff(append, row(value), row(other)).is_same, other
        assert hashed(value) != hashed(other), other


@pytest.mark.parametrize(
    ("live", "candidate"),
    [
        ("ARRAY(CAST('-0.0' AS DOUBLE))", "ARRAY(CAST('0.0' AS DOUBLE))"),
        ("MAP('a', CAST('-0.0' AS FLOAT))", "MAP('a', CAST('0.0' AS FLOAT))"),
        ("NAMED_STRUCT('n', CAST(1.5 AS DECIMAL(10,2)))", "NAMED_STRUCT('n', CAST(1.5 AS DECIMAL(12,4)))"),
        ("ARRAY(NAMED_STRUCT('n', 100L))", "ARRAY(NAMED_STRUCT('n', CAST(100 AS DECIMAL(20,1))))"),
        ("ARRAY(NAMED_STRUCT('n', 100L, 'a', 'x'))", "ARRAY(NAMED_STRUCT('a', 'x', 'n', 100L))"),
    ],
)
def test_what_is_within_a_value_is_equal_where_columns_of_it_are(
    spark: SparkSession, live: str, candidate: str
) -> None:
    frames = [
        spark.sql(f"SELECT 'a' AS id, {value} AS v, 't' _topic, 0 _partition, 1L _offset")
        for value in (live, candidate)
    ]
    other = spark.sql(
        f"SELECT 'a' AS id, {candidate.replace('100', '101').replace('1.5', '1.25').replace('0.0', '0.5')} AS v"
    )
    table = Table(name="t", key=["id"], schema="id STRING NOT NULL, v STRING")
    was, now = (frame.select("id", "v") for frame in frames)
    assert table_diff(table, was, now).keys_changed == 0 and differing(now, was, table).count() == 0
    assert output_diff(Append(name="o", schema="id STRING, v STRING"), *frames).is_same
    assert table_diff(table, was, other).keys_changed == 1 and differing(other, was, table).count() == 1


@pytest.mark.parametrize("key", ["live", "Candidate", "was", "NOW", "row", "here"])
def test_a_key_may_have_any_name(spark: SparkSession, key: str) -> None:
    table = Table(name="t", key=[key], schema=f"{key} STRING NOT NULL, v BIGINT")
    was, now = (spark.sql(f"SELECT 'a' AS {key}, {value} AS v") for value in (1, 2))
    (sample,) = table_diff(table, was, now).samples
    assert (sample.key, sample.live, sample.candidate) == ({key: "a"}, {"v": "1"}, {"v": "2"})
    assert differing(now, was, table).count() == 1


def test_rows_of_an_output_are_compared_as_multisets(rows: Any) -> None:
    live = rows(("a", 1, 0, 1), ("a", 1, 0, 1), ("b", None, 1, 1), (None, 2, None, 1))
    assert output_diff(ROWS, live, rows((None, 2, None, 7), ("b", None, 1, 8), ("a", 1, 0, 9), ("a", 1, 0, 9))).is_same
    diff = output_diff(ROWS, live, rows(("a", 1, 0, 1), ("b", None, 2, 1), (None, 2, None, 1), ("c", 1, 3, 1)))
    assert (diff.rows_live, diff.rows_candidate, diff.rows_added, diff.rows_removed) == (4, 4, 2, 2)
    swapped = output_diff(
        Append(name="o", schema="a STRING, b STRING"),
        *(rows((*pair, None, 1), ddl="a STRING, b STRING") for pair in ((None, "x"), ("x", None))),
    )
    assert (swapped.rows_added, swapped.rows_removed) == (1, 1)


def test_an_output_without_rows_and_one_with_another_column_are_compared(rows: Any, spark: SparkSession) -> None:
    none = rows()
    assert output_diff(ROWS, none, none).rows_live == 0
    assert output_diff(ROWS, None, none).rows_live is None
    wider = Append(name="rows", schema="card STRING, n BIGINT, extra STRING")
    diff = output_diff(
        wider, rows(("a", 1, 0, 1)), rows(("a", 1, "new", 0, 1), ddl="card STRING, n BIGINT, extra STRING")
    )
    assert (diff.columns_added, diff.rows_added, diff.is_same) == (("extra",), 0, False)


def _boom(_: Mapping[str, DataFrame]) -> bool:
    raise ValueError("no such thing as 4711\nsecond line")


def test_checks_are_queries_or_functions_and_one_that_raises_fails(rewards: Any) -> None:
    checks = [
        Check(name="holds", sql="SELECT * FROM rewards WHERE points < 0"),
        Check(name="query", sql="SELECT * FROM rewards WHERE points > 0"),
        Check(name="rows", function=lambda tables: tables["rewards"].where("points > 5")),
        Check(name="true", function=lambda tables: tables["rewards"].count() == 2),
        Check(name="false", function=lambda tables: False),
        Check(name="raises", function=_boom),
        Check(name="wrong", function=lambda tables: 3),  # type: ignore[arg-type, return-value]
        Check(name="no column", sql="SELECT no_such FROM rewards"),
    ]
    topology = Topology(
        name="a.b",
        version="1",
        sources=[Source(topic="pos", schema="id STRING")],
        tables=[REWARDS],
        checks=checks,
        step=lambda s: {},
    )
    tables = {"rewards": rewards(("a", 1, "x"), ("b", 9, "x"))}
    session = tables["rewards"].sparkSession
    results = {result.name: (result.ok, result.detail) for result in checked(session, topology, tables)}
    assert results["holds"] == (True, "")
    assert results["query"] == (False, "2 rows contradict it")
    assert results["rows"] == (False, "1 rows contradict it")
    assert results["true"] == (True, "")
    assert results["false"] == (False, "it says that it does not hold")
    assert results["raises"] == (False, "raised ValueError: no such thing as 4711")
    assert results["wrong"] == (False, "raised TypeError: its function returned int, not a DataFrame or a bool")
    assert results["no column"][1].startswith("raised AnalysisException: [UNRESOLVED_COLUMN")
    masked = replace(topology, tables=[replace(REWARDS, masked=("points",))])
    hidden = {result.name: result.detail for result in checked(session, masked, tables)}
    assert "4711" not in hidden["raises"] and hidden["raises"].startswith("raised ValueError")


@pytest.mark.parametrize(
    ("small_rows", "root"), [(queries.SMALL_ROWS, "pos"), (-1, "root")], ids=["memory", "files, in a chain"]
)
def test_a_whole_verification_names_members_of_the_live_epoch_only_and_judges(
    rewards: Any, rows: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, small_rows: int, root: str
) -> None:
    from types import SimpleNamespace

    from kappa.names import EpochPaths
    from kappa.verify.diff import verify

    monkeypatch.setattr(queries, "SMALL_ROWS", small_rows)
    lake = {
        1: {
            "tables/rewards": rewards(("a", 10, "x"), ("b", 20, "x")),
            "tables/old": rewards(("a", 1, "x")),
            "outputs/rows": rows(("a", 1, 0, 1)),
        },
        2: {"tables/rewards": rewards(("a", 11, "x"), ("b", 20, "x")), "outputs/rows": rows(("a", 2, 0, 1))},
    }
    session = lake[1]["tables/old"].sparkSession
    letter = ["'pos' AS topic", "0 AS partition", "id AS offset", "IF(id = 1, 'broken', 'n is absent') AS reason"]
    lake[1]["dead_letters"] = session.range(1, 2).selectExpr(*letter)
    lake[2]["dead_letters"] = session.range(0, 3).selectExpr(*letter)
    sides = []
    for epoch, frames in lake.items():
        paths = EpochPaths(lake=str(tmp_path), topology="a.b", epoch=epoch)
        for place, frame in frames.items():
            frame.write.format("delta").save(paths.place(place))
        ranges = (OffsetRange(topic="pos", partition=0, start=0, end=3),)
        row = SimpleNamespace(
            seq=epoch,
            ranges=ranges,
            standing=Offsets({root: {0: 3}}),
            delta_versions=dict.fromkeys(frames, 0),
            detail={},
        )
        sides.append((paths, row))
    topology = Topology(
        name="a.b",
        version="1",
        sources=[Source(topic="pos", schema="id STRING")],
        tables=[REWARDS],
        outputs=[ROWS],
        step=lambda s: {},
    )
    limits = limits_of(
        [Threshold(table="rewards", keys_changed=0.5, drift={"points": 0.03}), Threshold(table="rows", rows_added=0)]
    )
    report = verify(session, topology, sides[0], sides[1], limits=limits)
    assert [(t.name, t.rows_live, t.rows_candidate) for t in report.tables] == [("rewards", 2, 2), ("old", 1, None)]
    assert [(t.measure, t.found, t.ok) for t in report.thresholds] == [
        ("rewards.drift.points", pytest.approx(1 / 30), False),
        ("rewards.keys_changed", 0.5, True),
        ("rows.rows_added", 1, False),
    ]
    assert report.verdict == "failed"
    assert report.is_level
    assert report.notes == (
        "2 records are dead letters of this epoch alone: 2 (n is absent).",
        "Rows of rows were both added and removed. What depends on the order of records across partitions is the same "
        "only along the same cuts.",
    )
    later = verify(session, topology, sides[0], sides[1], limits=limits, since=Offsets({"pos": {0: 2}}))
    assert later.notes[0] == "1 records are dead letters of this epoch alone: 1 (n is absent)."
    elsewhere = (OffsetRange(topic="pos.v2", partition=0, start=0, end=3),)
    sides[1][1].ranges, sides[1][1].standing = elsewhere, ranges_end(elsewhere)
    apart = verify(session, topology, sides[0], sides[1])
    assert not apart.is_level and "no topic in common" in apart.notes[0]
    assert "both of different topics" not in apart.render()[0] and "at the same offsets" not in apart.render()[0]
    assert DiffReport.from_json(apart.to_json()) == apart
