"""A broker that asks for a login: every client logs in with one file and exactly the documented rights."""

from __future__ import annotations

import stat
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import psutil
import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from support.brokers import watched
from support.live_queries import live_query
from support.secured import Right, config_of, rights, user
from support.sites import PARTS, TOPOLOGY

from kappa import control
from kappa.config import Config, Servers
from kappa.control.new_topics import missing_topics
from kappa.errors import BrokerUnreachableError, ConfigError, KappaError, RefusedError
from kappa.kafka import markers
from kappa.kafka.broker import Broker
from kappa.kafka.client_file import creator_options
from kappa.kafka.producer import Sender, append
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.properties import parsed as properties
from kappa.properties import written
from kappa.replay.epoch_topics import creation
from kappa.slices import folding
from kappa.slices.topics import ownership, versioned_topics
from kappa.spark.kafka_source import read_log
from kappa.topology import Table
from kappa.wire.encoding import Record
from kappa_local import doctor, kafka, logins, supervisor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.slices.run import EpochRun

EPOCH = "kappa.shop.e0001"
MARKERS = f"{EPOCH}.markers"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.KafkaProcess]:
    """A broker with TLS, users and rights; topics ``pos`` and ``sales`` have a record each."""
    with watched(kafka.KafkaProcess.start(tmp_path_factory.mktemp("secured"), is_secure=True)) as process:
        with Broker(process.bootstrap_servers) as client:
            for topic in ("pos", "sales"):
                client.create_topic(topic, 1)
                append(process.bootstrap_servers, Record(topic, b"k", b"{}"))
        yield process


def changed(broker: kafka.KafkaProcess, folder: Path, **settings: str) -> Servers:
    """The addresses with another client file; ``_`` stands for ``.``."""
    options = properties(Path(broker.bootstrap_servers.client_file).read_text())
    file = folder / "client.properties"
    logins.write_private(file, written(options | {name.replace("_", "."): v for name, v in settings.items()}))
    return Servers(str(broker.bootstrap_servers), str(file))


def password(broker: kafka.KafkaProcess, name: str) -> str:
    """The login of a user."""
    text = logins.client_file_path(broker.data_dir, name).read_text()
    return text.partition('password="')[2].partition('"')[0]


def test_the_storage_is_formatted_without_a_password_in_a_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: list[str] = []

    def run(command: list[str], **_: object) -> object:
        words.extend(command)
        file = Path(command[-1].removeprefix("@"))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert "--add-scram" in file.read_text()
        return type("Run", (), {"returncode": 0})()

    monkeypatch.setattr(kafka.subprocess, "run", run)
    monkeypatch.setattr(kafka, "ensure_kafka", lambda _: tmp_path)
    monkeypatch.setattr(kafka, "find_java", lambda: tmp_path / "java")
    kafka.prepare(tmp_path, port=kafka.free_port(), cache=tmp_path, is_secure=True)
    assert len(words) == 2 and words[1].startswith("@")
    assert not list(tmp_path.glob("format*"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "logins").iterdir()}
    assert set(modes.values()) == {0o600} and len(modes) == 4
    assert stat.S_IMODE((tmp_path / "logins").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "server.properties").stat().st_mode) == 0o600


def test_storage_formatted_without_users_is_refused_logins(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "meta.properties").touch()
    with pytest.raises(ConfigError, match=r"formatted without logins.*kappa up --secure, or remove"):
        kafka.prepare(tmp_path, port=kafka.free_port(), cache=tmp_path, is_secure=True)


def test_up_refuses_the_login_of_another_broker(tmp_path: Path) -> None:
    config = Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_KAFKA_CLIENT_FILE": "/other"})
    with pytest.raises(ConfigError, match=r"login of another broker.*Unset the variable"):
        supervisor.up(config, with_airflow=False, kafka_port=kafka.free_port())


