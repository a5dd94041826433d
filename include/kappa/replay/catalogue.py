"""Every finding that is declared in ``rules``, and which of them a request may allow by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import ModuleType

from kappa.replay.findings import Declaration, Finding, Severity
from kappa.replay.rules import (
    adoption,
    archive,
    backfill,
    chain,
    effort,
    group,
    live,
    log,
    needed,
    output,
    request,
    seed,
    set_aside,
    start,
    step,
    topic,
    upgrade,
)

#: Subject -> the modules that declare its findings, in the order of the page.
SECTIONS: Mapping[str, tuple[ModuleType, ...]] = {
    "A plan": (
        request,
        log,
        archive,
        seed,
        adoption,
        start,
        topic,
        needed,
        output,
        chain,
        live,
        set_aside,
        effort,
        step,
    ),
    "A consumer group": (group,),
    "New code without a replay": (upgrade,),
    "Days computed again": (backfill,),
}


def declared(modules: Iterable[ModuleType]) -> tuple[Declaration, ...]:
    """The constants of modules that declare a finding.

    A constant whose name begins with ``_`` is another wording of one of them.
    """
    return tuple(
        value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, Declaration) and not name.startswith("_")
    )


#: Code -> its declaration.
DECLARED: Mapping[str, Declaration] = {
    declaration.code: declaration for modules in SECTIONS.values() for declaration in declared(modules)
}
#: Codes of findings that refuse a plan unless the request allows them by name.
ALLOWABLE = frozenset(item.code for item in DECLARED.values() if item.may_be_allowed)


def relaxed(findings: Iterable[Finding], allow: frozenset[str]) -> tuple[Finding, ...]:
    """The findings, with the refusals that the request allows turned into warnings."""
    return tuple(
        replace(finding, severity=Severity.WARN) if finding.code in allow & ALLOWABLE else finding
        for finding in findings
    )
