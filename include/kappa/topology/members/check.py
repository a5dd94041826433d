"""A check of a topology's finished state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.errors import TopologyError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Check:
    """A statement about the finished state that must hold before a cutover; one that raises does not hold.

    Attributes:
        name: what is checked, for people.
        sql: a query over the topology's tables and append outputs, by their names; it must return no row.
        function: the same as a function of those tables by name, which returns the rows that contradict it, or whether
            it holds.

    Examples:
        >>> from kappa import Check
        >>> Check(name="no total is negative", sql="SELECT * FROM spending WHERE spent < 0").name
        'no total is negative'
    """

    name: str
    sql: str = ""
    function: Callable[[Mapping[str, DataFrame]], DataFrame | bool] | None = None

    def __post_init__(self) -> None:
        if bool(self.sql) == (self.function is not None):
            raise TopologyError(f"Check {self.name!r} needs exactly one of sql and function.")