def test_a_running_stack_without_logins_is_not_taken_for_a_secured_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"requires no login.*KAPPA_HOME=<another folder> kappa up --secure"):
        supervisor._check_same_logins(Config.from_env({"KAPPA_HOME": str(tmp_path)}), True)


@pytest.mark.broker
def test_up_starts_a_broker_with_logins_and_other_commands_find_the_file(tmp_path: Path) -> None:
    config = Config.from_env({"KAPPA_HOME": str(tmp_path)})
    try:
        supervisor.up(config, with_airflow=False, is_secure=True, kafka_port=kafka.free_port())
        stack_config = Config.from_env({"KAPPA_HOME": str(tmp_path)})
        assert stack_config.kafka_client_file == str(tmp_path / "kafka" / "logins" / "kappa.properties")
        with Broker(stack_config.bootstrap_servers) as client:
            assert client.create_topic("pos", 1)
        again = supervisor.up(stack_config, with_airflow=False)
        assert again.was_running and again.bootstrap_servers.client_file == stack_config.kafka_client_file  # type: ignore[attr-defined]
        supervisor.down(stack_config)
        supervisor.up(stack_config, with_airflow=False)  # it keeps asking, without the option
        with Broker(stack_config.bootstrap_servers) as client:
            assert client.topics() == ("pos",)
    finally:
        supervisor.down(config)


@pytest.mark.broker
def test_a_client_without_a_login_gets_no_answer(broker: kafka.KafkaProcess) -> None:
    hint = "requires TLS or a login, set KAPPA_KAFKA_CLIENT_FILE"
    without = Broker(str(broker.bootstrap_servers), timeout_seconds=2)
    with without as client, pytest.raises(BrokerUnreachableError, match=hint):
        client.topics()


@pytest.mark.broker
def test_a_wrong_password_is_reported_with_its_file(broker: kafka.KafkaProcess, tmp_path: Path) -> None:
    wrong = logins.client_file.login("ScramLoginModule", {"username": "kappa", "password": "wrong"})
    servers = changed(broker, tmp_path, sasl_jaas_config=wrong)
    with Broker(servers, timeout_seconds=2) as client, pytest.raises(ConfigError) as refused:
        client.topics()
    assert f"refuses the login in {servers.client_file}" in str(refused.value)
    assert "Correct sasl.jaas.config" in str(refused.value)
    assert refused.value.exit_code == 2


@pytest.mark.broker
def test_a_certificate_of_another_authority_is_not_trusted(broker: kafka.KafkaProcess, tmp_path: Path) -> None:
    logins.make(tmp_path / "other")
    other = str(tmp_path / "other" / "logins" / "ca.pem")
    servers = changed(broker, tmp_path, ssl_truststore_location=other)
    with (
        Broker(servers, timeout_seconds=2) as client,
        pytest.raises(ConfigError, match=r"No TLS connection to Kafka at .* with"),
    ):
        client.topics()


@pytest.mark.broker
def test_an_outage_is_not_a_wrong_password(broker: kafka.KafkaProcess) -> None:
    nowhere = Servers(f"{kafka.HOST}:{kafka.free_port()}", broker.bootstrap_servers.client_file)
    with Broker(nowhere, timeout_seconds=1) as client, pytest.raises(BrokerUnreachableError, match="does not answer"):
        client.topics()


@pytest.mark.broker
def test_the_doctor_says_who_is_admitted_and_why_one_is_not(broker: kafka.KafkaProcess, tmp_path: Path) -> None:
    def proof(servers: Servers) -> doctor.Proof:
        return doctor._proof("login", "", lambda: doctor._login(config_of(servers, home=tmp_path)))

    assert proof(broker.bootstrap_servers).ok
    assert proof(broker.bootstrap_servers).detail.endswith("lets kappa in by SASL_SSL")
    servers = changed(broker, tmp_path)
    Path(servers.client_file).chmod(0o644)
    open_to_all = proof(servers)
    assert not open_to_all.ok and open_to_all.remedy.endswith(f"chmod 600 {servers.client_file}")


