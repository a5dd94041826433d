"""Turns: periods in which an epoch sends for its topology, numbered on the broker, and how one is ended from another
lake.

The record of epochs says who is live. The broker says it too, for the day on which the record is lost: an epoch that
goes live sends a marker with the next number, and one that is rebuilt in another lake gets a marker that closes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kappa.config import Config
from kappa.errors import ConflictError, RefusedError, StaleWriterError, SupersededError
from kappa.faults import crash_point
from kappa.kafka import markers
from kappa.kafka.broker import Broker
from kappa.kafka.markers import Marker
from kappa.kafka.producer import Sender
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import Epochs, Now, epochs_of
from kappa.record.events import Event
from kappa.record.ledger_state import BegunState
from kappa.slices.run import EpochRun
from kappa.slices.topics.ownership import marked, owner
from kappa.slices.topics.sending import marker

#: How often a closing marker is tried: a driver that is alive fences its sender once for each of its own attempts.
_ATTEMPTS = 20


def last_markers(broker: Broker, lake: str, topology: str) -> dict[int, Marker]:
    """The last marker of each epoch of a topology that left one."""
    pairs = ((epoch, markers.read(broker, paths)) for epoch, paths in marked(broker, lake, topology))
    return {epoch: one for epoch, one in pairs if one is not None}


def last_live_marker(
    config: Config, broker: Broker, topology: str, *, lake: str | None = None
) -> tuple[int, Marker] | None:
    """The marker of the epoch that sends, or sent last, by what is on the broker alone.

    That of the highest turn. Markers without a turn's number come first, the furthest of them last.

    Args:
        lake: only of epochs of this lake, and of those that name none; None for all lakes.
    """
    by_epoch = {
        epoch: one
        for epoch, one in last_markers(broker, config.lake, topology).items()
        if lake is None or one.lake in ("", lake)
    }
    return _last(by_epoch)


def next_turn(broker: Broker, paths: EpochPaths, lake: str) -> int:
    """The number of the turn that an epoch begins; that of the one that it is in, when no other epoch went live since.

    Raises:
        RefusedError: an epoch of another lake sends for the topology.
    """
    by_epoch = last_markers(broker, paths.lake, paths.topology)
    last = _last(by_epoch)
    if last is None:
        return 1
    epoch, marker = last
    if marker.lake not in ("", lake) and marker.superseded_lake != lake:
        whose = owner(broker, EpochPaths(lake=paths.lake, topology=paths.topology, epoch=epoch))
        raise RefusedError(
            f"Epoch {epoch} of {paths.topology!r}, which belongs to {whose}, has sent up to {marker.end.to_json()}: "
            f"epoch {paths.epoch} of this lake ({paths.lake}) would send the same records again. If KAPPA_LAKE should "
            f"name that lake, set it. To let this lake take over: kappa abort {paths.topology} {paths.epoch} "
            f"--execute, then kappa rebuild {paths.topology} --from-changelog --execute",
            findings=(),
            epoch=epoch,
            owner=marker.lake,
        )
    return max(marker.turn, 1) if epoch == paths.epoch and marker.turn else marker.turn + 1


def begin(run: EpochRun, state: BegunState, turn: int) -> None:
    """Say on the broker that the epoch is live: a marker at its last commit, alone in a transaction.

    Idempotent by the turn's number. A crash leaves it there or not; the ledger's ``resume`` row comes after it.

    Raises:
        StaleWriterError: another driver took the epoch over.
    """
    sender = run.sent.opened()
    run.sent.turn = turn
    previous = markers.read(run.engines.broker, run.paths)
    if previous is not None and previous.sends == "live" and previous.turn == turn:
        return
    run.ledger.check_claim(run.writer)
    last = state.committed
    # The marker that it replaces vouches for the last slice by its plan, and so does this one.
    plan = previous.plan if previous is not None and previous.seq == last.seq else None
    closing = marker(
        run, last.seq, state.position, last, "live", kind="live", roots=last.detail.get("roots"), plan=plan
    )
    sender.send([closing], state.position)
    run.sent.seq, run.sent.plan = last.seq, plan
    crash_point("live.marker", last.seq)


def supersede(config: Config, topology: str, epoch: int, *, by: int) -> None:
    """End an epoch that is rebuilt in this lake: fence its sender, then close its markers with one that names the
    successor.

    A driver of the epoch that is alive with another lake initialises its sender again, reads that marker and ends for
    good. Idempotent. A crash leaves the epoch fenced, closed or both; a rebuild may be asked for again in each case.

    Args:
        config: where everything is; its lake gets its record of epochs, and with it an id, if it has none.
        epoch: the epoch that is closed.
        by: the epoch that is built from it.

    Raises:
        ConflictError: its driver takes the sender back again and again.
    """
    paths = EpochPaths(lake=config.lake, topology=topology, epoch=epoch)
    lake = epochs_of(config.lake).establish()
    with Broker(config.bootstrap_servers) as broker, Sender(config.bootstrap_servers, paths.name, paths.name) as sender:
        for _ in range(_ATTEMPTS):
            sender.init()
            crash_point("fenced")
            closing = markers.superseded(broker, paths, by=by, lake=lake)
            if closing is None:
                return
            try:
                sender.send([closing], None)
            except StaleWriterError:  # its driver is alive and was faster
                continue
            crash_point("superseded")
            return
    raise ConflictError(
        f"The driver of epoch {epoch} of {topology!r} took its transactional id {paths.name!r} back {_ATTEMPTS} times: "
        f"it is alive. Stop it in its lake: kappa stop {topology} --execute",
        epoch=epoch,
    )


def check_not_superseded(marker: Marker | None, broker: Broker, paths: EpochPaths) -> None:
    """End a driver whose epoch was rebuilt in another lake.

    Raises:
        SupersededError: the epoch's last marker names a successor.
    """
    if marker is None or marker.superseded_by is None:
        return
    after = EpochPaths(lake=paths.lake, topology=paths.topology, epoch=marker.superseded_by)
    whose = owner(broker, after)
    raise SupersededError(
        superseded(
            paths, marker.superseded_by, str(whose) if whose is not None else f"lake {marker.superseded_lake[:8]}"
        ),
        by=marker.superseded_by,
        lake=marker.superseded_lake,
    )


def superseded(paths: EpochPaths, by: int, whose: str) -> str:
    """What is said of an epoch that was rebuilt in another lake."""
    return (
        f"Epoch {paths.epoch} of {paths.topology!r} was superseded by epoch {by} of {whose}: `kappa rebuild` went on "
        "there from its last marker, and what this epoch sent from now on would be sent twice. It sends nothing any "
        f"more. Set KAPPA_LAKE to that lake; `kappa query` still reads this one ({paths.lake})."
    )


def put_on_record(epochs: Epochs, paths: EpochPaths, error: SupersededError) -> None:
    """Note that an epoch was superseded, once: nothing starts its driver again."""

    def decide(now: Now) -> Sequence[Event]:
        if now.record.epoch(paths.epoch).superseded is not None:
            return []
        return [now.event("superseded", paths.epoch, actor="driver", reason=str(error), detail=dict(error.data))]

    epochs.change(paths.topology, decide)


def check_not_lost(config: Config, record: TopologyRecord, lake: str) -> None:
    """Refuse a first epoch where the broker knows epochs of the topology that this lake does not.

    Raises:
        RefusedError: an epoch has sent, or belongs to another lake.
    """
    topology = record.topology
    with Broker(config.bootstrap_servers) as broker:
        live_marker = last_live_marker(config, broker, topology)
        if live_marker is not None:
            epoch, last = live_marker
            whose = owner(broker, EpochPaths(lake=config.lake, topology=topology, epoch=epoch))
            raise RefusedError(
                f"No epoch of {topology!r} is in the lake {config.lake}, but epoch "
                f"{epoch}{f' of {whose}' if whose else ''} has sent up to {last.end.to_json()} (its marker is on "
                f"{config.bootstrap_servers}). If KAPPA_LAKE should name that lake, set it: nothing else is needed. If "
                f"that lake was lost, go on from there: kappa rebuild {topology} --from-changelog --execute. A rebuild "
                "ends the epoch for good, also where its lake is only elsewhere.",
                findings=(),
                epoch=epoch,
                position=last.end.as_dict(),
                owner=whose.lake if whose else "",
            )
        for epoch, paths in marked(broker, config.lake, topology):
            whose = owner(broker, paths)
            if epoch not in record.epochs and whose is not None and whose.lake != lake:
                raise RefusedError(
                    f"No epoch of {topology!r} is in the lake {config.lake}, and epoch {epoch} on "
                    f"{config.bootstrap_servers} belongs to {whose}: it has not sent yet, and two lakes would send the "
                    "same records. If KAPPA_LAKE should name that lake, set it. Otherwise give the epoch up there: "
                    f"kappa abort {topology} {epoch} --execute; if that lake is gone, delete the topics {paths.name}.* "
                    "with kafka-topics.sh.",
                    findings=(),
                    epoch=epoch,
                    owner=whose.lake,
                )


def _last(by_epoch: dict[int, Marker]) -> tuple[int, Marker] | None:
    last: tuple[int, Marker] | None = None
    for epoch, one in sorted(by_epoch.items()):
        if one.sends == "live" and (last is None or _is_after(one.turn, one.standing, last[1])):
            last = epoch, one
    return last


def _is_after(turn: int, standing: Offsets, other: Marker) -> bool:
    return turn > other.turn or (turn == other.turn and standing.dominates(other.standing))
