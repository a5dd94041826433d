"""What is left over in a lake on S3."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import TYPE_CHECKING

from support.s3_options import config_on

from kappa.control.removals.leftovers import Leftover, Present
from kappa.control.removals.orphans import find, remove
from kappa.names import EpochPaths
from kappa.record.epochs import Epochs
from kappa.store.stores import store_of

if TYPE_CHECKING:
    from support.s3_server import S3Server

NAME = "a.b"


def test_a_folder_of_which_only_its_own_object_is_there_is_not_left_over(s3: S3Server, tmp_path: Path) -> None:
    config = config_on(s3, tmp_path)
    epochs = Epochs(config.lake)
    for event in ("planned", "aborted"):
        epochs.add(NAME, 1, event, actor="test", **({"code": "c", "plan_id": "p"} if event == "planned" else {}))
    paths = EpochPaths(lake=config.lake, topology=NAME, epoch=1)
    now = Present.of(config.lake)
    folders = (paths.root, paths.table("rewards"))
    for folder in folders:
        connection = http.client.HTTPConnection(s3.endpoint.removeprefix("http://"))
        connection.request("PUT", f"{folder.removeprefix('s3:/')}/", body=b"")
        assert connection.getresponse().status == http.client.OK
        store_of(folder).put(f"{folder}/part.parquet", b"12345")

    def look() -> tuple[Leftover, ...]:
        record = {NAME: epochs.record(NAME)}
        return find(config, (), record, lambda _: None, lambda *_: None, "", now).leftovers

    leftovers = look()
    assert {item.name: item.size_bytes for item in leftovers} == dict.fromkeys(folders, 5)
    assert set(remove(config, leftovers, now)) == set(leftovers)
    assert look() == ()
