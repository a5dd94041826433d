"""The loop that keeps the processes of the embedded stack running; `kappa up` leaves it in the background."""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from kappa.config import Config
from kappa_local import airflow, kafka
from kappa_local.processes import Identity, end, identify
from kappa_local.state import Running, broker_dir, logs, mark, write_running

BROKER = "broker"
LONGEST_PAUSE_SECONDS = 60.0
HEALTHY_SECONDS = 60.0
_LOG_BYTES = 20 << 20

log = structlog.get_logger()


def answers(bootstrap_servers: str, api_port: int | None) -> bool:
    """Whether the broker serves metadata and, if there is a port, Airflow's API reports its health."""
    return kafka.is_answering(bootstrap_servers) and (api_port is None or bool(airflow.health(api_port)))


def pause_seconds(failures: int) -> float:
    """Pause before a child is restarted after this many consecutive deaths."""
    return min(LONGEST_PAUSE_SECONDS, 0.5 * 2.0 ** min(failures - 1, 16))


class _Child:
    """One process of the stack, which is restarted whenever it dies."""

    def __init__(self, name: str, command: list[str], env: dict[str, str], log_file: Path) -> None:
        self.name, self.command, self.env, self.log_file = name, command, env, log_file
        self.process: subprocess.Popen[bytes] | None = None
        self.identity: Identity | None = None
        self.failures = 0
        self.started_at = 0.0
        self.not_before = 0.0

    def start(self) -> None:
        if self.log_file.is_file() and self.log_file.stat().st_size > _LOG_BYTES:
            self.log_file.rename(self.log_file.with_suffix(".log.1"))
        with self.log_file.open("ab") as out:
            self.process = subprocess.Popen(
                self.command,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.identity = identify(self.process.pid)
        self.started_at = time.monotonic()

    def has_died(self) -> bool:
        """Whether it has died, true once for each death; sets the time of the next start."""
        if self.process is None or self.process.poll() is None:
            return False
        lived = time.monotonic() - self.started_at
        self.failures = 1 if lived > HEALTHY_SECONDS else self.failures + 1
        pause = pause_seconds(self.failures)
        log.warning("child_died", child=self.name, returncode=self.process.returncode, pause_seconds=pause)
        self.not_before = time.monotonic() + pause
        self.process = None
        return True


class Supervision:
    """The loop that keeps the children running until a signal ends it."""

    def __init__(self, config: Config, *, with_airflow: bool, api_port: int, heap: str) -> None:
        self.config, self.with_airflow, self.api_port = config, with_airflow, api_port
        self.is_ending = False
        folder = logs(config)
        environment = {**os.environ, **config.to_env()}
        broker = kafka.command(broker_dir(config), heap=heap, cache=config.cache)
        self.children = [_Child(BROKER, broker, environment, folder / f"{BROKER}.log")]
        if with_airflow:
            environment = airflow.whole_environment(config, api_port=api_port)
            self.children += [
                _Child(name, command, environment, folder / f"{name}.log")
                for name, command in airflow.commands().items()
            ]

    def run(self, *, on_ready: Callable[[], None] = lambda: None) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        is_ready = False
        try:
            while not self.is_ending:
                self._tick()
                if not is_ready and answers(
                    self.config.bootstrap_servers, self.api_port if self.with_airflow else None
                ):
                    is_ready = True
                    log.info("stack_ready")
                    on_ready()
                time.sleep(0.25)
        finally:
            self._end()

    def _on_signal(self, number: int, frame: object) -> None:
        self.is_ending = True

    def _tick(self) -> None:
        for child in self.children:
            if child.has_died() and child.identity:
                # A dead scheduler leaves tasks behind and a dead broker does not: the session ends with its leader.
                end([child.identity], environment=mark(self.config), timeout_seconds=5.0)
            if child.process is None and time.monotonic() >= child.not_before and not self.is_ending:
                child.start()
                log.info("child_started", child=child.name, pid=child.identity.pid if child.identity else None)
                self._write()

    def _end(self) -> None:
        identities = {child.name: child.identity for child in self.children if child.identity}
        broker = identities.pop(BROKER, None)
        # Airflow ends first, since a task that is ending may still need the broker.
        end(identities.values(), environment=mark(self.config))
        end([broker] if broker else [], environment=mark(self.config))
        write_running(self.config, dataclasses.replace(self._running(), supervisor=None, children={}))
        log.info("stack_ended")

    def _write(self) -> None:
        write_running(self.config, self._running())

    def _running(self) -> Running:
        return Running(
            supervisor=identify(os.getpid()),
            children={child.name: child.identity for child in self.children if child.identity},
            bootstrap_servers=self.config.bootstrap_servers,
            api_port=self.api_port,
            with_airflow=self.with_airflow,
        )


def main() -> None:
    """Supervise a prepared stack in this process; `kappa up` runs this in the background."""
    parser = argparse.ArgumentParser(prog="kappa-supervisor")
    parser.add_argument("--api-port", type=int, required=True)
    parser.add_argument("--heap", required=True)
    parser.add_argument("--no-airflow", action="store_true")
    arguments = parser.parse_args()
    supervision = Supervision(
        Config.from_env(), with_airflow=not arguments.no_airflow, api_port=arguments.api_port, heap=arguments.heap
    )
    supervision.run()


if __name__ == "__main__":
    main()
