"""The last slices of a live epoch, computed with new code beside it and compared with what its running code wrote."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kappa.config import Config
from kappa.errors import DamagedTableError, DataLossError, KappaError, Transient, first_line, unworded
from kappa.kafka.broker import Broker
from kappa.names import EpochPaths
from kappa.offsets.vector import ranges_end
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState
from kappa.record.merge_on_read import read_table
from kappa.replay.findings import Finding
from kappa.replay.proof.verdict import CheckResult, DiffReport, Verdict
from kappa.replay.rules.upgrade import fails_on_real_records, without_evidence
from kappa.slices.run import EpochRun
from kappa.slices.seeding import SeedSource
from kappa.topology import Table, Topology
from kappa.verify import sent_records
from kappa.verify.diff import verify
from kappa.verify.inspection import inspected
from kappa.verify.second_run import beside, compute, discard, opened
from kappa.verify.values import row_hashes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: What a slice counts of its records, by the fields of its ledger row.
_COUNTS = ("rows_read", "rows_parsed", "rows_dead", "rows_set_aside", "rows_late")

#: Errors of the log and of files, which tell nothing of the code: upkeep and retention remove what no longer counts.
_LOST = (DataLossError, Transient, DamagedTableError, FileNotFoundError, ConnectionError, TimeoutError)

#: Called with the number of slices that are computed, and that of all.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The evidence for new code.

    Attributes:
        report: the comparison, with the written rows in the place of the live epoch and the computed ones in the
            candidate's; None where there is none, and then the findings say why.
        findings: objections, to the code and to the evidence.
        slices: how many slices are compared.
        due: how many it takes: all that were to be computed, or as many as the epoch has ever had.
        rows: how many changes of tables and rows of outputs these slices wrote, and were compared.
        gaps: what of these slices could not be compared, a sentence per table.
    """

    report: DiffReport | None
    findings: tuple[Finding, ...] = ()
    slices: int = 0
    due: int = 0
    rows: int = 0
    gaps: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether every slice that is due was computed, and gave all that it wrote, which is something."""
        is_same = self.report is not None and self.report.verdict == Verdict.SAME
        return is_same and 0 < self.due <= self.slices and self.rows > 0 and not self.gaps


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """The rows at the end, and what each slice wrote.

    Attributes:
        report: how the rows differ.
        checks: failed, of what the rows at the end do not show.
        rows: as of a trial.
        gaps: as of a trial.
    """

    report: DiffReport
    checks: tuple[CheckResult, ...] = ()
    rows: int = 0
    gaps: tuple[str, ...] = ()


def trial(
    config: Config,
    session: SparkSession,
    paths: EpochPaths,
    running: str,
    after: Topology,
    slices: int,
    *,
    progress: Progress = lambda *_: None,
) -> Trial:
    """The last slices of an epoch computed with new code, on this platform, and compared with the rows in the lake.

    The rows were written by the running code on the platform of its time: a difference is one of the topology or of
    the platform. Sends nothing; its files within the epoch's folder are removed at the end, or, if it is killed, by
    ``kappa housekeeping``. Of append outputs only the rows of those slices are compared; checks and thresholds, which
    are about the whole state, are left out.

    Args:
        paths: the live epoch.
        running: content hash of the code that runs it; slices of earlier code are not compared.
        after: the code that is to run.
        slices: how many slices, at most.
        progress: called after each slice.
    """
    findings = inspected(session, after)
    ledger = Ledger(paths.ledger)
    state = ledger.state()
    due = slices_due(state, slices)
    base, rows = trial_range(state, slices, running)
    if base is None or not rows:
        is_other = not _comparable(state, running)
        return Trial(report=None, findings=(*findings, *without_evidence(_why_none(paths, is_other))), due=due)
    name = f"upgrade-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with Broker(config.bootstrap_servers) as broker:
            epoch = beside(config, session, broker, paths, after, writer=name, code=name)
            source = SeedSource(kind="from-savepoint", epoch=paths.epoch, seq=base.seq)
            commits: list[LedgerRow] = []
            try:
                second = opened(epoch, name, source, ranges_end(base.ranges))
                try:
                    for row in rows:
                        commits.append(compute(second, row.ranges))
                        progress(len(commits), len(rows))
                finally:
                    _forget(second)
                if gone := _gone(rows, commits):
                    return Trial(report=None, findings=(*findings, *without_evidence(gone)), due=due)
                comparison = _compared(session, ledger.state(), epoch.paths, after, base, rows, second, commits)
            except Exception as error:  # the new code would raise the same in the live stream, but for what is lost
                is_lost = isinstance(error, _LOST) or not ledger.state().is_readable(base.seq)
                why = (without_evidence if is_lost else fails_on_real_records)(_text(error, after))
                return Trial(report=None, findings=(*findings, *why), due=due)
    finally:
        discard(paths, name)
    return _evidence(paths, base, rows, comparison, findings, due)


def _evidence(
    paths: EpochPaths,
    base: LedgerRow,
    rows: Sequence[LedgerRow],
    comparison: _Comparison,
    findings: tuple[Finding, ...],
    due: int,
) -> Trial:
    """The comparison as a trial; none of slices that wrote nothing, and for which nothing else was computed."""
    report, first, last = comparison.report, rows[0].seq, rows[-1].seq
    differs = report.verdict != Verdict.SAME or bool(comparison.checks)
    if not (differs or comparison.rows or comparison.gaps):
        why = f"slices {first} to {last} of epoch {paths.epoch} wrote none."
        return Trial(report=None, findings=(*findings, *without_evidence(why)), due=due)
    note = (
        f"Slices {first} to {last} of epoch {paths.epoch}, as its running code wrote them (as live), and "
        f"computed from its commit {base.seq} with the deployed code (as candidate). Of outputs only the rows of those "
        "slices are compared."
    )
    report = replace(
        report,
        live_seq=last,
        candidate_seq=last,
        notes=(note, *comparison.gaps, *report.notes),
        findings=findings,
        checks=comparison.checks,
    )
    return Trial(
        report=report, findings=findings, slices=len(rows), due=due, rows=comparison.rows, gaps=comparison.gaps
    )


def _forget(run: EpochRun) -> None:
    """Free what a run keeps in Spark's memory, however it ended; where Spark is gone, so is that."""
    with contextlib.suppress(Exception):
        for table in run.scratch.states.values():
            table.forget()


