"""What another release of Kappa means for each live epoch of a lake, without a driver and without Spark."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.page_lake import CANDIDATE, TopologyStory, report, steady
from typer.testing import CliRunner

import kappa
from kappa import clock
from kappa.cli import app
from kappa.config import Config
from kappa.control import environments
from kappa.control import release_upgrades as releases
from kappa.control import upgrade as upgrading
from kappa.control.release_upgrades import ReleaseUpgrade, Standing
from kappa.control.upgrade import Upgrade
from kappa.driver.upgrade import overtaken
from kappa.environments import files, interpreters
from kappa.errors import KappaError
from kappa.names import code_file
from kappa.record import code as code_store
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.spark.session import LazySession

INCLUDE = Path(kappa.__file__).parents[1]
TOPOLOGY = """
from kappa import Append, Source, Topology

topology = Topology(name="{name}", version="1", sources=[Source(topic="pos", schema="id STRING")],
    outputs=[Append(name="rows", schema="id STRING")], step=lambda slice: {{"rows": slice["pos"]}})
"""
SHAPES = {"outputs/rows": {"key": [], "columns": {"id": "STRING"}, "required": []}}


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The platform of another release."""
    folder = tmp_path_factory.mktemp("former")
    shutil.copytree(INCLUDE / "kappa", folder / "kappa", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "kappa" / "clock.py").write_text("# as it was\n")
    return folder


@pytest.fixture
def config(tmp_path: Path) -> Config:
    folders = {name: str(tmp_path / name.lower()) for name in ("HOME", "LAKE", "TOPOLOGIES")}
    settings = Config.from_env(
        {f"KAPPA_{name}": path for name, path in folders.items()} | {"KAPPA_LAUNCHER": "elsewhere"}
    )
    settings.topologies.mkdir()
    return settings


def file_of(config: Config, name: str) -> Path:
    return config.topologies / f"{name.replace('.', '_')}.py"


def live(config: Config, name: str, platform: Path = INCLUDE, **ledger: Any) -> TopologyStory:
    """A topology that is live with the deployed file and a platform."""
    file_of(config, name).write_text(TOPOLOGY.format(name=name))
    code = code_store.store(config.lake, config.topologies, name, platform=platform)
    now = clock.now()
    story = TopologyStory(config=config, name=name, partitions=1, **{"shapes": SHAPES, **ledger})
    story.begin(1, now, topic_ids={"pos": "id-1"}, code=code)
    story.move(1, None, 0, now)
    story.ledger(1, steady(now, 3))
    return story


def look(config: Config, name: str, history_stands: bool = False) -> ReleaseUpgrade:
    with LazySession(config=config, name="not started") as spark:
        return releases.propose(config, name, slices=0, history_stands=history_stands, spark=spark)


def go_over(config: Config, item: ReleaseUpgrade) -> ReleaseUpgrade:
    return releases.go_over(config, item, history_stands=True, actor="ada", reason="0.2", wait=False)


def test_each_live_epoch_gets_an_answer_of_its_own(config: Config, former: Path) -> None:
    live(config, "a.current")
    live(config, "b.own", former)
    file_of(config, "b.own").write_text(TOPOLOGY.format(name="b.own") + "# more\n")
    live(config, "c.undeployed", former)
    file_of(config, "c.undeployed").unlink()
    live(config, "d.busy", former).begin(2, clock.now(), live=1, stages=CANDIDATE)
    live(config, "e.revised", former, shapes={"outputs/rows": {**SHAPES["outputs/rows"], "columns": {"id": "BIGINT"}}})
    Path(code_file(config.lake, live(config, "f.lost", former).epochs.record("f.lost").epoch(1).code)).unlink()
    live(config, "g.ready", former)
    names = releases.live_topologies(config)
    items = {name: look(config, name, history_stands=True) for name in names}
    assert {name: item.standing for name, item in items.items()} == {
        "a.current": Standing.CURRENT,
        "b.own": Standing.OWN,
        "c.undeployed": Standing.OWN,
        "d.busy": Standing.REFUSED,
        "e.revised": Standing.REFUSED,
        "f.lost": Standing.REFUSED,
        "g.ready": Standing.READY,
    }
    assert "b_own.py" in items["b.own"].reasons[0] and items["b.own"].command == "kappa upgrade b.own"
    assert "upgrade-beside-candidate" in items["d.busy"].reasons[0]
    assert "column 'id' of outputs/rows is STRING, not BIGINT" in items["e.revised"].reasons[0]
    assert "is not in the lake" in items["f.lost"].reasons[0]
    commands = {name: items[name].command for name in ("d.busy", "e.revised", "f.lost")}
    assert commands == {
        "d.busy": "kappa cutover d.busy",
        "e.revised": "kappa replay e.revised",
        "f.lost": "kappa replay f.lost",
    }
    assert [event.event for event in Epochs(config.lake).record("g.ready").events][-1] == "moved"


