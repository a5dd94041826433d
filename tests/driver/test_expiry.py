"""A handover that nothing moves is withdrawn by any process that sees it, where the live driver cannot."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kappa import clock
from kappa.config import Config
from kappa.driver.handovers.expiry import Expiry
from kappa.names import EpochPaths
from kappa.offsets.vector import OffsetRange
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState


class World:
    """A live epoch 1, a handover to epoch 2, and a clock that is advanced."""

    def __init__(self, base: Path) -> None:
        self.config = Config.from_env({"KAPPA_HOME": str(base), "KAPPA_LAKE": str(base / "lake")})
        self.epochs = Epochs(self.config.lake)
        self.now, self.state = 0.0, "stuck"
        names = {
            1: ("planned", "rewound", "seeded", "moved"),
            2: ("planned", "rewound", "seeded", "replayed", "caught_up", "verified", "handover"),
        }
        for epoch, events in names.items():
            for name in events:
                row = Event(
                    topology="a.b", epoch=epoch, event=name, at=datetime.now(UTC), actor="test", detail={"code": "c"}
                )
                self.epochs.change(row.topology, lambda _, row=row: [row])  # type: ignore[misc]
            ledger = Ledger(EpochPaths(lake=self.config.lake, topology="a.b", epoch=epoch).ledger)
            ledger.create()
            ledger.claim("w", "c", LedgerState())

    def seen_by(self, actor: str) -> Expiry:
        return Expiry(
            config=self.config, epochs=self.epochs, actor=actor, state_of=lambda *_: self.state, clock=lambda: self.now
        )

    def commit(self, epoch: int) -> None:
        ledger = Ledger(EpochPaths(lake=self.config.lake, topology="a.b", epoch=epoch).ledger)
        seq = ledger.state().seq + 1
        ranges = (OffsetRange(topic="pos", partition=0, start=seq, end=seq + 1),)
        ledger.append(LedgerRow(kind="commit", seq=seq, writer="w", at=clock.now(), ranges=ranges))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_handover_that_nothing_moves_is_withdrawn_when_the_live_driver_hangs(world: World) -> None:
    expiry = world.seen_by("ada")
    record = world.epochs.record("a.b")
    assert not expiry.look(record)
    world.now = world.config.handover_seconds
    assert not expiry.look(record)
    world.now += 1
    assert expiry.look(record)
    after = world.epochs.record("a.b")
    assert after.handover is None
    assert (after.events[-1].event, after.events[-1].actor) == ("withdrawn", "ada")
    assert "the driver of live epoch 1 is stuck, and nothing moved for 121 s" in after.events[-1].reason
    count = len(after.events)
    world.seen_by("bob").look(record)
    world.now += 1000
    expiry.look(record)
    assert len(world.epochs.record("a.b").events) == count, "once"


@pytest.mark.parametrize("state", ["running", "unconfirmed"])
def test_a_live_driver_that_gets_on_withdraws_it_itself(world: World, state: str) -> None:
    world.state = state
    expiry = world.seen_by("ada")
    expiry.look(world.epochs.record("a.b"))
    world.now = 10 * world.config.handover_seconds
    assert not expiry.look(world.epochs.record("a.b"))


@pytest.mark.parametrize("epoch", [1, 2])
def test_as_long_as_either_epoch_moves_it_goes_on(world: World, epoch: int) -> None:
    expiry = world.seen_by("ada")
    for _ in range(4):
        assert not expiry.look(world.epochs.record("a.b"))
        world.now += world.config.handover_seconds
        world.commit(epoch)


def test_a_move_that_was_made_meanwhile_stays(world: World) -> None:
    expiry, before = world.seen_by("ada"), world.epochs.record("a.b")
    expiry.look(before)
    assert before.handover is not None
    world.epochs.add("a.b", 2, "moved", actor="driver", handover=before.handover.n)
    world.now = 10 * world.config.handover_seconds
    expiry.look(before)
    after = world.epochs.record("a.b")
    assert (after.live, after.events[-1].event) == (2, "moved")
