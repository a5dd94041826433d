"""An S3 server for tests: a process of its own on loopback, with an empty bucket.

moto is quick to start and keeps objects in memory. It does not check signatures. versitygw is a server that people
run in production: it checks signatures, and objects are files.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlsplit

from kappa.config import Config
from kappa.errors import ConfigError
from kappa.spark.jars import filled
from kappa_local.kafka import HOST, free_port
from support.airflow_stack import wait_for
from support.programs import program

if TYPE_CHECKING:
    from obstore.store import S3Store

Kind = Literal["moto", "versitygw"]

#: What moto is made of. botocore, which it needs, wants python-dateutil below 3, and requirements.txt has 4.
MOTO_LOCK = Path(__file__).with_name("moto.txt")
#: The command line of AWS, with a botocore within.
AWS_LOCK = Path(__file__).with_name("awscli.txt")
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
REGION = "us-east-1"
SECRET = "kappa-secret"
_QUIET_INSTALL = ("--disable-pip-version-check", "install", "--quiet", "--requirement")
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class S3Server:
    """An S3 server that runs.

    Attributes:
        endpoint: its URL.
        bucket: a bucket that was empty at the start.
        access_key: name of the user.
        secret_key: the user's secret.
        pid: its process.
        folder: folder of its buckets; None where they are in memory.
    """

    endpoint: str
    bucket: str
    access_key: str
    secret_key: str
    pid: int
    folder: Path | None

    @property
    def url(self) -> str:
        """The bucket, as obstore and deltalake want it."""
        return f"s3://{self.bucket}"

    @property
    def options(self) -> dict[str, str]:
        """Options of deltalake, whose names are those of obstore too; :func:`objects` says which one differs there."""
        return {
            "aws_endpoint_url": self.endpoint,
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key,
            "aws_region": REGION,
            **({} if self.endpoint.startswith("https") else {"aws_allow_http": "true"}),
        }


def put_raw(server: S3Server, key: str) -> None:
    """Put an object under a key that no client takes, as other programs do; moto checks no signature."""
    connection = http.client.HTTPConnection(urlsplit(server.endpoint).netloc)
    login = f"AWS4-HMAC-SHA256 Credential={server.access_key}/20260101/us-east-1/s3/aws4_request"
    connection.request("PUT", f"/{server.bucket}/{quote(key)}", b"one", {"Authorization": login})
    assert connection.getresponse().status == 200
    connection.close()


def objects(server: S3Server, *, retries: int | None = None) -> S3Store:
    """The bucket's objects by obstore.

    obstore 0.12.1 takes `aws_allow_http` as an option of its client only: among the others it ends in a panic.

    Args:
        server: the server, or a proxy's.
        retries: how often a request is repeated; None for obstore's default.
    """
    from obstore.store import S3Store

    config: Any = {name: value for name, value in server.options.items() if name != "aws_allow_http"}
    return S3Store.from_url(
        server.url,
        config=config,
        client_options={"allow_http": True},
        retry_config=None if retries is None else {"max_retries": retries},
    )


@contextlib.contextmanager
def s3_server(
    folder: Path,
    *,
    kind: Kind = "moto",
    bucket: str = "lake",
    port: int | None = None,
    secret_key: str = SECRET,
    versions: Path | None = None,
) -> Iterator[S3Server]:
    """Within, an S3 server runs.

    Args:
        folder: its log, and its objects if it keeps files.
        kind: the program; it is installed into the cache once.
        bucket: created at the start.
        port: where it listens; None for a free one.
        secret_key: its user's.
        versions: where versitygw keeps old versions, of buckets that are to have them; moto keeps them in memory.

    Raises:
        ConfigError: the program cannot be installed; the message names what is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port() if port is None else port
    access_key = "kappa"
    data = folder / "data" if kind == "versitygw" else None
    command, log = _command(kind, port, data, versions), folder / f"{kind}.log"
    environ = _plain_environment() | {"ROOT_ACCESS_KEY": access_key, "ROOT_SECRET_KEY": secret_key}
    with program(command, log, environ, stop_seconds=_STOP_SECONDS) as process:

        def is_answering() -> bool:
            assert process.poll() is None, f"{kind} ended with code {process.returncode}"
            return _status("GET", port, "/") is not None

        wait_for(is_answering, _START_SECONDS, f"{kind} answers", log.read_text)
        server = S3Server(
            endpoint=f"http://{HOST}:{port}",
            bucket=bucket,
            access_key=access_key,
            secret_key=secret_key,
            pid=process.pid,
            folder=data,
        )
        yield create_bucket(server, bucket)


def create_bucket(server: S3Server, bucket: str) -> S3Server:
    """Create a bucket, and return the server with it; idempotent."""
    if server.folder is not None:  # a folder is a bucket, and a request would need a signature
        (server.folder / bucket).mkdir(exist_ok=True)
    else:
        status = _status("PUT", int(server.endpoint.rpartition(":")[2]), f"/{bucket}")
        assert status == http.client.OK, f"PUT /{bucket}: {status}"
    return replace(server, bucket=bucket)


def _command(kind: Kind, port: int, data: Path | None, versions: Path | None) -> Sequence[str | Path]:
    cache = Config.from_env({}).cache
    if data is None:
        return [ensure_python(cache, MOTO_LOCK), "-m", "moto.server", "-H", HOST, "-p", str(port)]
    data.mkdir(exist_ok=True)
    options: Sequence[str | Path] = []
    if versions is not None:
        versions.mkdir(exist_ok=True)
        options = ["--versioning-dir", versions]
    return [ensure_built(cache, VERSITYGW), "--port", f"{HOST}:{port}", "posix", *options, data]


def _plain_environment() -> dict[str, str]:
    """The environment without what is meant for the tests' own Python."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}


def _status(method: str, port: int, path: str) -> int | None:
    """The status of an answer; None if there was none."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def ensure_python(cache: Path, lock: Path) -> Path:
    """The Python of an environment with some packages, which is made when the cache lacks it.

    Args:
        lock: its packages; the file has the name of the first of them.

    Raises:
        ConfigError: the packages cannot be installed.
    """

    def install(partial: Path) -> None:
        venv.create(partial, symlinks=True)
        _run(
            [sys.executable, "-m", "pip", "--python", partial / "bin" / "python", *_QUIET_INSTALL, lock],
            f"{lock.stem}, of {lock.name}, could not be installed. Check the network and pip's settings",
        )

    content = hashlib.sha256(lock.read_bytes()).hexdigest()[:8]
    return filled(cache / f"{lock.stem}-{content}", install) / "bin" / "python"


def ensure_built(cache: Path, module: str) -> Path:
    """A program of a module of Go; built when the cache lacks it, which takes two minutes.

    Raises:
        ConfigError: there is no Go, or the build failed.
    """
    name, version = module.rpartition("/")[2].split("@")

    def install(partial: Path) -> None:
        go = shutil.which("go")
        if go is None:
            raise ConfigError(
                f"Go, which builds {module}, was not found. Install it and put `go` on the PATH "
                f"(Debian: `apt-get install golang-go`)."
            )
        _run([go, "install", module], f"{module} could not be built. Check the network and GOPROXY", GOBIN=str(partial))

    return filled(cache / f"{name}-{version}", install) / name


def _run(command: Sequence[str | Path], objection: str, **environment: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_plain_environment() | environment)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise ConfigError(f"{objection}. It ended with code {done.returncode}:\n{tail}")
