"""The authorities that a driver's JVM trusts, where those of a lake's store are not the system's.

The JVM reads no PEM. It has a trust store instead, of the file that this process's other clients trust.
"""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

from kappa.spark.jars import filled
from kappa.store.authorities import all_of

_OPTION = "-Djavax.net.ssl.trustStore"


def reading(options: str, bundle: str, cache: Path) -> str:
    """Options of a JVM, with that of its trust store; one that they name stays.

    Args:
        options: other options.
        bundle: the authorities that the system does not have.
        cache: where the store is, made when it is not there.

    Raises:
        ConfigError: the bundle cannot be read, has no certificate, or other users may write it.
    """
    if f"{_OPTION}=" in options:
        return options
    pem = all_of(bundle)
    digest = hashlib.sha256(pem.encode()).hexdigest()[:16]
    store = filled(cache / f"trust-store-{digest}", lambda into: _write(pem, into / "authorities.p12"))
    return f"{options} {_OPTION}={store / 'authorities.p12'} {_OPTION}Type=PKCS12".strip()


def _write(pem: str, file: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some systems have an authority whose number is not positive
        authorities = x509.load_pem_x509_certificates(pem.encode())
    entries = [pkcs12.PKCS12Certificate(one, str(number).encode()) for number, one in enumerate(authorities)]
    file.write_bytes(pkcs12.serialize_java_truststore(entries, NoEncryption()))
