"""Commands that plan and run replays and rebuilds."""

from __future__ import annotations

import dataclasses
import json as json_text
from typing import TYPE_CHECKING, Annotated

import typer

from kappa import control
from kappa.acts import Act, Acting, Effect
from kappa.cli.options import Allow, Execute, Json, Reason, Topology, Wait, actor, config, say, say_json, show
from kappa.cli.starts import replay_start
from kappa.cli.views.watch import watch
from kappa.errors import RefusedError, UsageError
from kappa.offsets.notation import is_number
from kappa.replay.starts import Start
from kappa.topology.thresholds import parsed

if TYPE_CHECKING:
    from kappa.replay.plan import ReplayPlan
    from kappa.replay.request import Seed

SeedOption = Annotated[
    str | None,
    typer.Option(
        "--seed",
        help="Content of the tables at the start: empty, from-savepoint, from-changelog, or from-tables for those that "
        "were adopted. By default it follows from the start.",
    ),
]
ThresholdOption = Annotated[
    list[str] | None,
    typer.Option(
        "--threshold",
        help="Largest difference to allow, for example rewards.keys_removed=0 or rewards.drift.Points=0.1 (a "
        "share); may be repeated.",
    ),
]
ArchiveOption = Annotated[
    bool,
    typer.Option("--archive/--no-archive", help="Read the records that an archive has from there, or all from Kafka."),
]
DeterminismOption = Annotated[
    bool,
    typer.Option(
        "--determinism",
        help="Compute the range twice, in slices of two sizes, and fail if the results differ. The plan names parts of "
        "the step that may differ (a clock, rand, first of unordered rows); this starts Spark.",
    ),
]
CutsOption = Annotated[
    str,
    typer.Option(
        "--cuts",
        help="Where slices end: `time` cuts by time, in slices as large as allowed; `live` ends them where slices of "
        "the live epoch ended, so that results that depend on the slices are compared too.",
    ),
]
UpstreamOption = Annotated[
    list[str] | None,
    typer.Option(
        "--upstream",
        help="For a topology that reads versioned topics of others: the epoch of another one to read, for example "
        "retail.loyalty=4; by default its live epoch. May be repeated.",
    ),
]
BringInOption = Annotated[
    list[str] | None,
    typer.Option(
        "--bring-in",
        help="Compute records that the live epoch set aside: the number of a decision, topic:partition=offsets, or "
        "all. May be repeated. By default they stay set aside.",
    ),
]
SliceOption = Annotated[
    int | None, typer.Option("--slice-records", min=1, help="Read at most this many offsets in one slice.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (plan, replay, rebuild):
        app.command()(command)


@replay_start
def plan(
    topology: Topology,
    start: Start,
    seed: SeedOption = None,
    allow: Allow = None,
    slice_records: SliceOption = None,
    threshold: ThresholdOption = None,
    archive: ArchiveOption = True,
    determinism: DeterminismOption = False,
    cuts: CutsOption = "time",
    upstream: UpstreamOption = None,
    bring_in: BringInOption = None,
    reason: Reason = "",
    json: Json = False,
) -> None:
    """Show what a replay would do, with objections to it. Changes nothing; exit code 1 if it would be refused."""
    from kappa.replay.explain import explain as explain_plan

    plan = _plan(
        topology, start, seed, allow, slice_records, threshold, archive, determinism, cuts, upstream, bring_in, reason
    )
    typer.echo(plan.to_json()) if json else say(explain_plan(plan))
    if plan.is_refused:
        raise typer.Exit(1)


@replay_start
def replay(
    topology: Topology,
    start: Start,
    seed: SeedOption = None,
    allow: Allow = None,
    slice_records: SliceOption = None,
    threshold: ThresholdOption = None,
    archive: ArchiveOption = True,
    determinism: DeterminismOption = False,
    cuts: CutsOption = "time",
    upstream: UpstreamOption = None,
    bring_in: BringInOption = None,
    reason: Reason = "",
    execute: Execute = False,
    wait: Wait = True,
    json: Json = False,
) -> None:
    """Recompute history with the deployed code into a new epoch beside the live one, up to its verification."""
    from kappa.replay.explain import explain as explain_plan

    plan = _plan(
        topology, start, seed, allow, slice_records, threshold, archive, determinism, cuts, upstream, bring_in, reason
    )
    if not json:
        say(explain_plan(plan))
    act = planned_act(plan, reason, is_shown=json and not execute)
    if not execute:
        show_plan(plan, act, json)
        return
    run_plan(plan, act, wait, json)


def rebuild(
    topology: Topology,
    from_changelog: Annotated[
        bool, typer.Option("--from-changelog", help="Rebuild from the changelog of the epoch that sent last.")
    ] = False,
    allow: Allow = None,
    reason: Reason = "",
    execute: Execute = False,
    wait: Wait = True,
    json: Json = False,
) -> None:
    """Rebuild the tables of a topology from its changelog, without running any of its logic again.

    With a live epoch on record the result is a candidate like any other. After the loss of the lake it goes live from
    the offsets of the last marker; append outputs cannot come back this way. The epoch that it is built from ends
    permanently, even if its lake still exists elsewhere.
    """
    from kappa.replay.explain import explain as explain_plan

    if not from_changelog:
        raise UsageError("Say what to rebuild from: --from-changelog.")
    settings = config()
    request = control.rebuild_request(settings, topology, actor=actor(), reason=reason or "rebuild")
    request = dataclasses.replace(request, allow=frozenset(allow or ()))
    plan = control.plan(settings, request)
    if not json:
        say(explain_plan(plan))
    act = planned_act(plan, reason or "rebuild", is_shown=json and not execute)
    if plan.live_epoch is None:
        as_of_now = "; ".join(effect.what for effect in act.effects)
        what = f"plan again, because the last commit of its driver counts; by the present plan that is: {as_of_now}"

        def plan_again() -> None:
            nonlocal plan
            plan = control.plan(settings, request)
            planned_act(plan, reason or "rebuild", is_shown=False).make()

        again = Effect(what=what, make=plan_again)
        act = Act(effects=(*control.supersede.planned(settings, plan).effects, again), outcome=lambda: plan.epoch)
    if not execute:
        show_plan(plan, act, json)
        return
    run_plan(plan, act, wait, json)


def planned_act(plan: ReplayPlan, reason: str, is_shown: bool, acting: Acting[..., int] | None = None) -> Act[int]:
    """The replay of a plan, or its adoption. A refused one is an error; it is shown to programs, with its refusals."""
    if plan.is_refused and is_shown:
        show_plan(plan, Act(effects=(), outcome=lambda: plan.epoch), json=True)
        raise typer.Exit(1)
    if plan.is_refused:
        raise RefusedError("The plan is refused; nothing was changed.", findings=[str(f) for f in plan.refusals])
    return (acting or control.replay).planned(config(), plan, actor=actor(), reason=reason)


def show_plan(plan: ReplayPlan, act: Act[int], json: bool) -> None:
    """Print the effects of a plan, and how to make them."""
    way = f"follow it with: kappa status {plan.topology}"
    otherwise = f"epoch {plan.epoch} is being built by this plan; {way}"
    show(act, otherwise=otherwise, json=json, plan=json_text.loads(plan.to_json()))


def run_plan(plan: ReplayPlan, act: Act[int], wait: bool, json: bool) -> None:
    """Make the effects of a plan, and show the epoch until it is live or verified."""
    settings = config()
    epoch = act.make()
    if not wait:
        say_json({"epoch": epoch}) if json else say(
            f"Epoch {epoch} is being built; follow it with: kappa status {plan.topology}"
        )
        return
    last = watch(settings, plan.topology, epoch, until=lambda p: p.is_live or p.is_caught_up, quiet=json)
    is_failed = last.verdict == "failed" and not last.is_live
    if json:
        say_json(last)
    elif last.is_live:
        say(f"Epoch {epoch} is live.")
    else:
        say(control.diff(settings, plan.topology, epoch).render())
        say(
            f"Epoch {epoch} follows the live one; its verdict is failed and a cutover is refused. To abort it: kappa "
            f"abort {plan.topology} {epoch} --execute"
            if is_failed
            else f"Epoch {epoch} follows the live one and waits: kappa cutover {plan.topology} --execute"
        )
    if is_failed:
        raise typer.Exit(1)


def _plan(
    topology: str,
    start: Start,
    seed: str | None,
    allow: list[str] | None,
    slice_records: int | None,
    threshold: list[str] | None,
    archive: bool,
    determinism: bool,
    cuts: str,
    upstream: list[str] | None,
    bring_in: list[str] | None,
    reason: str,
) -> ReplayPlan:
    from kappa.replay.request import ReplayRequest
    from kappa.verify.inspection import inspect_deployed

    settings = config()
    request = ReplayRequest(
        topology=topology,
        start=start,
        seed=_seed(seed),
        reason=reason,
        actor=actor(),
        allow=frozenset(allow or ()),
        slice_records=settings.slice_records if slice_records is None else slice_records,
        thresholds=parsed(threshold or ()),
        archive=archive,
        determinism=determinism,
        cuts=cuts,  # type: ignore[arg-type]  # the request refuses others
        upstream=dict(map(_upstream, upstream or ())),
        bring_in=tuple(bring_in or ()),
    )
    step = inspect_deployed(settings, topology) if determinism else ()
    return control.plan(settings, request, step=step)


def _seed(text: str | None) -> Seed | None:
    from kappa.replay.request import Seed

    if text is None:
        return None
    try:
        return Seed(text)
    except ValueError as error:
        raise UsageError(f"--seed {text!r} is not one of {[seed.value for seed in Seed]}.") from error


def _upstream(text: str) -> tuple[str, int]:
    name, _, epoch = text.partition("=")
    if not name or not is_number(epoch):
        raise UsageError(f"--upstream {text!r} is not <topology>=<epoch>, for example retail.loyalty=4.")
    return name, int(epoch)
