"""A record of epochs made by hand: stages that no driver went through, for what is decided on the record alone."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kappa import clock
from kappa.config import Config
from kappa.names import code_file
from kappa.offsets.vector import Offsets
from kappa.record.epochs import Epochs
from kappa.record.events import EventKind
from kappa.replay.chains import Binding
from kappa.replay.estimates import Estimate
from kappa.replay.plan import ReplayPlan
from kappa.replay.request import ReplayRequest, Seed
from kappa.replay.starts import ToEarliest
from kappa.topology.code_zip import digest

#: What a first epoch went through that is live, and a candidate that may be.
FIRST: tuple[EventKind, ...] = ("planned", "rewound", "seeded", "moved")
SECOND: tuple[EventKind, ...] = ("planned", "rewound", "seeded", "replayed", "caught_up", "verified")
#: Hash of the code that :func:`store_code` stores.
CODE = digest({"include/kappa/driver/driver.py": b""})


def empty_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Settings of a lake that is not there yet, for this process; nobody starts drivers for it."""
    monkeypatch.setenv("KAPPA_HOME", str(tmp_path))
    monkeypatch.setenv("KAPPA_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("KAPPA_LAUNCHER", "elsewhere")
    return Config.from_env()


def store_code(config: Config) -> None:
    """Put code into the lake that an epoch can have recorded; nothing of it runs."""
    file = Path(code_file(config.lake, CODE))
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("include/kappa/driver/driver.py", "")


def empty_plan(
    topology: str,
    epoch: int,
    start: Offsets,
    *,
    bound: Mapping[str, Binding] | None = None,
    roots: Mapping[str, Offsets] | None = None,
) -> ReplayPlan:
    """The plan of an epoch without tables and outputs, which ends where it starts."""
    return ReplayPlan(
        topology=topology,
        topology_version="1",
        code=CODE,
        epoch=epoch,
        live_epoch=None,
        live_seq=None,
        start=start,
        end=start,
        origin=start,
        topic_ids={},
        seed=Seed.EMPTY,
        seed_epoch=None,
        seed_seq=None,
        tables=(),
        appends=(),
        topics=(),
        stages=(),
        findings=(),
        estimate=Estimate(offsets=0, records=None, seconds=None),
        created_at=clock.now(),
        bound=bound or {},
        request=ReplayRequest(topology=topology, start=ToEarliest(), reason="", actor="test"),
        roots=roots or {},
    )


def tell(
    config: Config,
    topology: str,
    epoch: int,
    *names: EventKind,
    by_event: Mapping[str, Mapping[str, Any]],
    actor: str = "test",
    **detail: Any,
) -> None:
    """Put events on record.

    Args:
        config: where the lake is.
        topology: whose they are.
        epoch: of which epoch.
        names: the events.
        by_event: event -> what it says.
        actor: who did it.
        detail: what all of them say as well.
    """
    for name in names:
        Epochs(config.lake).add(
            topology, epoch, name, actor=actor, **{"code": "new", **by_event.get(name, {}), **detail}
        )
