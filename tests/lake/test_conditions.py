"""A typed condition is one condition."""

from __future__ import annotations

import pytest

from kappa.errors import UsageError
from kappa.lake.conditions import condition, ordering


@pytest.mark.parametrize(
    "text",
    ["a = 1", "a = 'it''s' AND b IS NOT NULL", "\"A b\" LIKE 'x%'", "a BETWEEN 1 AND 2", "a = 1 -- why", "a::int > 1"],
)
def test_a_condition_stands_in_parentheses_of_its_own(text: str) -> None:
    assert condition(text) == f"({text}\n)"


@pytest.mark.parametrize(
    "text",
    [
        "1=1 UNION ALL SELECT * FROM t",
        "1=1) UNION ALL SELECT * FROM t WHERE (1=1",
        "a = 1; DROP TABLE t",
        "a =",
        "a = 1 LIMIT 3",
        "",
        "a IN (SELECT b FROM t)",
        "EXISTS (SELECT 1)",
    ],
)
def test_what_is_more_than_a_condition_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        condition(text)


@pytest.mark.parametrize("text", ["a", "a, b DESC", '"A b" ASC NULLS LAST', "lower(a)"])
def test_an_order_is_terms(text: str) -> None:
    assert ordering(text) == f"{text}\n"


@pytest.mark.parametrize("text", ["a LIMIT 3", "a; DROP TABLE t", "a UNION ALL SELECT 1", "", "(SELECT 1)"])
def test_what_is_more_than_an_order_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        ordering(text)