def test_an_epoch_without_evidence_goes_over_only_with_a_word(config: Config, former: Path) -> None:
    live(config, "a.idle", former)
    item = look(config, "a.idle")
    assert item.standing == Standing.REFUSED and "upgrade-without-evidence" in item.reasons[0]
    assert item.command == "kappa upgrade a.idle --history-stands --reason '...' --execute"
    item = go_over(config, look(config, "a.idle", history_stands=True))
    assert (item.standing, item.command) == (Standing.ASKED, "")
    (event,) = [one for one in Epochs(config.lake).record("a.idle").events if one.event == "upgrade"]
    assert (event.actor, event.reason, event.detail["history_stands"]) == ("ada", "0.2", True)


def test_an_upgrade_that_was_asked_for_is_not_asked_for_again(config: Config, former: Path) -> None:
    live(config, "a.twice", former)
    first = look(config, "a.twice", history_stands=True)
    assert go_over(config, first).standing == Standing.ASKED
    again = look(config, "a.twice")
    assert (again.standing, again.command) == (Standing.ASKED, "kappa start a.twice --execute")
    TopologyStory(config=config, name="a.twice").beat(1)
    assert look(config, "a.twice").command == "kappa status a.twice", "its driver runs"
    assert go_over(config, again).standing == Standing.ASKED
    late = go_over(config, first)  # another command has looked at the same time
    assert late.standing == Standing.REFUSED and "has already asked for an upgrade" in late.reasons[0]
    assert [one.event for one in Epochs(config.lake).record("a.twice").events].count("upgrade") == 1


def test_a_pending_upgrade_is_withdrawn_by_the_release_that_the_epoch_runs(config: Config, former: Path) -> None:
    story = live(config, "a.back")
    running = story.epochs.record("a.back").epoch(1).code
    other = code_store.store(config.lake, config.topologies, "a.back", platform=former)
    story.tell(1, "upgrade", clock.now(), code=other, version="1", history_stands=True, **{"from": running})
    item = look(config, "a.back")
    assert item.standing == Standing.READY and f"to code {other[:12]} is withdrawn" in item.reasons[0]
    words = ["upgrade", "a.back", "--reason", "not now", "--execute"]
    assert "upgrade that live epoch 1 of a.back" in CliRunner().invoke(app, words[:2], env=config.to_env()).output
    assert go_over(config, item).standing == Standing.CURRENT
    record = Epochs(config.lake).record("a.back")
    assert (record.epoch(1).upgrade, record.epoch(1).code) == (None, running)
    assert (record.events[-1].event, record.events[-1].actor) == ("upgrade_withdrawn", "ada")
    assert look(config, "a.back").standing == Standing.CURRENT
    story.tell(1, "upgrade", clock.now(), code=other, version="1", history_stands=True, **{"from": running})
    result = CliRunner().invoke(app, words, env=config.to_env())
    assert result.exit_code == 0 and "The upgrade is withdrawn" in result.output, result.output
    assert Epochs(config.lake).record("a.back").events[-1].reason == "not now"


