"""Certificate authorities of a store that are not the system's: all of this process's clients trust them.

``deltalake`` has no option for them. It, obstore and the clients of roles below both read what ``SSL_CERT_FILE`` names,
in place of the system's file, whenever they are made. So that one gets the authorities of both.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import stat
import tempfile
from pathlib import Path

from kappa.errors import ConfigError

OPTION = "aws_ca_bundle"
VARIABLE = "AWS_CA_BUNDLE"
_TRUSTED_FILE = "SSL_CERT_FILE"
#: Where systems have their own: Debian and Arch, Fedora and Red Hat, SUSE, Alpine and macOS.
SYSTEMS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
#: Bundle, and the variable's value -> their state when they were put together.
_trusted: dict[tuple[str, str], tuple[int, ...]] = {}


def certificates(bundle: str) -> str:
    """The certificates in a bundle, in PEM.

    Raises:
        ConfigError: it cannot be read, has no certificate, or other users may write it.
    """
    if not bundle.startswith("/"):
        raise ConfigError(
            f"{OPTION}={bundle!r} is not a path that each process reads alike. Set it to an absolute path.", path=bundle
        )
    try:
        mode = stat.S_IMODE(Path(bundle).stat().st_mode)
        text = Path(bundle).read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ConfigError(
            f"{OPTION} names {bundle}, which cannot be read on this host: {error.strerror}. Put the file there, or "
            f"correct the path: ls -l {bundle}",
            path=bundle,
        ) from error
    if mode & 0o022:
        raise ConfigError(
            f"{bundle} has mode {mode:04o}: other users may say whom this process trusts. Run: chmod 644 {bundle}",
            path=bundle,
            mode=mode,
        )
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise ConfigError(
            f"{bundle}, which {OPTION} names, has no certificate in PEM. Look at it: openssl x509 -noout -text -in "
            f"{bundle}",
            path=bundle,
        ) from None
    return text


def trust(bundle: str, folder: Path) -> None:
    """Let all TLS clients that this process makes from now on trust a bundle's authorities, beside those they had.

    Idempotent, and cheap while the bundle is the same. A crash leaves a file in the folder that nobody reads.

    Args:
        bundle: the file.
        folder: where the file with all authorities is put.

    Raises:
        ConfigError: as :func:`certificates`.
    """
    before = trusted_file()
    state = _state(bundle)
    if state and _trusted.get((bundle, before)) == state and (not before or Path(before).is_file()):
        return
    content = all_of(bundle)
    if content != _present(before):
        before = os.environ[_TRUSTED_FILE] = str(_written(content.encode(), folder))
    _trusted[bundle, before] = state


def all_of(bundle: str) -> str:
    """The certificates of a bundle, and those that this process trusts already, in PEM.

    Raises:
        ConfigError: as :func:`certificates`.
    """
    added, present = certificates(bundle).strip(), _present(trusted_file())
    return present if added in present else f"{present.rstrip()}\n{added}\n".lstrip()


def trusted_file() -> str:
    """The file whose authorities this process's clients trust; empty for the system's."""
    return os.environ.get(_TRUSTED_FILE, "")


def _state(bundle: str) -> tuple[int, ...]:
    try:
        file = Path(bundle).stat()
    except OSError:
        return ()
    return file.st_mtime_ns, file.st_size, file.st_ino


def _present(file: str) -> str:
    """What is trusted without the bundle: the variable's file, or the system's."""
    for path in (file, ssl.get_default_verify_paths().openssl_cafile, *SYSTEMS):
        if path and Path(path).is_file():
            return Path(path).read_text(encoding="ascii", errors="replace")
    return ""


def _written(content: bytes, folder: Path) -> Path:
    path = folder / f"authorities-{hashlib.sha256(content).hexdigest()[:16]}.pem"
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=path.name)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return Path(temporary).replace(path)
