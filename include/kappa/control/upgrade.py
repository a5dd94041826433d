"""New code for a live epoch without a replay, when its author says that history stands.

What is asked for here is made by the epoch's own driver, between two slices (:mod:`kappa.driver.upgrade`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.acts import Act, Effect, act
from kappa.config import Config
from kappa.control import environments
from kappa.control.drivers import check_wanted
from kappa.driver.processes import process
from kappa.errors import (
    CodeError,
    DriverNotRunningError,
    MoveRefusedError,
    NewerFormatError,
    RefusedError,
    UnknownTopologyError,
    UsageError,
)
from kappa.names import EpochPaths
from kappa.presence import heartbeat
from kappa.record import code as code_store
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import Now, epochs_of
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.replay.facts import TopologyFacts
from kappa.replay.findings import Finding, refusals
from kappa.replay.proof.verdict import DiffReport
from kappa.replay.rules import request as request_rules
from kappa.replay.rules import upgrade as upgrade_rules
from kappa.topology import Topology, registry
from kappa.topology.shapes import Shape, shapes_of

if TYPE_CHECKING:
    from kappa.spark.session import LazySession
    from kappa.verify.trial import Progress, Trial


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """What an upgrade would do, with its evidence and the objections to it.

    Attributes:
        epoch: its live epoch.
        from_code: content hash of the code that the epoch runs.
        to_code: that of the deployed code.
        from_version: the author's word for the running code.
        to_version: the author's word for the deployed code.
        findings: objections to it.
        evidence: the last slices computed again, compared with what is there; None if that was not done.
        slices: how many slices that are.
        due: how many it takes: all that were to be computed, or as many as the epoch has ever had.
        rows: how many changes of tables and rows of outputs these slices wrote, and were compared.
        gaps: what of these slices could not be compared, a sentence per table.
        replaces: content hash of the code of a pending upgrade that this one withdraws; empty where none is pending.
        is_release: whether the author's files are the same, and only the platform differs.
        is_equal: whether all slices that were due gave all that they wrote, which is something.
    """

    topology: str
    epoch: int
    from_code: str
    to_code: str
    from_version: str
    to_version: str
    findings: tuple[Finding, ...] = ()
    evidence: DiffReport | None = None
    slices: int = 0
    due: int = 0
    rows: int = 0
    gaps: tuple[str, ...] = ()
    replaces: str = ""
    is_release: bool = False
    is_equal: bool = False

    @property
    def is_proven(self) -> bool:
        """Whether nobody has to vouch for the rows: the step is the same, and both platforms gave equal rows."""
        return self.is_release and self.is_equal

    @property
    def is_withdrawal(self) -> bool:
        """Whether the epoch runs the deployed code, and a pending upgrade to other code is all that changes."""
        return bool(self.replaces) and self.to_code == self.from_code

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """The findings that refuse it."""
        return refusals(self.findings)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The other findings, without those that the evidence has."""
        others = (*self.refusals, *(self.evidence.findings if self.evidence else ()))
        return tuple(finding for finding in self.findings if finding not in others)

    def render(self) -> list[str]:
        """Lines of text for people."""
        if self.is_withdrawal:
            name, code = f"{self.topology}, live epoch {self.epoch}", self.replaces[:12]
            line = f"The pending upgrade of {name}, to code {code} is withdrawn; code {self.from_code[:12]} goes on"
            return [line, *(f"  {finding.line}" for finding in self.refusals)]
        lines = [
            f"Upgrade of {self.topology}, live epoch {self.epoch}: version {self.from_version} (code "
            f"{self.from_code[:12]}) -> version {self.to_version or '?'} (code {self.to_code[:12]}), at a slice "
            "boundary; history stays as it is"
        ]
        if self.replaces:
            lines.append(f"  The pending upgrade to code {self.replaces[:12]} is withdrawn")
        lines += [f"  {finding.line}" for finding in (*self.refusals, *self.warnings)]
        return lines + [f"  {line}" for line in (self.evidence.render() if self.evidence else ())]


