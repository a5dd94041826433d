"""Random histories whose lake is on S3, in a process of its own, and the weather between it and the store.

Drivers are threads of that process, and die as those of :mod:`support.histories` do. The proxy is in the process of the
test: `deltalake` holds Python's lock in some of its requests.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kappa import faults
from kappa.config import Config
from kappa.errors import KappaError, LakeUnreachableError
from kappa.kafka.broker import Broker
from kappa.record import rollup
from kappa.spark.session import build_session
from support.epochs import lab
from support.eventful import Eventful
from support.histories import play
from support.processes import QUICK_JVM
from support.programs import python_path
from support.s3_options import write_options
from support.s3_proxy import CUT, Proxy

ACTS = 14
#: File of the histories that were played, a line of JSON for each.
_OUTCOMES = "outcomes.jsonl"
#: Entries of the logs of tables, of ledgers and of the record.
_ENTRY = r"/_delta_log/\d+\.json$"


@dataclass(kw_only=True)
class OnS3(Eventful):
    """A world on S3: nobody copies the files of its lake."""

    def acts(self) -> Sequence[tuple[Callable[[], None], int]]:
        return [(act, weight) for act, weight in super().acts() if act not in (self.back_up, self.restore)]

    def command(self, run: Callable[[], Any]) -> Any:
        while True:
            try:
                return super().command(run)
            except LakeUnreachableError:
                self.say("the store did not answer a command, which is called again")
            except KappaError as error:  # a thread is not ended by force, as a process is
                if "does not end. End process" not in str(error):
                    raise
                self.say("a driver does not end yet; the command is called again")


def played(proxy: Proxy, bootstrap_servers: str, folder: Path, seeds: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Play histories in a process of their own, with a store that is unreliable.

    Args:
        proxy: between that process and the store.
        bootstrap_servers: the broker.
        folder: homes, topologies and the log of that process.
        seeds: of the histories; each has a lake of its own.

    Returns:
        A line of what happened in each history, and how often each fault.
    """
    environ = {
        "KAPPA_HOME": str(folder / "home"),
        "KAPPA_LAKE": f"{proxy.server.url}/lakes",
        "KAPPA_LAKE_CLIENT_FILE": str(write_options(proxy.server, folder / "lake.properties")),
        "PYTHONPATH": python_path(),
    }
    words = [str(folder), bootstrap_servers, *map(str, seeds)]
    log = folder / "histories.log"
    with weather(proxy, seeds[0]) as counts, log.open("w") as output:
        done = subprocess.run(
            [sys.executable, "-m", "support.s3_histories", *words],
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
    assert done.returncode == 0, log.read_text()[-20_000:]
    outcomes = (folder / _OUTCOMES).read_text().splitlines()
    assert len(outcomes) == len(seeds) and counts
    yield from (("history on S3", outcome) for outcome in outcomes)
    yield from (("S3 fault", f"{name}: {count}") for name, count in counts.items())


@contextlib.contextmanager
def weather(proxy: Proxy, seed: int) -> Iterator[Counter[str]]:
    """Within, the store is unreliable: answers are lost, requests refused, held, slow or cut.

    Yields how often each fault was injected. No fault lasts as long as a command waits for a store.
    """
    counts: Counter[str] = Counter()
    stopping = threading.Event()
    thread = threading.Thread(target=_rage, args=(proxy, random.Random(seed), stopping, counts), name="weather")
    thread.start()
    try:
        yield counts
    finally:
        stopping.set()
        thread.join()
        proxy.clear()


def _rage(proxy: Proxy, chance: random.Random, stopping: threading.Event, counts: Counter[str]) -> None:
    bad: Mapping[str, Callable[[], object]] = {
        "lost answer, status 500": lambda: proxy.lose_answer("", status=500),
        "lost answer, cut": lambda: proxy.lose_answer("", status=CUT),
        "lost answer of a commit": lambda: proxy.lose_answer(_ENTRY, status=chance.choice([500, CUT])),
        "status 409": lambda: proxy.refuse(_ENTRY, "PUT", status=409, times=1),
        "status 503": lambda: proxy.refuse(seconds=chance.uniform(0.1, 1.0)),
        "cut requests": lambda: proxy.refuse(status=CUT, times=2),
        "held commit": lambda: _hold(proxy, stopping, chance.uniform(0.5, 2.0)),
        "slow": lambda: _slow(proxy, stopping, chance.uniform(0.5, 3.0)),
    }
    while not stopping.wait(chance.uniform(0.3, 3.0)):
        name = chance.choice(sorted(bad))
        bad[name]()
        counts[name] += 1
        if counts.total() % 40 == 0:
            proxy.clear()


def _hold(proxy: Proxy, stopping: threading.Event, seconds: float) -> None:
    held = proxy.hold(_ENTRY)
    stopping.wait(seconds)
    held.release()


def _slow(proxy: Proxy, stopping: threading.Event, seconds: float) -> None:
    proxy.delay_ms = 150.0
    stopping.wait(seconds)
    proxy.delay_ms = 0.0


def main() -> None:
    """Play the histories of the command line, a line for each in a file; it ends at the first that goes wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("bootstrap_servers")
    parser.add_argument("seeds", type=int, nargs="+")
    arguments = parser.parse_args()
    config = replace(Config.from_env(), spark_master="local[2]", spark_conf=QUICK_JVM)
    session = build_session(config, "histories on S3")
    for seed in arguments.seeds:
        with Broker(arguments.bootstrap_servers) as kafka:
            topic = f"history.{os.getpid()}.{seed}"
            kafka.create_topic(topic, 2, {"retention.ms": "-1"}, exists_ok=False)
            places = {"lake": f"{config.lake}/{seed}", "lake_client_file": config.lake_client_file}
            often = {"maintain_minutes": 0.05, "handover_seconds": 60.0}
            base = arguments.folder / str(seed)
            with (
                lab(base, kafka, session, topic, kind=OnS3, **places, **often) as history,
                patch.object(faults, "os", history.reaper),
                patch.object(rollup, "RECENT", 1),
            ):
                history.deploy(1)
                play(history, seed, ACTS)
                happened = dict(history.happened)
                with (arguments.folder / _OUTCOMES).open("a") as outcomes:
                    print(json.dumps({"seed": seed, "deaths": history.deaths, "happened": happened}), file=outcomes)
            kafka.delete_topics([topic, *kafka.topics(f"{topic}."), *kafka.topics(f"{history.name}_too.")])
    session.stop()


if __name__ == "__main__":
    main()
