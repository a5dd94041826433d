"""A plan in words: exactly the stages that the driver will run, with their numbers."""

from __future__ import annotations

from collections.abc import Iterable

from kappa.names import versioned_topic
from kappa.offsets import set_asides
from kappa.offsets.coverage import without
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.replay.estimates import Estimate, size
from kappa.replay.plan import ReplayPlan
from kappa.replay.proof.determinism import other_size
from kappa.replay.request import Seed
from kappa.replay.stages import Stage
from kappa.replay.starts import ToEarliest, described
from kappa.topology.thresholds import limits_of


def explain(plan: ReplayPlan) -> list[str]:
    """Lines of text for people: what is built, then each stage, then objections to it."""
    lines = [
        f"Plan {plan.id}: {plan.topology} version {plan.topology_version or '?'} (code {plan.code[:12] or 'unknown'}) "
        f"into epoch {plan.epoch}, {_beside(plan)}",
        *(f"  {stage:<10} {text}" for stage, text in stages_of(plan)),
    ]
    lines += [
        f"  {'reads':<10} {binding.topic}, the versioned topic of epoch {binding.epoch} of {binding.topology}, as "
        f"{source}"
        for source, binding in sorted(plan.bound.items())
    ]
    lines += [f"  {what:<10} {text}" for what, text in _asides(plan)]
    lines += [f"  {finding.line}" for finding in (*plan.refusals, *plan.warnings)]
    if plan.is_refused:
        lines.append("Nothing will run.")
    elif Stage.CUT_OVER not in plan.stages:
        lines.append(
            f"Then it follows the live epoch and waits for `kappa cutover {plan.topology}`; "
            f"`kappa abort {plan.topology} {plan.epoch} --execute` removes it instead."
        )
        lines += [
            f"At the cutover {topic} gets the differences of {table} from the previous epoch: changed rows, and null "
            "values for keys that are gone."
            for topic, table in plan.reconciled.items()
        ]
    return lines


def _asides(plan: ReplayPlan) -> Iterable[tuple[str, str]]:
    if plan.set_aside:
        yield "sets aside", f"{set_asides.described(plan.set_aside)}, as epoch {plan.live_epoch} did"
    if plan.brought_in:
        shared = [name for name in plan.topics if name not in plan.versioned and name not in plan.reconciled]
        held = f"; {_names(shared)} will never have their rows" if shared else ""
        yield ("brings in", f"{set_asides.described(plan.brought_in)}, which epoch {plan.live_epoch} set aside{held}")


def stages_of(plan: ReplayPlan) -> list[tuple[Stage, str]]:
    """The stages that the driver will run, in order, and what it does in each."""
    return [(stage, _stage(stage, plan)) for stage in plan.stages]


def _beside(plan: ReplayPlan) -> str:
    if plan.live_epoch is None:
        return "the first one"
    return f"beside live epoch {plan.live_epoch} at seq {plan.live_seq}"


def _stage(stage: Stage, plan: ReplayPlan) -> str:
    if stage is Stage.REWOUND:
        how = plan.request.start
        request = "" if isinstance(how, ToEarliest) else f" ({described(how, plan.created_at)})"
        return f"create epoch {plan.epoch} and its consumer group, rewound to {_vector(plan.start)}{request}"
    if stage is Stage.SEEDED:
        return _seeded(plan)
    if stage is Stage.REPLAYED:
        return _replayed(plan)
    if stage is Stage.CAUGHT_UP:
        return f"follow the ledger of epoch {plan.live_epoch} from seq {plan.live_seq} on; {_sent(plan)}"
    if stage is Stage.VERIFIED:
        limits = ", ".join(f"{name}={limit}" for name, limit in limits_of(plan.request.thresholds).items())
        return (
            f"compare {_names(plan.tables, plan.appends)} at the same commit as epoch {plan.live_epoch}; run the checks"
            + (f"; fail above {limits}" if limits else "")
        )
    to = [versioned_topic(name, plan.epoch) if name in plan.versioned else name for name in plan.topics]
    sent = f"; records to {_names(to)} are sent from there on" if to else ""
    return (
        f"go live immediately, reading on from {_vector(plan.start)} ({plan.estimate.offsets:,} offsets so "
        f"far{_origin(plan)}){sent}"
    )


