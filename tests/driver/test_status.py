"""What is known of a driver by its heartbeat, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kappa.driver.processes.process import LINE_SECONDS, _status
from kappa.presence import heartbeat, liveness

BEAT = replace(heartbeat.this_process("w", "feed"), message="serving", line="effects of slice 7")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"line_seconds": LINE_SECONDS - 0.1}, "serving"),
        ({"line_seconds": LINE_SECONDS}, "serving, for 30 s at 'effects of slice 7'"),
        ({"line_seconds": 61.4, "line": "serving"}, "serving, for 61 s"),
        ({"line_seconds": 61.4, "message": ""}, "for 61 s at 'effects of slice 7'"),
        (
            {"line_seconds": 61.4, "line": "asking the JVM for the time"},
            "serving, for 61 s at 'asking the JVM for the time'",
        ),
        ({"line_seconds": 900.0, "state": "stuck", "message": "stuck: 'x' has not ended for 15.0 min"}, None),
    ],
)
def test_a_status_says_how_long_a_driver_is_at_what_it_is_at(changes: dict[str, object], message: str | None) -> None:
    status = _status("a.b", 1, liveness.Sign(beat=replace(BEAT, **changes), state="alive"))  # type: ignore[arg-type]
    if message is None:
        message = f"{changes['message']}; its log has the stacks. To end it: kill {BEAT.pid} on {BEAT.host}"
    assert (status.message, status.is_running) == (message, True)


def test_a_driver_that_only_another_host_may_start_waits_for_it() -> None:
    never = liveness.Sign(beat=None, state="absent")
    assert _status("a.b", 1, never, "elsewhere").message == "waiting for a host that starts it: kappa drivers"
    assert _status("a.b", 1, never).message == ""


def test_of_a_dead_driver_it_says_what_was_last_said() -> None:
    status = _status("a.b", 1, liveness.Sign(beat=replace(BEAT, line_seconds=61.4), state="dead"))
    assert (status.state, status.message) == ("dead", "serving")
