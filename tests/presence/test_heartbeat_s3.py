"""Heartbeats on S3: one request without an answer makes no driver look dead, and keeps no judge from its judgement."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import obstore
import pytest
from support.s3_options import config_on, write_options
from support.s3_proxy import Proxy
from support.s3_server import S3Server, objects

from kappa.config import Config
from kappa.errors import ConfigError, LakeUnreachableError
from kappa.presence import heartbeat, liveness
from kappa.presence.heartbeat import Beating
from kappa.record.ledger import Ledger

STALE_SECONDS = 6
KEY = "lake/e0001/heartbeat.json"


@pytest.fixture
def config(proxy: Proxy, tmp_path: Path) -> Config:
    """The configuration of a user whose lake is behind the proxy."""
    return config_on(proxy.server, tmp_path, KAPPA_STALE_SECONDS=str(STALE_SECONDS))


def path_of(config: Config) -> str:
    """Where the heartbeat is."""
    return f"{config.lake}/e0001/heartbeat.json"


@pytest.fixture
def beating(config: Config, proxy: Proxy) -> Iterator[Beating]:
    """A driver that beats as often as the settings say."""
    driver = Beating(path_of(config), heartbeat.this_process("me", "code"), config.beat_seconds, lambda: True)
    with contextlib.closing(driver), contextlib.closing(proxy):
        yield driver


def beats(s3: S3Server) -> Iterator[float]:
    """When the heartbeats that follow were written, by the kernel's clock, read without the proxy."""
    last = -1.0
    while True:
        at: float = json.loads(bytes(obstore.get(objects(s3), KEY).bytes()))["monotonic"]
        if at != last:
            yield at
        last = at


@pytest.mark.parametrize("kind", ["PUT", "GET"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_beat_without_an_answer_is_followed_by_another_before_its_driver_counts_as_dead(
    beating: Beating, s3: S3Server, proxy: Proxy, kind: str, times: int
) -> None:
    held = proxy.hold(r"heartbeat\.json$", kind, times=times)
    held.await_arrival(times)
    newest = beats(s3)
    assert next(newest) + STALE_SECONDS > next(newest)
    assert not beating.is_lost


def test_a_judge_waits_for_no_answer_for_longer_than_a_driver_may_be_silent(
    config: Config, beating: Beating, proxy: Proxy
) -> None:
    proxy.hold(r"heartbeat\.json$", "GET", times=None)
    started = time.monotonic()
    with pytest.raises(LakeUnreachableError):
        liveness.look(path_of(config), STALE_SECONDS)
    assert time.monotonic() - started < STALE_SECONDS


def test_a_judge_that_must_be_certain_looks_again_after_a_look_without_an_answer(
    config: Config, beating: Beating, proxy: Proxy
) -> None:
    held = proxy.refuse(r"heartbeat\.json$", "GET", times=8)
    assert liveness.settled(path_of(config), STALE_SECONDS).is_alive
    assert len(held.requests) == 8


def test_a_driver_that_cannot_see_whether_it_has_the_claim_goes_on_beating(config: Config, proxy: Proxy) -> None:
    path, ledger = path_of(config), Ledger(f"{config.lake}/e0001/ledger")
    ledger.create()
    ledger.claim("me", "code", ledger.state())
    driver = Beating(path, heartbeat.this_process("me", "code"), 60.0, lambda: Ledger(ledger.path).has_claim("me"))
    with contextlib.closing(driver):
        heartbeat.write(path, replace(heartbeat.this_process("other", "code"), message="late"))
        for status in (403, 503):
            refused = proxy.refuse(r"/ledger/", status=status)
            driver.say(message="during")
            assert len(refused.requests) > 0 and not driver.is_lost
            refused.release()
        driver.say(message="after")
        beat = heartbeat.read(path)
    assert beat is not None and (beat.writer, beat.message) == ("me", "after")


def test_heartbeats_go_on_after_a_wrong_key_was_put_right(
    beating: Beating, config: Config, proxy: Proxy, s3: S3Server, tmp_path: Path
) -> None:
    file = tmp_path / "lake.properties"
    write_options(proxy.server, file, aws_session_token="to\nken")
    with pytest.raises(ConfigError, match="aws_session_token has a blank at position 3"):
        heartbeat.read(path_of(config))
    beating.say(message="with a wrong key")
    time.sleep(2 * config.beat_seconds)  # the thread writes once at least, and fails
    write_options(proxy.server, file)
    following = beats(s3)
    next(following)
    next(following)
    assert not beating.is_lost