@pytest.mark.broker
def test_the_user_of_drivers_cannot_grant(broker: kafka.KafkaProcess) -> None:
    more = [logins.binding("kappa", ResourceType.BROKER, "kafka-cluster", AclOperation.ALL)]
    with pytest.raises(ConfigError, match="does not allow it: granting rights"):
        logins.grant(broker.bootstrap_servers, more)


@pytest.mark.broker
def test_passwords_are_in_no_process_list_and_no_log_of_the_broker(broker: kafka.KafkaProcess) -> None:
    words = " ".join(word for process in psutil.process_iter(["cmdline"]) for word in process.info["cmdline"] or [])
    texts = {path: path.read_bytes() for path in broker.data_dir.rglob("*") if path.is_file()}
    for name in (logins.ADMIN, logins.USER):
        secret = password(broker, name)
        assert secret not in words
        holders = {path.name for path, text in texts.items() if secret.encode() in text}
        own = {"server.properties"} if name == logins.ADMIN else set()
        assert holders == {f"{name}.properties", *own}


# What each right is for. A case is done with all rights, and refused without one of them.


def read_source(servers: Servers) -> None:
    with Broker(servers) as client:
        assert [len(batch) for batch in client.read(Offsets({"pos": {0: 0}}), Offsets({"pos": {0: 1}}))] == [1]


def read_settings(*topics: str) -> Callable[[Servers], None]:
    def act(servers: Servers) -> None:
        with Broker(servers) as client:
            assert set(client.topic_configs(topics)) == set(topics)

    return act


def create(topic: str) -> Callable[[Servers], None]:
    def act(servers: Servers) -> None:
        with Broker(servers) as client:
            assert not client.create_topic(topic, 1)

    return act


def create_new(prefix: str) -> Callable[[Servers], None]:
    def act(servers: Servers) -> None:
        with Broker(servers) as client:
            assert client.create_topic(f"{prefix}.{Path(servers.client_file).stem}", 1)

    return act


def delete(prefix: str) -> Callable[[Servers], None]:
    def act(servers: Servers) -> None:
        name = f"{prefix}.{Path(servers.client_file).stem}"
        with Broker(servers) as client:
            client.create_topic(name, 1)
            client.delete_topics([name])

    return act


def send(topic: str) -> Callable[[Servers], None]:
    def act(servers: Servers) -> None:
        with Sender(servers, EPOCH, EPOCH) as sender:
            sender.init()
            sender.send([Record(topic, b"k", b"{}")], None)

    return act


def read(topic: str) -> Callable[[Servers], None]:
    def act(servers: Servers) -> None:
        with Broker(servers) as client:
            assert client.last_record(topic, 0) is not None

    return act


def send_offsets(servers: Servers) -> None:
    with Sender(servers, EPOCH, EPOCH) as sender:
        sender.init()
        sender.send([Record("sales", b"k", b"{}")], Offsets({"pos": {0: 1}}))


def move_group(servers: Servers) -> None:
    group = f"kappa.{Path(servers.client_file).stem}"
    with Broker(servers) as client:
        client.set_group_offsets(group, Offsets({"pos": {0: 1}}))
        assert client.group_position(group, [("pos", 0)]) == Offsets({"pos": {0: 1}}) == client.group_offsets(group)
        assert group in client.groups("kappa.")
        assert client.group_members(group) == 0


def delete_group(servers: Servers) -> None:
    group = f"kappa.{Path(servers.client_file).stem}"
    with Broker(servers) as client:
        client.set_group_offsets(group, Offsets({"pos": {0: 1}}))
        client.delete_group(group)
        assert group not in client.groups("kappa.")


def broker_settings(servers: Servers) -> None:
    with Broker(servers) as client:
        assert client.broker_config()


