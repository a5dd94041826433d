"""Runs the driver of one epoch: ``python -m kappa.driver --topology NAME --epoch NUMBER``; its settings are KAPPA_*."""

from __future__ import annotations

import argparse
import logging
from typing import NoReturn

import structlog

from kappa.config import Config
from kappa.errors import KappaError
from kappa.process_end import end_process
from kappa.spark.session import StartingSession, driver_name


def main() -> NoReturn:
    """Run a driver as the command line says, and end the process."""
    end_process(_run())


def _run() -> int:
    """Parse, run, and turn errors into exit codes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topology", required=True)
    parser.add_argument("--epoch", required=True, type=int)
    parser.add_argument("--code", help="content hash of the code that runs; by default that of the epoch's plan")
    parser.add_argument("--claim", type=int, help="number of the last claim at its launch; by default any")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    structlog.configure(
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    )
    try:
        config = Config.from_env()
        # Before the driver's own imports: Spark takes seconds to start, and its process has the other cores.
        starting = StartingSession(config, driver_name(arguments.topology, arguments.epoch))
        from kappa.driver.driver import run_epoch

        run_epoch(
            config,
            arguments.topology,
            arguments.epoch,
            code=arguments.code,
            last_claim=arguments.claim,
            starting=starting,
        )
    except KappaError as error:
        structlog.get_logger("kappa.driver.driver").error("ended", error=f"{type(error).__name__}: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    main()