def _seeded(plan: ReplayPlan) -> str:
    tables = _names(plan.tables) if plan.tables else "no table"
    if plan.seed is Seed.EMPTY:
        return f"{tables}: empty"
    own = [versioned_topic(name, plan.epoch) for name in plan.versioned]
    sent = f"; the rows that {_names(own)} {'is' if len(own) == 1 else 'are'} made of are sent once" if own else ""
    if plan.seed is Seed.FROM_TABLES and plan.adoption is not None:
        copies = ", ".join(f"{table.name} from {table.described}" for table in plan.seed_tables)
        return f"copied from the adopted job, which stood at {plan.adoption.job}: {copies}{sent}"
    if plan.seed is Seed.FROM_CHANGELOG:
        return f"{tables}: folded from the changelog of epoch {plan.seed_epoch} up to its marker {plan.seed_seq}{sent}"
    return f"{_names(plan.tables, plan.appends)}: copied from epoch {plan.seed_epoch} as of seq {plan.seed_seq}{sent}"


def _sent(plan: ReplayPlan) -> str:
    """What a slice sends before the epoch is live."""
    own = [versioned_topic(name, plan.epoch) for name in plan.versioned]
    if not own:
        return "nothing is sent"
    rest = [name for name in plan.topics if name not in plan.versioned]
    return f"history is sent to {_names(own)}" + (f", nothing to {_names(rest)}" if rest else "")


def _replayed(plan: ReplayPlan) -> str:
    work = plan.estimate
    slices = -(-work.offsets // plan.request.slice_records)
    parts = [f"{work.offsets:,} offsets of {len(plan.end)} partitions up to {_vector(plan.end)}"]
    live = "in the slices of the live epoch"
    by_time = f"at least {slices:,} slices of at most {plan.request.slice_records:,}"
    parts.append(live if plan.request.cuts == "live" else by_time)
    if work.records is not None:
        parts.append(f"about {work.records:,} records")
    if work.bytes is not None:
        parts.append(f"about {size(work.bytes)}")
    if work.disk_bytes is not None:
        parts.append(f"about {size(work.disk_bytes)} in the lake")
    parts.append(_seconds(work))
    again = ""
    if plan.request.determinism:
        most = other_size(plan.request.slice_records, plan.start.count_to(plan.end))
        again = f"; then computed again in slices of at most {most:,}, and compared"
    held = "" if plan.versioned and len(plan.versioned) == len(plan.topics) else f" ({plan.sends})"
    return ", ".join(parts) + f"{_origin(plan)}; {_sent(plan)}{held}{again}"


def _seconds(work: Estimate) -> str:
    """The estimated duration; without a measurement there is none."""
    if work.seconds is None:
        return "no replay measured yet"
    duration = f"about {work.seconds:,.0f} s"
    if work.measured_epoch is None:
        return duration
    return f"{duration} at the rate of epoch {work.measured_epoch}" + (", which was much smaller" if work.rough else "")


def _origin(plan: ReplayPlan) -> str:
    """The parts read from archives; empty where everything comes from Kafka."""
    if not plan.archived:
        return ""
    rest = without(plan.ranges, plan.archived)
    tail = f", {_ranges(rest)} from Kafka" if rest else ""
    return f"; {_ranges(plan.archived)} from the archive{tail}"


def _ranges(ranges: Iterable[OffsetRange]) -> str:
    return " ".join(f"{item.topic}[{item.partition}]={item.start}..{item.end}" for item in ranges)


def _vector(offsets: Offsets) -> str:
    return " ".join(f"{topic}[{partition}]={offset}" for (topic, partition), offset in offsets.items()) or "nothing"


def _names(*groups: Iterable[str]) -> str:
    return ", ".join(name for group in groups for name in group)
