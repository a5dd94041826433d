"""The certificate of a topology, from what is in the lake."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kappa.lake import EpochPaths
from kappa.reading import archived_ranges
from kappa.replay.certificate import Certificate, MoveFacts, SliceFacts, certify
from kappa.replay.companion_rules import companions
from kappa.replay.offsets import Offsets
from kappa.replay.stages import Stage
from kappa.runtime.epochs import EpochRecord, TopologyRecord
from kappa.runtime.ledger import Ledger, LedgerRow


def certificate_of(lake: str, record: TopologyRecord, *, candidate: int | None = None) -> Certificate:
    """Of which offsets the served tables are a view, and that each was sent by exactly one epoch.

    Args:
        lake: root of the lake.
        record: what is on record of the topology.
        candidate: an epoch about to go live: its ledger must hold as well.
    """
    wanted = {move.epoch for move in record.moves} | ({candidate} if candidate is not None else set())
    ledgers, starts, read_starts = {}, {}, {}
    for epoch in sorted(wanted):
        if record.epoch(epoch).stage is Stage.DROPPED:
            continue
        commits = Ledger(EpochPaths(lake=lake, topology=record.topology, epoch=epoch).ledger).state().commits
        ledgers[epoch] = slice_facts(commits)
        starts[epoch] = Offsets.from_json(record.epoch(epoch).planned.detail["start"])
        root_start = record.epoch(epoch).root_start
        if root_start is not None:
            starts[epoch], read_starts[epoch] = root_start, starts[epoch]
    moves = tuple(move_facts(record))
    if not moves and candidate is not None:
        # Nothing was ever live: what can be shown is that the candidate's own ledger holds.
        at = Offsets.of((r.at, r.end) for r in ledgers[candidate][-1].ranges)
        moves = (MoveFacts(epoch=candidate, from_epoch=None, at=at),)
    found = certify(record.topology, moves, ledgers, starts=starts, read_starts=read_starts)
    notes = (note for epoch in sorted(ledgers) for note in _notes(record.epoch(epoch)))
    return replace(found, notes=(*notes, *_moved_together(record)))


def _moved_together(record: TopologyRecord) -> Iterable[str]:
    """Which moves were of several topologies at once."""
    for move in record.moves:
        others = companions(move.detail.get("together", {}), record.topology)
        if others:
            yield f"Epoch {move.epoch} went live at {move.at:%Y-%m-%d %H:%M:%S} together with {others}, in one commit."


def _notes(epoch: EpochRecord) -> Iterable[str]:
    """What is known of whether an epoch's step gives the same again."""
    if epoch.determinism is not None:
        yield f"Epoch {epoch.epoch}: its plan's range was {epoch.determinism.summary}"
    for finding in epoch.step_findings:
        yield f"Epoch {epoch.epoch}: {finding.message}  [{finding.code}]"


def move_facts(record: TopologyRecord) -> Iterable[MoveFacts]:
    """Moves of the pointer."""
    for move in record.moves:
        yield MoveFacts(epoch=move.epoch, from_epoch=move.detail["from"], at=Offsets.from_json(move.detail["at"]))


def slice_facts(commits: Iterable[LedgerRow]) -> tuple[SliceFacts, ...]:
    """Committed slices; of an epoch that reads own topics of others by the root topics that those are made of."""
    found, before = [], None
    for row in commits:
        is_chained = "roots" in row.detail
        ranges = (before or row).standing.span_to(row.standing) if is_chained else row.ranges
        found.append(
            SliceFacts(
                seq=row.seq, ranges=ranges, sends=row.sends, rows_read=row.rows_read, rows_parsed=row.rows_parsed,
                rows_dead=row.rows_dead, code=row.code, archived=archived_ranges(row), read=row.ranges if is_chained else (),
            )
        )  # fmt: skip
        before = row
    return tuple(found)
