"""One row crosses a bounded number of multiples, and a total's thresholds are numbers that it can reach."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kappa import Slice, Source
from kappa.errors import TopologyError
from kappa.operators import running_total
from kappa.topology.revisions import revision_of

MOST = 100_000


def crossings(
    spark: SparkSession, kind: str, amount: str, before: str | None, *, total: str = "so_far", **thresholds: Any
) -> list[Any]:
    """The thresholds that one amount crosses, after a total before it."""
    source = Source(topic="in", schema=f"id STRING, n {kind}")
    sums = running_total(source, key="id", amount="n", total=total, table="sums", **thresholds)
    place = "'in' AS _topic, 0 AS _partition, 0L AS _offset, TIMESTAMP'2026-01-01' AS _order_timestamp"
    rows = spark.sql(f"SELECT 'a' AS id, CAST('{amount}' AS {kind}) AS n, {place}")
    sum_kind = sums.tables[0].columns[-1].type
    state = spark.sql(f"SELECT 'a' AS id, CAST('{before or 0}' AS {sum_kind}) AS {total}")
    state = state.where(str(before is not None))
    frame = sums(Slice(seq=1, records={"in": rows}, tables={"sums": state})).crossings
    assert frame is not None
    return [row["threshold"] for row in frame.select("threshold").collect()]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "amount", "before", "every", "count"),
    [
        ("BIGINT", str(MOST), None, 1, MOST),
        ("BIGINT", "-9223372036854775807", "5", 1, 0),
        ("BIGINT", "10", "9223372036854775000", 1, 10),
        ("BIGINT", "0", "9223372036854775807", 1, 0),
        ("BIGINT", "9223372036854775807", None, 2**62, 1),
        ("DECIMAL(10,2)", "1000.00", None, Decimal("0.01"), MOST),
        ("DECIMAL(10,2)", "1000.00", "-0.50", Decimal("0.01"), MOST - 50),
    ],
)
def test_a_row_crosses_up_to_the_bound(
    spark: SparkSession, kind: str, amount: str, before: str | None, every: Any, count: int
) -> None:
    assert len(crossings(spark, kind, amount, before, every=every)) == count


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "amount", "before", "every", "first"),
    [
        ("DECIMAL(20,8)", "0.00000011", None, "0.00000005", 1),
        (
            "DECIMAL(27,17)",
            "0.00000000000000009",
            "12345678.00000000000000004",
            "0.00000000000000005",
            24691356 * 10**16 + 1,
        ),
        ("DECIMAL(27,9)", "24691357802469135.780246914", None, "12345678901234567.890123457", 1),
        ("DECIMAL(28,2)", "0.02", "92233720368547758.07", "0.01", 9223372036854775808),
        ("DECIMAL(28,0)", "4", "-9223372036854775809", "1", 0),
        ("DECIMAL(28,0)", "9223372036854775811", "-9223372036854775809", "1", 1),
    ],
)
def test_multiples_of_long_decimals_are_exact(
    spark: SparkSession, kind: str, amount: str, before: str | None, every: str, first: int
) -> None:
    crossed = [] if first == 0 else [first, first + 1]
    with localcontext(prec=60):
        expected = [Decimal(every) * n for n in crossed]
    assert crossings(spark, kind, amount, before, every=Decimal(every)) == expected


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "amount", "before", "every"),
    [
        ("BIGINT", str(MOST + 1), None, 1),
        ("BIGINT", "1000000000000000000", "3", 1),
        ("DECIMAL(10,2)", "1000.01", None, Decimal("0.01")),
    ],
)
def test_a_row_that_crosses_more_fails_its_slice_with_what_to_do(
    spark: SparkSession, kind: str, amount: str, before: str | None, every: Any
) -> None:
    with pytest.raises(
        PySparkException, match=f"past more than 100,000 multiples of every={every}, .* Use a larger ev"
    ):
        crossings(spark, kind, amount, before, every=every)


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["BIGINT", "DECIMAL(10,2)"])
@pytest.mark.parametrize("written", ["1E+3", "1000.0", "1000"])
def test_a_decimal_may_be_written_in_any_form(spark: SparkSession, kind: str, written: str) -> None:
    for thresholds in ({"thresholds": [Decimal(written)]}, {"every": Decimal(written)}):
        assert crossings(spark, kind, "1999", None, **thresholds) == [1000]


@pytest.mark.parametrize("threshold", [2**63, -(2**63) - 1, 10**19 - 1, Decimal("0.5")])
def test_a_threshold_that_no_integer_reaches_is_refused(threshold: Any) -> None:
    source = Source(topic="in", schema="id STRING, n BIGINT")
    with pytest.raises(TopologyError, match="a total of type BIGINT is never"):
        running_total(source, key="id", amount="n", total="so_far", table="sums", thresholds=[threshold])


@pytest.mark.spark
@pytest.mark.parametrize("thresholds", [{"thresholds": [3, 1000]}, {"every": 3}], ids=["thresholds", "every"])
@pytest.mark.parametrize("total", ["t", "T"])
def test_a_total_may_have_a_name_of_one_letter(spark: SparkSession, total: str, thresholds: dict[str, Any]) -> None:
    assert crossings(spark, "BIGINT", "2", "1", total=total, **thresholds) == [3]


@pytest.mark.parametrize(
    ("total", "kind", "thresholds", "revision"),
    [
        ("t", "BIGINT", {"thresholds": [3]}, 2),
        ("T", "BIGINT", {"thresholds": [3]}, 2),
        ("t", "BIGINT", {"every": 3}, 1),
        ("t", "BIGINT", {}, 1),
        ("so_far", "BIGINT", {"thresholds": [3]}, 1),
        ("so_far", "DECIMAL(20,8)", {"every": Decimal("0.00000005")}, 2),
        ("so_far", "DECIMAL(20,8)", {"every": Decimal("0.000005")}, 1),
        ("so_far", "DECIMAL(7,7)", {"every": Decimal("0.0000001")}, 1),
    ],
)
def test_only_what_crossed_wrongly_has_a_new_revision(
    total: str, kind: str, thresholds: dict[str, Any], revision: int
) -> None:
    source = Source(topic="in", schema=f"id STRING, n {kind}")
    sums = running_total(source, key="id", amount="n", total=total, table="sums", **thresholds)
    assert revision_of(sums.tables[0].made_by) == revision
