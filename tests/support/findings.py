"""Findings brought about on a real broker: cases, and what is held of each of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kappa import control
from kappa.errors import RefusedError
from kappa.replay.catalogue import DECLARED
from support.sites import Site

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Provoked:
    """What a case asks, after it has brought the finding about.

    Attributes:
        command: the command line that meets the finding; empty where only a program can ask.
        request: changes of a request that no command line can make.
        numbers: values that the finding must have.
        says: what its message must hold.
        remedy: what its way out must hold.
    """

    command: str = ""
    request: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)
    says: str = ""
    remedy: str = ""


Case = Callable[[Site], Provoked]
CASES: dict[str, Case] = {}


def provokes(code: str) -> Callable[[Case], Case]:
    """Register a case."""

    def register(case: Case) -> Case:
        assert code not in CASES, code
        CASES[code] = case
        return case

    return register


def prove(code: str, here: Site) -> None:
    """Bring a finding about: it is found with its numbers and its way out, and nothing is changed."""
    expected = CASES[code](here)
    before = here.listing()
    finding, is_refused = answer_of(here, code, expected)
    assert here.listing() == before
    assert finding["severity"] == DECLARED[code].severity
    assert is_refused is (finding["severity"] == "refuse")
    numbers = finding["numbers"]
    assert {name: numbers.get(name) for name in expected.numbers} == dict(expected.numbers)
    assert expected.says in finding["message"], finding["message"]
    assert expected.remedy and expected.remedy in finding["remedy"], finding["remedy"]


def findings_of(answer: str) -> list[dict[str, Any]]:
    """The findings in a command's JSON, which is a plan, or a dry run with a plan."""
    values = json.loads(answer)
    return list(values.get("plan", values)["findings"])


def answer_of(here: Site, code: str, expected: Provoked) -> tuple[dict[str, Any], bool]:
    """The finding as JSON, and whether the command refused; as text it says the same."""
    if not expected.command:
        plan = control.plan(here.config, here.request(**expected.request))
        (finding,) = [finding for finding in plan.findings if finding.code == code][:1]
        try:
            plan.check()
        except RefusedError as error:
            assert str(finding) in str(error)
            return json.loads(json.dumps(finding.as_dict())), True
        return json.loads(json.dumps(finding.as_dict())), False
    status, output = here.run(f"{expected.command} --json")
    matches = [finding for finding in findings_of(output) if finding["code"] == code]
    assert matches, output
    again, text = here.run(expected.command)
    assert again == status
    (line,) = [line for line in text.splitlines() if line.endswith(f"[{code}]")][:1]
    assert line.strip().startswith("REFUSED" if matches[0]["severity"] == "refuse" else "warning")
    # Estimates and times go on between two plans.
    assert without_numbers(f"{matches[0]['message']} {matches[0]['remedy']}") in without_numbers(line)
    assert status in (0, 1)
    return matches[0], status == 1


def without_numbers(text: str) -> str:
    return re.sub(r"[\d,.:+T-]+", "#", text)
