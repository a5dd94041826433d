"""What speaks against a plan. The rules that find it are in the modules named ``*_rules``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from kappa.errors import RefusedError
from kappa.replay import stored

#: Codes of findings that refuse a plan unless the request allows them by name.
ALLOWABLE = frozenset(
    {
        "compacted-source",
        "fold-outlasts-tombstones",
        "not-enough-disk",
        "partial-history",
        "partition-count-changed",
        "reader-schema-changed",
        "retention-overtakes-replay",
        "size-overtakes-replay",
    }
)


class Severity(StrEnum):
    """What a finding means for its plan."""

    REFUSE = "refuse"
    WARN = "warn"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that speaks against a plan.

    Attributes:
        code: name of the rule.
        severity: whether the plan is refused.
        message: what was found, with its values, and why.
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

    def as_dict(self) -> dict[str, Any]:
        """The finding as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Finding:
        """Read what :meth:`as_dict` gave."""
        return stored.read(cls, {**values, "severity": Severity(values["severity"])})


def refuse(code: str, message: str, remedy: str, **numbers: Any) -> Finding:
    """A finding that refuses the plan."""
    return Finding(code=code, severity=Severity.REFUSE, message=message, remedy=remedy, numbers=numbers)


def warn(code: str, message: str, remedy: str, **numbers: Any) -> Finding:
    """A finding that the plan can live with."""
    return Finding(code=code, severity=Severity.WARN, message=message, remedy=remedy, numbers=numbers)


def refusals(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that refuse."""
    return tuple(found for found in findings if found.severity is Severity.REFUSE)


def check(findings: Iterable[Finding], what: str) -> None:
    """Accept or refuse.

    Raises:
        RefusedError: one of them refuses; the message begins with ``what`` and holds all that do.
    """
    if refused := refusals(findings):
        lines = "\n".join(f"  {found}" for found in refused)
        raise RefusedError(f"{what} is refused:\n{lines}", findings=refused)


def relaxed(findings: Iterable[Finding], allow: frozenset[str]) -> tuple[Finding, ...]:
    """The findings, those refusals that the request allows turned into warnings."""
    return tuple(
        replace(found, severity=Severity.WARN) if found.code in allow & ALLOWABLE else found for found in findings
    )
