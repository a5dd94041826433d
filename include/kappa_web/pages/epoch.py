"""One epoch: how it was planned, how far it is, and how it differs."""

from __future__ import annotations

from typing import Any

from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.replay.estimates import size
from kappa.replay.explain import stages_of
from kappa.replay.proof.verdict import DiffReport
from kappa.replay.starts import described
from kappa_web.pages import conditions, difference, history, progress
from kappa_web.pages.board import Board


def page(board: Board, record: TopologyRecord, number: int, caller: Any) -> dict[str, Any]:
    """What the page shows."""
    epoch = record.epoch(number)
    facts = board.facts(record, number)
    return {
        "record": record,
        "epoch": epoch,
        "role": conditions.role(record, epoch),
        "driver": conditions.driver(facts),
        "facts": facts,
        "progress": progress.of(record, facts),
        "plan": _plan(epoch),
        "difference": _difference(board, record, epoch, caller),
        "verdict": conditions.verdict(epoch.verified.detail["verdict"]) if epoch.verified is not None else None,
        "events": history.event_lines([e for e in record.events if e.epoch == number], 50),
    }


def _plan(epoch: EpochRecord) -> dict[str, Any] | None:
    if epoch.planned.detail.get("plan") is None:
        return None
    plan = epoch.plan
    starts = dict(plan.start.items())
    estimate = plan.estimate
    return {
        "plan": plan,
        "start": described(plan.request.start, plan.created_at),
        "stages": stages_of(plan),
        "ranges": [(*at, starts.get(at, 0), end, end - starts.get(at, 0)) for at, end in plan.end.items()],
        "size": size(estimate.bytes) if estimate.bytes is not None else "",
        "room": size(estimate.disk_bytes) if estimate.disk_bytes is not None else "",
        "step_findings": epoch.step_findings,
    }


def _difference(board: Board, record: TopologyRecord, epoch: EpochRecord, caller: Any) -> dict[str, Any] | None:
    if epoch.verified is None or "report" not in epoch.verified.detail:
        return None
    report = DiffReport.from_json(epoch.verified.detail["report"])
    may = caller.may_unmask(record.topology)
    return difference.view(report, {} if may else _masked(board, record, report), may_unmask=may)


def _masked(board: Board, record: TopologyRecord, report: DiffReport) -> dict[str, list[str]]:
    """Table -> columns that an epoch of the report or the live one masks now: code may declare more than at the time of
    the report. All columns where the ledger that says so cannot be read.
    """
    columns_by_table: dict[str, list[str]] = {}
    numbers = {report.live_epoch, report.candidate_epoch, record.live}
    for epoch in (one for number, one in record.epochs.items() if number in numbers and not one.stage.is_ended):
        state = board.facts(record, epoch.epoch).state
        if not state.commits:
            return difference.columns(report)
        for place, columns in state.masked.items():
            columns_by_table.setdefault(place.partition("/")[2], []).extend(columns)
    return columns_by_table
