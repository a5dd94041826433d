"""A stream whose brokers take tokens that soon end: clients of both kinds fetch new ones, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.brokers import watched
from support.processes import Rig, rig
from support.token_server import TokenBroker, TokenServer, started

from kappa import control
from kappa.kafka.broker import Broker
from kappa.replay.stages import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

#: Tokens that a stream outlives.
RENEWALS = 10
#: Tokens that could have been fetched in an outage: more than the attempts of a slice.
OUTAGE = 6


@pytest.fixture
def tokens(request: pytest.FixtureRequest) -> Iterator[TokenServer]:
    """A server of tokens that count for some seconds."""
    with TokenServer(seconds=request.param).serving() as server:
        yield server


@pytest.fixture
def broker(tmp_path: Path, tokens: TokenServer) -> Iterator[TokenBroker]:
    """A broker that takes its tokens."""
    one = started(tmp_path / "broker", tokens)
    with watched(one.process):
        yield one


@pytest.fixture
def machine(tmp_path: Path, tokens: TokenServer, broker: TokenBroker) -> Iterator[Rig]:
    """Drivers in processes of their own, that log in with tokens."""
    file = tmp_path / "tokens.properties"
    tokens.client_file(file)
    servers = broker.servers(file)
    with (
        Broker(servers) as client,
        rig(tmp_path, client, f"tokens{tokens.seconds}", slice_records=500, kafka_client_file=str(file)) as machine,
    ):
        client.create_topic(machine.topic, 2, {"retention.ms": "-1"})
        yield machine


def outlive(machine: Rig, tokens: TokenServer, count: int) -> None:
    """Wait until this many tokens have ended, one after the other."""
    for _ in range(count):
        end = time.monotonic() + tokens.seconds
        machine.wait(lambda end=end: time.monotonic() > end, "a token ends")


@pytest.mark.parametrize("tokens", [60], indirect=True)
def test_a_stream_and_a_replay_outlive_their_tokens(machine: Rig, tokens: TokenServer) -> None:
    with machine.feeding():
        first = machine.start()
        machine.await_live(first)
        before = dict(tokens.fetched)
        machine.deploy(2)
        second = machine.plan_replay()
        machine.await_stage(second, Stage.VERIFIED)
        outlive(machine, tokens, RENEWALS // 2)
        control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
        machine.await_live(second)
        outlive(machine, tokens, RENEWALS // 2)
    machine.settle(second)
    fetched = {kind: count - before.get(kind, 0) for kind, count in tokens.fetched.items()}
    assert min(fetched["java"], fetched["librdkafka"]) >= RENEWALS
    assert tokens.refusals == 0
    assert machine.prove({first: 1, second: 2}) > 100


@pytest.mark.parametrize("tokens", [10], indirect=True)
def test_a_stream_waits_for_a_server_of_tokens_and_goes_on(machine: Rig, tokens: TokenServer) -> None:
    with machine.feeding():
        first = machine.start()
        machine.await_live(first)
        tokens.is_out = True
        outlive(machine, tokens, OUTAGE)
        tokens.is_out = False
        before = machine.ledger(first).state().seq
        machine.wait(lambda: machine.ledger(first).state().seq > before, "it goes on")
    machine.settle(first)
    assert "stuck" not in {event.event for event in machine.record().events}
    assert machine.prove({first: 1}) > 100
