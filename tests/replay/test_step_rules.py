"""Findings about a step that may give another result."""

from __future__ import annotations

import pytest

from kappa.replay.findings import Severity
from kappa.replay.rules.step import Cause, Suspect, step_findings, step_not_inspected

CODES = {
    Cause.CLOCK: "reads-clock",
    Cause.RANDOM: "draws-random",
    Cause.PARTITIONS: "depends-on-partitions",
    Cause.FUNCTION: "nondeterministic-function",
    Cause.ORDER: "order-undefined",
}


@pytest.mark.parametrize("cause", Cause)
def test_each_cause_has_a_code_and_names_output_expression_and_column(cause: Cause) -> None:
    (finding,) = step_findings([Suspect(effect="moves", cause=cause, expression="f(x)", column="stamp")])
    assert (finding.code, finding.severity) == (CODES[cause], Severity.WARN)
    assert "'moves' uses f(x) (as stamp)" in finding.message
    assert finding.remedy
    assert finding.numbers == {"effect": "moves", "expression": "f(x)", "column": "stamp"}


def test_the_same_expression_is_reported_once_per_effect() -> None:
    one = Suspect(effect="moves", cause=Cause.RANDOM, expression="rand()")
    other = Suspect(effect="balances", cause=Cause.RANDOM, expression="rand()")
    assert [f.numbers["effect"] for f in step_findings([one, other, one])] == ["moves", "balances"]


def test_a_step_that_fails_without_records_is_reported_with_its_error() -> None:
    finding = step_not_inspected("ValueError: no rows")
    assert finding.severity is Severity.WARN
    assert "ValueError: no rows" in str(finding)
