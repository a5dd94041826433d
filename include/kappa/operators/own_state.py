"""The state that a join is given: its own, which no other join of the step brings up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from kappa.errors import TopologyError
from kappa.topology.event_time import Frontier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A table before a slice -> by which frontier a join lets its rows go. Each slice has frames of its own.
_GIVEN: WeakKeyDictionary[DataFrame, Frontier] = WeakKeyDictionary()


def check_own(before: DataFrame, *, by: Frontier, operator: str, table: str, argument: str) -> None:
    """Note that a join lets the rows of a table go by a frontier.

    Args:
        before: the table before the slice, as the step has it of the slice.
        by: the frontier.
        operator: the operator, for messages.
        table: what it keeps there.
        argument: the argument that holds the frontier.

    Raises:
        TopologyError: another join was given the table, and lets its rows go by another frontier: what the one does not
            need any more, the other may still ask for.
    """
    first = _GIVEN.setdefault(before, by)
    if first.of == by.of and (first.of or first.ms == by.ms):
        return
    one, other = (" and ".join(map(repr, frontier.of)) or "another source" for frontier in (first, by))
    every = ", ".join(repr(topic) for topic in sorted({*first.of, *by.of})) or "..."
    raise TopologyError(
        f"{operator}: the table of {table} is given to two joins. Its rows go by the frontier of {one} in the first, "
        f"by that of {other} in the second, which would miss rows without a word. Declare a table for each join, or "
        f"let both wait for all of them: {argument}=slice.frontier({every}).",
        table=table,
    )