VERSIONED = "sales.e0001"
#: Right -> what needs it.
NEEDED: dict[str, Callable[[Servers], None]] = {
    "Read on Topic <source>": read_source,
    "DescribeConfigs on Topic <source>": read_settings("pos"),
    "Create on Topic <output>": create("sales"),
    "Write on Topic <output>": send("sales"),
    "Read on Topic <output>": read("sales"),
    "DescribeConfigs on Topic <output>": read_settings("sales"),
    "Create on Topic <output>.e": create_new(VERSIONED),
    "Delete on Topic <output>.e": delete(VERSIONED),
    "Write on Topic <output>.e": send(VERSIONED),
    "Read on Topic <output>.e": read(VERSIONED),
    "DescribeConfigs on Topic <output>.e": read_settings(VERSIONED),
    "Create on Topic kappa.": create_new("kappa.shop"),
    "Delete on Topic kappa.": delete("kappa.shop"),
    "Write on Topic kappa.": send(MARKERS),
    "Read on Topic kappa.": read(MARKERS),
    "DescribeConfigs on Topic kappa.": read_settings(MARKERS),
    "Read on Group kappa.": move_group,
    "Delete on Group kappa.": delete_group,
    "Write on TransactionalId kappa.": send_offsets,
    "DescribeConfigs on Cluster kafka-cluster": broker_settings,
}
NAMES = {"source": "pos", "output": "sales"}
PATHS = EpochPaths(lake="/lake", topology="shop", epoch=1)
#: An epoch with a versioned topic, as far as its record tells where readers of that leave it.
RECORD: Any = SimpleNamespace(
    live=None, epoch=lambda _: SimpleNamespace(topics={"sales": VERSIONED}, topic=lambda _: VERSIONED)
)
#: What would be done otherwise, or told, if there were no such topic.
LOOKS: tuple[Callable[[Broker], Any], ...] = (
    lambda client: client.has_topic("pos"),
    lambda client: markers.read(client, PATHS),
    lambda client: ownership.owner(client, PATHS),
    lambda client: versioned_topics.boundaries(client, RECORD, 1),
    lambda client: folding.fold_into(
        cast("EpochRun", SimpleNamespace(paths=PATHS, engines=SimpleNamespace(broker=client))),
        PATHS,
        Table(name="balances", key=["id"], schema="id STRING NOT NULL"),
        1,
    ),
)


@pytest.fixture(scope="module")
def filled(broker: kafka.KafkaProcess) -> kafka.KafkaProcess:
    """The broker with the topics of an epoch, a record in each."""
    with Broker(broker.bootstrap_servers) as client:
        for topic in (VERSIONED, MARKERS):
            client.create_topic(topic, 1)
            append(broker.bootstrap_servers, Record(topic, b"k", b"{}"))
    return broker


def test_the_table_names_each_required_right() -> None:
    assert [str(right) for right in rights()] == list(NEEDED)


@pytest.mark.broker
def test_every_client_works_with_exactly_the_rights_of_the_table(filled: kafka.KafkaProcess, tmp_path: Path) -> None:
    servers = user(filled, tmp_path, rights(), **NAMES)
    for act in NEEDED.values():
        act(servers)


@pytest.mark.broker
def test_a_topic_hidden_from_a_user_is_not_taken_for_a_missing_one(filled: kafka.KafkaProcess, tmp_path: Path) -> None:
    with Broker(user(filled, tmp_path, rights(), **NAMES)) as client:
        assert client.has_topic("pos") and not client.has_topic("kappa.nowhere")
    with Broker(user(filled, tmp_path, [])) as client:
        assert client.topics() == ()
        for look in LOOKS:
            with pytest.raises(ConfigError, match="does not allow it: describing topic"):
                look(client)
    writer = user(filled, tmp_path, [right for right in rights() if right.kind == "TransactionalId"])
    with pytest.raises(ConfigError, match="does not allow it: describing topic 'sales'"):
        send("sales")(writer)


