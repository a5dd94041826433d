"""A rig whose lake is on S3, what others read of that lake, and the requests that its drivers may need."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import obstore
import orjson
import pytest
from deltalake import DeltaTable

from kappa.config import Config
from kappa.driver.processes import process
from kappa.driver.processes.launcher import launch
from kappa.kafka.broker import Broker
from kappa.names import epoch_word
from support.epochs import Place, content, place, read_messages
from support.processes import Rig, rig
from support.s3_options import write_options
from support.s3_proxy import Proxy
from support.s3_server import S3Server, objects

PREFIX = "lake"

#: Most requests in a second of a live epoch without records, with the settings that users have.
IDLE = {"HEAD": 0.4, "GET": 1.9, "PUT": 0.6, "LIST": 0.0, "DELETE": 0.0}

#: Name of a commit of a small slice that merges -> the table that it is in, and which one of the slice's it is there.
COMMITS = {
    "plan": ("ledger", 1),
    "dead letters": ("dead_letters", 1),
    "output": ("outputs/moves", 1),
    "changes": ("changes/balances", 1),
    "effects": ("ledger", 2),
    "table": ("tables/balances", 1),
    "commit": ("ledger", 3),
}


AnyS3Rig = TypeVar("AnyS3Rig", bound="S3Rig")


@dataclass(kw_only=True)
class S3Rig(Rig):
    """A rig whose drivers reach the store through a proxy, while the test's own process goes there directly.

    That process may not use its own proxy: `deltalake` holds Python's lock in some of its requests.

    Attributes:
        proxied: client file of the drivers.
    """

    proxied: str = ""

    @contextlib.contextmanager
    def _launching(self, crash: str) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(process, "launch", self._launch)
            with super()._launching(crash):
                yield

    def _launch(self, config: Config, topology: str, epoch: int, code: str, last_claim: int, **where: str) -> int:
        # Not by replace(): a new configuration says which file this process is to read, and what a thread of it opens
        # at that moment would reach the proxy from within the proxy's own process.
        of_driver = copy.copy(config)
        object.__setattr__(of_driver, "lake_client_file", self.proxied)
        return launch(of_driver, topology, epoch, code, last_claim, **where)


@contextlib.contextmanager
def s3_rig(
    base: Path,
    kafka: Broker,
    topic: str,
    server: S3Server,
    proxy: Proxy,
    *,
    kind: type[AnyS3Rig] = S3Rig,  # type: ignore[assignment]
    **settings: Any,
) -> Iterator[AnyS3Rig]:
    """A rig on a bucket: each process logs in by a client file, as those of a user do.

    Args:
        server: the store.
        proxy: where drivers find it.
        kind: a rig that can do more.
        settings: other settings than those of a rig.
    """
    base.mkdir(parents=True, exist_ok=True)
    direct, proxied = (_client_file(base, one) for one in (server, proxy.server))
    places = {"lake": f"{server.url}/{PREFIX}", "lake_client_file": direct}
    with rig(base, kafka, topic, kind=kind, **places, **settings) as machine:
        machine.proxied = proxied
        yield machine


def _client_file(base: Path, server: S3Server) -> str:
    return str(write_options(server, base / f"{server.endpoint.rpartition(':')[2]}.properties"))


def entries(path: str) -> str:
    """A pattern of the keys of a Delta table's commits."""
    return rf"^{_key(path)}/_delta_log/\d+\.json$"


def keys(machine: Rig, server: S3Server, epoch: int) -> list[str]:
    """Objects of an epoch, in its own folder and in those of its tables."""
    prefix = _key(f"{machine.config.lake}/{machine.name}/")
    of_topology = (meta["path"] for chunk in obstore.list(objects(server), prefix=prefix) for meta in chunk)
    return [key for key in of_topology if re.search(rf"/_?{epoch_word(epoch)}/", key)]


def _key(path: str) -> str:
    """The key of a path in the lake."""
    return f"{PREFIX}/{path.partition(f'/{PREFIX}/')[2]}"


def check_plain_readers(machine: Rig, server: S3Server) -> None:
    """Hold that a plain consumer and a plain reader of Delta get each good record of the topic once."""
    raw = read_messages(machine.config.bootstrap_servers, machine.topic)
    good = sorted(place(message) for message in raw if _is_good(content(message)))
    path = machine.paths(machine.record().live).output("moves")
    rows = DeltaTable(path, storage_options=server.options).to_pyarrow_table(columns=["_partition", "_offset"])
    read: list[Place] = [(row["_partition"], row["_offset"]) for row in rows.to_pylist()]
    assert sorted(read) == good
    assert sum(1 for _ in machine.sent_values()) == len(good)


def await_puts(machine: Rig, proxy: Proxy, key: str, count: int, since: int) -> None:
    """Wait until objects of a pattern were put this often; the wait itself makes no request.

    Args:
        since: how many of the proxy's requests to leave out.
    """

    def is_put() -> bool:
        puts = [one for one in proxy.requests[since:] if one.kind == "PUT" and re.search(key, one.key)]
        return len(puts) >= count

    machine.wait(is_put, f"{count} PUTs of {key}")


def _is_good(value: bytes) -> bool:
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError:
        return False
    return True


#: What docs/cost.md has -> the most requests of each kind, a fifth more than measured.
LIMITS: dict[str, dict[str, float]] = {
    "a second without records": IDLE,
    # It merges nothing; the heartbeats and looks at the record within it count. Of the GET the limit is higher, since
    # each second that a slice takes longer has one or two.
    "a small slice": {"HEAD": 7.2, "GET": 20.0, "PUT": 15.0, "LIST": 1.0},
    "a merge of 25 slices": {"HEAD": 3, "GET": 255, "PUT": 5, "LIST": 10},
    "a query": {"GET": 345, "LIST": 10},
    "a look at the status": {"GET": 150, "LIST": 8},
    "a replay of 60,000 records": {"HEAD": 45, "GET": 450, "PUT": 100, "LIST": 76},
    "a run of an archiver, 60,000 records": {"HEAD": 25, "GET": 175, "PUT": 50, "LIST": 40},
    "a run of an archiver, 12 records": {"HEAD": 27, "GET": 250, "PUT": 36, "LIST": 23},
}


def excess(counts: Mapping[str, float], what: str) -> dict[str, float]:
    """Kinds of requests of which there were more than docs/cost.md says, with their number.

    Args:
        counts: the number of each kind.
        what: a key of :data:`LIMITS`.
    """
    return {kind: count for kind, count in counts.items() if count > LIMITS[what].get(kind, 0)}
