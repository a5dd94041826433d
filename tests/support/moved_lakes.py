"""A lake with something of everything, whose copies are made by processes that may be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kappa import clock, faults
from kappa.config import Config
from kappa.control.lakes import moving
from kappa.errors import KappaError
from kappa.names import ArchivePaths, EpochPaths
from kappa.record import savepoints
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.slices.places import make_durable
from kappa.store.options import declare
from kappa.store.stores import store_of
from kappa.verify.recount import Recount, recount
from support import epoch_record
from support.deaths import DEATHS, run_to_death
from support.live_lake import NAME, further_slices, live_lake
from support.s3_options import write_options
from support.s3_server import S3Server

#: Bytes of a file that is copied in several pieces.
_LARGE = 20 << 20
#: Files that no copy has.
SCRATCH = (
    f"{NAME}/e0001/heartbeat.json.1f.tmp",
    f"{NAME}/e0001/recomputed/b1/rows.parquet",
    f"{NAME}/e0001/tables/rewards/part-1.parquet#1",
    f"{NAME}/e0001/tables/rewards/_delta_log/.00000000000000000000.json.crc",
)


@dataclass(frozen=True, kw_only=True)
class Places:
    """A lake, and where it is to be.

    Attributes:
        config: settings of the lake where it is.
        target: the other address.
    """

    config: Config
    target: str

    @property
    def there(self) -> Config:
        """Settings of the lake at the other address."""
        return replace(self.config, lake=self.target)

    @property
    def back(self) -> Places:
        """The way back."""
        return Places(config=self.there, target=self.config.lake)

    def kappa(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of a process of its own."""
        command = [sys.executable, "-m", "kappa", *words]
        return subprocess.run(command, env=self._environ(), capture_output=True, text=True, check=False)

    def copy(self) -> str:
        """The copy to the other address; what is printed."""
        answer = self.kappa("lake", "copy", self.target, "--execute")
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def die(self, point: str) -> None:
        """A copy that is killed at a point."""
        words = ("lake", "copy", self.target, "--execute")
        run_to_death("-m", "kappa", *words, point=point, environ=self._environ())

    def die_opening(self, point: str) -> None:
        """A way back to this lake that is killed at a point."""
        run_to_death("-m", "kappa", "lake", "open", "--execute", point=point, environ=self._environ())

    @contextlib.contextmanager
    def frozen(self, point: str) -> Iterator[Callable[[], tuple[int, str]]]:
        """Within, a copy to the other address is frozen at a point; what is called wakes it up, and waits for its end.

        The exit code and the errors of the copy are the answer.
        """
        command = [sys.executable, "-m", "kappa", "lake", "copy", self.target, "--execute"]
        environ = {**self._environ(), faults.VARIABLE: f"{point}:stop"}
        process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

        def woken() -> tuple[int, str]:
            process.send_signal(signal.SIGCONT)
            _, errors = process.communicate()
            return process.returncode, errors

        try:
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), f"it did not freeze at {point}"
            DEATHS.append(f"{point}:stop")
            yield woken
        finally:
            process.kill()
            process.wait()

    def _environ(self) -> dict[str, str]:
        return {**os.environ, **self.config.to_env()}

    def open_ones(self) -> list[str]:
        """The addresses at which there is a lake that drivers would go on in."""
        return [lake for lake in (self.config.lake, self.target) if is_open(lake)]


def copied(lake: Places) -> Places:
    """The lake, after its copy."""
    moving.copy(lake.config, lake.target, actor="ann")
    assert lake.open_ones() == [lake.target]
    return lake


def is_open(lake: str) -> bool:
    """Whether the topology is live at an address."""
    try:
        return Epochs(lake).record(NAME).live == 1
    except (KappaError, OSError):
        return False


def full_lake(base: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Settings of a lake: an epoch with state and dead letters, savepoint, archive, plan, code, schema, scratch."""
    config = live_lake(base, monkeypatch)
    further_slices(config, 1)
    savepoints.create(config, NAME, "sale", actor="ann")
    epoch_record.store_code(config)
    archive = ArchivePaths(lake=config.lake, topic="pos")
    Ledger(archive.ledger).create()
    rows = pa.table({"value": [os.urandom(_LARGE)], "at": ["a b/ü%20"]})
    write_deltalake(archive.records, rows, partition_by=["at"])
    paths = EpochPaths(lake=config.lake, topology=NAME, epoch=1)
    ledger = Ledger(paths.ledger)
    commit = ledger.begun().committed
    hashes = make_durable(paths, {}, commit.delta_versions)
    ledger.append(LedgerRow(kind="files", seq=commit.seq, writer="me", at=clock.now(), detail=hashes))
    for name in ("_kappa/plans/1.json", "_kappa/schemas/pos/1.json", f"{NAME}/e0001/notices.json", *SCRATCH):
        write(config.lake, name)
    return config


def write(lake: str, name: str, content: bytes = b"{}") -> None:
    """Write a file of a lake."""
    path = f"{lake}/{name}"
    store_of(path).make_folder(path.rpartition("/")[0])
    store_of(path).put(path, content)


def contents(lake: str) -> dict[str, bytes]:
    """Every file of a lake but for scratch."""
    files = {file.path.removeprefix(f"{lake}/"): file.path for file in store_of(lake).files(lake)}
    return {name: store_of(path).get(path) or b"" for name, path in sorted(files.items()) if name not in SCRATCH}


def counted(lake: str) -> Recount:
    """What the deep certificate says of the epoch's files."""
    return recount(EpochPaths(lake=lake, topology=NAME, epoch=1))


def places(config: Config, target: str, server: S3Server | None, base: Path) -> Places:
    """A lake and a target, either of which may be on the server."""
    if server is None:
        return Places(config=config, target=target)
    file = str(write_options(server, base / "lake.properties"))
    declare(target, file)
    return Places(config=replace(config, lake_client_file=file), target=target)
