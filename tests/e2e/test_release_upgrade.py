"""One command brings all live epochs to another release of Kappa: their drivers run the release of this tree, and the
command is run by copies of it that differ.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.deaths import run_to_death
from support.epochs import TOPOLOGY
from support.processes import Rig, rig, rows

import kappa
from kappa.record.merge_on_read import contents_of, query

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = pytest.mark.e2e

INCLUDE = Path(kappa.__file__).parents[1]
#: File of the platform -> a text of it, and what a release has there instead.
Changes = Mapping[str, tuple[str, str]]
WORDS: Changes = {"clock.py": ("from datetime", "# another release\nfrom datetime")}
REVISED: Changes = {"operators/aggregates.py": ("revision=agg.revision(aggregates_of_keys.parts)", "revision=2")}
WRONG: Changes = {"operators/running_total.py": ("COALESCE(_before, 0)", "COALESCE(_before, 1)")}

TALLIES = """
from kappa.operators import agg, aggregate
from kappa.topology import Source, Topology

moves = Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL")
tallies = aggregate(moves, key="id", aggregates={{"n": agg.count()}}, table="tallies")
topology = Topology(name="{name}", version="{version}", sources=[moves], operators=[tallies])
"""


@dataclass(kw_only=True)
class Tenant(Rig):
    """One of several topologies over one source, in one lake.

    Attributes:
        text: of its file.
    """

    text: str = TOPOLOGY

    def deploy(self, version: int, factor: int | str | None = None) -> None:
        """Change its file."""
        text = self.text.format(version=version, factor=factor or version, topic=self.topic, name=self.name)
        if self.text == TOPOLOGY:
            text = text.replace(f"{self.topic}.moves", f"{self.name}.moves")
        (self.config.topologies / f"{self.name.replace('.', '_')}.py").write_text(text)

    def sent_values(self) -> Iterator[bytes]:
        """Values of its own output topic."""
        return self.values_of(f"{self.name}.moves")


@pytest.fixture
def tenants(tmp_path: Path, kafka: Broker, topic: TopicFactory) -> Iterator[list[Tenant]]:
    """Two topologies with running totals and one with an aggregate, each live after two slices."""
    with rig(tmp_path / "rig", kafka, topic(partitions=2), slice_records=20) as machine:
        (machine.config.topologies / "balances.py").unlink()
        members = [
            Tenant(config=machine.config, kafka=kafka, topic=machine.topic, name=name, session=None, text=text)  # type: ignore[arg-type]
            for name, text in (
                (f"{machine.name}_a", TOPOLOGY),
                (f"{machine.name}_b", TOPOLOGY),
                (f"{machine.name}_c", TALLIES),
            )
        ]
        try:
            machine.produce(rows(12))
            for member in members:
                member.deploy(1)
                member.start_live()
            machine.produce(rows(12, first=12), start_ms=1_700_000_060_000)
            for member in members:
                member.settle(1)
            yield members
        finally:
            for member in members:
                member.close()


def release(folder: Path, *changes: Changes) -> Path:
    """A copy of the platform with other texts in some of its files."""
    shutil.copytree(INCLUDE / "kappa", folder / "kappa", ignore=shutil.ignore_patterns("__pycache__"))
    for one in changes:
        for name, (old, new) in one.items():
            file = folder / "kappa" / name
            assert old in file.read_text(), name
            file.write_text(file.read_text().replace(old, new, 1))
    return folder


def environ(member: Tenant, folder: Path) -> dict[str, str]:
    """The environment of a command of a release."""
    return {**os.environ, **member.config.to_env(), "PYTHONPATH": f"{folder}{os.pathsep}{INCLUDE}"}


def upgraded(member: Tenant, folder: Path, *words: str) -> dict[str, dict[str, Any]]:
    """The answer of the command, by topology; one of them is refused."""
    done = subprocess.run(
        [sys.executable, "-m", "kappa", "upgrade", "--all", "--json", *words],
        env=environ(member, folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return {item["topology"]: item for item in json.loads(done.stdout)["topologies"]}


@pytest.mark.parametrize("changes", [WORDS, REVISED, WRONG], ids=["words", "revised", "wrong"])
def test_what_another_release_changes_is_in_this_one(changes: Changes, tmp_path: Path) -> None:
    """Before a landing: the test below is of a night."""
    release(tmp_path, changes)


def test_all_live_epochs_go_over_but_for_those_that_a_release_computes_otherwise(
    tenants: list[Tenant], tmp_path: Path
) -> None:
    one, two, three = tenants
    first = {member.name: member.record().epoch(1).code for member in tenants}
    answer = upgraded(one, release(tmp_path / "wrong", WRONG))
    assert {name: item["standing"] for name, item in answer.items()} == {
        one.name: "refused",
        two.name: "refused",
        three.name: "goes over",
    }
    assert "column total: changed in" in "\n".join(answer[one.name]["reasons"])
    assert {member.record().epoch(1).code for member in tenants} == set(first.values())

    assert answer[three.name]["evidence"].startswith("2 slices, ")
    assert answer[three.name]["evidence"].endswith(" rows equal")

    new = release(tmp_path / "new", WORDS, REVISED)
    words = ("-m", "kappa", "upgrade", "--all", "--execute")
    run_to_death(*words, point="upgrade.next", environ=environ(one, new))
    assert one.beat(1).code == one.record().epoch(1).code != first[one.name]
    assert two.record().epoch(1).code == first[two.name] and two.record().epoch(1).upgrade is None
    run_to_death(*words, point="upgrade.asked", environ=environ(one, new))
    assert [event.event for event in two.record().events].count("upgrade") == 1

    answer = upgraded(one, new, "--execute")
    assert {name: item["standing"] for name, item in answer.items()} == {
        one.name: "runs this release",
        two.name: "runs this release",
        three.name: "refused",
    }
    (why,) = answer[three.name]["reasons"]
    assert "operator 'aggregate' has revision 2, and tables/tallies was made by revision 1" in why
    for member in (one, two):
        (request,) = [event for event in member.record().events if event.event == "upgrade"]
        assert (request.detail["history_stands"], request.detail["verdict"]) == (False, "same")
        assert request.reason == f"Kappa {kappa.__version__}"
    assert three.beat(1).code == three.record().epoch(1).code == first[three.name]

    one.produce(rows(12, first=24), start_ms=1_700_000_120_000)
    for member in tenants:
        member.settle(1)
    assert one.prove({1: 1}) == two.prove({1: 1}) == 36
    for member in (one, two):
        (switch,) = [row for row in member.ledger(1).rows() if row.kind == "upgrade"]
        last = member.ledger(1).state().commits[-1]
        assert last.seq > switch.seq and last.code == member.record().epoch(1).code
    committed = three.ledger(1).state().committed
    tallies = query(contents_of(three.paths(1), committed, "tallies"), select="SUM(n) AS n")
    assert tallies["n"][0].as_py() == 33
