"""The report of a verification on a page. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kappa.replay.proof.determinism import Twice
from kappa.replay.proof.verdict import DiffReport, Drift, Sample, TableDiff, Verdict, by_count
from kappa_web.pages import charts, conditions, rendering, words
from kappa_web.pages.charts import Piece

#: Text in place of a value that the caller may not read.
WITHHELD = "withheld"
_WORDS = {
    Verdict.SAME: "Both epochs have the same rows.",
    Verdict.DIFFERS: "The epochs differ. Every check holds and every threshold is kept.",
    Verdict.FAILED: "A check does not hold, a threshold is exceeded, or a second run gave another result. The "
    "cutover is refused.",
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A value of a sample.

    Attributes:
        live: in the live epoch; None for a null or an absent row.
        candidate: in the candidate.
        is_changed: whether both have a row and the values differ.
    """

    live: str | None
    candidate: str | None
    is_changed: bool


@dataclass(frozen=True, kw_only=True)
class SampleRow:
    """A key whose rows differ: ``added``, ``removed`` or ``changed``."""

    key: tuple[str, ...]
    kind: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True)
class TableView:
    """How a table differs.

    Attributes:
        bar: its keys, same, changed, added and removed, as parts of a bar.
        columns: changed columns: name, keys, share of all keys of both, and how far the values moved.
        shape: columns that were added, removed, retyped, or are masked.
        key: names of the key's columns.
        others: names of the columns of the samples.
    """

    table: TableDiff
    bar: Any
    columns: tuple[tuple[str, int, float, Drift | None], ...]
    shape: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    others: tuple[str, ...]
    samples: tuple[SampleRow, ...]


def view(report: DiffReport, masked: Mapping[str, Sequence[str]], *, may_unmask: bool) -> dict[str, Any]:
    """The part of a report that the page shows.

    Args:
        masked: table -> columns whose values need a right of their own.
        may_unmask: whether the caller has it.
    """

    def hidden(name: str, extra: Sequence[str] = ()) -> frozenset[str]:
        return frozenset() if may_unmask else frozenset((*masked.get(name, ()), *extra))

    twice = report.determinism.members if report.determinism is not None else ()
    return {
        "report": report,
        "words": _WORDS[report.verdict],
        "between": f"Live epoch {report.live_epoch} after slice {report.live_seq:,} and epoch "
        f"{report.candidate_epoch} after slice {report.candidate_seq:,}, "
        f"{'at the same offsets' if report.is_level else 'of different topics'}.",
        "tables": [_table(table, hidden(table.name, table.masked)) for table in report.tables],
        "twice": [(member, _twice_samples(member, hidden(member.name))) for member in twice],
        "number": words.number,
        "is_withheld": any(hidden(table.name, table.masked) for table in report.tables),
    }


def columns(report: DiffReport) -> dict[str, list[str]]:
    """Table or output -> the columns of which a report has values."""
    names: dict[str, list[str]] = {}
    for table in report.tables:
        rows = [table.drift, *(row for one in table.samples for row in (one.key, one.live, one.candidate))]
        names[table.name] = [name for row in rows for name in row or ()]
    for member in report.determinism.members if report.determinism is not None else ():
        names.setdefault(member.name, []).extend(name for row in member.samples for name in row)
    return names


def file(report: DiffReport) -> str:
    """The report as one HTML page without script, link or outside asset, light or dark like the reader's system.

    It shows values as the report has them: masked values stay masked.
    """
    values = {"difference": view(report, {}, may_unmask=True), "verdict": conditions.verdict(report.verdict)}
    return rendering.page("report.html", values)


def _table(table: TableDiff, hidden: frozenset[str]) -> TableView:
    both = (table.rows_candidate or 0) - table.keys_added
    shape = [(name, "added") for name in table.columns_added]
    shape += [(name, "removed") for name in table.columns_removed]
    shape += [(name, "has another type") for name in table.columns_retyped]
    shape += [(name, "masked") for name in sorted({*table.masked, *hidden})]
    key = tuple(table.samples[0].key) if table.samples else ()
    others = _columns(table.samples, key)
    return TableView(
        table=table,
        bar=_bar(table, both),
        columns=tuple(
            (name, keys, keys / both if both > 0 else 1.0, None if name in hidden else table.drift.get(name))
            for name, keys in by_count(table.changed_columns)
        ),
        shape=tuple(shape),
        key=key,
        others=others,
        samples=tuple(_sample(sample, key, others, hidden) for sample in table.samples),
    )


def _bar(table: TableDiff, both: int) -> Any:
    same = max(0, both - table.keys_changed)
    counts = (
        ("same", same),
        ("changed", table.keys_changed),
        ("added", table.keys_added),
        ("removed", table.keys_removed),
    )
    whole = sum(keys for _, keys in counts)
    pieces, reached = [], 0.0
    for kind, keys in counts:
        share = keys / whole if whole else 0.0
        if keys:
            pieces.append(
                Piece(start=reached, end=reached + share, kind=f"d {kind}", title=f"{kind}: {words.count(keys)} keys")
            )
        reached += share
    return charts.bar(pieces, title=", ".join(f"{words.count(keys)} keys {kind}" for kind, keys in counts), height=14)


def _columns(samples: Sequence[Sample], key: Sequence[str]) -> tuple[str, ...]:
    """Columns of samples: those that differ first."""
    names: dict[str, bool] = {}
    for sample in samples:
        for name in {**(sample.live or {}), **(sample.candidate or {})}:
            is_changed = bool(sample.live and sample.candidate and _differs(sample, name))
            names[name] = names.get(name, False) or is_changed
    return tuple(sorted((name for name in names if name not in key), key=lambda name: not names[name]))


def _differs(sample: Sample, name: str) -> bool:
    return (sample.live or {}).get(name) != (sample.candidate or {}).get(name)


def _sample(sample: Sample, key: Sequence[str], others: Sequence[str], hidden: frozenset[str]) -> SampleRow:
    kind = "added" if sample.live is None else "removed" if sample.candidate is None else "changed"

    def value(row: Mapping[str, Any] | None, name: str) -> str | None:
        if row is None or row.get(name) is None:
            return None
        return WITHHELD if name in hidden else words.text(row[name])

    cells = tuple(
        Cell(
            live=value(sample.live, name),
            candidate=value(sample.candidate, name),
            is_changed=kind == "changed" and _differs(sample, name),
        )
        for name in others
    )
    return SampleRow(key=tuple(value(sample.key, name) or "" for name in key), kind=kind, cells=cells)


def _twice_samples(member: Twice, hidden: frozenset[str]) -> str:
    rows = (
        ", ".join(f"{name}={WITHHELD if name in hidden else words.text(value)}" for name, value in row.items())
        for row in member.samples
    )
    return "; ".join(rows)
