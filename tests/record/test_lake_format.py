"""The number of a lake's format: written when the lake is made, and looked at before anything of the lake is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from support.live_lake import NAME, live_lake
from support.s3_proxy import Proxy

from kappa.config import Config
from kappa.delta.access import open_table
from kappa.delta.append_log import AppendLog
from kappa.delta.damage import entry_of
from kappa.delta.log_entries import actions_of
from kappa.errors import LedgerError, NewerFormatError
from kappa.names import epochs_log
from kappa.record.epochs import Epochs, epochs_of
from kappa.replay.stored import LAKE_FORMAT, LAKE_FORMAT_PROPERTY
from kappa.store.stores import store_of

NEWER = LAKE_FORMAT + 1


def number_of(lake: str) -> str | None:
    """The number that a lake has."""
    return open_table(epochs_log(lake)).metadata().configuration.get(LAKE_FORMAT_PROPERTY)


def raise_format(lake: str) -> int:
    """Raise the number, as newer code would; the Delta version of the record since."""
    path = epochs_log(lake)
    version = open_table(path).version() + 1
    (metadata,) = [action["metaData"] for action in actions_of(path, 0) or () if "metaData" in action]
    newer = {**metadata, "configuration": {**metadata["configuration"], LAKE_FORMAT_PROPERTY: str(NEWER)}}
    # By hand: deltalake stops all threads for it, and so the server of the tests.
    assert store_of(path).create(entry_of(path, version), json.dumps({"metaData": newer}).encode())
    return version


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    return live_lake(tmp_path, monkeypatch)


def test_a_lake_gets_the_number_when_it_is_made_and_keeps_it_when_its_record_is_written_anew(config: Config) -> None:
    epochs = Epochs(config.lake)
    assert number_of(config.lake) == str(LAKE_FORMAT)
    log = AppendLog(epochs_log(config.lake), epochs._log.schema.remove(len(epochs._log.schema) - 1), is_rewritten=True)
    log.refresh()
    log.replace(log.rows(), [], 0)
    assert number_of(config.lake) == str(LAKE_FORMAT) and Epochs(config.lake).record(NAME).live == 1


def test_a_lake_without_a_number_is_of_the_first_format_and_refused(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    schema = Epochs(lake)._log.schema
    DeltaTable.create(epochs_log(lake), schema)
    with pytest.raises(LedgerError, match=f"The lake {lake} has format 1: code from before") as error:
        Epochs(lake).add("a.b", 1, "planned", actor="ada")
    assert error.value.data == {"format": 1, "known": LAKE_FORMAT}
    assert open_table(epochs_log(lake)).version() == 0


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["query", NAME, "rewards"],
        ["stop", NAME, "--execute"],
        ["archive", "status"],
        ["archive", "stop", "pos", "--execute"],
    ],
)
def test_a_command_refuses_a_newer_lake_before_it_reads_or_writes(config: Config, words: list[str]) -> None:
    version = raise_format(config.lake)
    files = {file for file in Path(config.lake).rglob("*") if file.is_file()}
    environ = {**os.environ, **config.to_env()}
    run = subprocess.run(
        [sys.executable, "-m", "kappa", *words], env=environ, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1 and run.stdout == ""
    assert f"The lake {config.lake} has format {NEWER}, and this version of Kappa opens lakes up to" in run.stderr
    assert run.stderr.strip().endswith("kappa upgrade <topology>")
    assert open_table(epochs_log(config.lake)).version() == version
    assert {file for file in Path(config.lake).rglob("*") if file.is_file()} == files


def test_a_process_that_has_the_lake_open_is_refused_at_its_next_look(config: Config) -> None:
    epochs = epochs_of(config.lake)
    assert epochs.topologies() == [NAME]
    raise_format(config.lake)
    for _ in range(2):  # a second look finds nothing new in the log
        with pytest.raises(NewerFormatError, match=f"format {NEWER}") as error:
            epochs.records()
    assert error.value.data == {"what": "lake", "where": config.lake, "format": NEWER, "known": LAKE_FORMAT}
    with pytest.raises(NewerFormatError):
        epochs.add(NAME, 1, "stop", actor="ada")


def test_a_copy_of_a_newer_lake_is_refused_too(config: Config) -> None:
    raise_format(config.lake)
    with pytest.raises(NewerFormatError):
        Epochs(config.lake, is_anywhere=True).records()


def test_a_look_at_the_number_costs_no_request_on_s3(proxied_lake: str, proxy: Proxy) -> None:
    epochs = Epochs(proxied_lake)
    epochs.add("a.b", 1, "planned", actor="ada")
    plain = AppendLog(epochs_log(proxied_lake), epochs._log.schema.remove(len(epochs._log.schema) - 1))

    def requests(look: object) -> dict[str, int]:
        assert callable(look)
        before = len(proxy.requests)
        look()
        return dict(proxy.counts(before))

    reader = Epochs(proxied_lake)
    assert requests(reader.records) == requests(plain.refresh), "the first look"
    assert requests(reader.records) == requests(plain.refresh) == {"GET": 1}, "each further one"
    raise_format(proxied_lake)
    for _ in range(2):
        with pytest.raises(NewerFormatError, match=f"The lake {proxied_lake} has format {NEWER}"):
            reader.records()
