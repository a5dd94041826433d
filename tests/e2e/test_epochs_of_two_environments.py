"""The team's own library in two versions and Kappa in two: an epoch runs in its own environment, or somebody decides.

Both environments are real: wheels installed into virtual environments, and commands of these that start drivers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from support import environments
from support.epochs import TOPOLOGY
from support.processes import Rig, rig

from kappa.environments import files
from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.e2e, pytest.mark.spark, pytest.mark.xdist_group("wheel")]

SOURCE = '"""Prices."""\n\ndef factor() -> int:\n    """How often an amount counts."""\n    return {factor}\n'


class Team(Rig):
    """A team whose topology calls its library, which two environments have in two versions."""

    template: ClassVar[str] = TOPOLOGY.replace(
        "from kappa.operators", "import pricing\n\nfrom kappa.operators"
    ).replace('selectExpr("*", "CAST(amount * {factor} AS', 'selectExpr("*", f"CAST(amount * {{pricing.factor()}} AS')

    def kappa(self, place: environments.Environment, *words: str, code: int = 0) -> str:
        """What a command of an environment prints."""
        run = subprocess.run(
            [place.command, *words],
            cwd=self.config.home.parent,
            env={
                "PATH": os.environ["PATH"],
                "HOME": os.environ["HOME"],
                **self.config.to_env(),
                "KAPPA_ENVIRONMENTS": f"{place.folder.parent}/*/bin/python",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert run.returncode == code, f"{words}: {run.stdout[-6000:]}\n{self.last_words()}"
        return run.stdout

    def counted(self, account: str, amount: int, expected: int, epoch: int) -> None:
        """Send a record of a new account, and wait until an epoch counts it this often."""
        self.produce([(account, amount)])
        self.wait(lambda: self.balances(epoch).get(account) == amount * expected, f"{account} counts {expected} times")

    def environment_of(self, epoch: int) -> tuple[dict[str, str], str]:
        """What the last claim of an epoch says of its environment, and the interpreter of its driver."""
        claim = self.ledger(epoch).state().claim
        assert claim is not None
        command = Path(f"/proc/{self.beat(epoch).pid}/cmdline").read_bytes().split(b"\0")[0].decode()
        return {name: value for name, value in claim.detail.items() if name != "taken"}, command


@pytest.fixture
def team(tmp_path: Path, kafka: Broker, topic: Callable[..., str]) -> Iterator[Team]:
    """A team with an empty lake."""
    with rig(tmp_path / "team", kafka, topic(2), kind=Team) as one:
        yield one


@pytest.fixture(scope="module")
def places(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> list[environments.Environment]:
    """Two environments: an earlier Kappa with version 1.0 of the library, a later Kappa with version 2.0."""
    base = tmp_path_factory.mktemp("environments")
    later = environments.wheel(base / "built", version="0.1.1")
    both = []
    for number, built in ((1, wheel), (2, later)):
        folder = base / "opt" / f"environment-{number}"
        both.append(environments.environment(folder, built, ("driver",)))
        source = SOURCE.format(factor=number)
        environments.install(folder, environments.library(base / "built", "pricing", f"{number}.0", source))
    return both


def test_a_rollback_runs_the_library_of_its_epoch_or_says_what_is_missing(
    team: Team, places: list[environments.Environment]
) -> None:
    first, second = places
    team.produce([("a", 5)])
    team.kappa(first, "start", team.name, "--execute")
    team.await_live(1)
    team.counted("b", 7, 1, epoch=1)
    of_first, interpreter = team.environment_of(1)
    assert interpreter == str(first.python)

    team.deploy(2)
    team.kappa(second, "replay", team.name, "--execute")
    team.kappa(second, "cutover", team.name, "--execute")
    team.await_live(2)
    team.counted("c", 7, 2, epoch=2)
    of_second, interpreter = team.environment_of(2)
    assert interpreter == str(second.python)
    assert of_first.keys() == of_second.keys() == {"environment"}
    assert files.load(team.paths(1), of_first["environment"]).distributions["pricing"] == "1.0"
    assert files.load(team.paths(2), of_second["environment"]).distributions["kappa-replay"] == "0.1.1"

    # Both environments are there: the command of one starts a driver of the other.
    team.kappa(second, "rollback", team.name, "--reason", "back", "--execute")
    team.counted("d", 7, 1, epoch=1)
    assert team.environment_of(1) == (of_first, str(first.python))

    # Its environment is removed and its driver dies: the stream goes on in another one, which it says.
    shutil.move(first.folder, first.folder.parent.parent / "removed")
    team.kill(1)
    team.kappa(second, "start", team.name, "--execute")
    team.counted("e", 7, 2, epoch=1)
    strayed = {"environment": of_second["environment"], "instead_of": of_first["environment"]}
    assert team.environment_of(1) == (strayed, str(second.python))
    status = team.kappa(second, "status", team.name)
    assert "instead of its own, " + of_first["environment"][:12] in status
    assert "pricing was 1.0, and is 2.0 now" in status

    # Forward, where the environment is; then back, where it is not.
    team.kappa(second, "rollback", team.name, "--execute")
    events = len(team.record().events)
    refusal = team.kappa(second, "rollback", team.name, "--execute", code=1)
    assert "pricing was 1.0, and is 2.0 now" in refusal and "kappa-replay" not in refusal.split("has:")[1]
    assert refusal.rstrip().endswith(f"kappa rollback {team.name} --to 1 --in-this-environment --execute")
    problem = json.loads(team.kappa(second, "rollback", team.name, "--json", code=1).splitlines()[-1])
    assert problem["data"]["differences"] == [{"name": "pricing", "then": "1.0", "now": "2.0"}]
    assert len(team.record().events) == events, "nothing was changed"

    team.kappa(second, "rollback", team.name, "--in-this-environment", "--reason", "urgent", "--execute")
    team.counted("f", 7, 2, epoch=1)
    assert team.environment_of(1) == (of_second, str(second.python)), "it is its own from now on"
    decided = [e for e in team.record().events if e.detail.get("in_environment") == of_second["environment"]]
    assert {("recalled", "urgent"), ("moved", "urgent")} <= {(e.event, e.reason) for e in decided}
    assert "by decision" in team.kappa(second, "history", team.name)
