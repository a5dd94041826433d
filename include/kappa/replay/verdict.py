"""What differs between two epochs at the same commit, and what that means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from kappa.replay.offsets import Offsets


class Verdict(StrEnum):
    """What a comparison says. ``DIFFERS`` is what a change of code is for; only ``FAILED`` stands in the way."""

    SAME = "same"
    DIFFERS = "differs"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One key whose rows differ; a row is ``None`` where the epoch has none. Values are JSON values."""

    key: Mapping[str, Any]
    live: Mapping[str, Any] | None
    candidate: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class TableDiff:
    """How a table differs.

    Attributes:
        name: the table.
        rows_live: rows in the live epoch; ``None`` if it has no such table.
        rows_candidate: rows in the candidate; ``None`` if it has no such table.
        keys_added: keys that only the candidate has.
        keys_removed: keys that only the live epoch has.
        keys_changed: keys of both whose rows differ.
        changed_columns: column -> number of keys in which it differs.
        samples: a few of the keys that differ.
    """

    name: str
    rows_live: int | None
    rows_candidate: int | None
    keys_added: int = 0
    keys_removed: int = 0
    keys_changed: int = 0
    changed_columns: Mapping[str, int] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether both epochs have the same rows."""
        counted = self.keys_added + self.keys_removed + self.keys_changed
        return self.rows_live == self.rows_candidate and not counted


@dataclass(frozen=True, kw_only=True)
class OutputDiff:
    """How many rows an append output has in each epoch; ``None`` where the epoch has no such output."""

    name: str
    rows_live: int | None
    rows_candidate: int | None

    @property
    def is_same(self) -> bool:
        """Whether both epochs have as many rows."""
        return self.rows_live == self.rows_candidate


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """Whether one of the topology's checks holds in the candidate, and if not, why."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class DiffReport:
    """Two epochs at the same commit of the live ledger.

    Attributes:
        topology: the topology.
        live_epoch: the live epoch.
        live_seq: its commit.
        candidate_epoch: the candidate.
        candidate_seq: its commit that ends at the same offsets.
        at: those offsets.
        tables: how each table differs.
        outputs: how each append output differs.
        checks: the candidate's own checks.
        notes: what a reader must know, for example that the epochs were cut differently.
    """

    topology: str
    live_epoch: int
    live_seq: int
    candidate_epoch: int
    candidate_seq: int
    at: Offsets
    tables: tuple[TableDiff, ...] = ()
    outputs: tuple[OutputDiff, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """``FAILED`` if a check does not hold, otherwise whether anything differs."""
        if not all(check.ok for check in self.checks):
            return Verdict.FAILED
        is_same = all(table.is_same for table in self.tables) and all(output.is_same for output in self.outputs)
        return Verdict.SAME if is_same else Verdict.DIFFERS

    def to_json(self) -> str:
        """The report and its verdict as canonical JSON."""
        values = {**asdict(self), "at": self.at.as_dict(), "verdict": self.verdict}
        return json.dumps(values, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> DiffReport:
        """Read what :meth:`to_json` wrote; the verdict is derived anew."""
        values: dict[str, Any] = json.loads(text)
        del values["verdict"]
        tables = tuple(
            TableDiff(**{**table, "samples": tuple(Sample(**sample) for sample in table["samples"])})
            for table in values["tables"]
        )
        return cls(
            **{
                **values,
                "at": Offsets.from_json(values["at"]),
                "tables": tables,
                "outputs": tuple(OutputDiff(**output) for output in values["outputs"]),
                "checks": tuple(CheckResult(**check) for check in values["checks"]),
                "notes": tuple(values["notes"]),
            }
        )

    def render(self) -> list[str]:
        """Lines of text for people."""
        lines = [
            f"{self.topology}: live epoch {self.live_epoch} (seq {self.live_seq}) and epoch {self.candidate_epoch} "
            f"(seq {self.candidate_seq}), both at the same offsets: {self.verdict}"
        ]
        for table in self.tables:
            lines.append(
                f"  table {table.name}: {_rows(table)} rows; keys: {table.keys_added:,} added, "
                f"{table.keys_removed:,} removed, {table.keys_changed:,} changed"
            )
            columns = sorted(table.changed_columns.items(), key=lambda item: (-item[1], item[0]))
            lines += [f"    column {name}: changed in {count:,} keys" for name, count in columns]
            lines += [f"    {_shown(s.key)}: {_shown(s.live)} -> {_shown(s.candidate)}" for s in table.samples]
        lines += [f"  output {output.name}: {_rows(output)} rows" for output in self.outputs]
        for check in self.checks:
            detail = f": {check.detail}" if check.detail else ""
            lines.append(f"  check {check.name}: {'holds' if check.ok else 'DOES NOT HOLD'}{detail}")
        return lines + [f"  note: {note}" for note in self.notes]


def _rows(diff: TableDiff | OutputDiff) -> str:
    counts = ("none" if rows is None else f"{rows:,}" for rows in (diff.rows_live, diff.rows_candidate))
    return " -> ".join(counts)


def _shown(row: Mapping[str, Any] | None) -> str:
    return "absent" if row is None else ", ".join(f"{name}={value}" for name, value in row.items())