def _compared(
    session: SparkSession,
    state: LedgerState,
    paths: EpochPaths,
    after: Topology,
    base: LedgerRow,
    rows: Sequence[LedgerRow],
    second: EpochRun,
    commits: Sequence[LedgerRow],
) -> _Comparison:
    """The comparison of what was written with what is computed.

    Args:
        state: of the ledger now: upkeep may have moved the last rows to another version since.
    """
    last = state.resolved(rows[-1])
    report = verify(
        session,
        replace(after, checks=()),
        (paths, last),
        (second.paths, commits[-1]),
        by_state=True,
        since=ranges_end(base.ranges),
        outputs_after=base.seq,
    )
    if report.verdict != Verdict.SAME:  # the rows say it
        return _Comparison(report=report)
    written, computed = _Side(paths=paths, base=base.seq, rows=rows), _Side(paths=second.paths, base=0, rows=commits)
    total, checks, gaps = sum(output.rows_live or 0 for output in report.outputs), list(_counts(rows, commits)), []
    for table in after.tables:
        gone = sum(row.seq <= state.forgotten(table.name) for row in rows)
        if gone:
            gaps.append(
                f"Changes of table {table.name} by slices {rows[0].seq} to {rows[gone - 1].seq} are merged and gone: "
                "only its rows at the end are compared for these."
            )
        if gone < len(rows):
            count, differences = _changes(session, table, written.after(gone), computed.after(gone))
            total += count
            checks += differences
    if not checks:  # other rows are sent otherwise in any case
        baseline = state.baseline  # at the same place as a commit, it is after that
        before = base if baseline is None or baseline.seq != base.seq else baseline
        sent = sent_records.compared(second, before, rows, commits)
        checks, gaps = list(sent.checks), [*gaps, *sent.gaps]
    return _Comparison(report=report, checks=tuple(checks), rows=total, gaps=tuple(gaps))


def slices_due(state: LedgerState, slices: int) -> int:
    """How many slices it takes to show that rows are equal: all that were to be computed, or all of a young epoch.

    Slices of earlier code count: few that the running code wrote show little.
    """
    return 0 if state.committed is None else min(slices, state.slices)


def trial_range(state: LedgerState, slices: int, running: str) -> tuple[LedgerRow | None, list[LedgerRow]]:
    """The commit to start from, and those to compute again: the last ones, at most this many, as far as readable.

    Args:
        running: content hash of the code whose slices count.
    """
    rows, commits = _comparable(state, running), state.commits
    for count in range(min(slices, len(rows)), 0, -1):
        base = commits[len(commits) - count - 1]
        if state.is_readable(base.seq):
            return base, rows[-count:]
    return None, []


