"""Guarantees whose tests are seen failing: each patch of tests/mutations is noticed by the tests that it names."""

from __future__ import annotations

import pytest
from support.mutations import Mutation, complaint, does_apply, mutations

#: Processes of their own, and a patch goes stale with any change of what it breaks: not part of what runs before each
#: commit.
pytestmark = pytest.mark.e2e

#: The fast ones that every run tries; all of them are tried by ``make mutations`` and in the soak.
ALWAYS = ("law-05-a-claim-is-not-checked", "law-10-a-certificate-takes-a-gap", "law-13-a-reason-is-lost")


def test_every_law_with_a_fast_test_is_broken_by_a_patch() -> None:
    assert set(ALWAYS) <= {mutation.name for mutation in mutations() if mutation.cost == "fast"}


@pytest.mark.parametrize("mutation", mutations(), ids=lambda mutation: mutation.name)
def test_a_mutation_applies_and_its_tests_exist(mutation: Mutation) -> None:
    assert does_apply(mutation) is None


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutation", [m for m in mutations() if m.name in ALWAYS], ids=lambda mutation: mutation.name)
def test_a_mutation_of_every_run_is_noticed(mutation: Mutation) -> None:
    assert complaint(mutation) is None


@pytest.mark.soak
@pytest.mark.timeout(1600)
@pytest.mark.parametrize(
    "mutation", [m for m in mutations() if m.name not in ALWAYS], ids=lambda mutation: mutation.name
)
def test_each_other_mutation_is_noticed(mutation: Mutation) -> None:
    assert complaint(mutation) is None
