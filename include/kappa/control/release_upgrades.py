"""The release of Kappa that runs here, for all live epochs: one upgrade after the other, each by itself.

An upgrade is that of :mod:`kappa.control.upgrade`. An epoch whose author changed files as well is left alone: only its
author can say whether its rows stand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from kappa.config import Config
from kappa.control import upgrade as upgrading
from kappa.control.upgrade import Upgrade
from kappa.driver.processes.process import status_or_problem
from kappa.errors import CodeError, DriverNotRunningError, KappaError, UnknownTopologyError, first_line
from kappa.faults import crash_point
from kappa.names import EpochPaths
from kappa.record import code as code_store
from kappa.record.epochs import epochs_of
from kappa.record.ledger import Ledger
from kappa.replay.findings import Finding
from kappa.replay.proof.verdict import Verdict

if TYPE_CHECKING:
    from kappa.spark.session import LazySession
    from kappa.verify.trial import Progress


class Standing(StrEnum):
    """Where a live epoch stands with regard to this release."""

    CURRENT = "runs this release"
    ASKED = "asked for"
    READY = "goes over"
    OWN = "left alone"
    REFUSED = "refused"
    DOWN = "went over, and its driver does not run"


@dataclass(frozen=True, kw_only=True)
class ReleaseUpgrade:
    """A live epoch, and what this release means for it.

    Attributes:
        code: content hash of the code that it runs.
        to_code: that of the same topology on this release; empty where there is none.
        standing: what is to be done, or was.
        proposal: the upgrade, with its evidence; None where none was looked at.
        reasons: why it is refused, or left alone.
        command: what helps then.
    """

    topology: str
    epoch: int
    code: str
    to_code: str = ""
    standing: Standing
    proposal: Upgrade | None = None
    reasons: tuple[str, ...] = ()
    command: str = ""

    @property
    def is_open(self) -> bool:
        """Whether somebody has to look: it was refused, or its driver does not run, or was waited for in vain."""
        is_late = self.standing == Standing.ASKED and bool(self.reasons)
        return is_late or self.standing in (Standing.REFUSED, Standing.DOWN)

    @property
    def evidence(self) -> str:
        """The compared slices, and the rows and changes that they wrote, in words."""
        report = self.proposal.evidence if self.proposal else None
        if self.proposal is None or report is None:
            return "none"
        slices = f"{self.proposal.slices} slice{'s' * (self.proposal.slices != 1)}"
        if report.verdict != Verdict.SAME:
            return f"{slices}, {report.verdict}"
        parts = " where they are still there" if self.proposal.gaps else ""
        return f"{slices}, {self.proposal.rows:,} rows equal{parts}"


def live_topologies(config: Config) -> list[str]:
    """Names of the topologies of the lake that have a live epoch, sorted."""
    epochs = epochs_of(config.lake)
    return sorted(name for name in epochs.topologies() if epochs.record(name).live is not None)


def propose(
    config: Config,
    topology: str,
    *,
    slices: int,
    history_stands: bool,
    spark: LazySession,
    progress: Progress = lambda *_: None,
) -> ReleaseUpgrade:
    """What this release means for a live epoch. Changes nothing.

    An objection is part of the answer, whatever it is, so that it does not stop the other topologies.

    Args:
        slices: how many of the last slices are computed again.
        history_stands: whether the caller vouches for rows that cannot be compared. A difference is refused anyhow: it
            is a matter of one topology.
        spark: the session that computes them.
        progress: called after each slice with the number of those that are computed, and that of all.

    Raises:
        UnknownTopologyError: the topology has no live epoch.
    """
    record = epochs_of(config.lake).record(topology)
    epoch = record.epoch(record.live_epoch())
    item = ReleaseUpgrade(
        topology=topology,
        epoch=epoch.epoch,
        code=epoch.code,
        standing=Standing.REFUSED,
        command=f"kappa upgrade {topology}",
    )
    try:
        files = code_store.changed_files(config.lake, epoch.code, config.topologies, topology)
        item = replace(item, to_code=code_store.code_hash(config.topologies, topology))
        authors = [name for name in files if not name.startswith("include/")]
        pending = "" if epoch.upgrade is None else epoch.upgrade.detail["code"]
        if not files and not pending:
            item = replace(item, standing=Standing.CURRENT, command="")
        elif authors:
            item = replace(item, standing=Standing.OWN, reasons=(_changed(authors),))
        elif pending == item.to_code:
            is_running = status_or_problem(config, topology, epoch.epoch).is_running
            way = f"kappa status {topology}" if is_running else f"kappa start {topology} --execute"
            item = replace(item, standing=Standing.ASKED, command=way)
        else:
            proposal = upgrading.propose(config, topology, slices=slices, spark=spark, progress=progress)
            item = judged(item, proposal, history_stands=history_stands)
    except UnknownTopologyError as error:
        item = replace(item, standing=Standing.OWN, reasons=(str(error),), command="kappa topologies")
    except CodeError as error:
        item = replace(item, reasons=(str(error),), command=f"kappa replay {topology}")
    except Exception as error:  # of the lake or of Spark: the other topologies have theirs to say
        item = replace(item, reasons=(_text(error),), command=f"kappa status {topology}")
    return item


def judged(item: ReleaseUpgrade, proposal: Upgrade, *, history_stands: bool) -> ReleaseUpgrade:
    """The same with its proposal: whether it goes over, and if not, why and what helps."""
    own, report = f"kappa upgrade {item.topology}", proposal.evidence
    item = replace(item, standing=Standing.REFUSED, proposal=proposal, command=own)
    if proposal.refusals:
        reasons = tuple(finding.line for finding in proposal.refusals)
        return replace(item, reasons=reasons, command=_command(proposal.refusals[0], item.topology))
    if proposal.is_withdrawal:
        return replace(item, standing=Standing.READY, reasons=tuple(proposal.render()), command="")
    if report is not None and report.verdict != Verdict.SAME:
        return replace(item, reasons=tuple(report.render()), command=f"kappa replay {item.topology}")
    if proposal.is_equal or history_stands:
        return replace(item, standing=Standing.READY, command="")
    reasons = tuple(finding.line for finding in proposal.findings)
    if proposal.slices < proposal.due and report is not None:
        reasons = (f"Only {proposal.slices} of {proposal.due} slices could be computed again.", *reasons)
    reasons = (*proposal.gaps, *reasons)
    return replace(item, reasons=reasons, command=f"{own} --history-stands --reason '...' --execute")


def go_over(
    config: Config, item: ReleaseUpgrade, *, history_stands: bool, actor: str, reason: str, wait: bool
) -> ReleaseUpgrade:
    """Ask for the upgrade of a live epoch that is ready, and wait until its driver has made it; how it went.

    A crash leaves it asked for or not, and the next call goes on from there. A driver that is stopped makes it when it
    is started. Where the epoch runs the new code by now and its driver does not, no other epoch should follow it.

    Args:
        item: what :func:`propose` gave; ready, or asked for.
        history_stands: as there.
        wait: whether to wait for the driver.
    """
    proposal = item.proposal or Upgrade(
        topology=item.topology,
        epoch=item.epoch,
        from_code=item.code,
        to_code=item.to_code,
        from_version="",
        to_version="",
    )
    try:
        if item.standing == Standing.READY:
            vouches = history_stands and not proposal.is_proven
            upgrading.upgrade(config, proposal, history_stands=vouches, actor=actor, reason=reason)
            crash_point("upgrade.asked")
        is_wanted = epochs_of(config.lake).record(item.topology).epoch(item.epoch).is_wanted
        if wait and is_wanted and not proposal.is_withdrawal:
            upgrading.await_switch(config, proposal)
    except Exception as error:  # of this topology alone: the others have an answer of their own
        return _stopped(config, item, error)
    crash_point("upgrade.next")
    is_over = epochs_of(config.lake).record(item.topology).epoch(item.epoch).code == item.to_code
    return replace(
        item,
        standing=Standing.CURRENT if is_over else Standing.ASKED,
        command="" if is_over or is_wanted else f"kappa start {item.topology} --execute",
    )


def _stopped(config: Config, item: ReleaseUpgrade, error: Exception) -> ReleaseUpgrade:
    """What became of an upgrade that ended in an error: made all the same, asked for, or refused."""
    standing, command = Standing.REFUSED, f"kappa history {item.topology}"
    if _is_over(config, item):
        standing, command = Standing.DOWN, f"kappa status {item.topology}"
    elif isinstance(error, DriverNotRunningError):  # it stays asked for
        standing, command = Standing.ASKED, f"kappa status {item.topology}"
    return replace(item, standing=standing, reasons=(_text(error),), command=command)


def _is_over(config: Config, item: ReleaseUpgrade) -> bool:
    """Whether the epoch runs the new code, by the record or by the ledger, which is ahead where a driver died."""
    if epochs_of(config.lake).record(item.topology).epoch(item.epoch).code == item.to_code:
        return True
    row = Ledger(EpochPaths(lake=config.lake, topology=item.topology, epoch=item.epoch).ledger).state().upgrade
    return row is not None and row.code == item.to_code


def _command(finding: Finding, topology: str) -> str:
    """The first command that a finding names, for this topology; without one, that which shows it again."""
    verb = re.search(r"`kappa ([a-z-]+)", finding.remedy)
    return f"kappa {verb[1] if verb else 'upgrade'} {topology}"


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, KappaError) else f"{type(error).__name__}: {first_line(error)}"


def _changed(names: list[str]) -> str:
    shown = ", ".join(name.removeprefix("topologies/") for name in names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"The author's files changed as well: {shown}{more}."
