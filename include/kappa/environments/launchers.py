"""What hosts have that start drivers for others: a file of each in the lake, while its ``kappa drivers`` runs.

A command on a host that starts no drivers reads there what those hosts have. Each writes its file again every half
minute, so that one of a host that crashed, or that another process removed, decides for an hour at most.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from kappa.config import Config
from kappa.environments import interpreters
from kappa.environments.environment import Environment
from kappa.errors import KappaError, LedgerError
from kappa.names import launcher_file
from kappa.replay import stored
from kappa.store.store import StoredFile
from kappa.store.stores import store_of

#: The format that this code writes, and the newest one that it reads.
FORMAT = 1
#: A host whose file is older than this is gone.
AGE = timedelta(hours=1)

#: To the error stream: commands print their JSON on the other one.
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """What a host that starts drivers has.

    Attributes:
        host: its name.
        own: id of the environment of its ``kappa drivers``, in which a driver runs whose own is on no host.
        environments: ids of all that its interpreters have, sorted.
        installed: what ``own`` is, as it would be stored.
        writer: name of the process that wrote it; of two on one host the later one's counts.
    """

    host: str
    own: str
    environments: tuple[str, ...] = ()
    installed: str = ""
    writer: str = ""

    @property
    def environment(self) -> Environment | None:
        """What is installed for its ``kappa drivers``; None where that cannot be read."""
        try:
            return Environment.from_json(self.installed, self.host)
        except KappaError:
            return None


def this_host(config: Config, writer: str = "") -> Launcher:
    """What this host has now; interpreters are asked again after something was installed for them.

    Args:
        config: the settings.
        writer: name of this process.
    """
    own = interpreters.own(config).environment
    ids = {own.id, *(one.environment.id for one in interpreters.others(config))}
    return Launcher(
        host=socket.gethostname(), own=own.id, environments=tuple(sorted(ids)), installed=own.to_json(), writer=writer
    )


def write(config: Config, launcher: Launcher) -> None:
    """Replace the file of a host, and remove those of hosts that are gone. Idempotent."""
    path = launcher_file(config.lake, launcher.host)
    store = store_of(path)
    store.make_folder(path.rpartition("/")[0])
    store.put(path, to_json(launcher).encode(), is_durable=True)
    for file, earliest in _files(config.lake):
        if file.modified < earliest:
            store.discard(file.path, earliest)


def withdraw(config: Config, launcher: Launcher) -> None:
    """Remove the file of a host that starts no more drivers, unless another process of it wrote one since."""
    path = launcher_file(config.lake, launcher.host)
    present = _read(path)
    if present is not None and present.writer == launcher.writer:
        store_of(path).delete(path)


def read(lake: str) -> tuple[Launcher, ...]:
    """All hosts with a file of the last hour that can be read, sorted; none where no ``kappa drivers`` runs."""
    paths = sorted(file.path for file, earliest in _files(lake) if file.modified >= earliest)
    return tuple(host for path in paths if (host := _read(path)) is not None)


def _files(lake: str) -> Iterator[tuple[StoredFile, datetime]]:
    """The files of hosts, and before which time one is of a host that is gone, by the store's clock."""
    folder = launcher_file(lake, "").rpartition("/")[0]
    store = store_of(folder)
    files_of_hosts = [file for file in store.files(folder) if file.path.endswith(".json")]
    if not files_of_hosts:
        return iter(())
    earliest = store.now(folder) - AGE
    return ((file, earliest) for file in files_of_hosts)


def _read(path: str) -> Launcher | None:
    """The host of a file; None where it is gone, or cannot be read: a host that nobody understands decides nothing."""
    try:
        content = store_of(path).get(path)
        return None if content is None else from_json(content, path)
    except (OSError, KappaError) as error:
        log.warning("A host that starts drivers is passed over: %s", error)
        return None


def to_json(launcher: Launcher) -> str:
    """The stored form of a launcher."""
    return json.dumps({"format": FORMAT, **asdict(launcher)}, indent=1)


def from_json(content: bytes | str, where: str) -> Launcher:
    """A stored launcher.

    Raises:
        LedgerError: it was cut short or altered.
        NewerFormatError: newer code wrote it in a format that this code does not read.
    """
    try:
        values = json.loads(content)
        stored.check_format(values.get("format"), FORMAT, what="launcher", where=where)
        launcher = stored.read(Launcher, values)
    except (ValueError, AttributeError) as error:
        raise LedgerError(
            f"The file {where} of a launcher was cut short or altered. Its host writes it again: kappa drivers",
            path=where,
        ) from error
    return replace(launcher, environments=tuple(launcher.environments))
