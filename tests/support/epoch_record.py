"""A record of epochs made by hand: stages that no driver went through, for what is decided on the record alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kappa.config import Config
from kappa.record.epochs import Epochs

#: What a first epoch went through that is live, and a candidate that may be.
FIRST = ("planned", "rewound", "seeded", "moved")
SECOND = ("planned", "rewound", "seeded", "replayed", "caught_up", "verified")


def empty_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Settings of a lake that is not there yet, for this process; nobody starts drivers for it."""
    monkeypatch.setenv("KAPPA_HOME", str(tmp_path))
    monkeypatch.setenv("KAPPA_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("KAPPA_LAUNCHER", "elsewhere")
    return Config.from_env()


def tell(
    config: Config,
    topology: str,
    epoch: int,
    *names: str,
    known: Mapping[str, Mapping[str, Any]],
    actor: str = "test",
    **detail: Any,
) -> None:
    """Put events on record.

    Args:
        config: where the lake is.
        topology: whose they are.
        epoch: of which epoch.
        names: the events.
        known: event -> what it says.
        actor: who did it.
        detail: what all of them say as well.
    """
    for name in names:
        Epochs(config.lake).add(topology, epoch, name, actor=actor, **{"code": "new", **known.get(name, {}), **detail})