def propose(
    config: Config,
    topology: str,
    *,
    slices: int = upgrade_rules.SLICES,
    spark: LazySession | None = None,
    progress: Progress = lambda *_: None,
) -> Upgrade:
    """What an upgrade to the deployed code would do. Changes nothing; with slices to compute it starts Spark.

    Args:
        slices: how many of the last slices are computed again; 0 for none.
        spark: the session that computes them; None for one of its own.
        progress: called after each slice with the number of those that are computed, and that of all.

    Raises:
        UnknownTopologyError: the topology is not deployed, or has no live epoch.
        CodeError: the code that the epoch runs is not in the lake.
        NewerFormatError: newer code than the deployed one wrote what the epoch has in the lake.
    """
    record = epochs_of(config.lake).record(topology)
    if record.live is None:
        raise UnknownTopologyError(
            f"Topology {topology!r} has no live epoch to upgrade. Start it: kappa start {topology} --execute",
            name=topology,
        )
    epoch = record.epoch(record.live)
    written = _written_shapes(config, topology, record.live)
    deployed = code_store.code_hash(config.topologies, topology)
    replaces = _replaced(config, record, deployed)
    if replaces and epoch.code == deployed:
        return Upgrade(
            topology=topology,
            epoch=epoch.epoch,
            from_code=epoch.code,
            to_code=deployed,
            from_version=epoch.version,
            to_version=epoch.version,
            findings=tuple(_busy(record, replaces)),
            replaces=replaces,
        )
    findings = [*upgrade_rules.same_code(epoch.code, deployed), *_busy(record, replaces)]
    before = registry.load_stored(code_store.extract(config.lake, epoch.code, config.home) / "topologies", topology)
    after: Topology | None = None
    try:
        after = code_store.load(config.topologies, topology)
        findings += upgrade_rules.needs_replay(before, after)
        if not refusals(findings):
            findings += upgrade_rules.operators_revised(written, shapes_of(after))
    except CodeError as error:
        findings += request_rules.code_does_not_import(TopologyFacts(name=topology, error=str(error)))
    trial: Trial | None = None
    if not refusals(findings) and after is not None:
        findings += environments.upgrade_findings(config, record, epoch.epoch)
        if slices < 1:
            findings += upgrade_rules.without_evidence("none was asked for.")
        else:
            trial = _trial(config, record, after, slices, spark, progress)
            findings += trial.findings
    files = code_store.changed_files(config.lake, epoch.code, config.topologies, topology)
    return Upgrade(
        topology=topology,
        epoch=epoch.epoch,
        from_code=epoch.code,
        to_code=deployed,
        from_version=epoch.version,
        to_version=after.version if after else "",
        findings=tuple(findings),
        evidence=trial.report if trial else None,
        slices=trial.slices if trial else 0,
        due=trial.due if trial else 0,
        rows=trial.rows if trial else 0,
        gaps=trial.gaps if trial else (),
        replaces=replaces,
        is_release=bool(files) and all(name.startswith("include/") for name in files),
        is_equal=trial is not None and trial.is_equal,
    )


def _written_shapes(config: Config, topology: str, epoch: int) -> dict[str, Shape]:
    """The shapes that the epoch's ledger has of its tables and outputs; none before its seed.

    Raises:
        NewerFormatError: the deployed platform, which runs here, could not read what the epoch's driver has written.
    """
    try:
        state = Ledger(EpochPaths(lake=config.lake, topology=topology, epoch=epoch).ledger).state()
        return state.shapes if state.commits else {}
    except NewerFormatError as error:
        raise NewerFormatError(
            f"The deployed version of Kappa is older than the one that live epoch {epoch} of {topology!r} runs: "
            f"a {error.data['what']} in {error.data['where']} has format {error.data['format']}, and the deployed code "
            f"reads formats up to {error.data['known']}. A driver with it could not go on; nothing was changed. Deploy "
            f"the newer version, then: kappa upgrade {topology}",
            **error.data,
        ) from error


