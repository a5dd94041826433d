"""Random schemas, topologies, records and cuts give what plain Python says; each seed can be played again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.campaign import Case, cut, drawn_case, hold, hold_read, read, topology_of
from support.held_slices import HeldSlices

from kappa.testing import TopologyDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NoteCase = Callable[[str, str], None]

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]

#: Cases of one topology; topologies of a run before a landing whose records are read, and of those that run.
SIDE_BY_SIDE, TOPOLOGIES, RUNNING = 5, 60, 4
#: The first seed; the cases of a topology follow each other.
FIRST = 20261127


def cases_of(number: int, *, records: int = 24) -> list[Case]:
    begin = FIRST + number * SIDE_BY_SIDE
    return [drawn_case(seed, records=records) for seed in range(begin, begin + SIDE_BY_SIDE)]


def note(case: NoteCase, cases: list[Case], way: str) -> None:
    """Count them in the summary of the run."""
    for _ in cases:
        case("campaign", way)


def batches(numbers: range, size: int) -> Iterator[range]:
    for begin in range(numbers.start, numbers.stop, size):
        yield range(begin, min(begin + size, numbers.stop))


def test_the_cases_have_enough_of_each_outcome() -> None:
    records = [record for number in range(TOPOLOGIES) for case in cases_of(number) for record in case.records]
    dead = sum(record.row is None for record in records)
    nulls = sum(value is None for record in records for value in (record.row or {}).values())

    assert len(records) == 24 * SIDE_BY_SIDE * TOPOLOGIES
    assert dead > len(records) / 5
    assert len(records) - dead > len(records) / 5
    assert nulls > 500


def test_records_of_three_hundred_cases_are_read_as_in_plain_python(spark: SparkSession, case: NoteCase) -> None:
    compared = 0
    for number in range(TOPOLOGIES):
        for one in cases_of(number):
            compared += hold_read(one, read(one))
            case("campaign", "read")

    assert compared > 10_000


@pytest.mark.parametrize("number", range(RUNNING))
def test_topologies_of_the_first_cases_match_plain_python(spark: SparkSession, number: int, case: NoteCase) -> None:
    cases, chance = cases_of(number), random.Random(number)
    driver = TopologyDriver(topology_of(cases), spark)
    for batch in cut(chance, cases, chance.choice([1, 2])):
        driver.pipe(batch)

    assert hold(cases, driver, f"topology {number}, given") > 50
    note(case, cases, "given")


@pytest.mark.parametrize(
    ("number", "arrow_rows", "narrow"),
    [(0, 500_000, 2), (1, 0, 2), (1, 0, 0)],
    ids=["Arrow writes", "Spark writes", "all types, Spark writes"],
)
def test_cases_in_large_slices_match_plain_python(
    spark: SparkSession, tmp_path: Path, number: int, arrow_rows: int, narrow: int, case: NoteCase
) -> None:
    cases = [drawn_case(FIRST - 1 - number, is_wide=True), *cases_of(number)[:narrow]]
    topology = topology_of(cases)
    driver = HeldSlices(topology, spark, tmp_path, partitions=1, small_slice=0, arrow_rows=arrow_rows)
    for batch in cut(random.Random(number), cases, 2):
        driver.pipe(batch)

    assert hold(cases, driver, f"topology {number}, large slices") > 50
    note(case, cases, "in large slices")


@pytest.mark.soak
@pytest.mark.parametrize("numbers", list(batches(range(4_000), 40)), ids=lambda n: f"from {n.start}")
def test_twenty_thousand_cases_match_plain_python(spark: SparkSession, numbers: range, case: NoteCase) -> None:
    for number in numbers:
        cases, chance = cases_of(number), random.Random(number)
        driver = TopologyDriver(topology_of(cases), spark)
        for batch in cut(chance, cases, chance.choice([1, 2, 3])):
            driver.pipe(batch)
        hold(cases, driver, f"topology {number}, given")
        note(case, cases, "given")


@pytest.mark.soak
@pytest.mark.parametrize("number", range(4_000, 4_100))
def test_five_hundred_cases_in_large_slices_match_plain_python(
    spark: SparkSession, tmp_path: Path, number: int, case: NoteCase
) -> None:
    cases, chance = cases_of(number), random.Random(number)
    arrow_rows = chance.choice([0, 500_000])
    driver = HeldSlices(topology_of(cases), spark, tmp_path, partitions=1, small_slice=0, arrow_rows=arrow_rows)
    for batch in cut(chance, cases, 2):
        driver.pipe(batch)
    hold(cases, driver, f"topology {number}, large slices")
    note(case, cases, "in large slices")
