"""Without --execute a command says what --execute does: the same refusal, the same exit code, and nothing changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource
from typer.testing import CliRunner

from kappa.cli import app
from kappa.config import Config
from kappa.control import topics
from kappa.errors import (
    IllegalTransitionError,
    KappaError,
    MoveRefusedError,
    RefusedError,
    TopologyError,
    UnknownEpochError,
    UnknownGroupError,
    UnknownTopologyError,
    UsageError,
)
from kappa.kafka.broker import Broker
from kappa.record.epochs import Epochs
from kappa.record.events import Event

#: Epoch 1 is live, epoch 2 is verified.
STAGES = {
    1: ("planned", "rewound", "seeded", "moved"),
    2: ("planned", "rewound", "seeded", "replayed", "caught_up", "verified"),
}

#: A topology with a topic that is there, two that are missing, and one that each epoch makes for itself.
SENDS = """
from kappa import Append, Source, Table, Topic, Topology

topology = Topology(
    name="all.topics",
    version="1",
    sources=[Source(topic=name, schema="id STRING") for name in ("all.read", "all.there")],
    tables=[Table(name="known", key=["id"], schema="id STRING NOT NULL")],
    outputs=[
        Append(name="rows", schema="id STRING"),
        Topic(name="all.sent", of="rows", key="id"),
        Topic(name="all.versioned", of="known", key="id", on_replay="versioned"),
    ],
    step=lambda slice: {"rows": slice["all.read"], "known": slice["all.there"]},
)
"""

Run = Callable[..., "Answer"]


class Answer:
    """What a command printed, its exit code, and the error that it ended with."""

    def __init__(self, output: str, code: int, error: BaseException | None) -> None:
        self.output, self.error = output, error
        self.code = error.exit_code if isinstance(error, KappaError) else code


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A live epoch, and a candidate whose verification did not fail; drivers are started elsewhere."""
    config = Config.from_env(
        {"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": str(tmp_path / "lake"), "KAPPA_LAUNCHER": "elsewhere"}
    )
    for epoch, names in STAGES.items():
        for name in names:
            detail = {"verdict": "same"} if name == "verified" else {"code": "c", "from": None, "plan_id": "p"}
            row = Event(topology="a.b", epoch=epoch, event=name, at=datetime.now(UTC), actor="test", detail=detail)
            Epochs(config.lake).change(row.topology, lambda _, row=row: [row])  # type: ignore[misc]
    return config


@pytest.fixture
def run(config: Config, tmp_path: Path) -> Run:
    """Runs a command, and holds that one without --execute changed no file."""

    def files() -> dict[str, bytes]:
        paths = (file for file in tmp_path.rglob("*") if file.is_file() and file.parent.name != "__pycache__")
        return {str(file): file.read_bytes() for file in paths}

    def invoke(*words: str) -> Answer:
        before = files()
        result = CliRunner().invoke(app, list(words), env=config.to_env())
        if "--execute" not in words:
            assert files() == before
        return Answer(result.output, result.exit_code, result.exception)

    return invoke


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("cutover a.b --epoch 99", UnknownEpochError),
        ("cutover a.b --epoch 1 --accept-verdict c.d", KappaError),
        ("cutover no.such", UnknownTopologyError),
        ("abort a.b 1", IllegalTransitionError),
        ("abort a.b 7", UnknownEpochError),
        ("retire a.b 1", IllegalTransitionError),
        ("retire a.b 2", IllegalTransitionError),
        ("rollback a.b", RefusedError),
        ("rollback a.b --to 2", RefusedError),
        ("rollback no.such", UnknownTopologyError),
        ("stop no.such", UnknownTopologyError),
        ("start a.b --epoch 9", UnknownEpochError),
        ("savepoint create a.b 9lives", KappaError),
        ("savepoint drop a.b none", KappaError),
        ("stop a.b --reason half\udcff", UsageError),
        ("cutover a.b --override half\udcff", UsageError),
        ("stop half\udcff", UsageError),
    ],
)
def test_a_dry_run_refuses_what_the_real_run_refuses(run: Run, words: str, error: type[KappaError]) -> None:
    dry, real = run(*words.split()), run(*words.split(), "--execute")
    assert isinstance(dry.error, error), dry.output
    assert (str(dry.error), dry.code) == (str(real.error), real.code)
    assert dry.code != 0
    assert "Would" not in dry.output


