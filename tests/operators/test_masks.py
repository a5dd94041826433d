"""Masks: their hash, and the places where its key must not appear."""

from __future__ import annotations

import hashlib
import hmac
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

import pytest

from kappa.errors import TopologyError
from kappa.operators import masked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEY = "a key of the tests, no secret"


def test_a_mask_is_the_hmac_of_the_value(spark: SparkSession) -> None:
    values = spark.createDataFrame([("9000000001",), ("Größe",), ("",), (None,)], "who STRING")

    for key in (KEY, KEY * 3):
        masks = [row["m"] for row in values.select(masked("who", key).alias("m")).collect()]
        expected = [
            hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest() for text in ("9000000001", "Größe", "")
        ]
        assert masks == [*expected, None]


def test_a_field_of_a_struct_is_masked(spark: SparkSession) -> None:
    one = spark.sql("SELECT named_struct('Contact Number', '5') AS `home address`")

    [row] = one.select(masked("home address.Contact Number", KEY).alias("m")).collect()

    assert row["m"] == hmac.new(KEY.encode(), b"5", hashlib.sha256).hexdigest()


def test_the_key_of_a_mask_is_in_neither_plan_nor_generated_code(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("x",)], "who STRING").select(masked("who", KEY).alias("m"))
    frame.collect()
    plans, shown = frame._jdf.queryExecution(), StringIO()
    with redirect_stdout(shown):
        frame.explain(True)
        frame.explain("codegen")
    text = f"{plans}{plans.executedPlan()}{plans.executedPlan().treeString()}{shown.getvalue()}".lower()

    for part in (KEY.encode(), bytes(b ^ 0x36 for b in KEY.encode()), bytes(b ^ 0x5C for b in KEY.encode())):
        assert part.hex() not in text
    assert KEY not in text


def test_a_short_key_is_refused_without_being_quoted() -> None:
    with pytest.raises(TopologyError, match="at least 16 characters") as refused:
        masked("who", "s3cret")
    assert "s3cret" not in str(refused.value)
