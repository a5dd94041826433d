"""A verification's report as a file: text, JSON, Markdown, or one HTML page that needs nothing else. Pure."""

from __future__ import annotations

import html as markup
import re
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from kappa.errors import visible
from kappa.replay.determinism import Twice
from kappa.replay.verdict import (
    DiffReport,
    Drift,
    OutputDiff,
    TableDiff,
    ThresholdResult,
    Verdict,
    by_count,
    number,
    shown,
)


class Format(StrEnum):
    """What a report can be written as."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"


def rendered(report: DiffReport, format: Format) -> str:
    """A report as text that ends with a line break."""
    match format:
        case Format.TEXT:
            return "\n".join(report.render()) + "\n"
        case Format.JSON:
            return report.to_json() + "\n"
        case Format.MARKDOWN:
            return markdown(report)
        case Format.HTML:
            return html(report)


#: Title, header and rows of a table of a report; a cell is plain text.
_Grid = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def _sections(report: DiffReport) -> Iterable[tuple[str, list[_Grid]]]:
    """What both kinds of file show, in order."""
    offsets = [[topic, str(partition), f"{offset:,}"] for (topic, partition), offset in report.at.items()]
    failures = [[failure] for failure in report.failures]
    if failures:
        yield "Why it failed", [("", ["failure"], failures)]
    counts = [
        [
            t.name,
            _count(t.rows_live),
            _count(t.rows_candidate),
            f"{t.keys_added:,}",
            f"{t.keys_removed:,}",
            f"{t.keys_changed:,}",
        ]
        for t in report.tables
    ]
    if counts:
        header = ["table", "rows live", "rows candidate", "keys added", "keys removed", "keys changed"]
        yield "Tables", [("", header, counts)]
    for table in report.tables:
        grids = _table_grids(table)
        if grids:
            yield f"Table {table.name}", grids
    if report.outputs:
        header = ["output", "rows live", "rows candidate", "rows added", "rows removed", "columns"]
        yield "Outputs", [("", header, [_output_row(output) for output in report.outputs])]
    if report.checks:
        rows = [[c.name, "holds" if c.ok else "DOES NOT HOLD", c.detail] for c in report.checks]
        yield "Checks", [("", ["check", "result", "detail"], rows)]
    if report.thresholds:
        header = ["measure", "found", "allowed", "result"]
        yield "Thresholds", [("", header, [_threshold_row(threshold) for threshold in report.thresholds])]
    if report.determinism is not None:
        header = ["name", "rows", "rows again", "content", "content again", "result", "columns", "for example at"]
        rows = [_twice_row(member) for member in report.determinism.members]
        yield "Determinism", [(f"The plan's range, {report.determinism.summary}.", header, rows)]
    if report.findings:
        rows = [[found.code, found.message, found.remedy] for found in report.findings]
        yield "Warnings about the step", [("", ["code", "found", "what to do"], rows)]
    if report.notes:
        yield "Notes", [("", ["note"], [[note] for note in report.notes])]
    yield "Offsets", [("Both epochs had read up to here.", ["topic", "partition", "next offset"], offsets)]


def _table_grids(table: TableDiff) -> list[_Grid]:
    grids: list[_Grid] = []
    columns = [[name, what] for name, what in _column_words(table)]
    if columns:
        grids.append(("Columns", ["column", "what"], columns))
    changed = [[name, f"{count:,}"] for name, count in by_count(table.changed_columns)]
    if changed:
        grids.append(("Changed columns", ["column", "keys"], changed))
    if table.drift:
        header = ["column", "keys", "sum live", "sum candidate", "mean difference", "greatest difference", "share"]
        grids.append(("Drift", header, [_drift_row(name, drift) for name, drift in sorted(table.drift.items())]))
    if table.samples:
        rows = [[shown(s.key), shown(s.live), shown(s.candidate)] for s in table.samples]
        grids.append(("Samples", ["key", "live", "candidate"], rows))
    return grids


def _column_words(diff: TableDiff | OutputDiff) -> list[tuple[str, str]]:
    words = [(name, "added") for name in diff.columns_added] + [(name, "removed") for name in diff.columns_removed]
    if isinstance(diff, TableDiff):
        words += [(name, "has another type") for name in diff.columns_retyped] + [
            (name, "masked") for name in diff.masked
        ]
    return words


def _output_row(output: OutputDiff) -> list[str]:
    columns = ", ".join(f"{name} {what}" for name, what in _column_words(output))
    added, removed = f"{output.rows_added:,}", f"{output.rows_removed:,}"
    return [output.name, _count(output.rows_live), _count(output.rows_candidate), added, removed, columns]


def _drift_row(name: str, drift: Drift) -> list[str]:
    share = "none" if drift.share is None else f"{100 * drift.share:.3g} %"
    numbers = (drift.sum_live, drift.sum_candidate, drift.mean_difference, drift.max_difference)
    return [name, f"{drift.keys:,}", *(number(value) for value in numbers), share]


def _threshold_row(threshold: ThresholdResult) -> list[str]:
    words = str(threshold).removeprefix(f"{threshold.measure}: found ")
    found, _, allowed = words.rpartition(", allowed ")
    return [threshold.measure, found, allowed, "kept" if threshold.ok else "EXCEEDED"]


def _twice_row(member: Twice) -> list[str]:
    result = "the same" if member.is_same else "DIFFERS"
    samples = "; ".join(map(shown, member.samples))
    rows = [f"{member.rows:,}", f"{member.rows_again:,}", member.hash, member.hash_again]
    return [f"{member.kind} {member.name}", *rows, result, ", ".join(member.columns), samples]


def _count(rows: int | None) -> str:
    return "none" if rows is None else f"{rows:,}"


_WORDS = {
    Verdict.SAME: "Both epochs hold the same.",
    Verdict.DIFFERS: "The epochs differ; every check holds and every threshold is kept.",
    Verdict.FAILED: "A check does not hold, a threshold is exceeded or a second run gave something else: the cutover "
    "is refused.",
}


def _between(report: DiffReport) -> str:
    return (
        f"Live epoch {report.live_epoch} after slice {report.live_seq} and epoch {report.candidate_epoch} after slice "
        f"{report.candidate_seq}, {'at the same offsets' if report.is_level else 'of different topics'}."
    )


# Markdown


def markdown(report: DiffReport) -> str:
    """The report as GitHub-flavoured Markdown; values are code, so that none of them is read as markup."""
    at = " ".join(f"{topic}[{partition}]={offset}" for (topic, partition), offset in report.at.items())
    lines = [
        f"# {_code(report.topology)}: {report.verdict}",
        "",
        _WORDS[report.verdict],
        "",
        f"{_between(report)} Offsets: {_code(at or 'none')}",
    ]
    for title, grids in _sections(report):
        kind, _, name = title.partition(" ")
        lines += ["", f"## {f'Table {_code(name)}' if kind == 'Table' else title}"]
        for caption, header, rows in grids:
            lines += ["", *([caption, ""] if caption else [])]
            lines += [_line(header), _line(["---"] * len(header)), *(_line(map(_code, row)) for row in rows)]
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    """A code span; a bar, which would end a cell even there, is written out."""
    content = visible(text).replace("|", "\\x7c")
    if not content.strip():
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", content)), default=0))
    pad = " " if content[0] in "` " or content[-1] in "` " else ""
    return f"{fence}{pad}{content}{pad}{fence}"


# HTML

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --line: #d9d9e0; --back: #ffffff; --head: #f5f5f8;
  --same: #18794e; --differs: #915930; --failed: #c62a2f; }
@media (prefers-color-scheme: dark) { :root { --ink: #edeef0; --soft: #b0b4ba; --line: #363a3f; --back: #111113;
  --head: #1d1e21; --same: #3dd68c; --differs: #ffca16; --failed: #ff9592; } }
body { margin: 2rem auto; padding: 0 1rem; max-width: 72rem; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin-top: 2.2rem; overflow-wrap: anywhere; }
.verdict { border: 2px solid; border-radius: 8px; padding: .7rem 1rem; }
.verdict b { display: block; font-size: 1.3rem; text-transform: uppercase; letter-spacing: .04em; }
.same { color: var(--same); } .differs { color: var(--differs); } .failed { color: var(--failed); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .6rem 0; }
caption { text-align: left; color: var(--soft); padding: .2rem 0; }
th, td { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top;
  overflow-wrap: anywhere; }
th { background: var(--head); white-space: nowrap; }
td.k { white-space: nowrap; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
td.bad { color: var(--failed); font-weight: 600; }
@media print { body { max-width: none; margin: 0; } }
"""