@act
def upgrade(config: Config, proposal: Upgrade, *, history_stands: bool, actor: str, reason: str) -> Act[None]:
    """Ask the live epoch's driver to go over to new code at its next slice boundary.

    Returns at once; see :func:`await_switch`.

    One commit to the record of epochs, by compare-and-set. A crash before it leaves a code file that no event refers
    to. A pending upgrade to other code is withdrawn in the same commit; where the epoch runs the deployed code, that is
    all. A driver that has written its ledger row at the same time has made it all the same, and puts that on record.

    Args:
        proposal: what :func:`propose` gave.
        history_stands: whether the code's author vouches for the rows that are there. Equal results of another platform
            need no such word.

    Raises:
        UsageError: the caller does not vouch for history where that is needed, or gives no reason.
        RefusedError: a finding refuses it, or the deployed code changed since.
        MoveRefusedError: the live epoch or its code is another by now, or another change is pending.
    """
    topology = proposal.topology
    needs_no_word = proposal.is_proven or proposal.is_withdrawal
    if not (history_stands or needs_no_word) or not reason.strip():
        word = "" if needs_no_word else " --history-stands"
        raise UsageError(
            "An upgrade leaves every row as the old code made it. State that this is right, and why: "
            f"kappa upgrade {topology}{word} --reason '...' --execute. Otherwise: kappa replay {topology}"
        )
    if proposal.refusals:
        raise RefusedError(
            f"The upgrade of {topology!r} is refused; nothing was changed.\n"
            + "\n".join(f"  {f}" for f in proposal.refusals),
            findings=[str(finding) for finding in proposal.refusals],
        )
    epochs = epochs_of(config.lake)
    detail = {
        "code": proposal.to_code,
        "from": proposal.from_code,
        "version": proposal.to_version,
        "history_stands": history_stands,
        **({"report": proposal.evidence.to_json(), "verdict": proposal.evidence.verdict} if proposal.evidence else {}),
        "findings": [finding.as_dict() for finding in proposal.findings],
    }

    def store_code() -> None:
        stored = code_store.store(config.lake, config.topologies, topology)
        if stored != proposal.to_code:
            raise RefusedError(
                f"The code of {topology!r} changed meanwhile ({proposal.to_code[:12]} then, {stored[:12]} now). Ask "
                "again.",
                findings=(),
            )
        registry.load_apart(code_store.extract(config.lake, stored, config.home) / "topologies", topology)

    def decide(now: Now) -> Sequence[Event]:
        record = now.record
        busy = _busy(record, proposal.replaces)
        if busy:
            raise MoveRefusedError(" ".join(map(str, busy)), findings=[finding.code for finding in busy])
        if record.live != proposal.epoch or record.epoch(proposal.epoch).code != proposal.from_code:
            running = record.epoch(record.live).code if record.live is not None else ""
            raise MoveRefusedError(
                f"Live epoch {record.live} of {topology!r} runs code {running[:12]} by now; epoch {proposal.epoch} "
                f"with {proposal.from_code[:12]} was looked at. Ask again.",
                live=record.live,
                code=running,
            )
        pending, events = record.epoch(proposal.epoch).upgrade, []
        if pending is not None:
            past = {"upgrade": pending.n}
            events = [now.event("upgrade_withdrawn", proposal.epoch, actor=actor, reason=reason, detail=past)]
        if not proposal.is_withdrawal:
            events.append(now.event("upgrade", proposal.epoch, actor=actor, reason=reason, detail=detail))
        return events

    def look_again(events: Sequence[Event]) -> None:
        code_store.store_again(config.lake, config.topologies, topology, proposal.to_code)
        row = Ledger(EpochPaths(lake=config.lake, topology=topology, epoch=proposal.epoch).ledger).state().upgrade
        past = {event.detail["upgrade"] for event in events if event.event == "upgrade_withdrawn"}
        if row is not None and row.detail["asked"] in past:
            raise MoveRefusedError(
                f"The driver of epoch {proposal.epoch} of {topology!r} went over to code {row.code[:12]} before its "
                f"upgrade was withdrawn, and puts that on record. Ask again: kappa upgrade {topology}",
                code=row.code,
            )

    effects, now = epochs.effects(epochs.now(topology), decide, after=look_again)
    stored_code = Effect(
        what=f"store code {proposal.to_code[:12]} of {topology}", values={"code": proposal.to_code}, make=store_code
    )
    if now.record.epoch(proposal.epoch).is_wanted and not proposal.is_withdrawal:
        effects = process.with_driver(effects, config, topology, proposal.epoch)
    before = () if proposal.is_withdrawal else (stored_code,)
    return Act(effects=(*before, *effects), outcome=lambda: None)


