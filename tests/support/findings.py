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
    wanted = CASES[code](here)
    before = here.listing()
    found, is_refused = asked(here, code, wanted)
    assert here.listing() == before
    assert found["severity"] == DECLARED[code].severity
    assert is_refused is (found["severity"] == "refuse")
    numbers = found["numbers"]
    assert {name: numbers.get(name) for name in wanted.numbers} == dict(wanted.numbers)
    assert wanted.says in found["message"], found["message"]
    assert wanted.remedy and wanted.remedy in found["remedy"], found["remedy"]


def findings_of(answer: str) -> list[dict[str, Any]]:
    """The findings in a command's JSON, which is a plan, or a dry run with a plan."""
    values = json.loads(answer)
    return list(values.get("plan", values)["findings"])


def asked(here: Site, code: str, wanted: Provoked) -> tuple[dict[str, Any], bool]:
    """The finding as JSON, and whether the command refused; as text it says the same."""
    if not wanted.command:
        plan = control.plan(here.config, here.request(**wanted.request))
        (found,) = [finding for finding in plan.findings if finding.code == code][:1]
        try:
            plan.check()
        except RefusedError as error:
            assert str(found) in str(error)
            return json.loads(json.dumps(found.as_dict())), True
        return json.loads(json.dumps(found.as_dict())), False
    status, said = here.run(f"{wanted.command} --json")
    chosen = [finding for finding in findings_of(said) if finding["code"] == code]
    assert chosen, said
    again, text = here.run(wanted.command)
    assert again == status
    (line,) = [line for line in text.splitlines() if line.endswith(f"[{code}]")][:1]
    assert line.strip().startswith("REFUSED" if chosen[0]["severity"] == "refuse" else "warning")
    # Estimates and times go on between two plans.
    assert without_numbers(f"{chosen[0]['message']} {chosen[0]['remedy']}") in without_numbers(line)
    assert status in (0, 1)
    return chosen[0], status == 1


def without_numbers(text: str) -> str:
    return re.sub(r"[\d,.:+T-]+", "#", text)
