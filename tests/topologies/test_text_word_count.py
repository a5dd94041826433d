"""`text.word_count` on lines written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.topologies import first_version, shipped

from kappa.testing import Input, TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WORD_COUNT = shipped("text.word_count")


def line(text: str | None, at: int = 0, partition: int = 0) -> Input:
    return Input(topic="lines", value=text, partition=partition, timestamp_ms=at)


def counts(driver: TopologyDriver) -> dict[str, int]:
    return {row["word"]: row["count"] for row in driver.rows("counts_store")}


def test_words_count_in_small_letters_and_over_slices(spark: SparkSession) -> None:
    driver = TopologyDriver(WORD_COUNT, spark)

    driver.pipe([line("Kafka, kafka; streams!"), line(""), line(None), line(" - ")])
    driver.pipe([line("All streams lead to Kafka_2")])

    assert counts(driver) == {"all": 1, "kafka": 2, "kafka_2": 1, "lead": 1, "streams": 2, "to": 1}
    assert driver.sent("word-counts")[-1] == (b"to", b'{"word":"to","count":1}')


def test_letters_of_every_alphabet_belong_to_words_since_version_2(spark: SparkSession) -> None:
    second, first = TopologyDriver(WORD_COUNT, spark), TopologyDriver(first_version("text.word_count"), spark)

    second.pipe([line("Größe ÖL κόσμος")])
    first.pipe([line("Größe ÖL κόσμος")])

    assert counts(second) == {"größe": 1, "öl": 1, "κόσμος": 1}
    assert counts(first) == {"gr": 1, "e": 1, "l": 1}


def test_no_cut_changes_a_count(spark: SparkSession) -> None:
    lines = [line("a b", 1), line("b a", 5, 1), line("a a", 3, 1), line("c", 2), line("b", 4)]

    assert_slice_invariant(WORD_COUNT, lines, spark, cuts=1, by_arrival=True)
