"""Where a benchmark runs: a broker, a home, a lake and deployed topologies of its own, all gone afterwards."""

from __future__ import annotations

import dataclasses
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from kappa import control
from kappa.config import Config
from kappa.driver.driver import Driver
from kappa.driver.processes import host
from kappa.driver.processes.launcher import log_file
from kappa.errors import KappaError
from kappa.kafka.broker import Broker
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import epochs_of
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState, LedgerState
from kappa.replay.request import ReplayRequest
from kappa.replay.starts import Start, ToEarliest
from kappa_local.generators import generator
from kappa_local.kafka import KafkaProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPOLOGY, SOURCE, OUTPUT, TABLE = "retail.loyalty", "pos", "loyalty", "rewards"
TOPOLOGIES = Path(__file__).resolve().parents[1] / "include" / "topologies"
VERSIONS = {1: TOPOLOGIES / "versions" / "retail_loyalty_v1.py", 2: TOPOLOGIES / "retail_loyalty.py"}
DEADLINE_SECONDS = 1800.0
#: Between two looks at a driver whose work is timed by what it puts on record: each look takes some of its cores.
LOOK_SECONDS = 1.0


class Actor(TypedDict):
    """The actor and the reason that go on record."""

    actor: str
    reason: str


ACTOR: Actor = {"actor": "benchmark", "reason": "benchmark"}

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large a run is.

    Attributes:
        records: size of the topic of a bulk replay.
        rate: records a second of a steady stream.
        seconds: how long a steady stream is looked at.
        slices: how many slices a day of small ones has.
        full: the size for which the sizes of state below are meant; a smaller run shrinks them in proportion.
    """

    records: int
    rate: float
    seconds: float
    slices: int
    full: int

    def of(self, size: int) -> int:
        """A size of state at this scale."""
        return max(100, min(size, round(size * self.records / self.full)))


@dataclass(frozen=True, kw_only=True)
class Site:
    """Everything that a benchmark needs.

    Attributes:
        config: settings of its drivers.
        scale: how large the run is.
        topology: what it runs.
    """

    config: Config
    scale: Scale
    topology: str = TOPOLOGY

    def deploy(self, version: int) -> None:
        """Change the file in the topologies folder, as a user does."""
        shutil.copy(VERSIONS[version], self.config.topologies / "retail_loyalty.py")

    def generate(self, records: int, customers: int | None = None, partitions: int = 3) -> None:
        """Produce history; customers grow with the records where their number is not given."""
        delivery = generator.produce(self.config, "retail", records=records, customers=customers, partitions=partitions)
        say(f"{delivery.records:,} invoices produced in {delivery.seconds:.0f} s")

    def start(self, *, pause: float = 0.05) -> int:
        """Start the stream with the deployed code, in a driver process."""
        epoch = control.start(self.config, self.topology, **ACTOR)
        self.until(
            lambda: self.record().live == epoch and self.state(epoch).has_sent,
            f"epoch {epoch} is live",
            epoch,
            pause=pause,
        )
        return epoch

    def stop(self, epoch: int) -> None:
        """Stop a driver at its slice boundary, and wait for its end."""
        control.stop(self.config, self.topology, epoch=epoch, **ACTOR)
        control.await_end(self.config, self.topology, epoch)

    def replay(
        self,
        *,
        start: Start | None = None,
        archive: bool = True,
        end: Offsets | None = None,
        allow: Collection[str] = (),
    ) -> int:
        """Plan a replay, from the beginning if nothing else is said, and put it on record; its driver is started where
        the settings say so.
        """
        request = ReplayRequest(
            topology=self.topology,
            start=start or ToEarliest(),
            slice_records=self.config.slice_records,
            actor=ACTOR["actor"],
            reason=ACTOR["reason"],
            archive=archive,
            end=end,
            allow=frozenset(allow),
        )
        return control.replay(self.config, control.plan(self.config, request), **ACTOR)

    def with_slices(self, records: int) -> Site:
        """The same with slices of at most so many records."""
        return dataclasses.replace(self, config=dataclasses.replace(self.config, slice_records=records))

    def without_launcher(self) -> Site:
        """The same, but nobody starts driver processes: the benchmark runs the driver within its own."""
        return dataclasses.replace(self, config=dataclasses.replace(self.config, launcher="elsewhere"))

    def with_topology(self, name: str) -> Site:
        """The same for another topology."""
        return dataclasses.replace(self, topology=name)

    def settle(self, epoch: int, topics: Sequence[str] = (SOURCE,), *, pause: float = 0.05) -> None:
        """Wait until an epoch has committed all that is in the topics now."""
        with Broker(self.config.bootstrap_servers) as broker:
            end = broker.stable_offsets(topics)
        self.until(
            lambda: isinstance(state := self.state(epoch), BegunState) and state.position.dominates(end),
            f"epoch {epoch} has read everything",
            epoch,
            pause=pause,
        )

    def until(
        self,
        condition: Callable[[], T],
        what: str,
        epoch: int | None = None,
        *,
        seconds: float = DEADLINE_SECONDS,
        pause: float = 0.05,
    ) -> T:
        """Wait for a condition.

        Raises:
            KappaError: it did not hold in time, or the epoch's driver is stuck.
        """
        deadline, looked = time.monotonic() + seconds, time.monotonic()
        while time.monotonic() < deadline:
            if answer := condition():
                return answer
            if epoch is not None and time.monotonic() - looked > 2:
                looked = time.monotonic()
                driver = control.driver_status(self.config, self.topology, epoch)
                if driver.state == "stuck":
                    raise KappaError(f"{what}: not any more. {driver.message}\n{self.last_words(epoch)}")
            time.sleep(pause)
        raise KappaError(f"{what}: not within {seconds:.0f} s")

    def last_words(self, epoch: int) -> str:
        """The last lines of a driver's log."""
        file = log_file(self.config, self.topology, epoch)
        return "\n".join(file.read_text(errors="replace").splitlines()[-5:]) if file.exists() else ""

    def record(self) -> TopologyRecord:
        """What is on record of the topology."""
        return epochs_of(self.config.lake).record(self.topology)

    def at(self, epoch: int, event: str) -> datetime | None:
        """When something last happened to an epoch."""
        times = [e.at for e in self.record().events if e.epoch == epoch and e.event == event]
        return times[-1] if times else None

    def paths(self, epoch: int) -> EpochPaths:
        """Where an epoch is."""
        return EpochPaths(lake=self.config.lake, topology=self.topology, epoch=epoch)

    def state(self, epoch: int) -> LedgerState:
        """What an epoch's ledger says."""
        return Ledger(self.paths(epoch).ledger).state()

    def rows(self, epoch: int) -> list[LedgerRow]:
        """All rows of an epoch's ledger."""
        return Ledger(self.paths(epoch).ledger).rows()

    @contextmanager
    def session(self, name: str) -> Iterator[SparkSession]:
        """A session of this process with a driver's settings."""
        from kappa.spark.session import build_session

        session = build_session(self.config, name)
        try:
            yield session
        finally:
            session.stop()

    @contextmanager
    def driver(self, epoch: int, session: Any) -> Iterator[threading.Thread]:
        """An epoch's driver in a thread of this process, on a session of ours; stopped at the end."""
        driver = Driver(self.config, self.topology, epoch, session=session)
        thread = threading.Thread(target=driver.run, name=f"driver-{epoch}", daemon=True)
        thread.start()
        try:
            yield thread
        finally:
            driver.stop("benchmark")
            thread.join(DEADLINE_SECONDS)
            # Nobody wants it any more: what ends the drivers of this host would end this process.
            control.stop(self.config, self.topology, epoch=epoch, **ACTOR)


@contextmanager
def site(folder: Path, scale: Scale) -> Iterator[Site]:
    """A site that is ended, with its drivers and broker, whatever happens."""
    topologies = folder / "home" / "topologies"
    topologies.mkdir(parents=True)
    with KafkaProcess.start(folder / "kafka", heap="1g") as broker:
        environment = {
            name: value
            for name, value in os.environ.items()
            if name in ("KAPPA_SPARK_MASTER", "KAPPA_SPARK_CONF", "KAPPA_CACHE")
        }
        config = Config.from_env(
            {
                **environment,
                "KAPPA_HOME": str(folder / "home"),
                "KAPPA_TOPOLOGIES": str(topologies),
                "KAPPA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            }
        )
        try:
            yield Site(config=config, scale=scale)
        finally:
            for log in folder.joinpath("home").glob("*/_kappa/epochs"):
                host.end_local(dataclasses.replace(config, lake=str(log.parents[1])))


def now() -> datetime:
    """The time."""
    return datetime.now(UTC)


def say(text: str) -> None:
    """Tell how far it is."""
    print(f"   {time.strftime('%H:%M:%S')}  {text}", flush=True)
