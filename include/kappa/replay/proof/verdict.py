"""The difference between two epochs at the same commit, and its meaning."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from kappa.errors import visible
from kappa.offsets.vector import Offsets
from kappa.replay import stored
from kappa.replay.findings import Finding
from kappa.replay.proof.determinism import Determinism
from kappa.topology.thresholds import Limit


class Verdict(StrEnum):
    """The result of a comparison. A change of code should give ``DIFFERS``; only ``FAILED`` blocks a cutover."""

    SAME = "same"
    DIFFERS = "differs"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Drift:
    """How far the values of a numeric column moved, over keys of both epochs in which it differs; a null is 0.

    A number is ``None`` where it is undefined: infinite, or a share of nothing.

    Attributes:
        keys: how many keys.
        sum_live: sum of their values in the live epoch.
        sum_candidate: sum of their values in the candidate.
        mean_difference: mean absolute difference.
        max_difference: greatest absolute difference.
        share: sum of absolute differences as a share of the live epoch's absolute values in all keys of both.
    """

    keys: int
    sum_live: float | None
    sum_candidate: float | None
    mean_difference: float | None
    max_difference: float | None
    share: float | None


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One key whose rows differ; ``None`` where an epoch has no row.

    Values are text, and masked ones are not the real ones.
    """

    key: Mapping[str, Any]
    live: Mapping[str, Any] | None
    candidate: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class TableDiff:
    """How a table differs.

    Attributes:
        name: the table.
        rows_live: rows in the live epoch; ``None`` if it has no such table, or one with another key.
        rows_candidate: rows in the candidate; ``None`` if it has no such table.
        keys_added: keys that only the candidate has.
        keys_removed: keys that only the live epoch has.
        keys_changed: keys of both whose rows differ.
        changed_columns: column -> number of keys in which it differs.
        samples: a few of the keys that differ.
        drift: numeric column -> how far its values moved; masked columns have none.
        columns_added: columns that only the candidate has; they are not compared.
        columns_removed: columns that only the live epoch has.
        columns_retyped: columns whose type differs; they are compared as text unless both are numbers.
        masked: columns whose values are not shown.
        is_judged: whether the verdict requires equal rows, because both epochs were cut so that they should have them.
    """

    name: str
    rows_live: int | None
    rows_candidate: int | None
    keys_added: int = 0
    keys_removed: int = 0
    keys_changed: int = 0
    changed_columns: Mapping[str, int] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    drift: Mapping[str, Drift] = field(default_factory=dict)
    columns_added: tuple[str, ...] = ()
    columns_removed: tuple[str, ...] = ()
    columns_retyped: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    is_judged: bool = True

    @property
    def is_same(self) -> bool:
        """Whether both epochs have the same rows."""
        counted = self.keys_added + self.keys_removed + self.keys_changed
        has_same_columns = not (self.columns_added or self.columns_removed)
        return self.rows_live == self.rows_candidate and not counted and has_same_columns


