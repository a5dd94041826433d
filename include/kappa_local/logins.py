"""Access to a broker of this machine that requires a login: certificates, users and their rights.

TLS with certificates of an authority of its own, SCRAM-SHA-512, and Kafka's StandardAuthorizer, which refuses every
right that was not granted. Two users are created with the storage. ``admin`` may do everything and grants rights;
``kappa`` is the user of the command line and of drivers. Each has a client file that only its owner may read.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kappa import properties
from kappa.config import Servers
from kappa.kafka import client_file

if TYPE_CHECKING:
    from confluent_kafka.admin import AclBinding
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

ADMIN, USER = "admin", "kappa"
MECHANISM = "SCRAM-SHA-512"
_BROKER = "kappa-broker"
_YEARS = 10
_GRANT_SECONDS = 30.0

#: The controller's listener knows its peers by certificates: users are kept behind it.
_SETTINGS = """\
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{admin};User:CN={broker}
sasl.enabled.mechanisms={mechanism}
sasl.mechanism.inter.broker.protocol={mechanism}
inter.broker.listener.name=SASL_SSL
listener.name.sasl_ssl.{mechanism_lower}.sasl.jaas.config={login}
listener.name.controller.ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.location={keys}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
"""


def client_file_path(data_dir: Path, user: str = USER) -> Path:
    """The file with which this user's clients log in at the broker of a folder."""
    return data_dir.absolute() / "logins" / f"{user}.properties"


def is_secured(data_dir: Path) -> bool:
    """Whether the broker of this folder requires a login."""
    return client_file_path(data_dir).is_file()


def make(data_dir: Path) -> dict[str, str]:
    """Make certificates and client files for a new broker; the passwords of its users, by name.

    A crash in the middle leaves a folder whose broker was not formatted: the next call makes all of it anew.
    """
    folder = data_dir.absolute() / "logins"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write_certificates(folder)
    passwords = {user: secrets.token_urlsafe(24) for user in (ADMIN, USER)}
    for user, password in passwords.items():
        write_client_file(client_file_path(data_dir, user), folder / "ca.pem", user, password)
    return passwords


def write_client_file(path: Path, authority: Path, user: str, password: str) -> None:
    """Write the file by which a user's clients log in, for its owner alone."""
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": client_file.login("ScramLoginModule", {"username": user, "password": password}),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
    }
    write_private(path, properties.written(settings))


def broker_settings(data_dir: Path) -> str:
    """The lines of the broker's settings that make it ask for a login; they hold the administrator's password."""
    folder = data_dir.absolute() / "logins"
    admin = client_file.read(str(client_file_path(data_dir, ADMIN)))
    return _SETTINGS.format(
        admin=ADMIN,
        broker=_BROKER,
        mechanism=MECHANISM,
        mechanism_lower=MECHANISM.lower(),
        login=properties.escaped(admin["sasl.jaas.config"]),
        keys=properties.escaped(str(folder / "broker.pem")),
        authority=properties.escaped(str(folder / "ca.pem")),
    )


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step by one that its owner alone may read."""
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    partial.rename(path)


def grant_user(addresses: str, data_dir: Path) -> None:
    """Let ``kappa`` work with every topic, group and transactional id, and read settings; but not grant. Idempotent."""
    from confluent_kafka.admin import AclOperation, ResourceType

    every = [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID]
    rights = [binding(USER, kind, "*", AclOperation.ALL) for kind in every]
    rights.append(binding(USER, ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS))
    grant(Servers(addresses, str(client_file_path(data_dir, ADMIN))), rights)


def grant(bootstrap_servers: str, rights: Iterable[AclBinding]) -> None:
    """Grant rights, and return when the broker goes by them. Idempotent.

    Args:
        bootstrap_servers: the broker, with the client file of a user that may grant.
        rights: what to grant.

    Raises:
        KappaError: as :func:`kappa.kafka.connection.explained`.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    from kappa.kafka.connection import client_settings, explained, unreachable

    bindings, deadline = set(rights), time.monotonic() + _GRANT_SECONDS
    no_name: Any = None  # any; its stubs want a text
    every = AclBindingFilter(
        ResourceType.ANY, no_name, ResourcePatternType.ANY, no_name, no_name, AclOperation.ANY, AclPermissionType.ANY
    )
    client = AdminClient(client_settings(bootstrap_servers))
    try:
        for answer in client.create_acls(list(bindings), request_timeout=_GRANT_SECONDS).values():
            answer.result()
        # The controller has taken them; the broker hears of them a moment later.
        while not bindings <= set(client.describe_acls(every, request_timeout=_GRANT_SECONDS).result()):
            if time.monotonic() > deadline:
                raise unreachable(bootstrap_servers, f"{len(bindings)} rights after {_GRANT_SECONDS:.0f} s")
            time.sleep(0.02)
    except KafkaException as error:
        raise explained(error, bootstrap_servers, "granting rights") from error


def binding(user: str, kind: Any, name: str, operation: Any, *, is_prefix: bool = False) -> AclBinding:
    """One right of a user, on one resource or on all resources with a prefix."""
    from confluent_kafka.admin import AclBinding, AclPermissionType, ResourcePatternType

    pattern = ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def scram_arguments(passwords: dict[str, str]) -> Iterator[str]:
    """The arguments of Kafka's storage tool that make these users."""
    for user, password in passwords.items():
        yield "--add-scram"
        yield f"{MECHANISM}=[name={user},password={password}]"


def _write_certificates(folder: Path) -> None:
    """Write an authority, and its certificate for a broker on loopback. The authority's key is not stored."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    authority_key, broker_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    basic = x509.BasicConstraints(ca=True, path_length=0)
    authority = _certificate("kappa-authority", authority_key, "kappa-authority", authority_key, basic)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    broker = _certificate(_BROKER, broker_key, "kappa-authority", authority_key, names)
    key = broker_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    write_private(folder / "broker.pem", key + broker.public_bytes(Encoding.PEM).decode())
    write_private(folder / "ca.pem", authority.public_bytes(Encoding.PEM).decode())


def _certificate(
    name: str,
    key: EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        .sign(issuer_key, SHA256())
    )