@pytest.mark.parametrize(
    ("words", "line", "command"),
    [
        ("cutover a.b", "Would hand over a.b from epoch 1 to epoch 2.", "kappa cutover a.b --execute"),
        (
            "cutover a.b --epoch 2",
            "Would hand over a.b from epoch 1 to epoch 2.",
            "kappa cutover a.b --epoch 2 --execute",
        ),
        ("abort a.b 2", "Would abort epoch 2 of a.b.", "kappa abort a.b 2 --execute"),
        ("stop a.b", "Would stop the driver of epoch 1 of a.b.", "kappa stop a.b --execute"),
        ("stop a.b --epoch 2", "Would stop the driver of epoch 2 of a.b.", "kappa stop a.b --epoch 2 --execute"),
    ],
)
def test_a_dry_run_says_what_the_record_would_get(run: Run, words: str, line: str, command: str) -> None:
    answer = run(*words.split())
    assert answer.code == 0, answer.error
    assert line in answer.output
    assert f"To do it: {command}" in answer.output


def test_a_dry_run_says_every_effect_in_order(run: Run, config: Config) -> None:
    lake = f"{config.lake}/a.b/e0002"
    assert [line for line in run("abort", "a.b", "2").output.splitlines() if line.startswith("Would")] == [
        "Would abort epoch 2 of a.b.",
        "Would wait until the driver of epoch 2 of a.b has ended, if it runs; end its process after 30 s.",
        "Would seal the ledger of epoch 2 of a.b, if there is one, against a driver that wakes up late.",
        "Would delete the topics and the group of epoch 2 of a.b, if this lake made them.",
        f"Would remove the folder {lake}, the folders _e0002 of its tables, and scratch of streams on this host.",
        f"Would remove the plan {config.lake}/_kappa/plans/p.json, and code of epoch 2 that no other epoch has.",
    ]
    plan = json.loads(run("cutover", "a.b", "--json").output)
    (handover,) = plan["effects"]
    assert (plan["executed"], handover["effect"]) == (False, "hand over a.b from epoch 1 to epoch 2")
    assert handover["events"] == [{"topology": "a.b", "epoch": 2, "event": "handover"}]


def test_what_is_so_already_is_nothing_to_do(run: Run) -> None:
    assert "Nothing to do: a.b to epoch 1" in run("cutover", "a.b", "--epoch", "1").output
    assert run("stop", "a.b", "--execute").code == 0
    assert "Nothing to do: the driver is stopped" in run("stop", "a.b").output


def test_a_pending_handover_to_another_epoch_refuses(run: Run, config: Config) -> None:
    row = Event(topology="a.b", epoch=2, event="handover", at=datetime.now(UTC), actor="ada", detail={"from": 1})
    Epochs(config.lake).change(row.topology, lambda _: [row])
    assert "Nothing to do" in run("cutover", "a.b").output
    third = Event(topology="a.b", epoch=3, event="planned", at=datetime.now(UTC), actor="ada", detail={"code": "c"})
    Epochs(config.lake).change(third.topology, lambda _: [third])
    assert isinstance(run("cutover", "a.b", "--epoch", "3").error, MoveRefusedError)


def test_an_option_with_no_meaning_is_refused(run: Run) -> None:
    assert run("replay", "a.b", "--slice-records", "0").code == 2
    assert run("query", "a.b", "t", "--limit", "-5").code == 2


