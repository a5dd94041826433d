"""An environment as a value: its id, and how two of them differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kappa.environments.environment import PLATFORM, Environment, differences
from kappa.errors import LedgerError

BEFORE = Environment(python="3.11.7", distributions={PLATFORM: "0.1.0", "pricing": "1.0", "pandas": "2.2"})


def test_the_id_depends_on_content_and_not_on_order() -> None:
    assert replace(BEFORE, distributions=dict(reversed(BEFORE.distributions.items()))).id == BEFORE.id


@pytest.mark.parametrize(
    "other",
    [
        replace(BEFORE, python="3.11.8"),
        replace(BEFORE, image="orders:2"),
        replace(BEFORE, distributions={**BEFORE.distributions, "pricing": "1.1"}),
        replace(BEFORE, distributions={**BEFORE.distributions, "more": "1"}),
    ],
)
def test_python_the_image_and_each_distribution_take_part_in_the_id(other: Environment) -> None:
    assert other.id != BEFORE.id


def test_another_kappa_alone_is_not_another_environment() -> None:
    later = replace(BEFORE, distributions={**BEFORE.distributions, PLATFORM: "0.2.0"})
    assert later.id == BEFORE.id
    assert differences(BEFORE, later) == ()
    assert "kappa-replay 0.2.0" in later.label


@pytest.mark.parametrize("name", ["pip", "setuptools", "wheel"])
def test_what_installs_others_is_not_part_of_an_environment(name: str) -> None:
    later = replace(BEFORE, distributions={**BEFORE.distributions, name: "2"})
    assert later.id == BEFORE.id
    assert differences(BEFORE, later) == ()


def test_differences_name_each_distribution_and_begin_with_what_was_there() -> None:
    now = Environment(python="3.11.7", distributions={"pricing": "2.0", "arrow": "3"}, image="orders:2")
    assert [str(one) for one in differences(BEFORE, now)] == [
        "pandas was 2.2, and is missing now",
        "pricing was 1.0, and is 2.0 now",
        "image was not there, and is orders:2 now",
        "arrow was not there, and is 3 now",
    ]


def test_a_stored_environment_comes_back() -> None:
    assert Environment.from_json(BEFORE.to_json(), "there").id == BEFORE.id


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_an_altered_file_is_refused(text: str) -> None:
    with pytest.raises(LedgerError):
        Environment.from_json(text, "there")
