"""Finding and starting an epoch's driver from inside a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from kappa.config import Config
from kappa.errors import Terminal

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kappa.control import DriverStatus
    from kappa.record.epoch_record import TopologyRecord

log = structlog.get_logger(__name__)

#: Key under which a task keeps the driver that it watches; Airflow shows it next to the task.
STATE_KEY = "kappa_driver"


@contextmanager
def terminal_errors_fail() -> Iterator[None]:
    """Let the task fail immediately on errors that a further try cannot change; other errors are left to its retries.

    Raises:
        AirflowFailException: in place of a :class:`~kappa.errors.Terminal` error.
    """
    from airflow.sdk.exceptions import AirflowFailException

    try:
        yield
    except Terminal as error:
        raise AirflowFailException(str(error)) from error


def record(config: Config, topology: str, *, age_seconds: float = 0.0) -> TopologyRecord:
    """The record of a topology: which epoch is live, and which of its drivers should run."""
    from kappa import control

    return control.record(config, topology, age_seconds=age_seconds)


def is_wanted(config: Config, topology: str, epoch: int) -> bool:
    """Whether an epoch's driver should run.

    Only the record decides: the heartbeat of a driver that ended says ``stopped`` even after an error, a signal or a
    shutdown.
    """
    return record(config, topology).epoch(epoch).is_wanted


def attach(context: Context, config: Config, topology: str, epoch: int) -> None:
    """Make sure that the epoch's driver runs, and keep its place with the task.

    A driver that an operator stopped stays stopped. Idempotent. The epoch of the driver is written before the driver is
    started, and the driver itself is found through the lake. So the next try finds everything that a worker left when
    it died in here.

    Raises:
        KappaError: the driver ended immediately.
    """
    from kappa import control

    before = control.driver_status(config, topology, epoch)
    _keep(context, topology, epoch, before)
    if not is_wanted(config, topology, epoch):
        log.info("driver is stopped on request and stays stopped", topology=topology, epoch=epoch)
        return
    after = control.ensure_driver(config, topology, epoch)
    _keep(context, topology, epoch, after)
    outcome = "started the driver" if after.is_running else "the driver does not run yet"
    log.info(
        "attached to the running driver" if before.is_running else outcome,
        topology=topology,
        epoch=epoch,
        state=after.state,
        host=after.host,
        pid=after.pid,
        message=after.message,
    )


def _keep(context: Context, topology: str, epoch: int, driver: DriverStatus) -> None:
    store = context.get("task_state_store")
    if store is not None:
        store.set(STATE_KEY, {"topology": topology, "epoch": epoch, "host": driver.host, "pid": driver.pid})


def actor(context: Context) -> str:
    """The actor of this run, for the history."""
    run = context["dag_run"]
    user = getattr(run, "triggering_user_name", None)
    return f"airflow:{user or 'schedule'}"
