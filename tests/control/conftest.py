"""Lakes that move to another address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.moved_lakes import Places, full_lake, places

from kappa.store.options import declare


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """A lake on a disk, and another folder."""
    return Places(config=full_lake(tmp_path, monkeypatch), target=str(tmp_path / "other lake"))


@pytest.fixture(params=["disk", "s3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """A lake on a disk, and a place for it on a disk or on S3."""
    server = request.getfixturevalue("s3") if request.param == "s3" else None
    target = f"{server.url}/moved" if server is not None else str(tmp_path / "other lake")
    yield places(full_lake(tmp_path, monkeypatch), target, server, tmp_path)
    declare(target, "")
