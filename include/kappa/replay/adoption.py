"""An adoption: Delta tables of another job whose rows an epoch begins with, and where that job stood in the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kappa.offsets.vector import Offsets
from kappa.replay import stored


@dataclass(frozen=True, kw_only=True)
class ExistingTable:
    """A version of a Delta table of another job.

    Attributes:
        place: what it becomes: ``tables/<name>`` or ``outputs/<name>``.
        address: where it is.
        version: the Delta version whose rows are taken over.
        newest: its newest Delta version when that was decided.
        rows: how many rows that version has; None where its log does not say.
        table_id: Delta's id of the table: one that is made anew in its place has another; empty where it is not on
            record.
    """

    place: str
    address: str
    version: int
    newest: int
    rows: int | None = None
    table_id: str = ""

    @property
    def name(self) -> str:
        """The table or append output that it becomes."""
        return self.place.partition("/")[2]

    @property
    def is_newest(self) -> bool:
        """Whether the version was the newest."""
        return self.version == self.newest

    def replacement(self, table_id: str) -> str:
        """What is wrong with a table of this id in its place, in words; empty if it is this table."""
        if self.table_id in ("", table_id):
            return ""
        return f"another table is there, made anew: its id is {table_id}, and was {self.table_id}"

    @property
    def described(self) -> str:
        """The version in words."""
        count = "" if self.rows is None else f" ({self.rows:,} rows)"
        return f"{self.address} at version {self.version}{count}"


@dataclass(frozen=True, kw_only=True)
class Adoption:
    """What a stream of Kappa continues.

    Attributes:
        tables: the tables whose rows it takes over.
        offsets: next offset of every partition that the other job had not read.
        job: where the other job said that it stood, in words.
        state: the folder in which the job kept state beside its tables; empty where it kept none, or nobody knows.
        others: which commits of the tables the job did not make, in words; empty where there are none, or nobody knows.
    """

    tables: tuple[ExistingTable, ...]
    offsets: Offsets
    job: str
    state: str = ""
    others: str = ""

    @property
    def places(self) -> dict[str, ExistingTable]:
        """The tables by their places."""
        return {table.place: table for table in self.tables}

    def as_dict(self) -> dict[str, Any]:
        """The adoption as JSON values."""
        words = {name: text for name, text in (("state", self.state), ("others", self.others)) if text}
        tables = [asdict(table) for table in self.tables]
        return {"tables": tables, "offsets": self.offsets.as_dict(), "job": self.job, **words}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Adoption:
        """Read what :meth:`as_dict` gave.

        Raises:
            LedgerError: a field is absent.
        """
        readers: Mapping[str, Callable[[Any], Any]] = {
            "tables": lambda tables: tuple(stored.read(ExistingTable, table) for table in tables),
            "offsets": Offsets.from_json,
        }
        parts = {name: read(values[name]) for name, read in readers.items() if values.get(name) is not None}
        return stored.read(cls, {**values, **parts})


@dataclass(frozen=True, kw_only=True)
class ExistingColumns:
    """The schema of an existing table, as its Delta log has it.

    Attributes:
        types: column -> its type as in a Delta schema, without nullability and metadata.
        padded: columns that Spark made as CHAR(n): their values end in spaces up to that length.
        error: why the version cannot be read, if it cannot; there are no columns then.
    """

    types: Mapping[str, Any] = field(default_factory=dict)
    padded: frozenset[str] = frozenset()
    error: str = ""
