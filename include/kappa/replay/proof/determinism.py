"""One range computed twice, cut in two ways: the results, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kappa.replay import stored


@dataclass(frozen=True, kw_only=True)
class Twice:
    """A table or append output that was computed twice.

    Attributes:
        kind: ``table`` or ``output``.
        rows: rows of the first run.
        rows_again: rows of the second one.
        hash: hash of the first run's rows, whatever their order.
        hash_again: that of the second one's.
        columns: columns whose values differ; none where only one run has the row.
        samples: keys of some rows that differ; for an output, the topic, partition and offset that they come from.
            Values are text, and masked ones are not the real ones.
    """

    name: str
    kind: Literal["table", "output"]
    rows: int
    rows_again: int
    hash: str
    hash_again: str
    columns: tuple[str, ...] = ()
    samples: tuple[Mapping[str, str], ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether both runs gave the same rows."""
        return (self.rows, self.hash) == (self.rows_again, self.hash_again)

    def __str__(self) -> str:
        if self.is_same:
            return f"{self.kind} {self.name}: the same {self.rows:,} rows (content {self.hash})"
        rows = f"{self.rows:,} rows" if self.rows == self.rows_again else f"{self.rows:,} and {self.rows_again:,} rows"
        columns = f" in {', '.join(self.columns)}" if self.columns else ""
        keys = "; ".join(", ".join(f"{name}={value}" for name, value in key.items()) for key in self.samples)
        return f"{self.kind} {self.name}: differs{columns} ({rows})" + (f", for example at {keys}" if keys else "")


@dataclass(frozen=True, kw_only=True)
class Determinism:
    """The results of two runs over the same range.

    Attributes:
        slice_records: most offsets in a slice of the first run.
        slice_records_again: of the second one.
        slices: slices of the first run.
        slices_again: of the second one.
        members: tables and append outputs.
    """

    slice_records: int
    slice_records_again: int
    slices: int
    slices_again: int
    members: tuple[Twice, ...]

    @property
    def is_same(self) -> bool:
        """Whether both runs gave the same results."""
        return all(member.is_same for member in self.members)

    @property
    def failures(self) -> tuple[str, ...]:
        """What differs."""
        return tuple(f"determinism: {member}" for member in self.members if not member.is_same)

    @property
    def summary(self) -> str:
        """One line for people."""
        return (
            f"computed twice, in {self.slices:,} slices of at most {self.slice_records:,} offsets and in "
            f"{self.slices_again:,} of at most {self.slice_records_again:,}: "
            f"{'the same' if self.is_same else 'DIFFERS'}"
        )

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Determinism:
        """Read what :meth:`as_dict` gave."""
        members = tuple(
            stored.read(Twice, {**member, "columns": tuple(member["columns"]), "samples": tuple(member["samples"])})
            for member in values["members"]
        )
        return stored.read(cls, {**values, "members": members})


def other_size(slice_records: int, offsets: int) -> int:
    """Most offsets in a slice of a second run, so that its cuts are others: smaller slices, at least three of them.

    Args:
        slice_records: most offsets in a slice of the first run.
        offsets: offsets of the range.
    """
    smaller = max(1, min(2 * slice_records // 3, -(-offsets // 3)))
    return smaller if smaller != slice_records else 2 * slice_records  # slices of one offset can only grow
