"""A bucket with versions whose objects were deleted or overwritten, put back by docs/restore-a-bucket.md."""

from __future__ import annotations

import ast
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest
from support.live_lake import NAME, fill, further_slices
from support.restored_bucket import BLOCKS, Shell, keep_versions, shell_on
from support.s3_options import config_on
from support.s3_server import S3Server, objects, s3_server

import kappa
from kappa.config import Config
from kappa.environments import launchers
from kappa.environments.launchers import Launcher
from kappa.names import EpochPaths
from kappa.record import schemas
from kappa.record.epochs import Epochs
from kappa.record.schemas import StoredSchema
from kappa.verify.recount import recount

THIS = "tests/store/test_restored_bucket.py"


@pytest.fixture
def config(s3: S3Server, tmp_path: Path) -> Config:
    """A live epoch of five slices, in a bucket with versions."""
    return live_epoch(s3, tmp_path)


@pytest.fixture
def shell(s3: S3Server, tmp_path: Path, config: Config) -> Shell:
    """What a user has who follows the page."""
    return shell_on(s3, tmp_path, PREFIX="lake")


def live_epoch(server: S3Server, folder: Path) -> Config:
    config = config_on(server, folder)
    keep_versions(server, folder)
    fill(config)
    further_slices(config, 3)
    assert problems(config) == ()
    return config


def damage(server: S3Server, config: Config) -> str:
    """Overwrite and delete objects of each kind; the name of one that was first overwritten and then deleted."""
    store, file = objects(server), named(server, "changes/rewards/part-")[0]
    obstore.put(store, file, b"no Parquet")
    obstore.put(store, named(server, "/ledger/_delta_log/")[3], b"no entry of a log")
    obstore.delete(store, named(server, "/_kappa/epochs/"))
    obstore.delete(store, [file, *named(server, "changes/rewards/_delta_log/")])
    obstore.delete(store, named(server, "/ledger/_delta_log/")[-2:])
    assert problems(config) and Epochs(config.lake).record(NAME).live is None
    return file


def problems(config: Config) -> tuple[str, ...]:
    """What the deep certificate finds in the lake."""
    return recount(EpochPaths(lake=config.lake, topology=NAME, epoch=1)).problems


def contents(server: S3Server) -> dict[str, bytes]:
    """All objects of the bucket."""
    store = objects(server)
    names = [meta["path"] for chunk in obstore.list(store) for meta in chunk]
    return {name: bytes(obstore.get(store, name).bytes()) for name in names}


def named(server: S3Server, part: str) -> list[str]:
    return sorted(name for name in contents(server) if part in name)


def moment() -> str:
    """Between the seconds to which what was before and what comes after it are dated."""
    time.sleep(1 - time.time() % 1)
    return (datetime.now(UTC).replace(microsecond=0) - timedelta(milliseconds=500)).isoformat()


def undo(shell: Shell, since: str, until: str, *, most: int = 1000) -> str:
    """Follow the page; what its program prints.

    Args:
        most: objects of one request; a store takes 1000.
    """
    shell.environ |= {"SINCE": since, "UNTIL": until}
    listing, program, requests = BLOCKS[THIS]
    assert program.count("1000") == 2
    shell.run(listing)
    printed = shell.run_python(program.replace("1000", str(most)))
    if "\n0 to undo" not in f"\n{printed}":
        assert set(shell.run(requests).splitlines()) == {"null"}
    return printed


def check_put_back(config: Config, shell: Shell, since: str, until: str, file: str) -> None:
    """Hold that the page names and undoes the damage of an interval."""
    printed = undo(shell, since, until)
    assert f"overwritten {file}" in printed and f"deleted {file}" in printed
    assert problems(config) == () and Epochs(config.lake).record(NAME).live == 1
    assert undo(shell, since, until) == "0 to undo\n"


def test_what_was_deleted_and_overwritten_is_put_back_by_the_page(s3: S3Server, config: Config, shell: Shell) -> None:
    before, since = contents(s3), moment()
    file = damage(s3, config)
    check_put_back(config, shell, since, moment(), file)
    assert contents(s3) == before


def test_versitygw_is_told_an_interval_of_all_times(tmp_path: Path) -> None:
    with s3_server(tmp_path / "s3", kind="versitygw", versions=tmp_path / "versions") as server:
        config = live_epoch(server, tmp_path)
        before, file = contents(server), damage(server, config)
        shell = shell_on(server, tmp_path, PREFIX="lake")
        check_put_back(config, shell, "1970-01-01T00:00:00Z", "2100-01-01T00:00:00Z", file)
        assert contents(server) == before