@pytest.mark.broker
@pytest.mark.parametrize("missing", rights(), ids=str)
def test_a_client_that_lacks_a_right_is_refused_and_says_what_it_tried(
    filled: kafka.KafkaProcess, tmp_path: Path, missing: Right
) -> None:
    servers = user(filled, tmp_path, [right for right in rights() if right != missing], **NAMES)
    with pytest.raises(KappaError, match=r"does not allow it: .*Grant the access: the table in docs/security\.md"):
        NEEDED[str(missing)](servers)


@pytest.mark.broker
def test_a_login_without_create_is_told_all_topics_of_an_epoch_and_their_commands(
    filled: kafka.KafkaProcess, tmp_path: Path
) -> None:
    servers = user(filled, tmp_path, rights(without="Create"), **NAMES)
    parts = {name: text.format(topic="pos") for name, text in PARTS.items()}
    (tmp_path / "topologies").mkdir()
    (tmp_path / "topologies" / "balances.py").write_text(TOPOLOGY.format(name="shop.balances", **parts))
    config = config_of(servers, home=tmp_path / "home", topologies=tmp_path / "topologies")
    with pytest.raises(RefusedError) as refused:
        control.start.planned(config, "shop.balances", actor="test")
    (finding,) = refused.value.data["findings"]
    assert finding.code == "topics-missing"
    commands = [creation(topic, creator_options(servers)) for topic in missing_topics(config, "shop.balances")]
    names = [f"kappa.shop.balances.e0001.{name}" for name in ("markers", "balances.changelog")]
    assert [command.split("--topic ")[1].split()[0] for command in commands] == names
    assert "; ".join(commands) in finding.remedy
    allowed = control.start.planned(config, "shop.balances", actor="test", allow=["topics-missing"])
    assert [effect for effect in allowed.effects if "build epoch 1" in effect.what], "drivers may have another login"


@pytest.mark.broker
def test_a_topic_that_the_doctor_may_not_delete_is_named_and_its_proof_holds(
    filled: kafka.KafkaProcess, tmp_path: Path
) -> None:
    with doctor._topic(user(filled, tmp_path, rights(), **NAMES), {}) as topic:
        assert doctor._leftover(filled.bootstrap_servers, topic) == ""
    assert topic not in Broker(filled.bootstrap_servers).topics()
    servers = user(filled, tmp_path, rights(without="Delete"), **NAMES)
    config = config_of(servers, home=tmp_path / "home", topologies=tmp_path / "none")
    proofs = cast("Generator[doctor.Proof]", doctor._broker_and_spark(config))
    proof = next(proofs)
    proofs.close()  # it would raise here, or yield another proof
    (left,) = Broker(filled.bootstrap_servers).topics("kappa.doctor.")
    assert (proof.name, proof.ok) == ("kafka", True)
    assert proof.detail.endswith(f"{left} stays")
    assert proof.remedy.endswith(f"--delete --topic {left}")


@pytest.mark.broker
@pytest.mark.spark
def test_spark_reads_and_follows_the_log_with_the_same_file(
    filled: kafka.KafkaProcess, spark: SparkSession, tmp_path: Path
) -> None:
    servers = user(filled, tmp_path, rights(), **NAMES)
    start = Offsets({"pos": {0: 0}})
    frame = read_log(spark, servers, "pos", start.span_to(Offsets({"pos": {0: 1}})))
    assert frame.count() == 1
    secret = f"secret-{Path(servers.client_file).stem}"
    plan = frame._jdf.queryExecution().toString()
    assert "kafka" in plan.lower() and secret not in plan
    counts: list[int] = []
    query = live_query(spark, servers, start, tmp_path, lambda ranges, records: counts.append(records.count()))
    assert query._query.awaitTermination(0.1) is False
    query._query.processAllAvailable()
    query.close()
    assert counts == [1]
    files = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert files and not [path for path in files if secret in path.read_text(errors="replace")]
