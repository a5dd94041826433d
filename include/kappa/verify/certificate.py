"""The certificate of a topology, from its lake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import replace
from datetime import datetime

from kappa.names import EpochPaths
from kappa.offsets import set_asides
from kappa.offsets.notation import utc
from kappa.offsets.vector import Offsets
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.rollup import runs_of
from kappa.record.slice_runs import extended
from kappa.replay.proof.certificate import Certificate, MoveFacts
from kappa.replay.proof.certify import certify, sent_upto
from kappa.replay.rules.cutover import rest_of_group
from kappa.replay.stages import Stage


def certificate_of(
    lake: str,
    record: TopologyRecord,
    *,
    candidate: int | None = None,
    ledgers: MutableMapping[str, Ledger] | None = None,
    is_brief: bool = False,
) -> Certificate:
    """The offsets that the served tables are a view of, with the proof that each was sent by exactly one epoch.

    Args:
        candidate: an epoch about to go live: its ledger must hold as well. Once the live epoch has yielded to it, the
            certificate is that of the move that follows.
        ledgers: path -> ledger, those that are open already: only their new rows are read. Others are added.
        is_brief: take consecutive slices as one, as roll-ups do: quicker, and a problem then names all of them.
    """
    facts, starts, read_starts, yields = {}, {}, {}, {}
    for epoch, ledger in ledgers_of(lake, record, candidate, {} if ledgers is None else ledgers).items():
        state = ledger.state()
        runs, yields[epoch] = runs_of(state), state.yields
        facts[epoch] = tuple(run.facts for run in (extended((), runs) if is_brief else runs))
        starts[epoch] = Offsets.from_json(record.epoch(epoch).planned.detail["start"])
        root_start = record.epoch(epoch).root_start
        if root_start is not None:
            starts[epoch], read_starts[epoch] = root_start, starts[epoch]
    moves = tuple(move_facts(record, yields))
    yielded = None if record.handover is None else yields.get(record.live_epoch(), {}).get(record.handover.n)
    if candidate is not None and (not moves or yielded is not None):
        at = Offsets.of((r.at, r.end) for r in facts[candidate][-1].ranges)
        moves = (*moves, MoveFacts(epoch=candidate, from_epoch=record.live, at=at, yielded=yielded))
    certificate = certify(record.topology, moves, facts, starts=starts, read_starts=read_starts)
    notes = (note for epoch in sorted(facts) for note in _notes(record.epoch(epoch)))
    backfilled = {epoch: tuple(map(backfill_text, record.epoch(epoch).backfilled)) for epoch in sorted(facts)}
    return replace(
        certificate,
        notes=(*notes, *_moved_together(record)),
        approved=dict(_approved(record, facts)),
        backfilled={epoch: texts for epoch, texts in backfilled.items() if texts},
        brought_in={
            epoch: set_asides.count(many) for epoch in sorted(facts) if (many := record.epoch(epoch).brought_in)
        },
    )


def _approved(record: TopologyRecord, epochs: Iterable[int]) -> Iterable[tuple[int, str]]:
    """Approvals of epochs, with actor and time."""
    for epoch in sorted(epochs):
        approvals = [f"{event.actor} at {event.at:%Y-%m-%d %H:%M:%S} UTC" for event in record.epoch(epoch).approvals]
        if approvals:
            yield epoch, " and by ".join(approvals)


def backfill_text(event: Event) -> str:
    """A finished backfill, in words.

    Args:
        event: the event ``backfilled``.
    """
    detail = event.detail
    begin, end = (datetime.fromisoformat(detail[name]) for name in ("from", "to"))
    outputs = ", ".join(sorted(detail["outputs"]))
    return (
        f"{outputs} from {utc(begin)} to {utc(end)} computed again for {event.actor}, {detail['offsets']:,} offsets, "
        f"slice {detail['seq']}"
    )


def backfill_notes(epoch: EpochRecord, seq: int) -> tuple[str, ...]:
    """Notes for readers of a comparison with an epoch: the intervals that it had computed again by a commit."""
    backfills = (event for event in epoch.backfilled if event.detail["seq"] <= seq)
    return tuple(f"Live epoch {epoch.epoch} had {backfill_text(event)}." for event in backfills)


def ledgers_of(
    lake: str, record: TopologyRecord, candidate: int | None, ledgers: MutableMapping[str, Ledger]
) -> dict[int, Ledger]:
    """The ledgers behind a certificate, by epoch: of all that were ever live, and the candidate's."""
    by_epoch = {}
    for epoch in sorted({move.epoch for move in record.moves} | ({candidate} if candidate is not None else set())):
        if record.epoch(epoch).stage is not Stage.DROPPED:
            path = EpochPaths(lake=lake, topology=record.topology, epoch=epoch).ledger
            by_epoch[epoch] = ledgers.setdefault(path, Ledger(path))
    return by_epoch


def sent_in_turns(lake: str, record: TopologyRecord, ledgers: MutableMapping[str, Ledger]) -> Offsets:
    """The furthest offsets that epochs have sent in turns that are over, in root topics.

    Args:
        ledgers: as :func:`certificate_of` takes them.
    """
    unknown = {move.detail["from"] for move in record.moves if "yielded" not in move.detail}
    by_epoch = ledgers_of(lake, record, None, ledgers)
    yields = {epoch: ledger.state().yields for epoch, ledger in by_epoch.items() if epoch in unknown}
    return sent_upto(tuple(move_facts(record, yields)))


def _moved_together(record: TopologyRecord) -> Iterable[str]:
    """Moves of several topologies at once, in words."""
    for move in record.moves:
        others = rest_of_group(move.detail.get("together", {}), record.topology)
        if others:
            yield f"Epoch {move.epoch} went live at {move.at:%Y-%m-%d %H:%M:%S} together with {others}, in one commit."


def _notes(epoch: EpochRecord) -> Iterable[str]:
    """Findings about whether an epoch's step gives the same again."""
    if epoch.determinism is not None:
        yield f"Epoch {epoch.epoch}: its plan's range was {epoch.determinism.summary}"
    for finding in epoch.step_findings:
        yield f"Epoch {epoch.epoch}: {finding.message}  [{finding.code}]"


def move_facts(record: TopologyRecord, yields: Mapping[int, Mapping[int, Offsets]]) -> Iterable[MoveFacts]:
    """Moves of the pointer.

    Args:
        record: the topology.
        yields: epoch -> handover -> where the epoch yielded for it; for moves that earlier code has put on record.
    """
    for move in record.moves:
        old = move.detail["from"]
        yielded = yields.get(old, {}).get(move.detail.get("handover", 0))
        yield MoveFacts(
            epoch=move.epoch,
            from_epoch=old,
            at=Offsets.from_json(move.detail["at"]),
            yielded=Offsets.from_json(move.detail["yielded"]) if "yielded" in move.detail else yielded,
        )
