"""Drivers that come up again, or too late."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.epochs import Lab

from kappa import control
from kappa.driver.driver import Driver
from kappa.driver.lazy_engines import LazyEngines
from kappa.errors import IllegalTransitionError
from kappa.presence import heartbeat

pytestmark = pytest.mark.spark


def test_a_driver_that_starts_after_an_abort_restores_nothing(stream: Lab) -> None:
    stream.produce([("a", 1)])
    epoch = stream.plan_replay()
    driver = Driver(stream.config, stream.name, epoch, session=stream.session)
    control.abort(stream.config, stream.name, epoch, actor="test", reason="never mind")
    with pytest.raises(IllegalTransitionError, match="came up too late"):
        driver.run()
    assert not Path(stream.paths(epoch).root).exists()


@pytest.mark.parametrize("is_created", [False, True], ids=["before", "after"])
def test_an_epoch_aborted_while_its_driver_claims_it_stays_removed(stream: Lab, *, is_created: bool) -> None:
    stream.produce([("a", 1)])
    epoch = stream.plan_replay()
    driver = Driver(stream.config, stream.name, epoch, session=stream.session)
    create = driver.epoch.ledger.create

    def given_up_and_created() -> None:
        if is_created:
            create()
        control.abort(stream.config, stream.name, epoch, actor="test", reason="never mind")
        if not is_created:
            create()

    driver.epoch.ledger.create = given_up_and_created  # type: ignore[method-assign]
    with pytest.raises(IllegalTransitionError, match="came up too late"):
        driver.run()
    assert not Path(stream.paths(epoch).root).exists()


def test_a_restarted_driver_reports_the_last_committed_slice_from_its_first_beat(
    stream: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.produce([("a", 1), ("b", 2)])
    epoch = stream.start_live()
    assert stream.stop(epoch) == []
    last = stream.ledger(epoch).state().seq
    beats: list[tuple[int, str]] = []
    write = heartbeat.write

    def heard(path: str, beat: heartbeat.Heartbeat, *store: Any) -> Any:
        beats.append((beat.seq, beat.role))
        return write(path, beat, *store)

    monkeypatch.setattr(heartbeat, "write", heard)
    stream.run(epoch)
    stream.wait(lambda: control.driver_status(stream.config, stream.name, epoch).message == "live", "it serves")
    assert set(beats) == {(last, "live")}


def test_a_driver_reports_its_activity_again_once_spark_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = ["reading the log"]
    topology = SimpleNamespace(name="a.b", is_sensitive=False)
    epoch: Any = SimpleNamespace(config=None, topology=topology, paths=SimpleNamespace(epoch=1))
    voice: Any = SimpleNamespace(doing=messages[0], say=messages.append)
    monkeypatch.setattr("kappa.spark.session.build_session", lambda *_: "Spark")
    engines = LazyEngines(epoch, voice)
    assert engines.opened_session is None
    assert engines.session == engines.opened_session == "Spark"
    assert messages == ["reading the log", "starting Spark", "reading the log"]
