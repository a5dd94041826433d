"""One Kafka broker, in KRaft mode, on this machine: for `kappa up` and for tests.

It is Kafka itself, with the settings of a single node: nothing is replicated, and it listens on loopback only.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from kappa import properties
from kappa.config import Servers
from kappa.errors import BrokerUnreachableError, ConfigError
from kappa.spark.jars import ensure_kafka, find_java
from kappa_local import logins

HOST = "127.0.0.1"
DEFAULT_CACHE = Path(os.path.expanduser("~/.cache/kappa"))  # noqa: PTH111, which raises for a user without a home
#: The listener of a broker that requires a login.
SECURED = "SASL_SSL"

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners={protocol}://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners={protocol}://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map={protocol}:{protocol},CONTROLLER:{controller_protocol}
log.dirs={logs}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
transaction.max.timeout.ms=900000
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=33554432
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=5000
"""
# The last two lines: after a power cut the controller waits for the dead broker's session to end before it lets the
# new one in, nine seconds by default. Both live in one process here, so a short session risks nothing.

# Without this configuration Kafka logs only errors, to the console. The size limits the disk use of a forgotten broker.
_LOGGING = """\
<Configuration status="WARN">
  <Appenders>
    <RollingFile name="file" fileName="${sys:kappa.broker.log}" filePattern="${sys:kappa.broker.log}.%i">
      <PatternLayout pattern="%d{ISO8601} %p %m (%c)%n"/>
      <SizeBasedTriggeringPolicy size="20 MB"/>
      <DefaultRolloverStrategy max="2"/>
    </RollingFile>
  </Appenders>
  <Loggers><Root level="INFO"><AppenderRef ref="file"/></Root></Loggers>
</Configuration>
"""


#: Pause between requests for the metadata of a starting broker, which does not report that it is ready.
POLL_SECONDS = 0.1


def free_port() -> int:
    """A TCP port of loopback on which no process listens at the moment.

    It is below the ports that systems give to outgoing connections: while a broker is down its clients keep connecting,
    and a client with the broker's own port as its source would connect to itself and occupy the port.
    """
    return next(port for port in iter(lambda: 20000 + secrets.randbelow(12000), None) if is_port_free(port))