def test_a_pending_upgrade_to_other_code_is_replaced(config: Config, former: Path) -> None:
    story = live(config, "a.other", former)
    running = story.epochs.record("a.other").epoch(1).code
    story.tell(1, "upgrade", clock.now(), code="of 0.2", version="1", history_stands=True, **{"from": running})
    item = look(config, "a.other", history_stands=True)
    assert item.standing == Standing.READY
    assert go_over(config, item).standing == Standing.ASKED
    *_, withdrawn, request = Epochs(config.lake).record("a.other").events
    assert (withdrawn.event, request.event) == ("upgrade_withdrawn", "upgrade")
    pending = Epochs(config.lake).record("a.other").epoch(1).upgrade
    assert pending is not None and pending.detail["code"] == item.to_code


def test_an_upgrade_that_the_ledger_has_is_not_withdrawn(config: Config, former: Path) -> None:
    story = live(config, "a.late")
    record = story.epochs.record("a.late")
    detail = {"code": "of 0.2", "version": "1", "history_stands": True, "from": record.epoch(1).code}
    story.tell(1, "upgrade", clock.now(), **detail)
    early = look(config, "a.late")
    ledger, request = Ledger(story.paths(1).ledger), story.epochs.record("a.late").epoch(1).upgrade
    assert request is not None
    ledger.claim("d", "c", ledger.state())
    place = {"at": {}, "savepoint": "before-upgrade-e1-s3"}
    row = LedgerRow(
        kind="upgrade", seq=3, writer="d", at=clock.now(), code="of 0.2", detail={"asked": request.n, **place}
    )
    ledger.append(row)
    assert look(config, "a.late").standing == Standing.REFUSED
    late = go_over(config, early)  # it has looked before the driver wrote its row
    assert "went over to code of 0.2 before its upgrade was withdrawn" in late.reasons[0]
    epochs = Epochs(config.lake)
    why = overtaken(epochs, story.paths(1), epochs.record("a.late").epoch(1), ledger.state(), "c")
    assert why is not None and epochs.record("a.late").epoch(1).code == "of 0.2", "the ledger decides"
    assert overtaken(epochs, story.paths(1), epochs.record("a.late").epoch(1), ledger.state(), "of 0.2") is None
    assert [one.event for one in epochs.record("a.late").events].count("upgraded") == 1


def test_a_stopped_epoch_goes_over_when_it_is_started(config: Config, former: Path) -> None:
    live(config, "a.stopped", former).tell(1, "stop", clock.now())
    item = go_over(config, look(config, "a.stopped", history_stands=True))
    assert (item.standing, item.command) == (Standing.ASKED, "kappa start a.stopped --execute")


def test_a_difference_is_refused_whatever_the_word(config: Config, former: Path) -> None:
    live(config, "a.differs", former)
    item = look(config, "a.differs", history_stands=True)
    assert item.proposal is not None
    differs = replace(item.proposal, evidence=report("a.differs"), slices=3, due=3)
    judged = releases.judged(item, differs, history_stands=True)
    assert (judged.standing, judged.command) == (Standing.REFUSED, "kappa replay a.differs")
    assert judged.evidence == "3 slices, differs"


def test_changes_that_could_not_be_compared_need_a_word(config: Config, former: Path) -> None:
    live(config, "a.merged", former)
    item = look(config, "a.merged", history_stands=True)
    assert item.proposal is not None
    same = replace(report("a.merged"), tables=(), outputs=(), checks=(), thresholds=(), determinism=None, set_aside=0)
    gap = "Changes of table sums by slices 1 to 2 are merged and gone."
    merged = replace(item.proposal, evidence=same, slices=3, due=3, rows=5, gaps=(gap,), is_equal=False)
    judged = releases.judged(item, merged, history_stands=False)
    assert (judged.standing, judged.reasons[0]) == (Standing.REFUSED, gap)
    assert judged.command == "kappa upgrade a.merged --history-stands --reason '...' --execute"
    assert judged.evidence == "3 slices, 5 rows equal where they are still there"
    assert releases.judged(item, merged, history_stands=True).standing == Standing.READY