@dataclass(frozen=True, kw_only=True)
class OutputDiff:
    """How an append output differs.

    Rows are compared as multisets by the declared columns that both epochs have, and by the topic, partition and offset
    that they came from, where they have those.

    Attributes:
        name: the output.
        rows_live: rows in the live epoch; ``None`` if it has no such output.
        rows_candidate: rows in the candidate; ``None`` if it has no such output.
        rows_added: rows that only the candidate has.
        rows_removed: rows that only the live epoch has.
        columns_added: columns that only the candidate has; they are not compared.
        columns_removed: columns that only the live epoch has.
        is_judged: whether the verdict requires equal rows, because both epochs were cut so that they should have them.
    """

    name: str
    rows_live: int | None
    rows_candidate: int | None
    rows_added: int = 0
    rows_removed: int = 0
    columns_added: tuple[str, ...] = ()
    columns_removed: tuple[str, ...] = ()
    is_judged: bool = True

    @property
    def is_same(self) -> bool:
        """Whether both epochs have the same rows."""
        has_same_columns = not (self.columns_added or self.columns_removed)
        return self.rows_live == self.rows_candidate and not self.rows_added + self.rows_removed and has_same_columns


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """Whether one of the topology's checks holds in the candidate, and if not, why."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class ThresholdResult:
    """The result of a limited measure.

    Attributes:
        measure: its full name, ``rewards.keys_removed`` or ``rewards.drift.Points``.
        allowed: the limit: a float is a share, an int a number.
        ok: whether it is kept.
        found: its value, as a share or number like the limit; ``None`` without one.
        detail: why it has no value.
    """

    measure: str
    allowed: int | float
    ok: bool
    found: int | float | None = None
    detail: str = ""

    def __str__(self) -> str:
        is_share = isinstance(self.allowed, float)
        value = self.detail if self.found is None else _limit(self.found, is_share)
        return f"{self.measure}: found {value}, allowed {_limit(self.allowed, is_share)}"


@dataclass(frozen=True, kw_only=True)
class DiffReport:
    """Two epochs at the same commit of the live ledger.

    Attributes:
        live_epoch: the live epoch.
        live_seq: its commit.
        candidate_epoch: the candidate.
        candidate_seq: its commit that ends at the same offsets.
        at: those offsets.
        tables: how each table differs.
        outputs: how each append output differs.
        checks: the candidate's own checks.
        thresholds: the result of each measure that topology or request limits.
        determinism: the result of a second run of the candidate over the plan's range; ``None`` if none was requested.
        findings: reasons why the candidate's step may give another result when it is run again.
        notes: what a reader must know, for example that the epochs were cut differently.
        is_level: whether both have read a common topic up to the same offsets.
        set_aside: how many records the candidate alone sets aside; a note says which.
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
    thresholds: tuple[ThresholdResult, ...] = ()
    determinism: Determinism | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    is_level: bool = True
    set_aside: int = 0

    @property
    def verdict(self) -> Verdict:
        """``FAILED`` for a failed check, an exceeded threshold or a differing second run; else what the rows say.

        Records that the candidate alone sets aside are a difference, whatever the rows say.
        """
        if self.failures:
            return Verdict.FAILED
        if self.set_aside:
            return Verdict.DIFFERS
        members: tuple[TableDiff | OutputDiff, ...] = (*self.tables, *self.outputs)
        return Verdict.SAME if all(one.is_same for one in members if one.is_judged) else Verdict.DIFFERS

    @property
    def failures(self) -> tuple[str, ...]:
        """Every failed check, exceeded threshold and result that a second run did not repeat, with numbers."""
        checks = (f"check {c.name}: {c.detail or 'does not hold'}" for c in self.checks if not c.ok)
        exceeded = (f"threshold {threshold}" for threshold in self.thresholds if not threshold.ok)
        return (*checks, *exceeded, *(self.determinism.failures if self.determinism else ()))

    def to_json(self) -> str:
        """The report and its verdict as canonical JSON."""
        values = {**asdict(self), "at": self.at.as_dict(), "verdict": self.verdict}
        return json.dumps(values, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> DiffReport:
        """Read what :meth:`to_json` wrote; the verdict is derived anew."""
        values: dict[str, Any] = json.loads(text)
        return stored.read(
            cls,
            {
                **values,
                "at": Offsets.from_json(values["at"]),
                "tables": tuple(_table_diff(table) for table in values["tables"]),
                "outputs": tuple(stored.read(OutputDiff, _tuples(output)) for output in values["outputs"]),
                "checks": tuple(stored.read(CheckResult, check) for check in values["checks"]),
                # Reports that are older than thresholds have none.
                "thresholds": tuple(stored.read(ThresholdResult, result) for result in values.get("thresholds", ())),
                "determinism": Determinism.from_dict(values["determinism"]) if values.get("determinism") else None,
                "findings": tuple(Finding.from_dict(finding) for finding in values.get("findings", ())),
                "notes": tuple(values["notes"]),
            },
        )

    def render(self) -> list[str]:
        """Lines of text for people."""
        lines = [
            f"{self.topology}: live epoch {self.live_epoch} (seq {self.live_seq}) and epoch {self.candidate_epoch} "
            f"(seq {self.candidate_seq}), {'both at the same offsets' if self.is_level else 'of different topics'}: "
            f"{self.verdict}"
        ]
        for table in self.tables:
            lines.append(
                f"  table {table.name}: {_rows(table)} rows; keys: {table.keys_added:,} added, "
                f"{table.keys_removed:,} removed, {table.keys_changed:,} changed"
            )
            lines += _columns(table)
            for name, count in by_count(table.changed_columns):
                lines.append(f"    column {name}: changed in {count:,} keys{_drift(table.drift.get(name))}")
            lines += [f"    {shown(s.key)}: {shown(s.live)} -> {shown(s.candidate)}" for s in table.samples]
        for output in self.outputs:
            rows = f"; {output.rows_added:,} added, {output.rows_removed:,} removed"
            is_compared = output.rows_live is not None and output.rows_candidate is not None
            lines.append(f"  output {output.name}: {_rows(output)} rows{rows if is_compared else ''}")
            lines += _columns(output)
        for check in self.checks:
            detail = f": {check.detail}" if check.detail else ""
            lines.append(f"  check {check.name}: {'holds' if check.ok else 'DOES NOT HOLD'}{detail}")
        lines += [f"  threshold {t}: {'kept' if t.ok else 'EXCEEDED'}" for t in self.thresholds]
        if self.determinism is not None:
            lines.append(f"  determinism: {self.determinism.summary}")
            lines += [f"    {member}" for member in self.determinism.members]
        lines += [f"  warning: {finding}  [{finding.code}]" for finding in self.findings]
        return [visible(line) for line in lines + [f"  note: {note}" for note in self.notes]]


def by_count(changed: Mapping[str, int]) -> list[tuple[str, int]]:
    """Changed columns, those that differ in most keys first."""
    return sorted(changed.items(), key=lambda item: (-item[1], item[0]))


def shown(row: Mapping[str, Any] | None) -> str:
    """A row in one line."""
    return "absent" if row is None else ", ".join(f"{k}={'null' if v is None else v}" for k, v in row.items())


def number(value: float | None) -> str:
    """A number in at most six significant digits, or more where it is whole."""
    if value is None:
        return "none"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.6g}"