def is_port_free(port: int, host: str = HOST) -> bool:
    """Whether a server could listen on this port now; connections that are still closing do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def prepare(data_dir: Path, *, port: int, cache: Path, is_secure: bool = False) -> Path:
    """Write the broker's settings and format its storage if it is new; return the settings file.

    Idempotent: formatted storage stays as it is, so that a broker has its topics again and still requires a login if it
    did before.

    Args:
        data_dir: folder of the broker's files.
        port: its port on loopback.
        cache: folder of the jars.
        is_secure: whether it has TLS, logins and rights, from :mod:`kappa_local.logins`.

    Raises:
        ConfigError: no Java, no jars, the folder has a comma, the storage cannot be formatted, or it was formatted
            without logins.
    """
    data_dir = data_dir.absolute()
    if "," in str(data_dir):
        raise ConfigError(
            f"The broker cannot keep its topics in {data_dir}: Kafka takes a comma for the end of a folder's name. "
            "Start it with another folder: KAPPA_HOME=<folder> kappa up",
            path=str(data_dir),
        )
    data_dir.mkdir(parents=True, exist_ok=True)
    settings, logs = data_dir / "server.properties", data_dir / "log"
    controller_port = _written_ports(settings).get("CONTROLLER")
    if controller_port is None or controller_port == port or not is_port_free(controller_port):
        controller_port = free_port()
    is_new, users = not (logs / "meta.properties").is_file(), dict[str, str]()
    if is_secure and not is_new and not logins.is_secured(data_dir):
        raise ConfigError(
            f"The broker's storage in {data_dir} was formatted without logins, and none can be added to it. Start "
            f"with other storage: KAPPA_HOME=<another folder> kappa up --secure, or remove {data_dir} with its topics.",
            path=str(data_dir),
        )
    is_secure = is_secure or logins.is_secured(data_dir)
    if is_secure and is_new:  # also if a crash left files before the storage was formatted
        users = logins.make(data_dir)
    text = _SETTINGS.format(
        host=HOST,
        port=port,
        controller_port=controller_port,
        logs=properties.escaped(str(logs)),
        protocol=SECURED if is_secure else "PLAINTEXT",
        controller_protocol="SSL" if is_secure else "PLAINTEXT",
    )
    logins.write_private(settings, text + (logins.broker_settings(data_dir) if is_secure else ""))
    (data_dir / "log4j2.xml").write_text(_LOGGING)
    if is_new:
        _format(settings, cache, users)
    return settings


def command(data_dir: Path, *, heap: str = "512m", cache: Path = DEFAULT_CACHE) -> list[str]:
    """The command line of the broker whose ``data_dir`` is prepared.

    ``KAFKA_JVM_PERFORMANCE_OPTS`` counts as in Kafka's own scripts: options of the JVM in place of these.

    Raises:
        ConfigError: no Java, or the jars cannot be fetched.
    """
    data_dir = data_dir.absolute()
    return [
        str(find_java()),
        f"-Xmx{heap}",
        "-Xms128m",
        *(os.environ.get("KAFKA_JVM_PERFORMANCE_OPTS") or "-XX:+UseG1GC -XX:MaxGCPauseMillis=20").split(),
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={data_dir / 'log4j2.xml'}",
        f"-Dkappa.broker.log={data_dir / 'broker.log'}",
        "-cp",
        f"{ensure_kafka(cache)}/*",
        "kafka.Kafka",
        str(data_dir / "server.properties"),
    ]


def tool(name: str, *arguments: str, cache: Path = DEFAULT_CACHE) -> list[str]:
    """The command line of one of Kafka's own tools by its class, for example ``org.apache.kafka.tools.TopicCommand``.

    Raises:
        ConfigError: no Java, or the jars cannot be fetched.
    """
    return [
        str(find_java()),
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{ensure_kafka(cache)}/*",
        name,
        *arguments,
    ]


def is_answering(bootstrap_servers: str, timeout_seconds: float = 2.0) -> bool:
    """Whether a broker is reachable, accepts this client, and serves metadata."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    from kappa.kafka.connection import client_settings

    host, _, port = bootstrap_servers.split(",", maxsplit=1)[0].rpartition(":")
    # The client logs each refused connection; a check of the socket before it keeps a start quiet.
    try:
        socket.create_connection((host, int(port)), timeout=timeout_seconds).close()
    except (OSError, ValueError):
        return False
    client = AdminClient(client_settings(bootstrap_servers))
    with contextlib.suppress(KafkaException):
        return bool(client.list_topics(timeout=timeout_seconds).brokers)
    return False


def addresses(data_dir: Path, port: int, user: str = logins.USER) -> Servers:
    """Address of the broker of a folder, with the client file of a user if it requires a login."""
    file = str(logins.client_file_path(data_dir, user)) if logins.is_secured(data_dir) else ""
    return Servers(f"{HOST}:{port}", file)