@pytest.mark.broker
class TestWithABroker:
    @pytest.fixture
    def config(self, config: Config, kafka: Broker, tmp_path: Path) -> Config:
        topologies = tmp_path / "topologies"
        topologies.mkdir()
        (topologies / "one.py").write_text(
            "from kappa.topology import Append, Source, Topology\n"
            'topology = Topology(name="dry.run", version="1", sources=[Source(topic="dry.none", schema="id STRING")],\n'
            '    outputs=[Append(name="rows", schema="id STRING")], step=lambda slice: {"rows": slice["dry.none"]})\n'
        )
        return Config.from_env(
            {**config.to_env(), "KAPPA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "KAPPA_TOPOLOGIES": str(topologies)}
        )

    @pytest.mark.parametrize("words", ["start dry.run", "replay dry.run", "replay nope", "start nope"])
    def test_a_plan_that_is_refused_is_refused_without_execute_too(self, run: Run, words: str) -> None:
        dry, real = run(*words.split()), run(*words.split(), "--execute")
        assert isinstance(dry.error, RefusedError), dry.output
        assert (str(dry.error), dry.code) == (str(real.error), real.code)
        assert "Would" not in dry.output.replace("Would build epoch", "", 0)

    def test_a_first_start_says_what_it_builds(self, run: Run, kafka: Broker) -> None:
        kafka.create_topic("dry.none", 1)
        try:
            start = run("start", "dry.run")
            replay = run("replay", "dry.run", "--slice-records", "7", "--reason", "an old bug")
            offsets = run("offsets", "--group", "dry.readers", "--topic", "dry.none:0", "--to-earliest")
        finally:
            kafka.delete_topics(["dry.none"])
        again = "To do it: kappa replay dry.run --slice-records 7 --reason 'an old bug' --execute"
        assert again in replay.output, replay.error
        again = "To do it: kappa offsets --group dry.readers --topic dry.none:0 --to-earliest --execute"
        assert again in offsets.output, offsets.error
        assert start.code == 0, start.error
        assert "Would build epoch 1 from the beginning of its topics and make it live." in start.output

    def test_topics_are_created_once_and_never_changed(self, run: Run, kafka: Broker) -> None:
        words = ["topics", "create", "dry.made", "--partitions", "2", "--retention", "P30D"]
        assert "Would create dry.made with 2 partitions, retention P30D." in run(*words).output
        assert "dry.made" not in kafka.topics()
        try:
            assert "Created dry.made with 2 partitions" in run(*words, "--execute").output
            assert kafka.topic_configs(["dry.made"])["dry.made"]["retention.ms"] == str(30 * 24 * 3600 * 1000)
            assert "Nothing to do: dry.made exists." in run(*words, "--execute").output
            for other in (["--partitions", "3"], ["--retention", "forever"], ["--config", "cleanup.policy=compact"]):
                refused = run(*words, *other, "--execute")
                assert "exists with" in str(refused.error)
            assert kafka.partitions("dry.made") == 2
            listed = next(line for line in run("topics", "list").output.splitlines() if line.startswith("dry.made"))
            assert listed.split() == ["dry.made", "2", "0", "delete", "P30D", "-", "-"]
        finally:
            kafka.delete_topics(["dry.made"])
        assert "those of epochs" in str(run("topics", "create", "kappa.x", "--execute").error)

    @pytest.mark.parametrize("words", [["a/b"], [""], ["dry.odd", "--config", "segment.ms=0"]])
    def test_a_topic_that_the_brokers_refuse_is_refused_before_another_is_made(
        self, run: Run, kafka: Broker, words: list[str]
    ) -> None:
        refused = [run("topics", "create", "dry.made", *words, *more) for more in ([], ["--execute"])]
        assert all(isinstance(one.error, TopologyError) for one in refused), refused
        assert "dry.made" not in kafka.topics()
        assert isinstance(run("archive", "start", words[0]).error, TopologyError)

    def test_a_topic_that_keeps_records_for_the_longest_time_is_listed(self, run: Run, kafka: Broker) -> None:
        words = ["topics", "create", "dry.longest", "--config", f"retention.ms={2**63 - 1}"]
        assert "retention P36500D" in run(*words).output
        kafka.create_topic("dry.longest", 1, {"retention.ms": str(2**63 - 1)})
        try:
            listed = run("topics", "list")
            line = next(line for line in listed.output.splitlines() if line.startswith("dry.longest"))
            assert line.split() == ["dry.longest", "1", "0", "delete", "P36500D", "-", "-"]
        finally:
            kafka.delete_topics(["dry.longest"])

    def test_a_topic_keeps_records_forever_whatever_the_brokers_do_by_default(self, run: Run, kafka: Broker) -> None:
        try:
            assert "retention forever" in run("topics", "create", "dry.kept", "--execute").output
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
            (answer,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "dry.kept")]).values()
            own = {
                name: entry.value
                for name, entry in answer.result().items()
                if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
            }
            assert (own.get("retention.ms"), own.get("retention.bytes")) == ("-1", "-1")
        finally:
            kafka.delete_topics(["dry.kept"])

    def test_a_size_from_which_on_records_are_dropped_is_listed(self, run: Run, kafka: Broker) -> None:
        kafka.create_topic("dry.dropping", 1, {"retention.ms": "-1", "retention.bytes": "1048576"})
        try:
            listed = run("topics", "list").output
            line = next(line for line in listed.splitlines() if line.startswith("dry.dropping"))
            assert "forever, 1,048,576 bytes per partition" in line
        finally:
            kafka.delete_topics(["dry.dropping"])

    def test_a_setting_that_is_no_number_is_refused_and_an_empty_one_is_the_brokers(self, run: Run) -> None:
        refused = run("topics", "create", "dry.audit", "--config", "retention.ms=7d").error
        assert isinstance(refused, UsageError) and "has 7d for retention.ms" in str(refused)
        left = run("topics", "create", "dry.audit", "--config", "retention.ms=")
        assert "retention of the brokers" in left.output, left.error

    def test_a_group_is_not_set_where_the_file_of_its_offsets_cannot_be_written(self, run: Run, kafka: Broker) -> None:
        kafka.create_topic("dry.exported", 1)
        words = ["offsets", "--group", "dry.unset", "--topic", "dry.exported:0", "--to-earliest"]
        try:
            refused = run(*words, "--export", "/nonexistent/offsets.csv", "--execute").error
            assert isinstance(refused, UsageError) and "/nonexistent/offsets.csv" in str(refused)
            assert isinstance(run("offsets", "--group", "dry.unset").error, UnknownGroupError)
        finally:
            kafka.delete_topics(["dry.exported"])

    def test_a_topic_that_somebody_else_creates_meanwhile_is_compared(self, kafka: Broker) -> None:
        act = topics.create.planned(kafka, "dry.raced", partitions=2)
        kafka.create_topic("dry.raced", 2, {"retention.ms": "86400000"})
        try:
            with pytest.raises(TopologyError, match=r"exists with 2 partitions, retention.ms=86400000"):
                act.make()
        finally:
            kafka.delete_topics(["dry.raced"])

    def test_all_missing_topics_of_topologies_are_created_and_no_other(
        self, run: Run, config: Config, kafka: Broker
    ) -> None:
        (config.topologies / "sends.py").write_text(SENDS)
        kafka.create_topic("all.there", 1, {"retention.ms": "86400000"})
        needed = ["all.read", "all.sent", "dry.none"]
        words = ["topics", "create", "--all", "--partitions", "2"]
        try:
            dry = run(*words)
            would = [line for line in dry.output.splitlines() if line.startswith("Would")]
            assert would == [f"Would create {name} with 2 partitions, retention forever." for name in needed], dry.error
            assert not set(kafka.topics()) & set(needed)
            assert "Created all.sent with 2 partitions" in run(*words, "--execute").output
            names = {name for name in kafka.topics() if name.startswith(("all.", "dry."))}
            assert names == {"all.there", *needed}, "a versioned topic is made for each epoch"
            assert kafka.topic_configs(["all.there"])["all.there"]["retention.ms"] == "86400000"
            assert "every topic of a topology exists" in run(*words, "--execute").output
        finally:
            kafka.delete_topics(["all.there", *needed])
        (config.topologies / "broken.py").write_text("from kappa import Nothing\n")
        assert "broken.py" in str(run(*words, "--execute").error)
        assert not set(kafka.topics()) & set(needed)

    @pytest.mark.parametrize("words", ["", "x --all"])
    def test_topics_are_either_named_or_all(self, run: Run, words: str) -> None:
        assert "kappa topics create --all" in str(run("topics", "create", *words.split()).error)

    def test_no_topic_is_created_for_a_setting_that_is_none(self, run: Run) -> None:
        assert "KEY=VALUE" in str(run("topics", "create", "x", "--config", "y").error)
