"""Users of a broker that asks for a login, and the rights that the docs name."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kappa.config import Config, Servers
from kappa.kafka.broker import Broker
from kappa.kafka.connection import client_settings
from kappa.properties import parsed as properties
from kappa_local import kafka, logins
from support.processes import Rig, rig, rows

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
_KINDS = {
    "Topic": ResourceType.TOPIC,
    "Group": ResourceType.GROUP,
    "TransactionalId": ResourceType.TRANSACTIONAL_ID,
    "Cluster": ResourceType.BROKER,
}
_ROW = re.compile(r"\| (\w+) \| `([^`]+)` \| (literal|prefixed) \| ([\w, ]+) \| .+ \|")
_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Right:
    """One operation of a row of the table.

    Attributes:
        kind: the resource, in Kafka's word.
        name: as in the table: ``<source>`` stands for a topic.
        is_prefix: whether the name is the beginning of many.
        operation: in Kafka's word.
    """

    kind: str
    name: str
    is_prefix: bool
    operation: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.kind} {self.name}"


def rights(*, without: str = "") -> list[Right]:
    """The table of docs/security.md, one operation after the other, those of one kind left out."""
    table_rows = [row for line in PAGE.read_text().splitlines() if (row := _ROW.fullmatch(line))]
    return [
        Right(kind=row[1], name=row[2], is_prefix=row[3] == "prefixed", operation=operation.strip())
        for row in table_rows
        for operation in row[4].split(",")
        if operation.strip() != without
    ]


def user(broker: kafka.KafkaProcess, folder: Path, user_rights: Iterable[Right], **names: str) -> Servers:
    """A new user with these rights, and the addresses with its client file.

    Args:
        broker: where.
        folder: where its client file goes.
        user_rights: its rights.
        names: what stands for ``<source>`` and ``<output>``.
    """
    name = f"user-{next(_numbers)}"
    admin = kafka.addresses(broker.data_dir, broker.port, logins.ADMIN)
    credential = UserScramCredentialUpsertion(
        name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), f"secret-{name}".encode()
    )
    client = AdminClient(client_settings(admin))  # held: its answers are lost with it
    for answer in client.alter_user_scram_credentials([credential]).values():
        answer.result(30)
    bindings = [
        logins.binding(
            name,
            _KINDS[right.kind],
            re.sub(r"<(\w+)>", lambda match: names[match[1]], right.name),
            getattr(AclOperation, re.sub(r"(?<!^)(?=[A-Z])", "_", right.operation).upper()),
            is_prefix=right.is_prefix,
        )
        for right in user_rights
    ]
    if bindings:
        logins.grant(admin, bindings)
    authority = properties(Path(admin.client_file).read_text())["ssl.truststore.location"]
    file = folder / f"{name}.properties"
    logins.write_client_file(file, Path(authority), name, f"secret-{name}")
    return Servers(str(admin), str(file))


def config_of(servers: Servers, **settings: object) -> Config:
    """What somebody has set who logs in with the file of these addresses."""
    named = {"bootstrap_servers": servers, "kafka_client_file": servers.client_file, **settings}
    return Config.from_env({f"KAPPA_{name.upper()}": str(value) for name, value in named.items()})


@contextlib.contextmanager
def secured_rig(base: Path, broker: kafka.KafkaProcess, source: str, user_rights: Iterable[Right]) -> Iterator[Rig]:
    """A rig whose drivers log in as a user with these rights; somebody else made its source."""
    with Broker(broker.bootstrap_servers) as other:
        other.create_topic(source, 2, {"retention.ms": "-1"})
    servers = user(broker, base, user_rights, source=source, output=f"{source}.moves")
    with (
        Broker(servers) as client,
        rig(base, client, source, kind=Rig, slice_records=20, kafka_client_file=servers.client_file) as machine,
    ):
        yield machine


def produce(machine: Rig, broker: kafka.KafkaProcess, count: int) -> None:
    """Records from another user: that of drivers may not write the source."""
    own = machine.config
    machine.config = replace(own, kafka_client_file=broker.bootstrap_servers.client_file)
    machine.produce(rows(count))
    machine.config = own