def await_switch(config: Config, proposal: Upgrade, *, timeout_seconds: float = 600.0) -> None:
    """Wait until the new code has committed a slice, or waits for records after it read what there was.

    A driver of the old code that died is started again. One of the new code that ends or is stuck ends the wait: what
    stopped it may stop the driver of the next epoch.

    Raises:
        MoveRefusedError: the driver withdrew it, and the message says why; or somebody stopped the epoch.
        DriverNotRunningError: it is not made yet, and stays asked for; or the driver of the new code does not get on.
    """
    paths = EpochPaths(lake=config.lake, topology=proposal.topology, epoch=proposal.epoch)
    ledger, deadline, writer = Ledger(paths.ledger), time.monotonic() + timeout_seconds, ""
    revival = process.Revival(config, {proposal.topology: proposal.epoch})  # the driver starts its successor itself
    while time.monotonic() < deadline:
        record = epochs_of(config.lake).record(proposal.topology)
        epoch = record.epoch(proposal.epoch)
        withdrawn = [e for e in record.events if e.event == "upgrade_withdrawn" and e.epoch == proposal.epoch]
        if epoch.upgrade is None and epoch.code != proposal.to_code:
            why = withdrawn[-1].reason if withdrawn else "another epoch went live"
            raise MoveRefusedError(f"The upgrade of {proposal.topology!r} was withdrawn: {why}", epoch=proposal.epoch)
        beat = heartbeat.read(paths.heartbeat)
        if epoch.code == proposal.to_code and beat is not None and beat.code == proposal.to_code:
            if beat.is_idle or _has_committed(ledger):
                return
            state = process.driver_status(config, proposal.topology, proposal.epoch).state
            if state == "stuck" or (state in ("stopped", "dead") and beat.writer == writer):
                raise DriverNotRunningError(
                    f"The driver of epoch {proposal.epoch} of {proposal.topology!r} is {state} with the new code, "
                    f"before its first commit: {beat.message}. See its log; `kappa status {proposal.topology}`.",
                    epoch=proposal.epoch,
                )
            writer = beat.writer if state in ("running", "slow") else writer
        check_wanted(record, proposal.epoch, request="The upgrade" if epoch.upgrade is not None else "")
        revival.look()
        time.sleep(process.ANSWER_SECONDS)
    is_over = epochs_of(config.lake).record(proposal.topology).epoch(proposal.epoch).code == proposal.to_code
    outcome = "has not committed a slice with" if is_over else "does not run"
    rest = "" if is_over else "; the upgrade stays asked for"
    raise DriverNotRunningError(
        f"The driver of epoch {proposal.epoch} of {proposal.topology!r} {outcome} the new code after "
        f"{timeout_seconds:.0f} s{rest}. See its log; `kappa status {proposal.topology}`.",
        epoch=proposal.epoch,
    )


def _has_committed(ledger: Ledger) -> bool:
    """Whether the code of the last upgrade has committed a slice."""
    state = ledger.state()
    last = state.committed
    return last is not None and state.upgrade is not None and last.seq > state.upgrade.seq


def _trial(
    config: Config, record: TopologyRecord, after: Topology, slices: int, spark: LazySession | None, progress: Progress
) -> Trial:
    from kappa.spark.session import LazySession
    from kappa.verify.trial import trial

    live = record.live_epoch()
    paths = EpochPaths(lake=config.lake, topology=record.topology, epoch=live)
    with LazySession(config=config, name=f"kappa upgrade {record.topology}") as own:  # it starts when it is used
        session = (spark or own).session
        return trial(config, session, paths, record.epoch(live).code, after, slices, progress=progress)


def _replaced(config: Config, record: TopologyRecord, deployed: str) -> str:
    """Content hash of the code of a pending upgrade to other code; empty for none, and for one that the ledger has."""
    epoch = record.epoch(record.live_epoch())
    if epoch.upgrade is None or epoch.upgrade.detail["code"] == deployed:
        return ""
    row = Ledger(EpochPaths(lake=config.lake, topology=record.topology, epoch=epoch.epoch).ledger).state().upgrade
    is_made = row is not None and row.detail["asked"] == epoch.upgrade.n
    return "" if is_made else str(epoch.upgrade.detail["code"])


def _busy(record: TopologyRecord, replaces: str) -> list[Finding]:
    """What is under way and keeps the epoch's code as it is, but for a pending upgrade to code that is replaced."""
    pending = record.epoch(record.live_epoch()).upgrade
    if pending is not None and pending.detail["code"] == replaces:
        pending = None
    return upgrade_rules.epoch_is_busy(
        record.topology,
        record.candidate.epoch if record.candidate else None,
        record.handover.epoch if record.handover else None,
        pending.actor if pending else None,
    )
