"""A report as a file: everything is in it, and nothing in it is more than text."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kappa.cli import app
from kappa.errors import UsageError
from kappa.offsets.vector import Offsets
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.replay.findings import Finding, Severity
from kappa.replay.proof.verdict import CheckResult, DiffReport, Drift, OutputDiff, Sample, TableDiff, ThresholdResult
from kappa.verify.report import Format, rendered
from kappa_web.pages.difference import file as html

HOSTILE = "</td><script>alert(1)</script>|`x``y`|\n# h \x1b[2J\u202e [a](https://evil.example) \"'&amp;"
VOID = {"meta", "br"}

REPORT = DiffReport(
    topology="retail.loyalty",
    live_epoch=3,
    live_seq=9,
    candidate_epoch=4,
    candidate_seq=2,
    at=Offsets({"pos": {0: 9069, 1: 80}}),
    tables=(
        TableDiff(
            name="rewards",
            rows_live=1200,
            rows_candidate=1190,
            keys_removed=10,
            keys_changed=2,
            changed_columns={"points": 2},
            drift={
                "points": Drift(
                    keys=2, sum_live=10.0, sum_candidate=11.0, mean_difference=0.5, max_difference=1.0, share=0.1
                )
            },
            samples=(Sample(key={"card": "*1a2b3c4d"}, live={"points": "5"}, candidate=None),),
            columns_added=("tier",),
            columns_retyped=("points",),
            masked=("card",),
        ),
    ),
    outputs=(OutputDiff(name="notifications", rows_live=5, rows_candidate=6, rows_added=3, rows_removed=2),),
    checks=(
        CheckResult(name="nobody is lost", ok=False, detail="2 rows contradict it"),
        CheckResult(name="fine", ok=True),
    ),
    thresholds=(
        ThresholdResult(measure="rewards.keys_removed", allowed=0, found=10, ok=False),
        ThresholdResult(measure="rewards.drift.points", allowed=0.2, found=0.1, ok=True),
        ThresholdResult(measure="rewards.rows", allowed=0.2, ok=True, detail="not applied: nothing to compare with"),
    ),
    findings=(
        Finding(
            code="reads-clock",
            severity=Severity.WARN,
            message="'notifications' uses now()",
            remedy="Take the record's `_timestamp`.",
        ),
    ),
    notes=("Column points of rewards has another type in the live epoch.",),
)

WICKED = replace(
    REPORT,
    topology=HOSTILE,
    at=Offsets({HOSTILE: {0: 1}}),
    notes=(HOSTILE,),
    tables=(
        replace(
            REPORT.tables[0],
            name=HOSTILE,
            changed_columns={HOSTILE: 1},
            drift={HOSTILE: REPORT.tables[0].drift["points"]},
            samples=(Sample(key={HOSTILE: HOSTILE}, live={HOSTILE: HOSTILE}, candidate=None),),
            columns_added=(HOSTILE,),
            masked=(HOSTILE,),
        ),
    ),
    outputs=(replace(REPORT.outputs[0], name=HOSTILE, columns_removed=(HOSTILE,)),),
    checks=(CheckResult(name=HOSTILE, ok=False, detail=HOSTILE),),
    thresholds=(ThresholdResult(measure=HOSTILE, allowed=0, found=10, ok=False),),
    findings=(Finding(code=HOSTILE, severity=Severity.WARN, message=HOSTILE, remedy=HOSTILE),),
)


class Page(HTMLParser):
    """What a browser would make of a page, strictly: every element is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text.append(data)


WHAT_EVERYBODY_LOOKS_FOR = (
    "retail.loyalty",
    "failed",
    "epoch 3",
    "epoch 4",
    "9069",
    "rewards",
    "1,200",
    "1,190",
    "points",
    "notifications",
    "nobody is lost",
    "2 rows contradict it",
    "does not hold",
    "rewards.keys_removed",
    "exceeded",
    "kept",
    "20 %",
    "10 %",
    "*1a2b3c4d",
    "removed",
    "reads-clock",
    "uses now()",
    "tier",
    "masked",
    "not applied",
    "another type in the live epoch",
)


