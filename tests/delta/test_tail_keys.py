"""Tables on S3 that stay open while the keys of the store are replaced."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.s3_options import lake_on, write_options
from support.s3_server import s3_server

from kappa.delta.access import create_table
from kappa.delta.append_log import AppendLog
from kappa.delta.tail_table import TailTable
from kappa.errors import LakeRefusedError

ROWS = pa.schema({"n": pa.int64(), "a": pa.string()})


def test_a_table_that_is_open_takes_the_keys_of_now(tmp_path: Path) -> None:
    """By a server that checks signatures: it is built once, in two minutes."""
    with s3_server(tmp_path / "s3", kind="versitygw") as old, lake_on(old, tmp_path) as lake:
        create_table(f"{lake}/t", pa.schema({"a": pa.int64()}))
        first, second = TailTable(f"{lake}/t"), TailTable(f"{lake}/t")
        log = AppendLog(f"{lake}/log", ROWS)
        log.create()
        log.refresh()
        log.append([{"a": "by the old keys"}])
        assert len(log.refresh()) == 1
        second.append(pa.table({"a": [1]}), {"app": 7})
        port = int(old.endpoint.rpartition(":")[2])
    with lake_on(old, tmp_path), s3_server(tmp_path / "s3", kind="versitygw", port=port, secret_key="another") as new:
        with pytest.raises(LakeRefusedError, match=r"^The store refuses "):
            first.transaction("app")
        write_options(new, tmp_path / "lake.properties")
        assert first.transaction("app") is None, "as of the last look: nobody has read the later commit"
        assert (first.version, first.advance(), first.transaction("app")) == (0, True, 7)
        log.append([{"a": "by the new keys"}])
        assert [row["a"] for row in log.refresh()] == ["by the new keys"]
