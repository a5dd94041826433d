"""The interpreter of an epoch's driver: that of the epoch's own environment, where this host has it."""

from __future__ import annotations

import sys

from kappa.config import Config
from kappa.environments import interpreters
from kappa.record.epoch_record import TopologyRecord
from kappa.record.ledger_rows import LedgerRow


def own_environment(record: TopologyRecord, epoch: int, claim: LedgerRow | None) -> str:
    """Id of the environment in which an epoch is to run; empty where none is on record.

    That is the one in which its first driver ran, until somebody decides on another one.

    Args:
        record: the record of its topology.
        epoch: the epoch.
        claim: the last claim in its ledger.
    """
    return record.environment_of(epoch) or ("" if claim is None else claim.own_environment)


def python(config: Config, environment: str) -> str:
    """The interpreter of an environment; that of this process where none of this host has it, or none is named.

    A stream does not stop because somebody updated a package: its next claim says in which environment it runs.
    """
    return (interpreters.python_of(config, environment) if environment else None) or sys.executable
