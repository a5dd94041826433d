"""Moves on record: the record itself, what a move appends, which was the last, and whether another lake has it all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from shlex import quote

from kappa.control.lakes import inventory
from kappa.control.lakes.transfer import Transfer
from kappa.errors import KappaError, LakeUnreachableError, RefusedError
from kappa.record.epochs import Epochs, Now
from kappa.record.events import Event
from kappa.store.outages import is_outage, is_refusal


def record_of_lake(lake: str, what: str) -> Epochs:
    """The record of a lake, which is read also where it says that the lake is at another address.

    Args:
        lake: its address.
        what: what is to be done with the lake, for people, such as ``copied``.

    Raises:
        RefusedError: there is no lake: no topology is on record.
    """
    epochs = Epochs(lake, is_anywhere=True)
    if not epochs.topologies():
        raise RefusedError(
            f"{lake} has no topology on record: there is no lake that could be {what}. Look which lake this is: kappa "
            "doctor",
            findings=(),
            lake=lake,
        )
    return epochs


def relocated(now: Now, source: str, target: str, actor: str, reason: str) -> list[Event]:
    """One event for each topology: the same wherever it is appended."""
    detail: Mapping[str, str] = {"from": source, "to": target}
    return [
        now.event("relocated", max(now.of(name).epochs), actor=actor, reason=reason, detail=detail, topology=name)
        for name in now.records.topologies
    ]


def last_move(events: Iterable[Event]) -> Event | None:
    """The last event of the last move, by whose number that one is told from a later one to the same address."""
    moves = [event for event in events if event.event == "relocated"]
    return moves[-1] if moves else None


def is_complete(epochs: Epochs, transfer: Transfer) -> bool:
    """Whether the record of the target is there: all that the source has, and what came there since.

    Args:
        epochs: the record of the source.
        transfer: the way from the source to the target.

    Raises:
        LakeUnreachableError: it cannot be read, though it has all that the source has.
        LakeRefusedError: a store refuses.
    """
    source, target = transfer.source, transfer.target
    epochs.records()  # what cannot be read here says nothing of the target
    try:
        return Epochs(target, is_anywhere=True).continues(epochs)
    except (KappaError, OSError) as error:
        if is_refusal(error) or is_outage(error.__cause__ or error):
            raise
        here, there = (inventory.sizes(lake) for lake in (source, target))
        record = {name: size for name, size in here.items() if inventory.is_of_table_of_record(name)}
        if transfer.differing("comparing the record", record, there):
            return False
        raise LakeUnreachableError(
            f"The record of {target} has all files of that of {source}, and cannot be read: {error}. Look there: "
            f"KAPPA_LAKE={quote(target)} kappa doctor",
            path=target,
        ) from error
