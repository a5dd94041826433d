"""Whether this machine can run Kappa: each part is proved by its use, and a missing part has a remedy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from kappa.config import Config, client_file_of, settings
from kappa.control.new_topics import objections
from kappa.delta import access
from kappa.errors import ConfigError, ConflictError, KappaError, Terminal, TopologyError
from kappa.kafka.broker import Broker
from kappa.kafka.client_file import for_librdkafka, tool_options
from kappa.kafka.connection import client_settings
from kappa.replay.findings import Severity
from kappa.replay.rules.log import LONGEST_FUTURE_MS
from kappa.spark.jars import ensure_kafka, ensure_spark, find_java, java_release
from kappa.spark.s3_jars import ensure_s3
from kappa.store.address import is_remote
from kappa.store.stores import store_of
from kappa.topic_overrides import Overrides
from kappa.topology import registry
from kappa_local import airflow, kafka
from kappa_local.state import running

_UP = "Run `kappa up`."
_INSTALL = "Install it: pip install 'kappa-replay[local]'; in a clone, scripts/bootstrap."
_RUNNING = "running"
#: Room for a broker of this check, and for what its session of Spark spills.
_SCRATCH_MB = 500
#: Kafka's setting of a topic. The broker's setting, for topics without their own, begins with ``log.``.
_AHEAD = "message.timestamp.after.max.ms"
_SET_AHEAD = "kafka-configs.sh {options} --alter {entity} --add-config {name}=3600000"

# A session of its own process: a JVM cannot be started twice with different jars, and this one must not stay.
_SPARK_PROOF = """
import sys
from kappa.config import Config, Servers
from kappa.kafka.client_file import for_spark
from kappa.spark.session import build_session
table, servers, topic, file = sys.argv[1:]
spark = build_session(Config.from_env(), "kappa-doctor")
read = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
read = read.options(**for_spark(Servers(servers, file)))
read.option("kafka.isolation.level", "read_committed").load().select("value").write.format("delta").save(table)
assert spark.read.format("delta").load(table).count() == 1
print("Spark", spark.version)
spark.stop()
"""
#: Writers that create one object at the same moment, how often, and how long the slowest of them may take to be there.
_RACERS = 8
_RACES = 20
_RACE_SECONDS = 30.0


class Proof(NamedTuple):
    """The outcome of one check.

    Attributes:
        name: name of the check.
        ok: whether it works.
        detail: the observation.
        remedy: what to do; empty if nothing. A part that works and has a remedy is a warning.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def used_settings(config: Config, origins: Mapping[str, str]) -> Proof:
    """Where everything is, every setting that is not at its default, and where each is from.

    Args:
        config: the settings.
        origins: where those are from that are not defaults, see :func:`kappa.config.origins`.
    """
    lines = []
    for item in settings():
        value = getattr(config, item.name)
        is_default = item.default_factory() == value if callable(item.default_factory) else item.default == value
        if is_default:
            continue
        # A secret is in no output, and neither are Spark's settings, which may have some.
        shown = "(a secret)" if not item.repr else " ".join(value) if isinstance(value, Mapping) else value
        lines.append(f"{item.name} = {shown}, from {origins.get(item.name, 'the default')}")
    return Proof("settings", True, "\n".join(lines))


def checks(config: Config) -> list[Proof]:
    """All proofs, in the order in which they depend on each other. Removes what it made, and takes half a minute."""
    return list(proofs(config))


def proofs(config: Config) -> Iterator[Proof]:
    """Like :func:`checks`, one after the other as they finish."""
    java = _proof("java", "", _java)  # its error has the remedy
    yield java
    yield _proof("disk", "Free some space, or set KAPPA_HOME and KAPPA_LAKE to another disk.", lambda: _disk(config))
    scratch = _proof("scratch", "Name a folder with room: export TMPDIR=<path>", _scratch)
    yield scratch
    folder = "" if is_remote(config.lake) else "Check that KAPPA_LAKE exists and may be written."
    yield _proof("lake", folder, lambda: _lake(config))  # the error of a store has the remedy
    lack = next((proof for proof in (java, scratch) if not proof.ok), None)
    if lack is not None:
        yield Proof("kafka", False, f"needs {lack.name}", lack.remedy)
        yield Proof("spark", False, f"needs {lack.name}", lack.remedy)
    else:
        yield _proof(
            "jars", "Connect to the network once, or copy the cache of another machine.", lambda: _jars(config)
        )
        login = _proof("login", "", lambda: _login(config))  # its error has the remedy
        if config.kafka_client_file:
            yield login
        if login.ok:
            yield from _broker_and_spark(config)
        else:
            yield Proof("kafka", False, "needs a login", login.remedy)
            yield Proof("spark", False, "needs a login", login.remedy)
    yield _proof("airflow", "", lambda: _airflow(config))  # its error has the remedy


