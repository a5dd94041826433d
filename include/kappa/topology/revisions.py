"""The revision of an operator: a number that a release raises when the operator computes otherwise from then on.

It is part of :attr:`kappa.topology.Table.made_by`, after the operator's name: ``running_total@2(key=[...])``. Revision
1 is not written, so that state of releases without revisions is of revision 1.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"\A(?P<operator>[a-z_]+)(?:@(?P<revision>[0-9]+))?(?=\()")


def revised(made_by: str, revision: int) -> str:
    """The maker of a state with the revision of its operator; idempotent.

    Examples:
        >>> revised("running_total(key=['id'])", 2)
        "running_total@2(key=['id'])"
        >>> revised("running_total@2(key=['id'])", 1)
        "running_total(key=['id'])"
    """
    return _NAME.sub(lambda match: _word(match["operator"], revision), made_by, count=1)


def revision_of(made_by: str) -> int:
    """The revision that made a state; 1 where none is named."""
    match = _NAME.match(made_by)
    return int(match["revision"] or 1) if match else 1


def operator_of(made_by: str) -> str:
    """The operator that made a state, without revision and parameters; empty for a table of the author's own."""
    return made_by.partition("(")[0].partition("@")[0]


def _word(operator: str, revision: int) -> str:
    return operator if revision == 1 else f"{operator}@{revision}"