@dataclass(kw_only=True)
class KafkaProcess:
    """A broker in a process group of its own; also a context manager that stops it.

    Attributes:
        data_dir: folder of its files; a broker that starts again on the same folder has the same topics.
        port: its port on loopback.
    """

    data_dir: Path
    port: int
    heap: str
    cache: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls,
        data_dir: Path,
        port: int | None = None,
        heap: str = "512m",
        *,
        cache: Path = DEFAULT_CACHE,
        timeout_seconds: float = 120.0,
        is_secure: bool = False,
    ) -> KafkaProcess:
        """Start a broker and wait until it answers.

        Args:
            data_dir: folder of its files; created if missing.
            port: by default the port of the last start on this folder, or a free one.
            heap: the JVM's largest heap.
            cache: folder of the jars.
            timeout_seconds: longest wait for the first answer.
            is_secure: see :func:`prepare`; the user ``kappa`` then gets its rights.

        Raises:
            ConfigError: no Java, no jars, or the port is taken.
            BrokerUnreachableError: it ended or did not answer in time; nothing is left running.
        """
        data_dir = data_dir.absolute()
        port = port or written_port(data_dir) or free_port()
        if not is_port_free(port):
            raise ConfigError(f"Port {port} on {HOST} is in use, and the broker needs it. Choose another.", port=port)
        prepare(data_dir, port=port, cache=cache, is_secure=is_secure)
        with (data_dir / "broker.out").open("ab") as out:
            process = subprocess.Popen(
                command(data_dir, heap=heap, cache=cache),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        broker = cls(data_dir=data_dir, port=port, heap=heap, cache=cache, process=process)
        try:
            broker.wait_until_answering(timeout_seconds)
            if logins.is_secured(data_dir):
                logins.grant_user(broker.bootstrap_servers, data_dir)
        except BaseException:
            broker.kill()
            raise
        return broker

    @property
    def bootstrap_servers(self) -> Servers:
        """``host:port`` for clients, with the file for their login if one is required."""
        return addresses(self.data_dir, self.port)

    @property
    def pid(self) -> int:
        """The broker's process id, which is also its process group."""
        return self.process.pid

    def is_running(self) -> bool:
        """Whether the process is alive; it may not answer yet."""
        return self.process.poll() is None

    def wait_until_answering(self, timeout_seconds: float = 120.0) -> None:
        """Return when the broker serves metadata.

        Raises:
            BrokerUnreachableError: the process ended or the time is over.
        """
        deadline = time.monotonic() + timeout_seconds
        while not is_answering(self.bootstrap_servers):
            if not self.is_running() or time.monotonic() > deadline:
                code = self.process.poll()
                what = "did not answer in time" if code is None else f"ended with code {code}"
                raise BrokerUnreachableError(
                    f"The broker on {self.bootstrap_servers} {what}. Its last output, from "
                    f"{self.data_dir}:\n{last_words(self.data_dir)}",
                    port=self.port,
                    returncode=code,
                )
            time.sleep(POLL_SECONDS)

    def stop(self, timeout_seconds: float = 30.0) -> None:
        """End it gracefully, or by force if it takes too long. May be called twice."""
        self._signal(signal.SIGTERM)
        try:
            self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it like a power cut. May be called twice."""
        self._signal(signal.SIGKILL)
        self.process.wait()

    def restart(self, timeout_seconds: float = 120.0) -> None:
        """Stop it if it runs and start it again on the same folder and port; this object is the new process.

        Raises:
            BrokerUnreachableError: as :meth:`start`.
        """
        self.stop()
        self.process = KafkaProcess.start(
            self.data_dir, self.port, self.heap, cache=self.cache, timeout_seconds=timeout_seconds
        ).process

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running():  # not reaped yet, so the id is still its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def last_words(data_dir: Path, lines: int = 12) -> str:
    """The last lines of the broker's output and log, for an error message."""
    words: list[str] = []
    for name in ("broker.out", "broker.log"):
        with contextlib.suppress(FileNotFoundError):
            words += (data_dir / name).read_text(errors="replace").splitlines()[-lines:]
    return "\n".join(words)


def written_port(data_dir: Path) -> int | None:
    """Last port of the broker of a folder; None if it never ran."""
    ports = _written_ports(data_dir / "server.properties")
    return ports.get(SECURED) or ports.get("PLAINTEXT")


def _written_ports(settings: Path) -> dict[str, int]:
    if not settings.is_file():
        return {}
    line = next(line for line in settings.read_text().splitlines() if line.startswith("listeners="))
    listeners = line.removeprefix("listeners=").split(",")
    return {item.split("://")[0]: int(item.rpartition(":")[2]) for item in listeners}


def _format(settings: Path, cache: Path, users: dict[str, str]) -> None:
    """Format the storage with these users and passwords, which the tool reads from a file and not from its command
    line.
    """
    cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    if cluster_id.startswith("-"):  # the tool would read it as an option
        cluster_id = "k" + cluster_id[1:]
    java, *arguments = tool("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(settings), cache=cache)
    argument_file = settings.with_name("format.arguments")
    logins.write_private(argument_file, "".join(f'"{word}"\n' for word in (*arguments, *logins.scram_arguments(users))))
    run = subprocess.run([java, f"@{argument_file}"], capture_output=True, text=True, check=False)
    argument_file.unlink()
    if run.returncode:
        raise ConfigError(f"Kafka's storage could not be formatted: {(run.stdout + run.stderr).strip()}")
