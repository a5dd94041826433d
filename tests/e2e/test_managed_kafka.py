"""A stream on brokers of a platform team: a policy refuses topics, and a login may create none."""

from __future__ import annotations

import itertools
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import topic_policy
from support.brokers import watched
from support.processes import Rig
from support.secured import produce, rights, secured_rig

from kappa import control
from kappa.errors import RefusedError
from kappa_local import doctor, kafka, logins

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.KafkaProcess]:
    """A broker with a policy, users and rights."""
    with watched(topic_policy.started(tmp_path_factory.mktemp("managed"), is_secure=True)) as process:
        yield process


@pytest.fixture
def machine(request: pytest.FixtureRequest, tmp_path: Path, broker: kafka.KafkaProcess) -> Iterator[Rig]:
    """Drivers in processes of their own, that log in with the rights of the table as far as the test grants them."""
    with secured_rig(tmp_path, broker, f"managed{next(_numbers)}.source", request.param) as machine:
        produce(machine, broker, 60)
        yield machine


def refusal(machine: Rig) -> RefusedError:
    """Why a first start is refused; nothing was made."""
    before = machine.kafka.topics()
    with pytest.raises(RefusedError) as refused:
        control.start(machine.config, machine.name, actor="test")
    assert machine.kafka.topics() == before
    return refused.value


def doubts(machine: Rig) -> dict[str, doctor.Proof]:
    """What the doctor says of brokers and topics."""
    proofs = {}
    for proof in doctor.proofs(machine.config):
        proofs[proof.name] = proof
        if proof.name == "topics":
            break
    return proofs


def live_through(machine: Rig) -> None:
    """Start, replay, cut over, roll back, and rebuild."""
    first = machine.live_twice()
    machine.deploy(1)
    third = machine.rebuild(first)
    totals = machine.balances()
    assert totals
    assert totals == machine.balances(first)
    assert totals == machine.folded(third)


@pytest.mark.parametrize("machine", [rights()], ids=["all rights"], indirect=True)
def test_a_policy_refuses_a_start_until_topics_are_made_as_it_wants(machine: Rig) -> None:
    refused = refusal(machine)
    changelog = machine.paths(1).changelog("balances")
    (finding,) = [one for one in refused.data["findings"] if one.numbers["topic"] == changelog]
    assert finding.code == "topic-refused"
    assert finding.numbers["refused"] == ["retention.ms", "segment.ms", "max.message.bytes"]
    assert finding.numbers["policy"] == topic_policy.POLICY
    assert f'"{changelog.replace(".e0001.", ".e*.")}": {{"retention.ms": ""' in str(refused)
    proof = doubts(machine)["topics"]
    assert not proof.ok and topic_policy.POLICY in proof.detail and changelog in proof.remedy

    machine.config = replace(machine.config, topic_settings=topic_policy.ACCEPTED)
    assert doubts(machine)["topics"].ok
    live_through(machine)


@pytest.mark.parametrize("machine", [rights(without="Create")], ids=["all but Create"], indirect=True)
def test_a_login_without_create_is_told_all_commands_and_runs_on_their_topics(
    machine: Rig, broker: kafka.KafkaProcess
) -> None:
    machine.config = replace(machine.config, topic_settings=topic_policy.ACCEPTED)
    refused = refusal(machine)
    (finding,) = refused.data["findings"]
    assert finding.code == "topics-missing"
    commands = machine.output_of("topics", "commands", machine.name).splitlines()
    assert len(commands) == 3
    assert all(command in finding.remedy for command in commands)
    proofs = doubts(machine)
    assert proofs["kafka"].ok and "lets this login create no topic" in proofs["kafka"].detail
    assert not proofs["topics"].ok and commands[0] in proofs["topics"].remedy

    admin = logins.client_file_path(broker.data_dir, logins.ADMIN)
    for line in machine.output_of("topics", "commands", machine.name, "--epochs", "3").splitlines():
        words = [str(admin) if word == "admin.properties" else word for word in shlex.split(line)[1:]]
        subprocess.run(kafka.tool("org.apache.kafka.tools.TopicCommand", *words), check=True)
    assert doubts(machine)["topics"].ok
    live_through(machine)
    assert sorted(machine.record().epochs) == [1, 2, 3]
