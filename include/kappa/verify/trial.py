"""The last slices of a live epoch, computed with new code and, for comparison, with its running code."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

from kappa.config import Config
from kappa.errors import KappaError, first_line
from kappa.kafka.broker import Broker
from kappa.names import EpochPaths
from kappa.offsets.vector import ranges_end
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState
from kappa.replay.findings import Finding
from kappa.replay.proof.verdict import DiffReport
from kappa.replay.rules.upgrade import fails_on_real_records, without_evidence
from kappa.slices.seeding import SeedSource
from kappa.topology import Topology
from kappa.verify.diff import verify
from kappa.verify.inspection import inspected
from kappa.verify.second_run import beside, compute, discard, opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def evidence(
    config: Config, session: SparkSession, paths: EpochPaths, before: Topology, after: Topology, slices: int
) -> tuple[DiffReport | None, tuple[Finding, ...]]:
    """The last slices of an epoch computed with two codes, from one savepoint and over the same ranges, and compared.

    Sends nothing; its files within the epoch's folder are removed at the end, or, if it is killed, by
    ``kappa housekeeping``. Of append outputs only the rows of those slices are compared; checks and thresholds, which
    are about the whole state, are left out.

    Args:
        paths: the live epoch.
        before: the code that runs.
        after: the code that is to run.
        slices: how many slices, at most.

    Returns:
        The comparison, with the running code in the place of the live epoch and the new one in the candidate's; None
        where there is none, and then the findings say why.
    """
    findings = inspected(session, after)
    state = Ledger(paths.ledger).state()
    base, rows = trial_range(state, slices)
    if base is None or not rows:
        return None, (*findings, *without_evidence(f"epoch {paths.epoch} has no earlier commit whose files are kept."))
    name = f"upgrade-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with Broker(config.bootstrap_servers) as broker:

            def run(code: str, topology: Topology) -> tuple[EpochPaths, LedgerRow]:
                epoch = beside(config, session, broker, paths, topology, writer=f"{name}-{code}", code=code)
                source = SeedSource(kind="from-savepoint", epoch=paths.epoch, seq=base.seq)
                second = opened(epoch, f"{name}-{code}", source, ranges_end(base.ranges))
                commits = [compute(second, row.ranges) for row in rows]
                for table in second.scratch.states.values():
                    table.forget()
                return second.paths, commits[-1]

            try:
                old = run("old", before)
            except Exception as error:  # mostly missing records: then there is nothing to compare with
                return None, (*findings, *without_evidence(f"the running code could not do it again: {_text(error)}"))
            try:
                new = run("new", after)
            except Exception as error:  # the new step would raise the same in the live stream
                return None, (*findings, *fails_on_real_records(_text(error)))
            report = verify(session, replace(after, checks=()), old, new, by_state=True)
    finally:
        for code in ("old", "new"):
            discard(paths, f"{name}-{code}")
    note = (
        f"Slices {rows[0].seq} to {rows[-1].seq} of epoch {paths.epoch}, computed from its commit {base.seq} with the "
        "running code (as live) and with the deployed one (as candidate). Of outputs only the rows of those slices are "
        "compared."
    )
    at = {"live_seq": rows[-1].seq, "candidate_seq": rows[-1].seq, "notes": (note, *report.notes), "findings": findings}
    return replace(report, **at), findings  # type: ignore[arg-type]  # each of its own type


def trial_range(state: LedgerState, slices: int) -> tuple[LedgerRow | None, list[LedgerRow]]:
    """The commit to start from, and those to compute again: the last ones, at most this many, as far as readable."""
    commits = [row for row in state.commits if not row.is_replacement]  # those read nothing
    for first in range(max(1, len(commits) - slices), len(commits)):
        if state.is_readable(commits[first - 1].seq):
            return commits[first - 1], commits[first:]
    return None, []


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, KappaError) else f"{type(error).__name__}: {first_line(error)}"
