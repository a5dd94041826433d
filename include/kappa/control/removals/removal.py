"""Giving epochs up, and removing what they left."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from kappa import clock
from kappa.acts import Act, Effect, act
from kappa.config import Config
from kappa.control import approval
from kappa.control.plans.premise import Premise
from kappa.control.removals import orphans, served_tables
from kappa.control.removals.leftovers import Inventory, Leftover, Present
from kappa.driver.processes.process import driver_end
from kappa.errors import IllegalTransitionError, LakeUnreachableError, MoveRefusedError
from kappa.faults import crash_point
from kappa.kafka.broker import Broker
from kappa.names import EpochPaths, plan_file, query_checkpoints
from kappa.record import code as code_store
from kappa.record.chains import check_removal
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.record.epochs import Epochs, Now, epochs_of
from kappa.record.events import Event, EventKind
from kappa.record.moves import together_of, withdrawals
from kappa.replay.stages import Stage
from kappa.slices.topics import ownership
from kappa.slices.topics.turns import last_live_marker
from kappa.slices.topics.versioned_topics import needed_topics
from kappa.store.local import LocalStore
from kappa.store.stores import store_of


@act
def abort(
    config: Config, topology: str, epoch: int, *, actor: str, reason: str, premise: Premise | None = None
) -> Act[None]:
    """Give a candidate up and remove what it left: files, topics, group; plan and code if no other epoch has them.

    If it waits to go live together with others, their handovers are withdrawn in the same commit: all move or none.
    Idempotent; after a crash call it again. An epoch that was live before is not removed: it is retired again.

    Args:
        premise: what the person who decided was shown; None where nobody was asked.

    Raises:
        IllegalTransitionError: the epoch is live.
        MoveRefusedError: it is not what was shown.
        RefusedError: an epoch of another topology reads its versioned topics.
    """
    epochs = epochs_of(config.lake)

    def decide(now: Now) -> Sequence[Event]:
        record = now.record
        target = record.epoch(epoch)
        if record.live == epoch:
            raise IllegalTransitionError(
                f"Epoch {epoch} of {topology!r} is live: it cannot be aborted. Roll back to another first."
            )
        is_released = (
            premise is not None and premise.is_recalled and not target.is_recalled and target.stage is Stage.RETIRED
        )
        if target.stage.is_ended or is_released:
            return []
        if premise is not None:
            premise.check(record)
        if target.moved is None:
            check_removal(now.records, topology, epoch)
        event: EventKind = "released" if target.moved is not None else "aborted"
        own_event = now.event(event, epoch, actor=actor, reason=reason)
        handover = record.handover
        if handover is None or handover.epoch != epoch or not together_of(handover):
            return [own_event]
        why = f"epoch {epoch} of {topology!r} was {event}"
        others = withdrawals(now.records, handover, actor=actor, reason=why)
        return [*(other for other in others if other.topology != topology), own_event]

    effects, now = epochs.effects(epochs.now(topology), decide)
    effects += (driver_end(config, topology, epoch),)
    if now.record.epoch(epoch).stage is Stage.ABORTED:
        effects += _removal(config, epochs, now.record, epoch)
    return Act(effects=effects, outcome=lambda: None)


@act
def retire(config: Config, topology: str, epoch: int, *, actor: str, reason: str) -> Act[None]:
    """Remove a retired epoch for good: there is no rollback to it any more. Never a live one. Idempotent.

    Raises:
        IllegalTransitionError: the epoch is live or being built.
        RefusedError: an epoch of another topology reads its versioned topics, or a published table shows it still.
    """
    epochs = epochs_of(config.lake)

    def decide(now: Now) -> Sequence[Event]:
        target = now.record.epoch(epoch)
        if target.stage is Stage.DROPPED:
            return []
        if target.stage is not Stage.RETIRED or target.is_recalled:
            raise IllegalTransitionError(
                f"Epoch {epoch} of {topology!r} is {target.stage}; only a RETIRED one can be removed."
            )
        check_removal(now.records, topology, epoch)
        return [now.event("dropped", epoch, actor=actor, reason=reason)]

    effects, now = epochs.effects(epochs.now(topology), decide)
    paths, patience = EpochPaths(lake=config.lake, topology=topology, epoch=epoch), 2 * config.stale_seconds
    wait = served_tables.awaited(paths, now.record, patience + config.publish_seconds)
    effects = (*wait, *effects, driver_end(config, topology, epoch), *_removal(config, epochs, now.record, epoch))
    return Act(effects=effects, outcome=lambda: None)


def housekeeping(config: Config) -> Inventory:
    """The leftovers in the lake, on the broker and below home, and their lookalikes. Changes nothing.

    Raises:
        BrokerUnreachableError: Kafka does not answer.
    """
    return _look(config)[0]


def _look(config: Config) -> tuple[Inventory, dict[str, TopologyRecord]]:
    """The leftovers and their lookalikes, and the record by which they were judged."""
    with Broker(config.bootstrap_servers) as broker:
        names = [*(("topic", name) for name in broker.topics()), *(("group", name) for name in broker.groups("kappa."))]
        epochs = epochs_of(config.lake)  # after the names: an epoch is put on record before it has any

        def last_sender(topology: str) -> int | None:
            marker = last_live_marker(config, broker, topology)
            return marker[0] if marker else None

        def maker(topology: str, number: int) -> str | None:
            owner = ownership.owner(broker, EpochPaths(lake=config.lake, topology=topology, epoch=number))
            return owner.lake if owner is not None else None

        whole = epochs.records()
        records = {record.topology: record for record in whole}
        lake = epochs.lake_id() if records else ""
        now = clock.now()
        inventory = orphans.find(config, names, records, last_sender, maker, lake, Present.of(config.lake))
        over = approval.expired(config, whole, now)
        return dataclasses.replace(inventory, leftovers=(*over, *inventory.leftovers)), records


@act
def clean(config: Config, leftovers: Sequence[Leftover]) -> Act[tuple[Leftover, ...]]:
    """Remove leftovers; returns those that were removed.

    Looks again first, and removes none that is needed by now. Idempotent, and two at once harm nothing; after a crash
    call it again.

    Raises:
        BrokerUnreachableError: Kafka does not answer.
    """
    inventory, records = _look(config)
    still = {(item.kind, item.name) for item in inventory.leftovers}
    items = [item for item in leftovers if (item.kind, item.name) in still]
    removed: list[Leftover] = []
    effects = [_giving_up(config, item, records, removed) for item in items if item.kind == approval.REJECTED]
    others = orphans.remove.planned(
        config, (item for item in items if item.kind != approval.REJECTED), Present.of(config.lake)
    )
    return Act(effects=(*effects, *others.effects), outcome=lambda: (*removed, *others.outcome()))


def _giving_up(
    config: Config, item: Leftover, records: Mapping[str, TopologyRecord], removed: list[Leftover]
) -> Effect:
    """The removal of an epoch that was rejected long ago."""
    topology, _, epoch = item.name.rpartition(" ")
    premise = Premise.of(records[topology], int(epoch))

    def give_up() -> None:
        with suppress(MoveRefusedError):  # it was taken up again since the look
            abort(config, topology, int(epoch), actor="housekeeping", reason=item.reason, premise=premise)
            removed.append(item)

    return Effect(
        what=f"abort epoch {epoch} of {topology} unless it was taken up again, end its driver if it runs, and remove "
        "its topics, group, folder, plan and code",
        values={"leftovers": [item]},
        make=give_up,
    )


def _removal(config: Config, epochs: Epochs, record: TopologyRecord, epoch: int) -> tuple[Effect, ...]:
    """The removal of what an epoch that has ended left on the broker and in the lake."""
    paths = EpochPaths(lake=config.lake, topology=record.topology, epoch=epoch)
    plan = plan_file(config.lake, record.epoch(epoch).planned.detail["plan_id"])
    codes = record.epoch(epoch).codes  # of an epoch that is rolled up when it ends, upgrades are only in the history

    def target() -> EpochRecord:
        return epochs.record(record.topology).epoch(epoch)

    def from_broker() -> None:
        crash_point("removal.record")
        needed = needed_topics(epochs.records())  # a name may be another epoch's by now
        with Broker(config.bootstrap_servers) as broker:
            if ownership.is_ours(broker, paths, epochs.lake_id()):
                orphans.remove_from_broker(broker, paths, set(target().topics.values()) - needed)
        crash_point("removal.broker")

    def folder() -> None:
        are_tables_gone = served_tables.remove(paths)
        is_gone = store_of(paths.root).delete_folder(paths.root) and are_tables_gone
        LocalStore().delete_folder(query_checkpoints(config.home, paths))
        crash_point("removal.folder")
        if not is_gone:
            raise LakeUnreachableError(
                f"Epoch {epoch} of {record.topology!r} is {target().stage}; files of it stay in {paths.root}, or in a "
                f"folder {paths.folder} beside it: this user may not remove them, or a program has them open. Let "
                "this user remove them, then: kappa housekeeping --execute",
                path=paths.root,
            )

    def gone(path: str) -> bool:
        store_of(path).delete(path)
        return True

    def is_named(code: str) -> bool:
        return code in orphans.named_codes(config)

    def files() -> None:
        store = store_of(plan)
        store.delete(plan)
        for code in (codes | target().codes) - orphans.named_codes(config):
            code_store.discard(config.lake, code, gone, partial(is_named, code))

    def unless_needed(remove: Callable[[], None]) -> Callable[[], None]:
        return lambda: remove() if target().stage.is_ended else None

    named = {"topology": record.topology, "epoch": epoch}
    return (
        Effect(
            what=f"seal the ledger of epoch {epoch} of {record.topology}, if there is one, against a driver that wakes "
            "up late",
            values=named,
            make=unless_needed(lambda: orphans.seal(paths.ledger)),
        ),
        Effect(
            what=f"delete the topics and the group of epoch {epoch} of {record.topology}, if this lake made them",
            values=named,
            make=unless_needed(from_broker),
        ),
        Effect(
            what=f"remove the folder {paths.root}, the folders {paths.folder} of its tables, and scratch of streams "
            f"on this host{served_tables.consequences(paths)}",
            values=named,
            make=unless_needed(folder),
        ),
        Effect(
            what=f"remove the plan {plan}, and code of epoch {epoch} that no other epoch has",
            values=named,
            make=unless_needed(files),
        ),
    )
