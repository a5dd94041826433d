"""A live driver on S3 whose keys are valid for a minute each: it outlives them, and no request is refused.

The store has a certificate of a private authority, and permits a key for as long as it is valid. Spark writes each
slice and merges it, ``deltalake`` opens the tables, and obstore has the ledger and the heartbeats.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.processes import Rig, engines, rows
from support.s3_lake import S3Rig, check_plain_readers, s3_rig
from support.s3_logins import ROLE, Sessions, certificates, token_service
from support.s3_options import NO_KEYS, without_login, write_options
from support.s3_proxy import Proxy, s3_proxy
from support.s3_server import S3Server

from kappa import properties
from kappa.kafka.broker import Broker
from kappa_local.logins import write_private

if TYPE_CHECKING:
    from conftest import TopicFactory

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

LIFETIME, RENEWAL, LIVES = timedelta(minutes=1), timedelta(seconds=20), 3
SETTINGS = {"small_slice": 0, "arrow_rows": 0, "merge_seconds": 5.0, "heartbeat_seconds": 0.0}
#: Puts new keys in place of those before.
Renew = Callable[[], object]


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(LIFETIME)


@pytest.fixture
def proxy(s3: S3Server, tmp_path: Path, sessions: Sessions) -> Iterator[Proxy]:
    with s3_proxy(s3, certificate=certificates(tmp_path)[0], permits=sessions.permits) as listening:
        yield listening


@pytest.fixture
def machine(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, s3: S3Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> Iterator[S3Rig]:
    without_login(monkeypatch)
    with s3_rig(tmp_path, kafka, topic(partitions=2), s3, proxy, **SETTINGS) as machine:
        yield machine


@pytest.fixture(params=["client file", "profile", "token"])
def renew(
    request: pytest.FixtureRequest,
    machine: S3Rig,
    proxy: Proxy,
    sessions: Sessions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Renew]:
    """Keys in the drivers' client file, or in a profile that it names; or none, for a pod that has a token."""
    certificate, authority = (tmp_path / "logins" / name for name in ("broker.pem", "ca.pem"))
    login = Path(machine.proxied)
    options = {"aws_ca_bundle": str(authority), **NO_KEYS}
    if request.param == "client file":
        yield lambda: write_options(proxy.server, login, **options | sessions.issue())
    elif request.param == "profile":
        profiles = tmp_path / "credentials"
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
        write_options(proxy.server, login, aws_profile="orders", **options)
        yield lambda: write_private(profiles, f"[orders]\n{properties.written(sessions.issue())}")
    else:
        write_options(proxy.server, login, **options)
        (tmp_path / "token").write_text("the-token")
        with token_service(sessions, "the-token", certificate) as service:
            monkeypatch.setenv("AWS_ENDPOINT_URL_STS", service)
            monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
            monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
            yield lambda: None


def test_a_live_driver_outlives_its_keys(
    machine: Rig, renew: Renew, s3: S3Server, proxy: Proxy, sessions: Sessions
) -> None:
    with renewing(renew):
        machine.produce(rows(12))
        epoch = machine.start_live()
        driver = machine.beat(epoch).pid
        with machine.feeding(pause_seconds=0.2):
            for _ in range(LIVES):
                await_flow(machine, epoch, LIFETIME)
        machine.settle(epoch)
        assert machine.beat(epoch).pid == driver
        machine.close()
    assert proxy.refusals == []
    assert len(sessions.users) > LIVES
    for table in ("outputs/moves", "tables/balances"):
        assert "Apache-Spark" in engines(machine, epoch, table)
    assert machine.prove({epoch: 1}) > 12
    check_plain_readers(machine, s3)


@contextlib.contextmanager
def renewing(renew: Renew) -> Iterator[None]:
    """Within, there are new keys long before the last ones expire."""
    stopping = threading.Event()

    def go_on() -> None:
        while not stopping.wait(RENEWAL.total_seconds()):
            renew()

    renew()
    thread = threading.Thread(target=go_on, name="renewing")
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def await_flow(machine: Rig, epoch: int, span: timedelta) -> None:
    """Wait for a time, and until a slice was committed after it."""
    end = time.monotonic() + span.total_seconds()
    machine.wait(lambda: time.monotonic() > end, f"{span} are over")
    before = machine.ledger(epoch).state().seq
    machine.wait(lambda: machine.ledger(epoch).state().seq > before, "the stream flows")