def _proof(name: str, remedy: str, use: Callable[[], str]) -> Proof:
    try:
        return Proof(name, True, use())
    except KappaError as error:
        return Proof(name, False, _words(error), remedy or _words(error))
    except Exception as error:  # each error is a result of the check
        return Proof(name, False, f"{type(error).__name__}: {_words(error)}", remedy or _words(error))


def _words(error: Exception) -> str:
    """What an error says, without the command that leads here, and what was noted about it."""
    return " ".join([re.sub(r": kappa doctor$", ".", str(error)), *getattr(error, "__notes__", ())])


def _java() -> str:
    return f"{find_java()}, Java {java_release(find_java())}"


def _disk(config: Config) -> str:
    config.home.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(config.home).free >> 30
    if free < 5:
        raise OSError(f"{free} GB free at {config.home}, 5 are needed")
    return f"{free} GB free at {config.home}"


def _scratch() -> str:
    folder = tempfile.gettempdir()  # which writes a file
    if (free := shutil.disk_usage(folder).free >> 20) < _SCRATCH_MB:
        raise OSError(f"{free} MB free at {folder}, {_SCRATCH_MB} are needed")
    return f"{free >> 10} GB free at {folder}"


def _jars(config: Config) -> str:
    kafka_jars = len(list(ensure_kafka(config.cache).glob("*.jar")))
    of_s3 = f", {len(ensure_s3(config.cache))} for S3" if is_remote(config.lake) else ""
    return f"{kafka_jars} of Kafka, {len(ensure_spark(config.cache))} of Spark{of_s3} in {config.cache}"


def _lake(config: Config) -> str:
    """Make two commits; the second repeats the transaction of the first and must lose."""
    import pyarrow as pa
    from deltalake import CommitProperties, Transaction

    table = f"{config.lake}/_kappa/doctor-{uuid.uuid4().hex}"
    row = pa.table({"proof": ["kappa"]})
    once = CommitProperties(app_transactions=[Transaction("doctor", 1)], max_commit_retries=0)
    is_local = not is_remote(config.lake)
    missing = [folder for folder in (Path(table).parent, Path(config.lake)) if is_local and not folder.exists()]
    is_there = False
    try:
        access.create_table(table, row.schema)
        is_there = True
        access.write(access.open_table(table), row, CommitProperties(max_commit_retries=0))
        stale = access.open_table(table)
        access.write(access.open_table(table), row, once)
        try:
            access.write(stale, row, once)
        except ConflictError:
            pass
        else:
            raise AssertionError("the lake let two writers commit one transaction: its storage cannot compare-and-set")
        rows = access.open_table(table).to_pyarrow_table().num_rows
        races = "" if is_local else _races(f"{table}/races")
    except Exception as error:  # each error is a result of the check, also where its traces stay
        try:
            _remove(table, missing)
        except (KappaError, OSError) as other:
            if is_there:
                error.add_note(_words(other))
        raise
    _remove(table, missing)
    return f"{config.lake}: {rows} rows written, read back, and a second writer refused{races}"


def _remove(table: str, folders: Sequence[Path]) -> None:
    """Remove what the check of a lake made; an error says what stays."""
    try:
        store_of(table).delete_folder(table)
    except (KappaError, OSError) as error:
        way = f"aws s3 rm --recursive {quote(table)}" if is_remote(table) else f"rm -r {quote(table)}"
        error.add_note(f"What this check wrote stays at {table}, since it cannot be removed. Remove it: {way}")
        raise
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _races(folder: str) -> str:
    """Several writers create one object at the same moment, round after round; one of them may win.

    Some stores look first and write then, or take no notice of the condition: two commits of one version would both be
    acknowledged, and one of them would be gone.
    """
    store = store_of(folder)

    def create(place: str, writer: int, start: threading.Barrier) -> bool:
        start.wait(_RACE_SECONDS)
        return store.create(place, str(writer).encode())

    with ThreadPoolExecutor(_RACERS) as pool:
        for number in range(_RACES):
            place, start = f"{folder}/{number}", threading.Barrier(_RACERS)
            winners = sum(pool.map(lambda writer: create(place, writer, start), range(_RACERS)))  # noqa: B023
            if winners != 1:
                raise AssertionError(
                    f"{winners} of {_RACERS} writers created one object of the store at the same moment: it does not "
                    "enforce If-None-Match, and commits would be lost. Take a store that does"
                )
    return f", and of {_RACERS} writers at the same moment one won, {_RACES} times"


