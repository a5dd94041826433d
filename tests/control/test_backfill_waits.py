"""An interval that is asked for is waited for while its epoch is to run, and stays asked for after that."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.page_lake import live_story

from kappa import clock
from kappa.control.backfills.backfill import await_replaced
from kappa.errors import MoveRefusedError


def test_an_epoch_that_is_stopped_is_not_waited_for(tmp_path: Path) -> None:
    story, now = live_story(tmp_path), clock.now()
    story.tell(1, "stop", now, actor="ben", reason="deploys wait")
    story.tell(1, "backfill", now, **{"from": now.isoformat(), "to": now.isoformat()}, folder="b1")
    request = story.epochs.record(story.name).events[-1]
    with pytest.raises(MoveRefusedError, match=r": deploys wait\. The interval stays asked for\. Go on .*kappa start"):
        await_replaced(story.config, request)
