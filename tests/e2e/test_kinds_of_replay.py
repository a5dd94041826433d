"""Cells of the matrix in tests/soak/test_kill_matrix.py, a kind of start for each seed.

The empty seed is in test_crashes.py.
"""

from __future__ import annotations

import pytest
from support.kill_matrix import walk
from support.processes import Rig

pytestmark = pytest.mark.e2e

CELLS = {"from-savepoint-name": ["seed.tables", "effects.changes@2"], "from-changelog": ["seeded"]}


@pytest.mark.parametrize("kind", ["from-savepoint-name", pytest.param("from-changelog", marks=pytest.mark.soak)])
def test_a_replay_killed_in_its_stages_ends_as_if_nothing_had_happened(machine: Rig, kind: str) -> None:
    cases: list[str] = []
    walk(machine, kind, cases.append, points=CELLS[kind])
    assert cases == [*(f"{kind}:{point}" for point in CELLS[kind]), f"{kind}:moved, live"]