def _login(config: Config) -> str:
    """Check that only its owner can read the file, and that the brokers accept its login."""
    if not config.kafka_client_file:
        return "none"
    settings = for_librdkafka(config.bootstrap_servers)
    with Broker(config.bootstrap_servers) as broker:
        broker.topics()
    user = settings.get("sasl.username", settings.get("sasl.oauthbearer.client.id", "its certificate"))
    return f"{config.kafka_client_file}: {config.bootstrap_servers} lets {user} in by {settings['security.protocol']}"


def _broker_and_spark(config: Config) -> Iterator[Proof]:
    with tempfile.TemporaryDirectory(prefix="kappa-doctor-") as folder:
        try:
            with _broker(config, Path(folder)) as (servers, where), ExitStack() as opened:
                tried, topic = servers, opened.enter_context(_topic(servers, config.topic_settings))
                done = f"a transaction was written to {servers} and read back"
                if not topic:
                    done = f"{servers} lets this login create no topic, so no transaction was tried there"
                    tried = opened.enter_context(_temporary(config, Path(folder)))
                    topic = opened.enter_context(_topic(tried, {}))
                left = _leftover(tried, topic)
                yield Proof("kafka", True, f"{where}: {done}{left and f'; {topic} stays'}", left)
                if where == _RUNNING:
                    yield _proof("topics", "", lambda: _topics(config))  # its error has the remedy
                    yield far_times(config)
                yield _proof("spark", _INSTALL, lambda: _spark(config, tried, topic, Path(folder)))
        except KappaError as error:
            yield Proof("kafka", False, str(error), str(error))
        except Exception as error:  # as in _proof
            yield Proof("kafka", False, f"{type(error).__name__}: {error}", _UP)


def far_times(config: Config) -> Proof:
    """Which topics accept records with timestamps in the far future: one such record makes all later ones of its
    partition late. A warning where this login may not look.
    """
    try:
        return _far_times(config)
    except Terminal as error:  # a right to read the topics need not include settings, and those of brokers least of all
        return Proof("times", True, "which timestamps topics accept could not be looked at", _words(error))


def _far_times(config: Config) -> Proof:
    with Broker(config.bootstrap_servers) as broker:
        topologies, _ = registry.topologies(config.topologies) if config.topologies.is_dir() else ({}, {})
        sources = {source.topic for topology in topologies.values() for source in topology.sources if source.of is None}
        topics = broker.topic_configs(sorted(topic for topic in sources if topic in broker.topics(topic)))
        default = broker.broker_config()
    takers = sorted(topic for topic, settings in topics.items() if _is_far(settings))
    is_default = _is_far({name.removeprefix("log."): value for name, value in default.items()})
    if not takers and not is_default:
        return Proof("times", True, f"no record of the far future is accepted: {_AHEAD} of {len(topics)} source topics")
    named = [f"topic {topic} ({_AHEAD}={topics[topic][_AHEAD]})" for topic in takers]
    named += [f"topics without a setting of their own (log.{_AHEAD}={default[f'log.{_AHEAD}']})"] if is_default else []
    entities = [(f"--entity-type topics --entity-name {topic}", _AHEAD) for topic in takers]
    entities += [("--entity-type brokers --entity-default", f"log.{_AHEAD}")] if is_default else []
    options = tool_options(config.bootstrap_servers)
    remedy = "; ".join(_SET_AHEAD.format(options=options, entity=entity, name=name) for entity, name in entities)
    detail = f"timestamps over a day ahead are accepted by {', '.join(named)}; one makes all later records late"
    return Proof("times", True, detail, f"Lower it to an hour: {remedy}")


def _is_far(settings: Mapping[str, str]) -> bool:
    is_own = settings.get("message.timestamp.type") == "CreateTime"
    return is_own and int(settings.get(_AHEAD, 0)) > LONGEST_FUTURE_MS


@contextmanager
def _broker(config: Config, folder: Path) -> Iterator[tuple[str, str]]:
    """The configured broker if it answers, otherwise a temporary one, which proves that `kappa up` can start a
    broker.
    """
    if kafka.is_answering(config.bootstrap_servers):
        yield config.bootstrap_servers, _RUNNING
        return
    with _temporary(config, folder) as servers:
        yield servers, f"not running on {config.bootstrap_servers}; one was started for this check"


@contextmanager
def _temporary(config: Config, folder: Path) -> Iterator[str]:
    with kafka.KafkaProcess.start(folder / "kafka", cache=config.cache) as broker:
        yield broker.bootstrap_servers


