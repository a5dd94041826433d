"""The endpoint at which Prometheus scrapes a driver.

Nothing here stops or delays a slice: failures are counted and logged once. A thread of its own reads the broker and the
disk.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import structlog

from kappa.config import Config
from kappa.delta.row_counts import rows_of_slice
from kappa.errors import ConflictError, KappaError, Transient, first_line
from kappa.kafka.broker import Broker
from kappa.lazy import Lazy
from kappa.monitoring.metrics import Metrics
from kappa.names import EpochPaths

if TYPE_CHECKING:
    from kappa.record.ledger_rows import LedgerRow

log = structlog.get_logger("kappa.monitoring.exporter")

_P = ParamSpec("_P")
#: Addresses that mean every interface of the host.
_EVERY = ("", "0.0.0.0", "::")  # noqa: S104  # compared with, not bound

#: Folder of a place -> kind of what is in it, as labels have it.
_KINDS = {"changes": "table", "tables": "table", "outputs": "output"}


def _measured(method: Callable[Concatenate[Exporter, Metrics, _P], None]) -> Callable[Concatenate[Exporter, _P], None]:
    """A method that gets the measures, does nothing without an endpoint, and never raises."""

    @wraps(method)
    def measured(self: Exporter, /, *args: _P.args, **named: _P.kwargs) -> None:
        if self.metrics is None:
            return
        try:
            method(self, self.metrics, *args, **named)
        except Exception as error:  # a missing measure stops no stream
            self.metrics.unmeasured()
            self.complain(method.__name__, error)

    return measured


class Exporter:
    """The endpoint of one driver. Without ``config.metrics`` there is none, and nothing is measured.

    Attributes:
        address: ``host:port`` of the endpoint; empty while there is none.
        metrics: its content; None while there is none.
    """

    def __init__(self, config: Config, paths: EpochPaths) -> None:
        self.address = ""
        self.metrics: Metrics | None = None
        self._config, self._paths = config, paths
        self._log = log.bind(topology=paths.topology, epoch=paths.epoch)
        self._complaints: set[str] = set()
        self._written: deque[tuple[str, int, int]] = deque()
        self._closing = threading.Event()
        self._broker = Lazy(lambda: Broker(config.bootstrap_servers))
        self._server: tuple[Any, threading.Thread] | None = None
        self._thread: threading.Thread | None = None

    def open(
        self, metrics: Callable[[], Metrics], state: Callable[[], str], committed: LedgerRow | None, *, is_live: bool
    ) -> None:
        """Listen, if the settings request it.

        Args:
            metrics: function that makes the measures.
            state: function that gives the driver's present state.
            committed: the epoch's last commit.
            is_live: whether the epoch is the live one.
        """
        if self._config.metrics_endpoint is None:
            return
        try:
            measures = metrics()
            measures.watch(state)
            measures.started(committed, is_live=is_live)
            self._listen(measures, *self._config.metrics_endpoint)
        except Exception as error:  # a driver without measures works as well
            self.complain("open", error)
            return
        self.metrics = measures
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()
        self._log.info("metrics", address=self.address)

    def close(self) -> None:
        """Stop listening."""
        self._closing.set()
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()

    @_measured
    def begin(self, metrics: Metrics, line: str) -> None:
        """Note the beginning of a line of the protocol; see :meth:`Metrics.begin`."""
        metrics.begin(line)

    @_measured
    def stands_at(self, metrics: Metrics, row: LedgerRow | None) -> None:
        """Note that the last commit is this one, which is the seed and not a slice."""
        if row is not None:
            metrics.stands_at(row)

    @_measured
    def committed(self, metrics: Metrics, row: LedgerRow, seconds: float) -> None:
        """A slice was committed."""
        metrics.committed(row, seconds)
        self._written.extend((place, version, row.seq) for place, version in row.delta_versions.items())

    @_measured
    def failed(self, metrics: Metrics, error: Exception, in_a_row: int) -> None:
        """An error was weighed."""
        metrics.failed("wait" if isinstance(error, Transient | ConflictError) else "failure", in_a_row)

    @_measured
    def published(self, metrics: Metrics, place: str, since: Callable[[], datetime | None]) -> None:
        """A look at a published table was taken.

        Args:
            place: ``tables/<name>`` or ``outputs/<name>``.
            since: gives since when it lacks a commit; None if it lacks none.
        """
        folder, _, name = place.partition("/")
        metrics.published(_KINDS[folder], name, since())

    @_measured
    def unpublished(self, metrics: Metrics) -> None:
        """Another epoch is the live one."""
        metrics.unpublished()

    def complain(self, what: str, error: Exception) -> None:
        """Log once that something cannot be measured."""
        if what not in self._complaints:
            self._complaints.add(what)
            self._log.error("not measured", what=what, error=f"{type(error).__name__}: {first_line(error)}")

    def _listen(self, metrics: Metrics, host: str, port: int) -> None:
        from prometheus_client import start_http_server

        try:
            server, thread = start_http_server(port, host, metrics.registry)
        except OSError as error:
            if port == 0:
                raise
            # Two epochs on one host share the configured port, as during each replay.
            self._log.warning("port taken", port=port, error=error.strerror or type(error).__name__)
            server, thread = start_http_server(0, host, metrics.registry)
        self._server = server, thread
        named = socket.gethostname() if host in _EVERY else f"[{host}]" if ":" in host else host
        self.address = f"{named}:{server.server_port}"

    def _run(self) -> None:
        is_closing = False
        while not is_closing:
            self._look_at_lag()
            self._count_rows()
            is_closing = self._closing.wait(self._config.beat_seconds)
        if self._broker.made is not None:
            self._broker.made.close()

    @_measured
    def _look_at_lag(self, metrics: Metrics) -> None:
        position = metrics.position
        if position is None:
            return
        try:
            lag = position.count_to(position.merge(self._broker.get().stable_offsets(position.topics)))
        except KappaError:  # no broker, or another topic or log than that of the position: the driver's log says which
            lag = None
        metrics.lag(lag)

    @_measured
    def _count_rows(self, metrics: Metrics) -> None:
        while self._written:
            place, version, seq = self._written.popleft()
            folder, _, name = place.partition("/")
            if folder in ("changes", "outputs"):
                metrics.written(_KINDS[folder], name, rows_of_slice(self._paths.place(place), version, seq))
