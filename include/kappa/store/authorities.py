"""Certificate authorities of a store that are not the system's: all of this process's clients trust them.

``deltalake`` has no option for them. It, obstore and the clients of roles below both read what ``SSL_CERT_FILE`` names,
in place of the system's file, whenever they are made. So that one gets the authorities of both.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import stat
import tempfile
from pathlib import Path
from shlex import quote

from kappa.errors import ConfigError

OPTION = "aws_ca_bundle"
VARIABLE = "AWS_CA_BUNDLE"
_TRUSTED_FILE = "SSL_CERT_FILE"
#: Kappa's own value of that one, and the value before it: a process that inherits both builds on the value before.
_MERGED_FILE = "SSL_CERT_FILE_OF_KAPPA"
_FILE_BEFORE = "SSL_CERT_FILE_BEFORE_KAPPA"
#: What surrounds certificates in a file of them is for people.
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+?-----END CERTIFICATE-----", re.ASCII)
#: Where systems have their own: Debian and Arch, Fedora and Red Hat, SUSE, Alpine and macOS.
SYSTEMS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
#: Bundle, and the variable's value -> their state when they were put together.
_trusted: dict[tuple[str, str], tuple[int, ...]] = {}


def certificates(bundle: str, setting: str = OPTION) -> list[str]:
    """The certificates in a bundle, in PEM.

    Args:
        bundle: the file.
        setting: what names it, for messages.

    Raises:
        ConfigError: it cannot be read, has no certificate, or other users may write it.
    """
    if not bundle.startswith("/"):
        raise ConfigError(
            f"{setting}={bundle!r} is not a path that each process reads alike. Set it to an absolute path.",
            path=bundle,
        )
    try:
        mode = stat.S_IMODE(Path(bundle).stat().st_mode)
        present = _certificates_in(bundle)
    except OSError as error:
        raise ConfigError(
            f"{setting} names {bundle}, which cannot be read on this host: {error.strerror}. Put the file there, or "
            f"correct the path: ls -l {quote(bundle)}",
            path=bundle,
        ) from error
    if mode & 0o022:
        raise ConfigError(
            f"{bundle} has mode {mode:04o}: other users may say whom this process trusts. Run: chmod 644 "
            f"{quote(bundle)}",
            path=bundle,
            mode=mode,
        )
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata="\n".join(present))
    except (ssl.SSLError, ValueError):
        raise ConfigError(
            f"{bundle}, which {setting} names, has no certificate in PEM. Look at it: openssl x509 -noout -text -in "
            f"{bundle}",
            path=bundle,
        ) from None
    return present


def trust(bundle: str, folder: Path, setting: str = OPTION) -> None:
    """Let all TLS clients that this process makes from now on trust a bundle's authorities, beside those they had.

    Idempotent, and cheap while the bundle is the same. A crash leaves a file in the folder that nobody reads.

    Args:
        bundle: the file.
        folder: where the file with all authorities is put.
        setting: what names the bundle, for messages.

    Raises:
        ConfigError: as :func:`certificates`; or the folder cannot be written.
    """
    state, present = _state(bundle), trusted_file()
    if state and _trusted.get((bundle, present)) == state and (not present or Path(present).is_file()):
        return
    before = _file_before()
    content = all_of(bundle, setting)
    if content == _joined(_present(before)):
        _restore(before)
    else:
        merged = str(_written(content.encode(), folder))
        os.environ.update({_TRUSTED_FILE: merged, _MERGED_FILE: merged, _FILE_BEFORE: before})
    _trusted[bundle, trusted_file()] = state


def all_of(bundle: str, setting: str = OPTION) -> str:
    """The certificates of a bundle, and those that this process trusts without it, in PEM.

    Raises:
        ConfigError: as :func:`certificates`.
    """
    return _joined([*_present(_file_before()), *certificates(bundle, setting)])


def trusted_file() -> str:
    """The file whose authorities this process's clients trust; empty for the system's."""
    return os.environ.get(_TRUSTED_FILE, "")


def _restore(before: str) -> None:
    if before:
        os.environ[_TRUSTED_FILE] = before
    else:
        os.environ.pop(_TRUSTED_FILE, None)


def _file_before() -> str:
    """What the user trusts: the variable as it was before Kappa's own file; empty for the system's."""
    present = trusted_file()
    return os.environ.get(_FILE_BEFORE, "") if present and present == os.environ.get(_MERGED_FILE) else present


def _state(bundle: str) -> tuple[int, ...]:
    try:
        file = Path(bundle).stat()
    except OSError:
        return ()
    return file.st_mtime_ns, file.st_size, file.st_ino


def _present(file: str) -> list[str]:
    """What is trusted without the bundle: a file's certificates, or the system's."""
    for path in (file, ssl.get_default_verify_paths().openssl_cafile, *SYSTEMS):
        if path and Path(path).is_file():
            return _certificates_in(path)
    return []


def _certificates_in(file: str) -> list[str]:
    return _CERTIFICATE.findall(Path(file).read_text(encoding="ascii", errors="replace"))


def _joined(present: list[str]) -> str:
    return "".join(f"{one}\n" for one in dict.fromkeys(present))


def _written(content: bytes, folder: Path) -> Path:
    path = folder / f"authorities-{hashlib.sha256(content).hexdigest()[:16]}.pem"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=path.name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        return Path(temporary).replace(path)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be written ({error.strerror}), and the authorities that this process trusts are put "
            "there. Set KAPPA_CACHE to a folder of this user: export KAPPA_CACHE=$HOME/.cache/kappa",
            path=str(folder),
        ) from error
