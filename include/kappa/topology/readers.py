"""A table of versions that several operators read: its readers, and the state that can be reused for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from kappa.topology.operator import Operator, VersionsInput
from kappa.topology.revisions import of_earlier_code
from kappa.topology.slice import Slice
from kappa.topology.times.event_time import Frontier, least

#: A ``made_by`` of state that is kept for readers. Any other ends in a parenthesis, or has one after its last "for";
#: names of readers have none, whatever the names of columns are.
_KEPT_FOR = re.compile(r"(?P<alone>.*\)) for (?P<readers>[^()]+)", re.DOTALL)


def readers_of(table: Operator[Any], operators: Iterable[Operator[Any]]) -> tuple[Operator[Any], ...]:
    """The operators that read the versions that one of them keeps."""
    return tuple(
        operator
        for operator in operators
        if any(isinstance(item, VersionsInput) and item.of is table for item in operator.inputs)
    )


def least_frontier(readers: Iterable[Operator[Any]], slice: Slice) -> Frontier:
    """The event time that all rows have reached that a reader may still look up."""
    return least(item.frontier(slice) for reader in readers for item in reader.streams)


def kept_for(made_by: str, readers: Sequence[Operator[Any]]) -> str:
    """The maker of a state, see :attr:`kappa.topology.Table.made_by`, with the readers for whom it is kept.

    A reader is identified by the table of its waiting rows, and by the frontier that holds versions back.
    """
    return f"{made_by} for {', '.join(sorted(map(_name, readers)))}"


def made_alone(made_by: str) -> str:
    """The maker of a state, without the readers for whom it is kept."""
    match = _KEPT_FOR.fullmatch(made_by)
    return match["alone"] if match else made_by


def may_go_on(made_by: str, before: str) -> bool:
    """Whether state of ``before`` can be reused as that of ``made_by``.

    It can if both are the same operator with the same parameters, and it was kept for all present readers: versions
    that no reader of that time could need any more are gone.
    """
    return before in (made_by, of_earlier_code(made_by)) or (
        made_alone(made_by) == made_alone(before) and _readers(made_by) <= _readers(before) and bool(_readers(made_by))
    )


def _readers(made_by: str) -> set[str]:
    match = _KEPT_FOR.fullmatch(made_by)
    return set(match["readers"].split(", ")) if match else set()


def _name(reader: Operator[Any]) -> str:
    return f"{reader.tables[0].name} of {' and '.join(item.frontier_text for item in reader.streams)}"