def _table_diff(values: Mapping[str, Any]) -> TableDiff:
    drift = {name: stored.read(Drift, measure) for name, measure in values.get("drift", {}).items()}
    samples = tuple(stored.read(Sample, sample) for sample in values["samples"])
    return stored.read(TableDiff, {**_tuples(values), "drift": drift, "samples": samples})


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _columns(diff: TableDiff | OutputDiff) -> list[str]:
    parts = {"added": diff.columns_added, "removed": diff.columns_removed}
    if isinstance(diff, TableDiff):
        parts |= {"with another type": diff.columns_retyped, "masked": diff.masked}
    return [f"    columns {what}: {', '.join(names)}" for what, names in parts.items() if names]


def _drift(drift: Drift | None) -> str:
    if drift is None:
        return ""
    share = "" if drift.share is None else f", {100 * drift.share:.3g} % of the column"
    return (
        f"; sum {number(drift.sum_live)} -> {number(drift.sum_candidate)}, mean difference "
        f"{number(drift.mean_difference)}, at most {number(drift.max_difference)}{share}"
    )


def _limit(value: float, is_share: bool) -> str:
    return f"{100 * value:.4g} %" if is_share else number(value)


def _rows(diff: TableDiff | OutputDiff) -> str:
    counts = ("none" if rows is None else f"{rows:,}" for rows in (diff.rows_live, diff.rows_candidate))
    return " -> ".join(counts)


def judged(
    limits: Mapping[str, Limit], tables: Iterable[TableDiff], outputs: Iterable[OutputDiff]
) -> tuple[ThresholdResult, ...]:
    """The result of each limited measure, and whether it is allowed."""
    diffs: list[TableDiff | OutputDiff] = [*tables, *outputs]
    # A name that only the live epoch had, as the other kind, is not limited.
    members = {diff.name: diff for diff in diffs if diff.rows_candidate is not None}
    results = []
    for name, limit in sorted(limits.items()):
        table, _, measure = name.partition(".")
        results.append(_judged(name, measure, limit, members[table]))
    return tuple(results)


def _judged(name: str, measure: str, limit: Limit, diff: TableDiff | OutputDiff) -> ThresholdResult:
    if diff.rows_live is None:
        return ThresholdResult(measure=name, allowed=limit, ok=True, detail="not applied: nothing to compare with")
    if measure.startswith("drift."):
        assert isinstance(diff, TableDiff)
        column = measure.removeprefix("drift.")
        if column in diff.columns_added:
            return ThresholdResult(measure=name, allowed=limit, ok=True, detail="not applied: the column is new")
        drift = diff.drift.get(column)
        if drift is None and column in diff.changed_columns:
            return ThresholdResult(measure=name, allowed=limit, ok=False, detail="values that were not numbers")
        number = 0.0 if drift is None else drift.share if isinstance(limit, float) else drift.max_difference
        if number == 0 == limit and column in diff.changed_columns:
            return ThresholdResult(measure=name, allowed=limit, ok=False, detail="changes without a numeric difference")
    else:
        count = abs((diff.rows_candidate or 0) - diff.rows_live) if measure == "rows" else getattr(diff, measure)
        number = count if isinstance(limit, int) else _share(count, diff.rows_live)
    if number is None:
        return ThresholdResult(measure=name, allowed=limit, ok=False, detail="no finite number")
    return ThresholdResult(measure=name, allowed=limit, found=number, ok=number <= limit)


def _share(count: int, rows: int) -> float | None:
    if not rows:
        return None if count else 0.0
    return count / rows