def _topics(config: Config) -> str:
    """Ask the brokers for the topics of the next epochs, and look at those that were made for them."""
    topologies, broken = registry.topologies(config.topologies) if config.topologies.is_dir() else ({}, {})
    answers = objections(config, topologies)
    against = [
        f"{topology}: {finding}"
        for topology, findings in answers.items()
        for finding in findings or ()
        if finding.severity is Severity.REFUSE
    ]
    if against:
        raise TopologyError("\n".join(against))
    others = [f"{name} (a source is missing)" for name, findings in answers.items() if findings is None]
    count, others = len(answers) - len(others), [*others, *(f"{file.name} (does not import)" for file in broken)]
    rest = f"; not asked for {', '.join(others)}" if others else ""
    return f"the brokers would make the topics of the next epoch of {count} topologies, or have them{rest}"


@contextmanager
def _topic(servers: str, overrides: Overrides) -> Iterator[str]:
    """A topic with one committed record, deleted at the end if this login may do that; empty if it may create none."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    from kappa.kafka.producer import LONGEST_TRANSACTION, Sender
    from kappa.wire.encoding import Record

    topic = f"kappa.doctor.{uuid.uuid4().hex}"
    with Broker(servers, topic_settings=overrides) as broker:
        try:
            broker.create_topic(topic, 1)
        except ConfigError:
            topic = ""
    if not topic:
        yield topic
        return
    try:
        with Sender(servers, topic, topic, transaction_timeout=LONGEST_TRANSACTION) as sender:
            sender.init()
            sender.send([Record(topic, None, b"proof", [], None, 0)], None)
        settings = client_settings(servers) | {"group.id": topic, "isolation.level": "read_committed"}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        message = consumer.poll(30)
        consumer.close()
        if message is None or message.value() != b"proof":
            raise AssertionError("the committed record was not read back")
        yield topic
    finally:
        with Broker(servers) as broker, suppress(ConfigError):  # it is in the proof of Kafka, see `_leftover`
            broker.delete_topics([topic])


def _leftover(servers: str, topic: str) -> str:
    """What to do about a topic that this login may not delete; empty where it may."""
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import AclOperation, AdminClient

    client = AdminClient(client_settings(servers))  # held: its answers are lost with it
    topics = client.describe_topics(TopicCollection([topic]), include_authorized_operations=True, request_timeout=30)
    operations = topics[topic].result().authorized_operations
    if not operations or AclOperation.DELETE in operations:
        return ""
    command = f"kafka-topics.sh {tool_options(servers)} --delete --topic {topic}"
    return f"This login may create topics and not delete them. Grant Delete: docs/security.md. Then: {command}"


def _spark(config: Config, servers: str, topic: str, folder: Path) -> str:
    table = f"{config.lake}/_kappa/doctor-{uuid.uuid4().hex}" if is_remote(config.lake) else str(folder / "table")
    command = [sys.executable, "-P", "-c", _SPARK_PROOF, table, servers, topic, client_file_of(servers)]
    environment = {**os.environ, **config.to_env(), "PYTHONPATH": str(airflow.PACKAGES)}
    try:
        run = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=180, check=False
        )
        if run.returncode:
            raise RuntimeError("\n".join(run.stderr.splitlines()[-5:]))
        # By the client of the ledgers: two that reach different stores agree on nothing.
        if (rows := access.open_table(table).to_pyarrow_table().num_rows) != 1:
            raise AssertionError(f"Spark wrote one row into {table}, and deltalake reads {rows}")
    finally:
        store_of(table).delete_folder(table)
    return f"{run.stdout.splitlines()[-1]}: the record went from Kafka into a Delta table, and deltalake reads it"


def _airflow(config: Config) -> str:
    recorded = running(config)
    states = airflow.health(recorded.api_port) if recorded.with_airflow and recorded.api_port else {}
    if states:
        sick = sorted(name for name, state in states.items() if state != "healthy")
        if sick:
            raise ConfigError(f"Not healthy: {', '.join(sick)}; their logs are in {config.home / 'logs'}. {_UP}")
        return f"running on port {recorded.api_port}: {', '.join(sorted(states))} healthy"
    with tempfile.TemporaryDirectory(prefix="kappa-doctor-") as home:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
        run = subprocess.run(
            [sys.executable, "-P", "-m", "airflow", "version"],
            env=environment | {"AIRFLOW_HOME": home},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    if run.returncode:
        raise ConfigError("\n".join([*run.stderr.splitlines()[-5:], _INSTALL]))
    return f"{run.stdout.split()[-1]} installed, not running; `kappa up` starts it"
