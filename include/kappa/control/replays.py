"""Plans, and the epochs that they make."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kappa import clock
from kappa.acts import Act, Effect, act
from kappa.config import Config
from kappa.control.plans.planning import survey
from kappa.driver.processes.process import with_driver
from kappa.errors import RefusedError, UnknownEpochError
from kappa.faults import crash_point
from kappa.kafka.broker import Broker
from kappa.names import plan_file
from kappa.record import code as code_store
from kappa.record.chains import check_bindings
from kappa.record.epochs import Now, epochs_of
from kappa.record.events import Event
from kappa.replay.building import build_plan
from kappa.replay.findings import Finding
from kappa.replay.plan import ReplayPlan
from kappa.replay.request import ReplayRequest
from kappa.replay.stages import Stage
from kappa.replay.starts import FromMarker, ToEarliest
from kappa.slices.topics import turns
from kappa.slices.topics.turns import last_live_marker
from kappa.store.stores import store_of


def plan(config: Config, request: ReplayRequest, *, step: tuple[Finding, ...] = ()) -> ReplayPlan:
    """What a replay would do, and objections to it. Changes nothing.

    Args:
        request: the request.
        step: findings of :func:`kappa.verify.inspection.inspect_deployed`, if it was called.

    Raises:
        BrokerUnreachableError: Kafka does not answer.
    """
    with Broker(config.bootstrap_servers, topic_settings=config.topic_settings) as broker:
        now = clock.now()
        return build_plan(request, survey(config, broker, epochs_of(config.lake), request, now=now, step=step), now=now)


@act
def replay(config: Config, plan: ReplayPlan, *, actor: str, reason: str) -> Act[int]:
    """Put a plan on record and start the candidate's driver; returns the epoch.

    Idempotent for one plan. A crash before the record leaves a plan file and a code file that no event refers to.

    Raises:
        RefusedError: the plan is refused, or what it was made from changed since.
    """
    epochs = epochs_of(config.lake)
    matches = [e for e in epochs.record(plan.topology).epochs.values() if e.planned.detail["plan_id"] == plan.id]
    if matches:
        number = matches[-1].epoch
        is_over = matches[-1].stage.is_ended or matches[-1].stage is Stage.RETIRED or matches[-1].rejected is not None
        effects = () if is_over else with_driver((), config, plan.topology, number)
        return Act(effects=effects, outcome=lambda: number)
    plan.check()
    _check_code(plan, code_store.code_hash(config.topologies, plan.topology))

    def decide(now: Now) -> Sequence[Event]:
        record = now.record
        if record.candidate is not None:
            raise RefusedError(
                f"Epoch {record.candidate.epoch} of {plan.topology!r} is being built already (by "
                f"{record.candidate.planned.actor}). Cut it over or abort it first.",
                findings=(),
            )
        check_bindings(now.records, plan.bound, is_first=record.live is None)
        if record.live != plan.live_epoch or plan.epoch in record.epochs:
            raise RefusedError(
                f"The live epoch of {plan.topology!r} is {record.live}, the plan expects {plan.live_epoch}. Plan "
                "again.",
                findings=(),
            )
        detail = {
            "plan": plan.to_json(),
            "plan_id": plan.id,
            "code": plan.code,
            "version": plan.topology_version,
            "start": plan.start.to_json(),
            "origin": plan.origin.to_json(),
            "live": plan.live_epoch,
        }
        return [now.event("planned", plan.epoch, actor=actor, reason=reason, detail=detail)]

    is_first = plan.live_epoch is None and isinstance(plan.request.start, ToEarliest)
    first = f"build epoch {plan.epoch} from the beginning of its topics and make it live" if is_first else ""
    code, stored_plan = _files(config, plan)

    def look_again(_: object) -> None:
        code_store.store_again(config.lake, config.topologies, plan.topology, plan.code)
        stored_plan.make()
        crash_point("planned")

    planned, _ = epochs.effects(epochs.now(plan.topology), decide, what=first, after=look_again)
    return Act(
        effects=with_driver((code, stored_plan, *planned), config, plan.topology, plan.epoch),
        outcome=lambda: plan.epoch,
    )


def _files(config: Config, plan: ReplayPlan) -> tuple[Effect, Effect]:
    """The code and the plan of an epoch, in the lake before the record that names them."""
    file = plan_file(config.lake, plan.id)

    def store_code() -> None:
        _check_code(plan, code_store.store(config.lake, config.topologies, plan.topology))
        crash_point("planned.code")

    def write_plan() -> None:
        files = store_of(file)
        files.make_folder(file.rpartition("/")[0])
        files.put(file, plan.to_json().encode())
        crash_point("planned.plan")

    return (
        Effect(what=f"store code {plan.code[:12]} of {plan.topology}", values={"code": plan.code}, make=store_code),
        Effect(what=f"write plan {file}", values={"plan": plan.id}, make=write_plan),
    )


def _check_code(plan: ReplayPlan, code: str) -> None:
    if code != plan.code:
        raise RefusedError(
            f"The code of {plan.topology!r} changed since the plan was made ({plan.code[:12]} then, {code[:12]} now). "
            f"Plan again: kappa plan {plan.topology}",
            findings=(),
        )


def rebuild_request(config: Config, topology: str, *, actor: str, reason: str) -> ReplayRequest:
    """A request to rebuild a topology's tables from the changelog of the epoch that sent last.

    With a live epoch on record only epochs of this lake count. Without one the lake was lost, or is new: then an epoch
    of another lake is taken over, and :func:`supersede` ends it first.

    Raises:
        UnknownEpochError: no epoch left a marker of a slice that sent.
    """
    epochs = epochs_of(config.lake)
    lake = epochs.lake_id() if epochs.record(topology).live is not None else None
    with Broker(config.bootstrap_servers) as broker:
        marker = last_live_marker(config, broker, topology, lake=lake)
    if marker is None:
        raise UnknownEpochError(
            f"No epoch of {topology!r} left a marker on {config.bootstrap_servers}: there is nothing to rebuild from.",
            topology=topology,
        )
    return ReplayRequest(
        topology=topology,
        start=FromMarker(epoch=marker[0]),
        reason=reason,
        actor=actor,
        slice_records=config.slice_records,
    )


@act
def supersede(config: Config, plan: ReplayPlan) -> Act[None]:
    """Before a rebuild in a lake that has no live epoch: end the epoch that it is built from, wherever its driver is.

    Idempotent; see :func:`kappa.slices.topics.turns.supersede`. What its driver committed last counts: plan again
    afterwards.

    Raises:
        RefusedError: the plan is refused.
        ConflictError: a driver of that epoch does not end.
    """
    plan.check()
    assert plan.seed_epoch is not None
    superseded = partial(turns.supersede, config, plan.topology, plan.seed_epoch, by=plan.epoch)
    fence = Effect(
        what=f"end epoch {plan.seed_epoch} of {plan.topology} for good, in whichever lake it is: fence its sender and "
        f"close its markers with one that names epoch {plan.epoch}; a new lake gets its record of epochs, if there is "
        "none",
        values={"topology": plan.topology, "epoch": plan.seed_epoch},
        make=superseded,
    )
    return Act(effects=(fence,), outcome=lambda: None)