def test_a_page_is_complete_with_the_verdict_at_the_top() -> None:
    page = Page(html(REPORT))
    text = " ".join(page.text)
    for word in WHAT_EVERYBODY_LOOKS_FOR:
        assert word in text or word.replace("9069", "9,069") in text, word
    assert text.index("failed") < text.index("Table rewards") < text.index("Notes") < text.index("9,069")
    assert ("class", "verdict bad") in page.attributes and ("class", "mark bad") in page.attributes
    assert "<del>5</del>" in html(REPORT), "what the live epoch has alone"


def test_a_page_is_self_contained_and_follows_the_readers_colour_scheme() -> None:
    text = html(REPORT)
    page = Page(text)
    assert not {"a", "img", "script", "link", "iframe", "form", "object"} & set(page.tags)
    assert not {"href", "src", "srcset", "action", "style", "onclick"} & {name for name, _ in page.attributes}
    assert "url(" not in text and "@import" not in text and "http://" not in text and "https://" not in text
    assert "color-scheme: light dark" in text and "default-src 'none'" in text


def test_hostile_names_and_values_stay_text_in_a_page() -> None:
    wicked, plain = Page(html(WICKED)), Page(html(REPORT))
    assert set(wicked.tags) <= set(plain.tags)
    assert not {name for name, _ in wicked.attributes} - {name for name, _ in plain.attributes}
    text = " ".join(wicked.text)
    assert "\x1b" not in html(WICKED) and "\u202e" not in html(WICKED)
    assert "<script>alert(1)</script>" in text  # seen as text
    assert "\x1b" not in text and "\u202e" not in text and "\\x1b[2J\\u202e" in text


@pytest.mark.parametrize(
    ("report", "word", "kind"),
    [
        (replace(REPORT, checks=(), thresholds=()), "differs", "warn"),
        (replace(REPORT, tables=(), outputs=(), checks=(), thresholds=()), "same", "good"),
    ],
)
def test_every_verdict_has_a_word(report: DiffReport, word: str, kind: str) -> None:
    page = Page(html(report))
    assert ("class", f"verdict {kind}") in page.attributes and f"<b>{word}</b>" in html(report)
    assert ("class", "asks") not in page.attributes, "nothing failed"


def test_text_and_json_are_rendered_from_the_report() -> None:
    assert rendered(REPORT, Format.TEXT).splitlines() == REPORT.render()
    assert DiffReport.from_json(rendered(REPORT, Format.JSON)) == REPORT


@pytest.fixture
def verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake in which epoch 2 of a.b was verified."""
    monkeypatch.setenv("KAPPA_HOME", str(tmp_path))
    monkeypatch.setenv("KAPPA_LAKE", str(tmp_path / "lake"))
    epochs = Epochs(str(tmp_path / "lake"))
    first = [(1, name) for name in ("planned", "rewound", "seeded", "moved")]
    second = [(2, name) for name in ("planned", "rewound", "seeded", "replayed", "caught_up", "verified")]
    for epoch, name in first + second:
        detail = {"verdict": "failed", "report": REPORT.to_json()} if name == "verified" else {"code": "c"}
        row = Event(topology="a.b", epoch=epoch, event=name, at=datetime.now(UTC), actor="test", detail=detail)
        epochs.change(row.topology, lambda _, row=row: [row])  # type: ignore[misc]
    return tmp_path


@pytest.mark.parametrize("format", list(Format))
def test_a_report_is_printed_or_written_in_each_format_and_a_failure_exits_with_1(
    verified: Path, format: Format
) -> None:
    expected = rendered(REPORT, format)
    printed = CliRunner().invoke(app, ["diff", "a.b", "2", "--format", format])
    assert (printed.output, printed.exit_code) == (expected, 1)
    file = verified / "report"
    written = CliRunner().invoke(app, ["diff", "a.b", "--format", format, "--output", str(file)])
    assert (written.output, written.exit_code) == (f"Wrote {file}: failed.\n", 1)
    assert file.read_text() == expected


def test_json_is_a_separate_option_and_an_unwritable_file_is_named(verified: Path) -> None:
    assert json.loads(CliRunner().invoke(app, ["diff", "a.b", "--json"]).output)["verdict"] == "failed"
    answer = CliRunner().invoke(app, ["diff", "a.b", "--output", str(verified / "no" / "file")])
    assert isinstance(answer.exception, UsageError) and "No such file" in str(answer.exception)
