"""Settings of Kappa's own topics: none that drops or rewrites records is left to the broker's defaults."""

from __future__ import annotations

from typing import Any

import pytest

from kappa.kafka import topic_settings
from kappa.topology import Topic

ANY = str(2**63 - 1)


def topic(**values: Any) -> Topic:
    return Topic(**{"name": "out", "of": "rows", "key": "id", **values})


@pytest.mark.parametrize("on_replay", ["hold", "versioned", "reconcile"])
@pytest.mark.parametrize("time", ["at", None])
def test_a_topic_keeps_the_time_of_a_sent_record(on_replay: str, time: str | None) -> None:
    output = topic(on_replay=on_replay, time=time)
    settings = topic_settings.of_versioned(output) if output.is_versioned else topic_settings.of_output(output)
    assert settings["message.timestamp.type"] == "CreateTime"
    for side in ("before", "after"):
        assert settings.get(f"message.timestamp.{side}.max.ms") == (ANY if time else None)
    is_kept = settings["cleanup.policy"] == "compact" or settings.get("retention.ms") == "-1"
    assert is_kept is (time is not None or on_replay != "hold")


def test_a_changelog_has_the_time_of_sending_and_is_compacted() -> None:
    assert topic_settings.CHANGELOG["message.timestamp.type"] == "CreateTime"
    assert topic_settings.CHANGELOG["cleanup.policy"] == "compact"
