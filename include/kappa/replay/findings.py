"""Objections to a plan: a finding, and how one is declared.

Declarations and rules are in the modules of ``rules``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from kappa.errors import RefusedError
from kappa.replay import stored


class Severity(StrEnum):
    """The effect of a finding on its plan."""

    REFUSE = "refuse"
    WARN = "warn"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """An objection to a plan.

    Attributes:
        code: name of the rule.
        severity: whether the plan is refused.
        message: the observation with its values, and why.
        remedy: what to do.
        numbers: the values of the message, for programs.
    """

    code: str
    severity: Severity
    message: str
    remedy: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}"

    @property
    def line(self) -> str:
        """For people, under a plan."""
        return f"{'REFUSED' if self.severity is Severity.REFUSE else 'warning'}    {self}  [{self.code}]"

    def as_dict(self) -> dict[str, Any]:
        """The finding as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Finding:
        """Read what :meth:`as_dict` gave."""
        return stored.read(cls, {**values, "severity": Severity(values["severity"])})


@dataclass(frozen=True)
class Declaration:
    """The texts of one kind of finding, for `docs/findings.md` too. Called with values it returns a finding.

    Attributes:
        severity: whether the plan is refused.
        code: its name, for good.
        message: the observation with its values, and why: a template for :meth:`str.format`.
        remedy: what to do; a template too.
        way_out: what to do, for the page, where the remedy covers one case only or needs values.
        may_be_allowed: whether a request may allow it by name.
    """

    severity: Severity
    code: str
    message: str
    remedy: str
    way_out: str = field(default="", kw_only=True)
    may_be_allowed: bool = field(default=False, kw_only=True)

    def __call__(self, words: Mapping[str, Any] | None = None, /, **numbers: Any) -> Finding:
        """The finding with these values. ``words`` fill the templates only: no program reads them."""
        values = {**numbers, **(words or {})}
        return Finding(
            code=self.code,
            severity=self.severity,
            message=self.message.format(**values),
            remedy=self.remedy.format(**values),
            numbers=numbers,
        )


#: Declares a finding that refuses the plan.
refuses = partial(Declaration, Severity.REFUSE)
#: Declares a finding that does not refuse the plan.
warns = partial(Declaration, Severity.WARN)


def refusals(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that refuse."""
    return tuple(finding for finding in findings if finding.severity is Severity.REFUSE)


def check(findings: Iterable[Finding], what: str) -> None:
    """Accept or refuse.

    Raises:
        RefusedError: one of them refuses; the message begins with ``what`` and lists all that do.
    """
    if refused := refusals(findings):
        lines = "\n".join(f"  {finding}" for finding in refused)
        raise RefusedError(f"{what} is refused:\n{lines}", findings=refused)
