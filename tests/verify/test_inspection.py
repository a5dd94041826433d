"""Findings in the analysed plan of a step, and plans without any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kappa.operators import agg, newest, running_total, tumbling_window
from kappa.topology import Append, Effects, Slice, Source, Table, Topology, registry
from kappa.verify.inspection import Dependence, dependencies, inspected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TOPOLOGIES = Path(__file__).resolve().parents[2] / "include" / "topologies"
SOURCE = Source(topic="pos", schema="id STRING NOT NULL, amount BIGINT NOT NULL")


def moves(rows: Callable[[DataFrame], DataFrame], schema: str = "x STRING") -> Topology:
    """A topology whose one output has these rows."""

    def step(slice: Slice) -> Effects:
        return {"moves": rows(slice["pos"])}

    return Topology(name="t", version="1", sources=[SOURCE], outputs=[Append(name="moves", schema=schema)], step=step)


def findings_of(session: SparkSession, rows: Callable[[DataFrame], DataFrame]) -> list[tuple[str, str]]:
    """Code and expression of each finding."""
    return [
        (f.code, f.numbers.get("expression", f.message))
        for f in inspected(session, moves(lambda df: rows(df).selectExpr("CAST(x AS STRING) AS x")))
    ]


@pytest.mark.parametrize(
    ("sql", "code", "expression"),
    [
        ("current_timestamp()", "reads-clock", "current_timestamp()"),
        ("now()", "reads-clock", "now()"),
        ("curdate()", "reads-clock", "current_date()"),
        ("localtimestamp()", "reads-clock", "localtimestamp()"),
        ("unix_timestamp()", "reads-clock", "current_timestamp()"),
        ("rand()", "draws-random", "rand()"),
        ("rand(42)", "draws-random", "rand(42)"),
        ("randn(7)", "draws-random", "randn(7)"),
        ("shuffle(array(id))[0]", "draws-random", "shuffle(array(pos.id))"),
        ("uuid()", "draws-random", "uuid()"),
        ("uniform(1, 10)", "draws-random", "uniform(1, 10)"),
        ("monotonically_increasing_id()", "depends-on-partitions", "monotonically_increasing_id()"),
        ("spark_partition_id()", "depends-on-partitions", "SPARK_PARTITION_ID()"),
        ("input_file_name()", "depends-on-partitions", "input_file_name()"),
        ("java_method('java.lang.Math', 'random')", "nondeterministic-function", "java_method"),
    ],
)
def test_a_function_is_found_wherever_it_is_hidden(spark: SparkSession, sql: str, code: str, expression: str) -> None:
    ((finding_code, what),) = findings_of(spark, lambda df: df.selectExpr(f"concat('a', {sql}) AS x").where("x <> ''"))
    assert finding_code == code
    assert what.replace("pos.", "").startswith(expression.replace("pos.", ""))


@pytest.mark.parametrize("name", ["first", "last", "any_value", "collect_list", "collect_set", "array_agg"])
def test_an_aggregate_that_depends_on_an_undefined_order_is_found(spark: SparkSession, name: str) -> None:
    ((code, what),) = findings_of(spark, lambda df: df.groupBy("id").agg(_expr(f"string({name}(amount)) AS x")))
    assert code == "order-undefined"
    assert what == f"{'collect_list' if name == 'array_agg' else name}(amount)"


@pytest.mark.parametrize(
    "sql",
    [
        "sort_array(collect_list(amount))",
        "array_sort(collect_set(amount))",
        "max_by(amount, _order_timestamp)",
        "listagg(id) WITHIN GROUP (ORDER BY amount)",
    ],
)
def test_an_aggregate_with_a_defined_order_is_not_found(spark: SparkSession, sql: str) -> None:
    assert findings_of(spark, lambda df: df.groupBy("id").agg(_expr(f"string({sql}) AS x"))) == []


def test_first_in_a_window_is_found_unless_the_window_has_an_order(spark: SparkSession) -> None:
    assert (
        findings_of(spark, lambda df: df.selectExpr("first(amount) OVER (PARTITION BY id ORDER BY _offset) AS x")) == []
    )
    ((code, what),) = findings_of(spark, lambda df: df.selectExpr("first(amount) OVER (PARTITION BY id) AS x"))
    assert (code, what) == ("order-undefined", "first(amount)")


def test_a_limit_is_found_unless_the_rows_are_sorted(spark: SparkSession) -> None:
    assert findings_of(spark, lambda df: df.orderBy("_offset").selectExpr("id AS x").limit(3)) == []
    assert findings_of(spark, lambda df: df.selectExpr("id AS x").limit(3)) == [("order-undefined", "limit")]
    assert findings_of(spark, lambda df: df.sortWithinPartitions("id").selectExpr("id AS x").limit(3)) == [
        ("order-undefined", "limit")
    ]


def test_an_arbitrary_row_kept_by_dropping_duplicates_is_found(spark: SparkSession) -> None:
    ((code, what),) = findings_of(spark, lambda df: df.dropDuplicates(["id"]).selectExpr("amount AS x"))
    assert (code, what) == ("order-undefined", "dropDuplicates(id)")
    assert findings_of(spark, lambda df: df.dropDuplicates(["id"]).selectExpr("id AS x")) == []
    assert findings_of(spark, lambda df: df.selectExpr("id AS x").distinct()) == []


def test_a_python_function_marked_nondeterministic_is_found(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    honest = F.udf(str.upper, "string")

    def fickle(text: str) -> str:
        return text

    marked = F.udf(fickle, "string").asNondeterministic()
    assert findings_of(spark, lambda df: df.select(honest("id").alias("x"))) == []
    assert findings_of(spark, lambda df: df.select(marked("id").alias("x"))) == [
        ("nondeterministic-function", "fickle(id)")
    ]


def test_conditions_subqueries_samples_and_joins_are_inspected(spark: SparkSession) -> None:
    assert findings_of(spark, lambda df: df.where("rand() < 0.5").selectExpr("id AS x")) == [("draws-random", "rand()")]
    assert findings_of(spark, lambda df: df.sample(0.5, 1).selectExpr("id AS x")) == [("draws-random", "sample")]
    other = spark.range(3).selectExpr("uuid() AS x", "string(id) AS id")
    assert findings_of(spark, lambda df: df.join(other, on="id", how="left")) == [("draws-random", "uuid()")]
    spark.range(3).createOrReplaceTempView("numbers")
    assert findings_of(spark, lambda df: df.selectExpr("(SELECT max(unix_timestamp()) FROM numbers) AS x")) == [
        ("reads-clock", "current_timestamp()")
    ]


def test_a_column_that_does_not_reach_the_result_is_ignored(spark: SparkSession) -> None:
    assert findings_of(spark, lambda df: df.selectExpr("id AS x", "now() AS at").where("x > ''")) == []
    assert findings_of(spark, lambda df: df.selectExpr("id AS x", "now() AS at").where("at > '2020-01-01'")) == [
        ("reads-clock", "now()")
    ]


def test_each_effect_with_the_column_is_named(spark: SparkSession) -> None:
    def step(slice: Slice) -> Effects:
        rows = slice["pos"].selectExpr("*", "now() AS at")
        return {"moves": rows, "plain": rows, "newest": newest(rows, key="id")}

    topology = Topology(
        name="t",
        version="1",
        sources=[SOURCE],
        step=step,
        outputs=[Append(name="moves", schema="id STRING, at TIMESTAMP"), Append(name="plain", schema="id STRING")],
        tables=[Table(name="newest", key=["id"], schema="id STRING NOT NULL, at TIMESTAMP")],
    )
    assert [(f.numbers["effect"], f.numbers["column"]) for f in inspected(spark, topology)] == [
        ("moves", "at"),
        ("newest", "at"),
    ]


def test_operators_and_shipped_topologies_have_no_findings(spark: SparkSession) -> None:
    for folder in (TOPOLOGIES, TOPOLOGIES / "versions"):
        for topology in registry.topologies(folder)[0].values():
            assert inspected(spark, topology) == (), topology.name

    summed = running_total(SOURCE, key="id", amount="amount", total="so_far", since="amount", every=5, table="sums")
    outputs = [Append(name="rows", of=summed.rows), Append(name="crossings", of=summed.crossings)]
    topology = Topology(name="t", version="1", sources=[SOURCE], operators=[summed], outputs=outputs)
    assert inspected(spark, topology) == ()


def test_a_step_that_needs_rows_is_reported_and_does_not_raise(spark: SparkSession) -> None:
    (one,) = inspected(spark, moves(lambda df: df.limit(1 // df.count())))
    assert one.code == "step-not-inspected"
    assert "ZeroDivisionError" in one.message


def _expr(sql: str) -> object:
    from pyspark.sql import functions as F

    return F.expr(sql)


def _depends(session: SparkSession, rows: Callable[[DataFrame], DataFrame]) -> tuple[str, ...]:
    """The dependences of rows beside one record each."""
    return dependencies(session, moves(lambda df: rows(df).selectExpr("CAST(x AS STRING) AS x")))["moves"].words


def test_rows_made_from_one_record_each_depend_on_nothing_else(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    upper = F.udf(str.upper, "string")
    for rows in (
        lambda df: df.selectExpr("id AS x").where("x > ''"),
        lambda df: df.selectExpr("explode(array(id, id)) AS x"),
        lambda df: df.where("amount > 0").union(df.where("amount < 0")).selectExpr("id AS x"),
        lambda df: df.select(upper("id").alias("x")).repartition(3),
        lambda df: df.withColumn("x", F.when(F.col("amount") > 1, "a").otherwise("b")),
    ):
        assert _depends(spark, rows) == ()


@pytest.mark.parametrize(
    ("rows", "phrase"),
    [
        (lambda df: df.groupBy("id").count().selectExpr("id AS x"), "aggregates records"),
        (
            lambda df: df.selectExpr("sum(amount) OVER (PARTITION BY id) AS x"),
            "looks at other records through a window",
        ),
        (lambda df: df.alias("a").join(df.alias("b"), on="id").selectExpr("id AS x"), "joins rows"),
        (lambda df: df.dropDuplicates(["id"]).selectExpr("id AS x"), "removes duplicates"),
        (lambda df: df.selectExpr("id AS x").distinct(), "removes duplicates"),
        (lambda df: df.selectExpr("id AS x").limit(3), "limits the number of records"),
        (lambda df: df.orderBy("id").selectExpr("id AS x"), "sorts records"),
        (
            lambda df: df.selectExpr("id AS x").union(df.sparkSession.range(1).selectExpr("'y' AS x")),
            "adds rows that come from no record",
        ),
        (lambda df: df.sample(0.5, 1).selectExpr("id AS x"), "uses Sample"),
        (lambda df: df.selectExpr("id AS x").intersect(df.selectExpr("id AS x")), "uses Intersect"),
        (lambda df: df.where("id IN (SELECT string(id) FROM range(3))").selectExpr("id AS x"), "uses a subquery"),
    ],
)
def test_rows_with_other_dependences_name_them(
    spark: SparkSession, rows: Callable[[DataFrame], DataFrame], phrase: str
) -> None:
    assert phrase in " ".join(_depends(spark, rows))


def test_a_table_that_rows_are_read_from_is_named(spark: SparkSession) -> None:
    deployed = registry.load(TOPOLOGIES, "retail.loyalty")
    (dependence,) = dependencies(spark, deployed).values()
    assert (
        "reads table 'rewards'" in dependence.words
        and dependence.tables == ("rewards",)
        and dependence.sources == ("pos",)
    )
    first = registry.load(TOPOLOGIES / "versions", "retail.loyalty")
    assert dependencies(spark, first) == {"notifications": Dependence(sources=("pos",))}
    assert dependencies(spark, registry.load(TOPOLOGIES, "retail.shipments")) == {
        "shipments": Dependence(sources=("pos",))
    }


@pytest.mark.parametrize(
    "action",
    [
        lambda df: df.collect(),
        lambda df: df.isEmpty(),
        lambda df: list(df.toLocalIterator()),
        lambda df: df.rdd.map(tuple).collect(),
    ],
)
def test_rows_collected_by_a_step_leave_its_dependences_open(
    spark: SparkSession, action: Callable[[DataFrame], object]
) -> None:
    limits = Table(name="limits", key=["id"], schema="id STRING NOT NULL, most BIGINT")

    def step(slice: Slice) -> dict[str, DataFrame]:
        action(slice.table("limits"))
        return {"moves": slice["pos"].selectExpr("id", "amount"), "limits": slice.table("limits").limit(0)}

    rows = {"topic": "pos", "schema": "id STRING, amount BIGINT"}
    output = Append(name="moves", schema="id STRING, amount BIGINT")
    of_table = Topology(name="a.b", version="1", sources=[Source(**rows)], tables=[limits], outputs=[output], step=step)
    dependence = dependencies(spark, of_table)["moves"]
    assert dependence.is_open and any("takes rows" in words for words in dependence.words)


def test_a_table_over_emitted_windows_is_reported_beside_them(spark: SparkSession) -> None:
    pos = Source(topic="pos", schema="id STRING NOT NULL, at BIGINT", time="at", grace="1 minute")
    hours = tumbling_window(pos, key="id", size="1 hour", aggregates={"n": agg.count()}, table="open")
    days = Table(name="days", key=["id"], schema="id STRING NOT NULL, n BIGINT")

    def step(slice: Slice) -> dict[str, DataFrame]:
        final = hours(slice).final
        return {"days": final.groupBy("id").agg({"n": "sum"}).withColumnRenamed("sum(n)", "n")}

    topology = Topology(
        name="a.b",
        version="1",
        sources=[pos],
        operators=[hours],
        tables=[days],
        outputs=[Append(name="hours", of=hours.final)],
        step=step,
    )
    dependence = dependencies(spark, topology)["hours"]
    assert (dependence.tables, dependence.beside) == (("open",), ("days",))
