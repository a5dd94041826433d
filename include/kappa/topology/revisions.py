"""The maker of a state, :attr:`kappa.topology.Table.made_by`: an operator with its revision, its parameters, and the
frontiers or tables that it follows.

The revision of an operator is a number that a release raises when the operator computes otherwise from then on. It is
written after the operator's name: ``running_total@2(key=[...])``. Revision 1 is not written, so that state of releases
without revisions is of revision 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r"\A(?P<operator>[a-z_]+)(?:@(?P<revision>[0-9]+))?(?=\()")
#: A frontier, or the name of a table.
_INPUT = r"[A-Za-z0-9._+-]+(?: less \d+ ms)?"
_INPUTS = re.compile(rf" of \({_INPUT}(?:, {_INPUT})*\)\Z")
#: The type of values of which hashes are kept.
_HASHED = re.compile(r"(?<=, k=)(\d+) of [A-Z]+(?:\(\d+, \d+\))?(?=\))")


def revised(made_by: str, revision: int) -> str:
    """The maker of a state with the revision of its operator; idempotent.

    Examples:
        >>> revised("running_total(key=['id'])", 2)
        "running_total@2(key=['id'])"
        >>> revised("running_total@2(key=['id'])", 1)
        "running_total(key=['id'])"
    """
    return _NAME.sub(lambda match: _word(match["operator"], revision), made_by, count=1)


def following(made_by: str, inputs: Iterable[str]) -> str:
    """The maker of a state with what its rows follow: the frontiers by which they come and go, or the tables that they
    are made of; idempotent.

    Examples:
        >>> following("session_window(key=['id'], gap=1 minute)", ["app+web"])
        "session_window(key=['id'], gap=1 minute) of (app+web)"
        >>> following("table_table_join(key=(id=id), how=inner)", ["names", "cities"])
        'table_table_join(key=(id=id), how=inner) of (names, cities)'
    """
    return f"{_INPUTS.sub('', made_by)} of ({', '.join(inputs)})"


def inputs_of(made_by: str) -> frozenset[str] | None:
    """The sources or tables that the rows of a state follow; None where it does not name them all.

    Examples:
        >>> sorted(inputs_of("interval_join(key=(id=id)) of (app+web less 1000 ms, orders)"))
        ['app', 'orders', 'web']
        >>> inputs_of("versions_by(key=(id)) for waiting of orders") is None
        True
    """
    match = _INPUTS.search(made_by)
    if match is None:
        return None
    parts = match[0].removeprefix(" of (").removesuffix(")").split(", ")
    return frozenset(name for part in parts for name in part.partition(" less ")[0].split("+"))


def of_earlier_code(made_by: str) -> str:
    """The same without what earlier code did not write: frontiers, tables, and types of hashed values."""
    return _HASHED.sub(r"\1", _INPUTS.sub("", made_by))


def revision_of(made_by: str) -> int:
    """The revision that made a state; 1 where none is named."""
    match = _NAME.match(made_by)
    return int(match["revision"] or 1) if match else 1


def operator_of(made_by: str) -> str:
    """The operator that made a state, without revision and parameters; empty for a table of the author's own."""
    return made_by.partition("(")[0].partition("@")[0]


def _word(operator: str, revision: int) -> str:
    return operator if revision == 1 else f"{operator}@{revision}"
