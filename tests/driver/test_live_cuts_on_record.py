"""Where slices of a live epoch ended, also those whose rows are rolled up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kappa import clock
from kappa.driver.next_slice import LiveCuts
from kappa.offsets.vector import Offsets, ranges_end
from kappa.record import rollup
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow

SIZES = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7]


def recorded(path: Path) -> tuple[Ledger, list[Offsets]]:
    """A ledger of slices of these sizes, most of them rolled up; and where each ended."""
    ledger = Ledger(str(path))
    ledger.create()
    ledger.claim("driver", "c", ledger.state())
    end, ends = Offsets({"pos": {0: 0, 1: 0}}), []
    for seq, size in enumerate([0, *SIZES]):
        ranges = end.span_to(end.with_("pos", seq % 2, end["pos", seq % 2] + size))
        ledger.append(LedgerRow(kind="commit", seq=seq, writer="driver", at=clock.now(), ranges=ranges))
        end = ranges_end(ranges)
        ends.append(end)
    ledger.append(LedgerRow(kind="maintain", seq=len(SIZES), writer="driver", at=clock.now(), detail=LOOK))
    row = rollup.rolled_up(ledger.state(), writer="driver", code="c", at=clock.now())
    assert row is not None
    ledger.roll_up(row)
    return ledger, ends


#: Of the first slices no file is kept.
LOOK = {"readable_from": len(SIZES), "savepoints": [], "merges": {}, "forgotten": {}}


def test_a_replay_ends_its_slices_where_those_of_the_live_epoch_ended(tmp_path: Path) -> None:
    ledger, ends = recorded(tmp_path / "ledger")
    assert len(ledger.state().commits) < len(ends), "all are rows still"
    epoch: Any = SimpleNamespace(
        plan=SimpleNamespace(end=ends[-2]), record=lambda: None, live_ledger=lambda record: ledger
    )
    engines: Any = None  # such a cut asks the record alone
    for begun in (ends[0], ends[5]):
        cuts, position, positions = LiveCuts(epoch, engines), begun, []
        while position != ends[-2]:
            state: Any = SimpleNamespace(position=position, shrunk=None, since_shrunk=0)
            position = cuts.bulk(state, most=2).end
            positions.append(position)
        assert positions == ends[ends.index(begun) + 1 : -1]