def test_the_command_ends_where_a_driver_does_not_run_after_it_went_over(
    config: Config, former: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("a.down", "b.next")
    stories = {name: live(config, name, former) for name in names}
    shipped = code_store.code_hash(config.topologies, "a.down")

    def ends(_: Config, proposal: Upgrade) -> None:
        request = Epochs(config.lake).record("a.down").epoch(1).upgrade
        assert request is not None
        detail = {"code": shipped, "from": proposal.from_code, "version": "1", "upgrade": request.n, "seq": 3}
        stories["a.down"].tell(1, "upgraded", clock.now(), **detail, at={}, savepoint="before-upgrade-e1-s3")
        raise KappaError("The driver of epoch 1 of 'a.down' ended at once. See its log: a.log")

    monkeypatch.setattr(upgrading, "await_switch", ends)
    words = ["upgrade", "--all", "--slices", "0", "--history-stands", "--reason", "new", "--execute"]
    result = CliRunner().invoke(app, words, env=config.to_env())
    assert result.exit_code == 1
    assert "a.down, epoch 1, went over, and its driver does not run:" in result.output
    assert "ended at once" in result.output and "kappa status a.down" in result.output
    assert "the driver of a.down does not run: b.next" in result.output
    assert [one.event for one in Epochs(config.lake).record("b.next").events][-1] == "moved"


def test_another_environment_than_the_drivers_is_named_before_an_epoch_goes_over(config: Config, former: Path) -> None:
    story = live(config, "a.elsewhere", former)
    other = replace(interpreters.own(config).environment, distributions={"pricing": "1.0"})
    files.store(story.paths(1), other)
    ledger = Ledger(story.paths(1).ledger)
    ledger.claim("driver", "c", ledger.state(), environment={"environment": other.id})
    words = ["upgrade", "--all", "--slices", "0", "--history-stands"]
    for more in ([], ["--reason", "new", "--detach", "--execute"]):
        result = CliRunner().invoke(app, [*words, *more], env=config.to_env())
        assert result.exit_code == 0, result.output
        (line,) = [line for line in result.output.splitlines() if line.endswith("[upgrade-other-environment]")]
        assert "pricing was 1.0, and is missing now" in line
    assert Epochs(config.lake).record("a.elsewhere").epoch(1).upgrade is not None


def test_the_epochs_own_environment_counts_where_its_driver_strays(config: Config, former: Path) -> None:
    story = live(config, "a.strays", former)
    here = interpreters.own(config).environment
    own = replace(here, distributions={"pricing": "1.0"})
    files.store(story.paths(1), own)
    ledger = Ledger(story.paths(1).ledger)
    strays = {"environment": here.id, "instead_of": own.id}
    ledger.claim("driver", "c", ledger.state(), environment=strays)
    record = Epochs(config.lake).record("a.strays")
    (finding,) = environments.upgrade_findings(config, record, 1)
    assert finding.code == "upgrade-other-environment" and "pricing was 1.0" in finding.message
    assert environments.backfill_findings(config, record, 1) == [], "its driver computes here"
    here_too = replace(config, launcher="here")
    assert environments.upgrade_findings(here_too, record, 1) == [], "the next one is started by this one"


def test_an_error_of_one_topology_is_its_own_answer(
    config: Config, former: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(config, "a.fails", former)
    live(config, "b.fine")

    def fails(*_: object, **__: object) -> None:
        raise ConnectionError("Spark does not answer\nwith more lines")

    monkeypatch.setattr(upgrading, "propose", fails)
    result = CliRunner().invoke(app, ["upgrade", "--all", "--json"], env=config.to_env())
    assert result.exit_code == 1, result.output
    first, second = json.loads(result.output)["topologies"]
    assert (first["standing"], first["command"]) == ("refused", "kappa status a.fails")
    assert first["reasons"] == ["ConnectionError: Spark does not answer"]
    assert second["standing"] == "runs this release"
