"""Commits of an epoch that were rolled up, in pieces: there are many, and they are parsed where they are looked at."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from kappa.record.ledger_rows import LedgerRow

if TYPE_CHECKING:
    import pyarrow as pa

#: True of commits from one of them on, or up to one of them.
Condition = Callable[[LedgerRow], bool]


class PastCommits(Sequence[LedgerRow]):
    """The commits in a file of rolled-up rows, oldest first.

    Args:
        records: the file's rows of commits, by number.
        parse: makes a row of a record.
        reaches_back_to: the last slice of earlier files; -1 where there are none.
    """

    def __init__(
        self, records: pa.Table, parse: Callable[[dict[str, Any]], LedgerRow], *, reaches_back_to: int
    ) -> None:
        self.reaches_back_to = reaches_back_to
        self._records = records
        self._parse = parse
        self._rows: dict[int, LedgerRow] = {}

    def __len__(self) -> int:
        return int(self._records.num_rows)

    @overload
    def __getitem__(self, index: int) -> LedgerRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[LedgerRow]: ...
    def __getitem__(self, index: int | slice) -> LedgerRow | list[LedgerRow]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        if at not in self._rows:
            record: Mapping[str, Any] = self._records.slice(at, 1).to_pylist()[0]
            self._rows[at] = self._parse(dict(record))
        return self._rows[at]


def newest_of(commits: Sequence[LedgerRow], is_early: Condition) -> LedgerRow | None:
    """The last commit that meets a condition which no later one meets; None where none meets it."""
    at = bisect_left(commits, True, key=lambda row: not is_early(row))
    return commits[at - 1] if at else None


def oldest_of(commits: Sequence[LedgerRow], is_late: Condition) -> LedgerRow | None:
    """The first commit that meets a condition which all later ones meet too; None where none meets it."""
    at = bisect_left(commits, True, key=is_late)
    return commits[at] if at < len(commits) else None


def commit_with(seq: int, pieces: Iterable[Sequence[LedgerRow]]) -> LedgerRow | None:
    """The commit of a slice, out of pieces that each have their commits by number."""
    candidates = (newest_of(piece, lambda row: row.seq <= seq) for piece in pieces)
    return next((row for row in candidates if row is not None and row.seq == seq), None)