def _comparable(state: LedgerState, running: str) -> list[LedgerRow]:
    """The last commits, oldest first, that this code wrote and that follow on the commit before, up to the seed.

    A replacement of rows read nothing, and a roll-up took the place of older commits: no slice follows on those.
    """
    commits, first = state.commits, len(state.commits)
    while first > 1 and _follows(commits[first - 1], commits[first - 2], running):
        first -= 1
    return list(commits[max(1, first) :])


def _follows(row: LedgerRow, before: LedgerRow, running: str) -> bool:
    if row.code != running or row.is_replacement or before.is_replacement:
        return False
    end = ranges_end(before.ranges)
    return all((end.get(part.topic, part.partition) or 0) == part.start for part in row.ranges)


def _why_none(paths: EpochPaths, is_other: bool) -> str:
    if not is_other:
        return f"the files of epoch {paths.epoch} from before its last slices are gone (KAPPA_KEEP_MINUTES)."
    return f"the last slices of epoch {paths.epoch} were not written by the code that it runs."


def _gone(rows: Sequence[LedgerRow], commits: Sequence[LedgerRow]) -> str:
    """Which slices the log has fewer records of than they read at the time, in words; empty where it has all.

    Compaction removes records within a range, and retention does so at its beginning: no code gives the same without.
    """
    pairs = [(was, now) for was, now in zip(rows, commits, strict=True) if now.rows_read < was.rows_read]
    if not pairs:
        return ""
    was, now = pairs[0]
    return (
        f"the log has {now.rows_read:,} records of slice {was.seq} by now, which read {was.rows_read:,}: compaction or "
        "retention removed the others."
    )


def _counts(rows: Sequence[LedgerRow], commits: Sequence[LedgerRow]) -> tuple[CheckResult, ...]:
    """A check that fails where a slice counts its records otherwise; none where all counts are equal."""
    changes = [
        f"slice {was.seq}: {name.removeprefix('rows_').replace('_', ' ')} {getattr(was, name):,} -> "
        f"{getattr(now, name):,}"
        for was, now in zip(rows, commits, strict=True)
        for name in _COUNTS
        if getattr(was, name) != getattr(now, name)
    ]
    return (CheckResult(name="records of each slice", ok=False, detail="; ".join(changes)),) if changes else ()


@dataclass(frozen=True, kw_only=True)
class _Side:
    """Slices of an epoch, and the commit before them."""

    paths: EpochPaths
    base: int
    rows: Sequence[LedgerRow]

    def after(self, count: int) -> _Side:
        """The same without its first slices."""
        return replace(self, base=self.rows[count - 1].seq, rows=self.rows[count:]) if count else self

    def changes(self, session: SparkSession, table: Table) -> DataFrame:
        """Hashes of the changes of a table, with the number of the slice among these."""
        from pyspark.sql import functions as F

        last = self.rows[-1]
        frame = read_table(session, self.paths.changes(table.name), last.delta_versions[f"changes/{table.name}"])
        frame = frame.where(f"_seq > {self.base} AND _seq <= {last.seq}")
        numbers = F.create_map(*(F.lit(part) for n, row in enumerate(self.rows) for part in (row.seq, n)))
        hashes = row_hashes(frame, [*(column.name for column in table.columns), "_deleted"])
        return frame.select(numbers[F.col("_seq")].alias("slice"), *hashes)


def _changes(
    session: SparkSession, table: Table, written: _Side, computed: _Side
) -> tuple[int, tuple[CheckResult, ...]]:
    """How many changes slices wrote to a table, and a check where they differ, whatever later slices made of them.

    Topics of a table and its changelog get every change.
    """
    was, now = written.changes(session, table), computed.changes(session, table)
    gone, new = was.exceptAll(now).count(), now.exceptAll(was).count()
    detail = f"{gone:,} are not made, {new:,} others are"
    check = CheckResult(name=f"changes of {table.name}", ok=False, detail=detail)
    return was.count(), (check,) if gone + new else ()


def _text(error: Exception, topology: Topology) -> str:
    if isinstance(error, KappaError):
        return str(error)
    without = f"{unworded(error)}; its message may hold values that are not for everyone"
    return f"{type(error).__name__}: {without if topology.is_confidential else first_line(error)}"
