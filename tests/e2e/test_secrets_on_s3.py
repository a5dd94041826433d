"""A stream on S3 whose keys are in a client file: they are nowhere else, while drivers run and afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pytest
from support.processes import QUICK_JVM, Rig, rig, rows
from support.s3_options import write_options
from support.s3_server import S3Server, objects

from kappa.kafka.broker import Broker
from kappa.spark.object_store import FILE_KEYS, KEY_FILE

if TYPE_CHECKING:
    from conftest import TopicFactory

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

KEY, CANARY = "canary-of-the-key", "canary-of-the-secret"
#: Written by Spark itself, with nothing that it would hide by the name.
SHOWN = {"enabled": "true", "compress": "false"}


@pytest.fixture
def login(s3: S3Server, tmp_path: Path) -> Path:
    """A client file; the server takes any keys."""
    return write_options(replace(s3, access_key=KEY, secret_key=CANARY), tmp_path / "lake.properties")


@pytest.fixture
def machine(tmp_path: Path, kafka: Broker, topic: TopicFactory, s3: S3Server, login: Path) -> Iterator[Rig]:
    """Drivers that log in by the file, and whose Spark writes all of its settings into its events."""
    (tmp_path / "events").mkdir()
    shown = {f"spark.eventLog.{name}": value for name, value in SHOWN.items()} | {
        "spark.eventLog.dir": str(tmp_path / "events"),
        "spark.redaction.regex": "no-such-name",
        "spark.sql.redaction.options.regex": "no-such-name",
    }
    places = {"lake": f"{s3.url}/lake", "lake_client_file": str(login)}
    with rig(tmp_path, kafka, topic(partitions=2), slice_records=20, small_slice=0, arrow_rows=0, **places) as machine:
        machine.config = replace(machine.config, spark_conf={**QUICK_JVM, **shown})
        yield machine


def processes() -> dict[str, bytes]:
    """Command line and environment of each process of this host that may be read."""
    texts = {}
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                texts[f"{folder}/{name}"] = (folder / name).read_bytes()
            except OSError:  # it has ended, or is another user's
                continue
    return texts


def test_keys_in_a_client_file_are_nowhere_else(machine: Rig, s3: S3Server, login: Path, tmp_path: Path) -> None:
    machine.produce(rows(60))
    epoch = machine.start_live()
    machine.settle(epoch)
    running = processes()
    assert any(machine.name.encode() in text for name, text in running.items() if name.endswith("cmdline"))
    assert any(str(login).encode() in text for name, text in running.items() if name.endswith("environ"))
    machine.close()

    store = objects(s3)
    lake = {
        meta["path"]: bytes(obstore.get(store, meta["path"]).bytes()) for chunk in obstore.list(store) for meta in chunk
    }
    disk = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != login}
    assert any(name.endswith("/heartbeat.json") for name in lake) and any(name.endswith(".log") for name in disk)
    events = b"".join(text for name, text in disk.items() if name.startswith(str(tmp_path / "events")))
    assert FILE_KEYS.encode() in events and f'"{KEY_FILE}":"{login}"'.encode() in events
    for secret in (KEY.encode(), CANARY.encode()):
        assert [name for name, text in {**running, **lake, **disk}.items() if secret in text] == []
    assert login.stat().st_mode & 0o777 == 0o600