def html(report: DiffReport) -> str:
    """The report as one page without script, link or outside asset, light or dark as the reader's system is."""
    at = " ".join(f"{topic}[{partition}]={offset:,}" for (topic, partition), offset in report.at.items())
    parts = [
        f'<div class="verdict {report.verdict}"><b>{report.verdict}</b>{_text(_WORDS[report.verdict])}</div>',
        f"<p>{_text(_between(report))}<br>Offsets: {_text(at or 'none')}</p>",
    ]
    for heading, grids in _sections(report):
        parts.append(f"<section>\n<h2>{_text(heading)}</h2>")
        parts += [_grid(caption, header, rows) for caption, header, rows in grids]
        parts.append("</section>")
    return page(report.topology, parts, title=f"{report.topology}: {report.verdict}")


def page(heading: str, parts: Iterable[str], *, title: str = "") -> str:
    """A whole page without script or outside asset.

    Args:
        heading: its headline, as text.
        parts: its body, as markup.
        title: of the window; the headline if empty.
    """
    head = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_text(title or heading)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>",
        f"<h1>{_text(heading)}</h1>",
    ]
    return "\n".join([*head, *parts, "</main>\n</body>\n</html>"]) + "\n"


def _grid(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ['<div class="wide"><table>']
    if caption:
        lines.append(f"<caption>{_text(caption)}</caption>")
    lines.append("<thead><tr>" + "".join(f'<th scope="col">{_text(name)}</th>' for name in header) + "</tr></thead>")
    lines.append("<tbody>")
    lines += ["<tr>" + "".join(map(_cell(header), header, row)) + "</tr>" for row in rows]
    return "\n".join([*lines, "</tbody></table></div>"])


def _cell(header: Sequence[str]) -> Callable[[str, str], str]:
    #: Only the platform's own words are coloured: a value that reads the same is no result.
    def cell(name: str, value: str) -> str:
        is_bad = name == "failure" or (name == "result" and value in ("EXCEEDED", "DOES NOT HOLD", "DIFFERS"))
        is_number = name != header[0] and bool(re.fullmatch(r"-?[\d,.e+-]+( %)?", value))
        kind = ' class="bad"' if is_bad else ' class="n"' if is_number else ""
        return f"<td{kind}>{_text(value)}</td>"

    return cell


def _text(value: str) -> str:
    return markup.escape(visible(value), quote=True)
