"""The environments of epochs: where one runs, and what is missing where it is to be brought back."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kappa.config import Config
from kappa.driver.processes import launches
from kappa.driver.processes.process import last_claim, settled_status
from kappa.environments import files, interpreters, launchers
from kappa.environments.environment import Difference, Environment
from kappa.errors import KappaError, MoveRefusedError, UsageError
from kappa.names import EpochPaths
from kappa.record.epoch_record import TopologyRecord
from kappa.replay.findings import Finding
from kappa.replay.rules import backfill as backfill_rules
from kappa.replay.rules import upgrade as upgrade_rules

#: To the error stream: commands print their JSON on the other one.
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MissingEnvironment:
    """An epoch's own environment that no interpreter has, on this host or on those that start drivers.

    Attributes:
        epoch: the epoch.
        environment: id of its environment.
        label: the same for people.
        here: id of the environment in which its driver would run.
        differences: how that differs from the epoch's own; None where the lake does not say what that was.
    """

    topology: str
    epoch: int
    environment: str
    label: str
    here: str
    differences: tuple[Difference, ...] | None

    def __str__(self) -> str:
        return (
            f"Epoch {self.epoch} of {self.topology!r} ran in environment {self.label}, which no interpreter here "
            f"has{files.listed(self.differences)}."
        )


def missing_environment(config: Config, record: TopologyRecord, epoch: int) -> MissingEnvironment | None:
    """Why an epoch whose driver is to be started would not run in its own environment; None where it would.

    A driver that runs needs nothing. Where hosts elsewhere start drivers, and none says what it has, nothing is known.
    """
    environment = launches.own_environment(record, epoch, last_claim(config, record.topology, epoch))
    here = _here(config, environment) if environment else None
    if here is None or here == environment or settled_status(config, record.topology, epoch).is_running:
        return None
    then, now = files.read(_paths(config, record, epoch), environment), _present(config, here)
    return MissingEnvironment(
        topology=record.topology,
        epoch=epoch,
        environment=environment,
        label=environment[:12] if then is None else then.label,
        here=here,
        differences=files.compared(then, now),
    )


def backfill_findings(config: Config, record: TopologyRecord, epoch: int) -> list[Finding]:
    """That a command of this process would compute rows of an epoch in another environment than its driver does."""
    claim = last_claim(config, record.topology, epoch)
    other = None if claim is None else _other_than_here(config, record, epoch, claim.environment)
    return [] if other is None else backfill_rules.other_environment(record.topology, epoch, *other)


def upgrade_findings(config: Config, record: TopologyRecord, epoch: int) -> list[Finding]:
    """That a command of this process tries code for an epoch in another environment than its next driver will have.

    That is the epoch's own, also where the present driver runs in another one, unless no host has it.
    """
    claim = last_claim(config, record.topology, epoch)
    if claim is None:
        return []
    own = launches.own_environment(record, epoch, claim)
    is_gone = not own or _here(config, own) not in (own, None)
    other = _other_than_here(config, record, epoch, claim.environment if is_gone else own)
    return [] if other is None else upgrade_rules.other_environment(record.topology, epoch, *other)


def _other_than_here(config: Config, record: TopologyRecord, epoch: int, environment: str) -> tuple[str, str] | None:
    """An environment's id, and how this process's differs from it, in words; None where it does not."""
    here = interpreters.own(config).environment
    if environment in ("", here.id):
        return None
    then = files.read(_paths(config, record, epoch), environment)
    return environment, files.listed(files.compared(then, here))


def _here(config: Config, environment: str) -> str | None:
    """Id of the environment in which a driver would be started that is to run in another; None where nobody says."""
    if config.launcher != "elsewhere":
        has_own = interpreters.python_of(config, environment) is not None
        return environment if has_own else launching_environment(config)
    hosts = launchers.read(config.lake)
    return environment if any(environment in host.environments for host in hosts) else _own(hosts)


def launching_environment(config: Config) -> str:
    """Id of the environment in which a driver is started whose own is not to be had.

    Raises:
        UsageError: hosts elsewhere start drivers, and none says what it has.
    """
    if config.launcher != "elsewhere":
        return interpreters.own(config).environment.id
    own = _own(launchers.read(config.lake))
    if own is None:
        raise UsageError(
            "No host that starts drivers says which environment it has, and KAPPA_LAUNCHER is elsewhere. Start one "
            "there: kappa drivers"
        )
    return own


def _own(hosts: Sequence[launchers.Launcher]) -> str | None:
    return hosts[0].own if hosts else None


def _present(config: Config, id: str) -> Environment | None:
    """The environment of this process, or that of a host."""
    own = interpreters.own(config).environment
    others = (host.environment for host in launchers.read(config.lake) if host.own == id)
    return own if own.id == id else next(others, None)


def _paths(config: Config, record: TopologyRecord, epoch: int) -> EpochPaths:
    return EpochPaths(lake=config.lake, topology=record.topology, epoch=epoch)


def decision(
    config: Config, record: TopologyRecord, epoch: int, *, in_this_environment: bool, command: str
) -> dict[str, str]:
    """What a move's event says of the environment: nothing where the epoch's own is here.

    Args:
        config: the settings.
        record: the record of the topology.
        epoch: the epoch whose driver is to be started.
        in_this_environment: whether the epoch may run in the one that is here instead, also where no look can tell.
        command: the command that says so, without its option and without --execute.

    Raises:
        MoveRefusedError: its own is not here, and it may not.
    """
    try:
        missing = missing_environment(config, record, epoch)
    except KappaError as error:
        if not in_this_environment:
            raise
        log.warning("The environment of epoch %d of %s was not looked up: %s", epoch, record.topology, error)
        return {}
    if missing is None:
        return {}
    if in_this_environment:
        return {"in_environment": missing.here}
    raise MoveRefusedError(
        f"{missing} Nothing was changed. Name an interpreter that has it in KAPPA_ENVIRONMENTS, or let the epoch run "
        f"in the environment that is here, on record: {command} --in-this-environment --execute",
        environment=missing.environment,
        here=missing.here,
        differences=None if missing.differences is None else [vars(one) for one in missing.differences],
    )


def move_command(
    verb: str,
    members: Mapping[str, int | None],
    option: str,
    *,
    reason: str,
    override: str = "",
    flags: Iterable[str] = (),
) -> str:
    """The command of a move, as it can be copied: of one topology it names the epoch, of several it cannot."""
    numbers = (f"{option} {epoch}" for epoch in members.values()) if len(members) == 1 else ()
    texts = {"--reason": reason, "--override": override}
    quoted = (f"{name} {shlex.quote(text)}" for name, text in texts.items() if text)
    return " ".join(["kappa", verb, *sorted(members), *numbers, *flags, *quoted])
