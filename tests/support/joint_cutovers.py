"""Drivers of several topologies, real processes, that die at each step of a cutover of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kappa import serving
from kappa.control import cutover
from support.processes import Rig


def live(members: Sequence[Rig]) -> set[int]:
    """Epochs that readers get."""
    return {snapshot.epoch for snapshot in serving.snapshots(members[0].config, [one.name for one in members]).values()}


def next_death(members: Sequence[Rig], point: str) -> list[Rig]:
    """Those whose new driver is dead, once the others can do nothing without it."""

    def dead_members() -> list[Rig]:
        dead = [member for member in members if member.is_dead(2)]
        rest = [member for member in members if member not in dead]
        if point == "moved":
            return dead if all(not member.ledger(2).state().is_yielded for member in rest) else []
        return dead if all("has no driver" in member.beat(2).message for member in rest) else []

    return list(members[0].wait(dead_members, f"a driver dies at {point}"))


def await_ready(members: Sequence[Rig]) -> None:
    """Wait until the candidates of all of them wait for the cutover."""
    for member in members:
        member.wait(partial(_is_ready, member), "it waits for the cutover")


def _is_ready(member: Rig) -> bool:
    return member.ledger(2).state().baseline_seq is not None


def cut_over_through_deaths(members: Sequence[Rig]) -> None:
    """From epochs 1 to epochs 2 of all of them: a driver dies before the move, one after it, and each goes live.

    The new drivers are to die at ``move.ready``; at least one of the old ones in the handover.
    """
    candidates = {member.name: 2 for member in members}
    cutover.cut_over_together(members[0].config, candidates, actor="ada", reason="together")
    members[-1].await_death(1)  # the others' old drivers die too, and are started again by their successors
    dead = next_death(members, "move.ready")
    for member in dead:
        member.await_death(2)
    assert live(members) == {1}
    for member in members:  # one that lives on would still die before the move
        if member not in dead:
            member.kill(2)
    for member in members:
        member.run(2, "moved")
    dead = next_death(members, "moved")
    for member in dead:
        member.await_death(2)
    assert live(members) == {2}
    mover = dead[0]
    for point in ("going_live", "resume"):
        mover.run(2, point)
        mover.await_death(2)
        assert live(members) == {2}
    for member in dead:
        member.run(2)
