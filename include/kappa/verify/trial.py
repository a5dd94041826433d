"""What new code would have done with the last slices of a live epoch, beside what its running code does with them."""

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

    Sends nothing; what it writes within the epoch's folder is removed at the end. Killed, it leaves that for
    ``kappa housekeeping``. Of append outputs only the rows of those slices are compared; checks and thresholds, which
    speak of the whole state, are left out.

    Args:
        paths: the live epoch.
        before: the code that runs.
        after: the code that is to run.
        slices: how many slices, at most.

    Returns:
        The comparison, with the running code in the place of the live epoch and the new one in the candidate's; None
        where there is none, and then the findings say why.
    """
    found = inspected(session, after)
    state = Ledger(paths.ledger).state()
    base, rows = chosen(state, slices)
    if base is None or not rows:
        return None, (*found, *without_evidence(f"epoch {paths.epoch} has no earlier commit whose files are kept."))
    name = f"upgrade-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with Broker(config.bootstrap_servers) as broker:

            def run(code: str, topology: Topology) -> tuple[EpochPaths, LedgerRow]:
                epoch = beside(config, session, broker, paths, topology, writer=f"{name}-{code}", code=code)
                source = SeedSource(kind="from-savepoint", epoch=paths.epoch, seq=base.seq)
                made = opened(epoch, f"{name}-{code}", source, ranges_end(base.ranges))
                done = [compute(made, row.ranges) for row in rows]
                for table in made.scratch.states.values():
                    table.forget()
                return made.paths, done[-1]

            try:
                old = run("old", before)
            except Exception as error:  # records that are gone, mostly: then there is nothing to compare with
                return None, (*found, *without_evidence(f"the running code could not do it again: {_said(error)}"))
            try:
                new = run("new", after)
            except Exception as error:  # whatever the new step raises here it would raise in the live stream
                return None, (*found, *fails_on_real_records(_said(error)))
            report = verify(session, replace(after, checks=()), old, new, by_state=True)
    finally:
        for code in ("old", "new"):
            discard(paths, f"{name}-{code}")
    note = (
        f"Slices {rows[0].seq} to {rows[-1].seq} of epoch {paths.epoch}, computed from its commit {base.seq} with the "
        "running code (as live) and with the deployed one (as candidate). Of outputs only the rows of those slices are "
        "compared."
    )
    at = {"live_seq": rows[-1].seq, "candidate_seq": rows[-1].seq, "notes": (note, *report.notes), "findings": found}
    return replace(report, **at), found  # type: ignore[arg-type]  # each of its own type


def chosen(state: LedgerState, slices: int) -> tuple[LedgerRow | None, list[LedgerRow]]:
    """The commit to start from and those to compute again: the last ones, as many as wanted and as can be reached."""
    commits = [row for row in state.commits if not row.is_replacement]  # those read nothing
    for first in range(max(1, len(commits) - slices), len(commits)):
        if state.is_readable(commits[first - 1].seq):
            return commits[first - 1], commits[first:]
    return None, []


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, KappaError) else f"{type(error).__name__}: {first_line(error)}"