def test_what_happened_at_another_time_stays_as_it_is(s3: S3Server, config: Config, shell: Shell) -> None:
    store, early, late = objects(s3), *named(s3, "changes/rewards/part-")[:2]
    obstore.delete(store, early)
    since = moment()
    until = moment()
    obstore.delete(store, late)
    after = contents(s3)
    assert undo(shell, since, until) == "0 to undo\n"
    assert contents(s3) == after


def test_an_entry_whose_number_was_taken_again_is_named_and_left_alone(
    s3: S3Server, config: Config, shell: Shell
) -> None:
    since, store = moment(), objects(s3)
    entry, other = named(s3, "changes/rewards/_delta_log/")[-1], named(s3, "/ledger/_delta_log/")[-1]
    again = {entry: b"another commit", other: bytes(obstore.get(store, other).bytes())}
    obstore.delete(store, [*again])
    for name, content in again.items():  # by a driver that went on: within the interval, and after it
        obstore.put(store, name, content)
    for until in (moment(), moment()):
        assert undo(shell, since, until) == f"WRITTEN AGAIN AFTER ITS DELETION {entry}\n0 to undo\n"
    assert {name: contents(s3)[name] for name in again} == again


def test_what_kappa_writes_again_and_again_is_not_taken_for_damage(s3: S3Server, config: Config, shell: Shell) -> None:
    store = objects(s3)
    schema = StoredSchema(id=1, text='"string"')
    schemas.store(config.lake, "pos", replace(schema, kind=schemas.UNKNOWN))
    launchers.write(config, Launcher(host="h", own="1f"))
    since, beat = moment(), f"lake/{NAME}/e0001/heartbeat.json"
    for number in range(3):
        obstore.put(store, beat, str(number).encode())
    schemas.store(config.lake, "pos", schema)
    launchers.write(config, Launcher(host="h", own="2e"))
    shown = [line for line in undo(shell, since, moment()).splitlines() if not line.endswith("/now.tmp")]
    assert not [line for line in shown if line.startswith(("overwritten", "WRITTEN"))]
    assert contents(s3)[beat] == b"2" and schemas.load(config.lake, "pos") == {1: schema}
    assert [host.own for host in launchers.read(config.lake)] == ["2e"]


#: Module that writes over a file -> such a file, and whether it has another content then.
WRITERS = {
    "monitoring/notices.py": ("orders/e0001/notices.json", True),
    "presence/heartbeat.py": ("orders/e0001/heartbeat.json", True),
    "verify/key_comparison.py": ("orders/e0001/key_comparisons/balances/last.json", True),
    "environments/launchers.py": ("_kappa/launchers/host.json", True),
    "record/schemas.py": ("_kappa/schemas/orders/1.json", True),
    "store/remote.py": ("now.tmp", True),
    "control/replays.py": ("_kappa/plans/1f.json", False),
    "record/code.py": ("_kappa/code/1f.zip", False),
    "environments/files.py": ("orders/e0001/environments/1f.json", False),
    "delta/tail_table.py": ("orders/e0001/ledger/part-00000-1f-c000.snappy.parquet", False),
    "driver/processes/targets.py": ("", False),  # in KAPPA_HOME
}


def test_the_page_knows_each_file_that_the_product_writes_again() -> None:
    """Files that are created, and never put, are written once."""
    package = Path(kappa.__file__).parent
    writers = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if file.name != "local.py"  # a disk has no versions
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("put", "refresh")
        if len(node.args) == 2 and not (isinstance(node.func.value, ast.Name) and node.func.value.id == "obstore")
    }
    assert writers == WRITERS.keys(), "what it writes is in WRITERS, and on the page where its content changes"
    values: dict[str, Any] = {}
    exec("\n".join(re.findall("^REWRITTEN.*$", BLOCKS[THIS][1], re.MULTILINE)), values)
    for name, is_rewritten in WRITERS.values():
        key = f"lake/{name}"
        is_known = name.rpartition("/")[2] in values["REWRITTEN"] or any(
            part in key for part in values["REWRITTEN_BELOW"]
        )
        assert is_known == is_rewritten, name


def test_more_deletions_than_one_request_takes_are_undone(s3: S3Server, config: Config, shell: Shell) -> None:
    before, since = contents(s3), moment()
    obstore.delete(objects(s3), [*before])
    assert undo(shell, since, moment(), most=10).endswith(f"{len(before)} to undo\n")
    assert len(list(shell.folder.glob("undo-*.json"))) == -(-len(before) // 10) > 1
    assert contents(s3) == before
