"""An interval that is asked for is waited for while its epoch is to run, and stays asked for after that."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.page_lake import TopologyStory, steady

from kappa import clock
from kappa.config import Config
from kappa.control.backfills.backfill import await_replaced
from kappa.errors import MoveRefusedError


def test_an_epoch_that_is_stopped_is_not_waited_for(tmp_path: Path) -> None:
    folders = {f"KAPPA_{name}": str(tmp_path / name.lower()) for name in ("HOME", "LAKE", "TOPOLOGIES")}
    config = Config.from_env({**folders, "KAPPA_LAUNCHER": "elsewhere"})
    story, now = TopologyStory(config=config, name="a.waits", partitions=1), clock.now()
    story.begin(1, now, topic_ids={"pos": "id-1"}, code="old")
    story.move(1, None, 0, now)
    story.ledger(1, steady(now, 3))
    story.tell(1, "stop", now, actor="ben", reason="deploys wait")
    story.tell(1, "backfill", now, **{"from": now.isoformat(), "to": now.isoformat()}, folder="b1")
    request = story.epochs.record(story.name).events[-1]
    with pytest.raises(MoveRefusedError, match=r": deploys wait\. The interval stays asked for\. Go on .*kappa start"):
        await_replaced(config, request)
