"""A slice as the step sees it, and the results of its operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kappa.errors import TopologyError
from kappa.topology.reserved import is_reserved
from kappa.topology.times.event_time import Frontier, least

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


#: Key in the metadata of column ``_offset`` that names the origin of rows: a source, or an operator.
MARK = "kappa.of"


def with_mark(rows: DataFrame, what: str) -> DataFrame:
    """Rows with a mark of their origin, which filters and selections keep."""
    return rows.withMetadata("_offset", {MARK: what}) if "_offset" in rows.columns else rows


def in_own_case(rows: DataFrame) -> DataFrame:
    """Rows of a step whose SQL may write the platform's columns in another case, such as ``_DELETED``: Spark knows no
    difference, while a name is looked up in its own case.
    """
    names = {name: name.lower() for name in rows.columns if name != name.lower() and is_reserved(name)}
    return rows.withColumnsRenamed(names) if names else rows


@dataclass(frozen=True, kw_only=True)
class Calls:
    """The results of the operators of a slice, filled as the step calls them.

    Attributes:
        records: topic -> its records, marked as such.
        results: operator that was called -> its outcome, in order of the calls.
        emitted: declared emission -> its rows.
        changes: table -> its changes.
        handed: table -> its changes for the step, if they are without internal columns.
        late: records that were refused.
        shared: intermediate rows from which several of these are made.
    """

    records: dict[str, DataFrame] = field(default_factory=dict)
    results: dict[Any, Any] = field(default_factory=dict)
    emitted: dict[Any, DataFrame] = field(default_factory=dict)
    changes: dict[str, DataFrame] = field(default_factory=dict)
    handed: dict[str, DataFrame] = field(default_factory=dict)
    late: list[DataFrame] = field(default_factory=list)
    shared: list[DataFrame] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Slice:
    """The input of a step: the parsed records of one slice and the tables as they were before it.

    Attributes:
        seq: the slice's number in its epoch, from 1.
        records: topic -> parsed records: the source's columns and :data:`RECORD_COLUMNS`.
        tables: table name -> its rows before this slice, in the table's schema.
        frontiers: topic -> its frontier at the end of the slice, for sources with event time.
        operators: the operators of the topology; a table of versions is kept for those that read it.
        large_tables: tables with so many more keys than the slice that operators seek its keys in them.
        secret: the key of masked values, empty if none is set; use :attr:`mask_key`.
        calls: results of bound operators; a step does not need it.
        hold: brings the rows that an operator emits into memory before they are passed on; a step does not need it.

    Examples:
        >>> from kappa import Slice
        >>> slice = Slice(seq=1, records={"orders": spark.sql("SELECT 'a' AS id")}, tables={})
        >>> slice["orders"].collect()
        [Row(id='a')]
    """

    seq: int
    records: Mapping[str, DataFrame]
    tables: Mapping[str, DataFrame]
    frontiers: Mapping[str, Frontier] = field(default_factory=dict)
    operators: Sequence[Any] = field(default=(), repr=False)
    large_tables: frozenset[str] = field(default=frozenset(), repr=False)
    secret: str = field(default="", repr=False)
    calls: Calls = field(default_factory=Calls, repr=False, compare=False)
    hold: Callable[[Any, DataFrame], DataFrame] | None = field(default=None, repr=False, compare=False)

    def __getitem__(self, topic: str) -> DataFrame:
        """Parsed records of a source topic, dead letters excluded.

        Raises:
            TopologyError: the topology does not read that topic.
        """
        if topic not in self.records:
            raise TopologyError(
                f"The step reads topic {topic!r}, which is not a source; sources are {sorted(self.records)}."
            )
        if topic not in self.calls.records:
            self.calls.records[topic] = with_mark(self.records[topic], f"source {topic!r}")
        return self.calls.records[topic]

    def table(self, name: str) -> DataFrame:
        """Rows of a table before this slice.

        Raises:
            TopologyError: the topology has no such table.
        """
        if name not in self.tables:
            raise TopologyError(
                f"The step reads table {name!r}, which is not declared; tables are {sorted(self.tables)}."
            )
        return self.tables[name]

    def seeks(self, *tables: str) -> bool:
        """Whether an operator seeks the slice's keys in its tables: it then joins with the rows of these keys alone.

        Otherwise the slice is joined with all rows, which is quicker for a table of a few thousand keys.
        """
        return not self.large_tables.isdisjoint(tables)

    @property
    def mask_key(self) -> str:
        """The key for :func:`kappa.operators.masked`.

        Raises:
            TopologyError: none is set where the driver runs.
        """
        if not self.secret:
            raise TopologyError(
                "The step masks values, but no key is set. Set KAPPA_MASK_KEY, at least 16 characters, where drivers "
                "run."
            )
        return self.secret

    def frontier(self, *topics: str) -> Frontier:
        """The event time that all partitions of these sources have passed at the end of the slice, less their grace.

        Raises:
            TopologyError: one is not a source with event time.
        """
        for topic in topics:
            if topic not in self.frontiers:
                raise TopologyError(
                    f"The step uses the frontier of {topic!r}; sources with grace are {sorted(self.frontiers)}. "
                    "Declare grace='10 seconds' at its source."
                )
        return replace(least(self.frontiers[topic] for topic in topics), of=tuple(sorted(topics)))
