import socket
import subprocess

import pytest

from kappa.errors import BrokerUnreachableError, ConfigError
from kappa_local import kafka


@pytest.fixture
def listener():
    with socket.socket() as server:
        server.bind((kafka.HOST, kafka.free_port()))
        server.listen()
        yield server.getsockname()[1]


def test_a_port_with_a_listener_is_not_free(listener):
    assert not kafka.is_port_free(listener)


def test_a_free_port_is_never_one_of_outgoing_connections():
    assert all(20000 <= kafka.free_port() < 32000 for _ in range(50))


def test_an_occupied_port_is_refused_by_its_number(tmp_path, listener):
    with pytest.raises(ConfigError, match=str(listener)):
        kafka.KafkaProcess.start(tmp_path, listener)


def test_a_port_without_a_listener_does_not_answer():
    assert not kafka.is_answering(f"{kafka.HOST}:{kafka.free_port()}")


def test_a_listener_that_is_not_a_broker_does_not_answer(listener):
    assert not kafka.is_answering(f"{kafka.HOST}:{listener}", timeout_seconds=0.5)


def topics(broker: kafka.KafkaProcess) -> set[str]:
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return {name for name in client.list_topics(timeout=10).topics if not name.startswith("__")}


def create(broker: kafka.KafkaProcess, topic: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    client.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)


@pytest.mark.broker
def test_a_broker_keeps_its_topics_and_its_port_through_a_kill_and_a_stop(tmp_path):
    with kafka.KafkaProcess.start(tmp_path) as broker:
        port = broker.port
        create(broker, "pos")
        broker.kill()
        assert not broker.is_running()
        broker.restart()
        assert (broker.port, topics(broker)) == (port, {"pos"})

        broker.stop()
        broker.stop()
        assert kafka.is_port_free(port)
    with kafka.KafkaProcess.start(tmp_path) as again:
        assert (again.port, topics(again)) == (port, {"pos"})


@pytest.mark.broker
@pytest.mark.parametrize("is_secure", [False, True], ids=["open", "with logins"])
def test_a_broker_keeps_its_topics_in_a_folder_of_any_name(tmp_path, is_secure):
    folder = tmp_path / "mü ller #%1" / "kafka"
    with kafka.KafkaProcess.start(folder, is_secure=is_secure):
        pass
    with kafka.KafkaProcess.start(folder) as again:
        assert again.is_running()
    assert [path.name for path in tmp_path.iterdir()] == ["mü ller #%1"]


def test_a_comma_in_the_folder_of_a_broker_is_refused_before_it_is_made(tmp_path):
    with pytest.raises(ConfigError, match=r"takes a comma .* KAPPA_HOME=<folder> kappa up"):
        kafka.prepare(tmp_path / "a,b", port=1, cache=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.broker
def test_kafkas_own_tools_see_the_broker_and_a_lookup_creates_no_topic(broker, topic):
    from confluent_kafka.admin import AdminClient

    existing = topic()
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    client.list_topics(f"{existing}.other", timeout=10)
    command = kafka.tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.bootstrap_servers, "--list"
    )
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [name for name in listing.stdout.split() if name.startswith(existing)] == [existing]


@pytest.mark.broker
def test_a_broker_that_cannot_start_says_why_and_leaves_no_process(tmp_path):
    with pytest.raises(BrokerUnreachableError, match="ended with code"):
        kafka.KafkaProcess.start(tmp_path, heap="1k")
