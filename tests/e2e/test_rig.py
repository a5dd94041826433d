"""The rig counts only real deaths at a point."""

from __future__ import annotations

import os
import signal

import pytest
from support.processes import Rig

pytestmark = pytest.mark.e2e


def test_a_driver_that_ended_elsewhere_is_not_a_death_at_its_point(
    machine: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = machine.start("effects@1")
    with pytest.raises(AssertionError, match="has a driver"):
        machine.run(epoch, "commit")
    os.kill(machine.beat(epoch).pid, signal.SIGKILL)
    with pytest.raises(AssertionError, match="ended, and not at effects@1"):
        machine.await_death(epoch)
    machine.run(epoch, "claim")
    machine.await_death(epoch)
    (mark,) = machine.deaths(epoch)
    assert (mark["point"], mark["how"]) == ("claim", "kill")
    monkeypatch.setenv("KAPPA_NONSENSE", "1")  # no driver starts with it
    with pytest.raises(AssertionError, match="no driver died at commit"):
        machine.run(epoch, "commit")
