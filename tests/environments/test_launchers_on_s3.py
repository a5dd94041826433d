"""The file of a host that starts drivers, on S3: that of a dead one counts for a while, and not for ever."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest
from support.s3_options import config_on
from support.s3_server import S3Server

from kappa.environments import launchers
from kappa.environments.launchers import Launcher


def test_the_last_host_that_died_decides_no_longer_than_its_file_is_young(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, host = config_on(s3, tmp_path), Launcher(host="died", own="1f")
    launchers.write(config, host)
    assert launchers.read(config.lake) == (host,)
    monkeypatch.setattr(launchers, "AGE", timedelta(seconds=1))
    end = time.monotonic() + 30
    while launchers.read(config.lake):
        assert time.monotonic() < end
    other = Launcher(host="lives", own="1f")
    launchers.write(config, other)
    monkeypatch.undo()
    assert launchers.read(config.lake) == (other,), "the file of the dead one was removed"
