"""Every shipped topology that keeps state gives what plain Python gives, on other random histories each day.

``SEED=20261122`` plays that day again. Before a landing, each topology has one history in memory, whose keys are
sought; at night two more, sliced in other ways, and one in a lake in which all slices are large; in a soak fifty under
three ways, one of them in such a lake, and two that are longer than a slice in memory may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.oracle_cases import CASES
from support.oracle_histories import DAY, LARGE, WAYS, assert_as_expected
from support.topologies import FOLDER, shipped

from kappa.slices import state
from kappa.spark.tuning import tune
from kappa.topology import registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Played = Callable[..., None]
IN_SOAK = 50


@pytest.fixture
def tuned(spark: SparkSession) -> Iterator[None]:
    """Restores the session, which each slice tunes for its size."""
    yield
    tune(spark, is_small=False)


@pytest.fixture
def by_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the state are sought by the keys of a slice, as where there are many of them."""
    monkeypatch.setattr(state, "LARGE_ROWS", 0)


@pytest.fixture
def play(spark: SparkSession, tmp_path: Path, case: Callable[[str, str], None]) -> Played:
    """Plays a history of the day, and counts it."""

    def history(name: str, number: int, **how: object) -> None:
        print(f"SEED={DAY} plays it again")
        print(assert_as_expected(shipped(name), CASES[name], spark, tmp_path, seed=DAY * 1000 + number, **how))  # type: ignore[arg-type]
        case("oracle", name)

    return history


@pytest.mark.spark
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", range(WAYS))
def test_three_histories_of_today_match_plain_python(
    play: Played, name: str, way: int, request: pytest.FixtureRequest
) -> None:
    if way == 1:
        request.getfixturevalue("by_keys")
    play(name, way, ways=[way], large=[])


@pytest.mark.spark
@pytest.mark.parametrize("name", CASES)
def test_large_slices_of_every_topology_match_plain_python(play: Played, name: str) -> None:
    play(name, WAYS, ways=[1])


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("number", range(IN_SOAK), ids="{:02}".format)
def test_fifty_histories_match_plain_python(
    play: Played, name: str, number: int, request: pytest.FixtureRequest
) -> None:
    if number % 2:
        request.getfixturevalue("by_keys")
    play(name, WAYS + 1 + number)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("number", range(2))
def test_histories_longer_than_an_in_memory_slice_match_plain_python(play: Played, name: str, number: int) -> None:
    play(name, WAYS + 1 + IN_SOAK + number, ways=[0], records=LARGE + 2_000)


def test_every_shipped_topology_that_keeps_state_has_an_oracle() -> None:
    keeps = {file.name for file in registry.declared(FOLDER) if shipped(file.name).tables}
    on_the_clock = {name for name in keeps if any(source.is_wall_clock for source in shipped(name).sources)}
    assert keeps - on_the_clock == set(CASES)
