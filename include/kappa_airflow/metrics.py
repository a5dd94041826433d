"""What a trigger sees of a driver, as metrics of Airflow: StatsD or OpenTelemetry, whichever Airflow is set to.

A trigger knows what is in the lake: commits, and the heartbeat. What only the driver itself measures, such as the time
of each line of the protocol, is at the driver's own endpoint.
"""

from __future__ import annotations

import functools
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import structlog

from kappa import clock
from kappa.config import Config
from kappa.errors import KappaError
from kappa.lake.ledger import Ledger
from kappa.names import EpochPaths, epoch_word

if TYPE_CHECKING:
    from kappa.control import DriverStatus
    from kappa.lake.ledger_rows import LedgerRow

log = structlog.get_logger(__name__)

#: Least time between two looks at ledger and broker.
EVERY = timedelta(seconds=15)
#: How long the broker may take to say where a topic ends.
BROKER_SECONDS = 3.0


class Measures:
    """The metrics of one epoch, as far as one trigger follows it.

    Nothing here fails or ends a trigger. While Airflow exports no metrics, nothing is looked at.
    """

    def __init__(self, topology: str, epoch: int) -> None:
        self.topology, self.epoch = topology, epoch
        self._looked: datetime | None = None
        self._ledger: Ledger | None = None
        self._seen: int | None = None
        self._is_said = False

    def emit(self, config: Config, driver: DriverStatus, progress: float | None = None) -> None:
        """Export what happened since the last call; blocking. Does nothing where that is a moment ago.

        Args:
            driver: what the trigger saw of the driver.
            progress: share of the plan's range that is computed, where the trigger knows it.
        """
        if not is_on() or (self._looked is not None and clock.now() - self._looked < EVERY):
            return
        self._looked = clock.now()
        try:
            _initialize()
            self._emit(config, driver, progress)
        except Exception as error:  # a stream is watched without metrics as well
            if not self._is_said:
                log.warning("no metrics", topology=self.topology, epoch=self.epoch, error=f"{error!r}")
            self._is_said = True

    def _emit(self, config: Config, driver: DriverStatus, progress: float | None) -> None:
        from airflow.sdk.observability import stats

        self._gauge("driver_up", int(driver.is_running))
        self._gauge("driver_stuck", int(driver.state == "stuck"))
        if progress is not None:
            self._gauge("replay_progress", progress)
        self._ledger = self._ledger or Ledger(
            EpochPaths(lake=config.lake, topology=self.topology, epoch=self.epoch).ledger
        )
        if not self._ledger.exists():
            return
        state = self._ledger.state()
        if not state.commits:
            return
        last = state.commits[-1]
        new = [] if self._seen is None else [row for row in state.commits if row.n > self._seen]
        self._seen = last.n
        self._gauge("committed_seq", last.seq)
        for name in ("records", "dead_letters", "late_records"):
            found = _counted(new, name)
            stats.incr(**self._named(name), count=found)
        for row in new:
            if "started_at" in row.detail:
                taken = row.at - datetime.fromisoformat(row.detail["started_at"])
                stats.timing(**self._named("slice"), dt=taken)
        lag = _lag(config, last)
        if lag is not None:
            self._gauge("lag", lag)

    def _gauge(self, name: str, value: float) -> None:
        from airflow.sdk.observability import stats

        stats.gauge(**self._named(name), value=value)

    def _named(self, name: str) -> dict[str, Any]:
        """Name and tags; where the backend has no tags, topology and epoch are part of the name."""
        if has_tags():
            return {"stat": f"kappa.{name}", "tags": {"topology": self.topology, "epoch": str(self.epoch)}}
        return {"stat": f"kappa.{self.topology.replace('.', '__')}.{epoch_word(self.epoch)}.{name}"}


def is_on() -> bool:
    """Whether Airflow is set to export metrics."""
    return any(_setting(name) for name in ("statsd_on", "statsd_datadog_enabled", "otel_on"))


def has_tags() -> bool:
    """Whether what Airflow exports to keeps tags: plain StatsD drops them."""
    return _setting("statsd_datadog_enabled") or not _setting("statsd_on") or _setting("statsd_influxdb_enabled")


def _setting(name: str) -> bool:
    from airflow.sdk.configuration import conf

    return bool(conf.getboolean("metrics", name, fallback=False))


@functools.cache
def _initialize() -> None:
    """The triggerer sets up the metrics of its own process, and not those of the process that runs the triggers."""
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics import stats_utils

    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)


def _counted(rows: list[LedgerRow], name: str) -> int:
    fields = {"records": "rows_read", "dead_letters": "rows_dead", "late_records": "rows_late"}
    return sum(getattr(row, fields[name]) for row in rows)


def _lag(config: Config, row: LedgerRow) -> int | None:
    """Offsets from a commit to the stable end of what it reads; None where the broker does not answer."""
    from kappa.kafka.broker import Broker
    from kappa.offsets.vector import ranges_end

    position = ranges_end(row.ranges)
    try:
        with Broker(config.bootstrap_servers, timeout_seconds=BROKER_SECONDS) as broker:
            ends = broker.stable_offsets(position.topics)
    except KappaError:
        return None
    return position.count_to(position.merge(ends))
