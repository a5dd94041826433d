"""What stops a trial of new code: an error of the code refuses it, and what is lost is no evidence. Without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.page_lake import TopologyStory, report, steady

from kappa import clock
from kappa.config import Config
from kappa.errors import BrokerUnreachableError, DataLossError, LedgerError, NewerFormatError
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.topology import Append, Source, Topology
from kappa.verify import trial as trials
from kappa.verify.trial import Trial, slices_due, trial_range

AFTER = Topology(
    name="a.tried",
    version="2",
    sources=[Source(topic="pos", schema="id STRING")],
    outputs=[Append(name="rows", schema="id STRING")],
    step=lambda slice: {"rows": slice["pos"]},
)
Doing = Callable[..., Any]


def raises(error: Exception) -> Doing:
    def fails(*_: object, **__: object) -> None:
        raise error

    return fails


@pytest.fixture
def story(tmp_path: Path) -> TopologyStory:
    """A live epoch of three slices."""
    config = Config.from_env({f"KAPPA_{name}": str(tmp_path / name.lower()) for name in ("HOME", "LAKE")})
    story, now = TopologyStory(config=config, name=AFTER.name, partitions=1), clock.now()
    story.begin(1, now, topic_ids={"pos": "id-1"}, code="c")
    story.move(1, None, 0, now)
    story.ledger(1, steady(now, 3))
    return story


def tried(story: TopologyStory, monkeypatch: pytest.MonkeyPatch, **parts: Doing) -> Trial:
    """The trial of two slices whose parts on Spark are these; the others give what was written."""
    paths = story.paths(1)
    rows = iter(Ledger(paths.ledger).state().commits[-2:])
    doing: dict[str, Doing] = {
        "inspected": lambda *_: (),
        "beside": lambda *_, **__: SimpleNamespace(paths=paths),
        "opened": lambda *_: SimpleNamespace(paths=paths),
        "compute": lambda *_: next(rows),
        "discard": lambda *_: None,
        **parts,
    }
    for name, part in doing.items():
        monkeypatch.setattr(trials, name, part)
    session: Any = None
    return trials.trial(story.config, session, paths, "c", AFTER, 2)


@pytest.mark.parametrize("part", ["opened", "compute", "verify"])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("checkpoint of version 9"),
        KeyError("shapes"),
        LedgerError("rows contradict each other"),
        NewerFormatError("a newer format"),
    ],
)
def test_new_code_that_fails_anywhere_is_refused(
    part: str, error: Exception, story: TopologyStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = tried(story, monkeypatch, **{part: raises(error)})
    assert [finding.code for finding in evidence.findings] == ["upgrade-fails"]
    assert (evidence.report, evidence.is_equal, evidence.due) == (None, False, 2)


@pytest.mark.parametrize("part", ["opened", "compute", "verify"])
@pytest.mark.parametrize(
    "error", [FileNotFoundError("part-0.parquet"), BrokerUnreachableError("no broker"), DataLossError("retention")]
)
def test_what_is_lost_or_does_not_answer_is_no_evidence(
    part: str, error: Exception, story: TopologyStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = tried(story, monkeypatch, **{part: raises(error)})
    assert [finding.code for finding in evidence.findings] == ["upgrade-without-evidence"]
    assert (evidence.report, evidence.is_equal, evidence.due) == (None, False, 2)


def test_a_log_with_fewer_records_than_the_slices_read_is_no_evidence(
    story: TopologyStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = iter(Ledger(story.paths(1).ledger).state().commits[-2:])

    def compacted(*_: object) -> LedgerRow:
        row = next(rows)
        return replace(row, rows_read=row.rows_read - (row.seq == 3))

    evidence = tried(story, monkeypatch, compute=compacted)
    (why,) = evidence.findings
    assert why.code == "upgrade-without-evidence" and "records of slice 3 by now" in why.message
    assert evidence.report is None


@pytest.mark.parametrize(("slices", "due"), [(1, 1), (3, 3), (9, 3)])
def test_all_slices_are_due_that_were_to_be_computed_or_that_there_ever_were(
    slices: int, due: int, story: TopologyStory
) -> None:
    state = Ledger(story.paths(1).ledger).state()
    assert slices_due(state, slices) == due
    after_an_abandoned_one = replace(state, commits=[*state.commits[:-1], replace(state.commits[-1], seq=4)])
    assert slices_due(after_an_abandoned_one, slices) == due


def test_one_slice_of_the_running_code_does_not_stand_for_three(story: TopologyStory) -> None:
    state = Ledger(story.paths(1).ledger).state()
    commits = (*state.commits[:-1], replace(state.commits[-1], code="of the last upgrade"))
    assert len(trial_range(replace(state, commits=commits), 3, "of the last upgrade")[1]) == 1
    parts: Any = {"tables": (), "outputs": (), "checks": (), "thresholds": (), "determinism": None, "set_aside": 0}
    same = replace(report(AFTER.name), **parts)
    assert not Trial(report=same, slices=1, due=slices_due(state, 3), rows=5).is_equal
    assert Trial(report=same, slices=3, due=slices_due(state, 3), rows=5).is_equal
