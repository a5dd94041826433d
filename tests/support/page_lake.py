"""A lake for pages: topologies in many states, with ledgers and reports made by hand, without Spark or a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from kappa import clock
from kappa.config import Config
from kappa.delta import tables
from kappa.names import EpochPaths
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.presence import heartbeat
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.record.ledger import Ledger, _to_record
from kappa.record.ledger_rows import LedgerRow
from kappa.replay.estimates import Estimate
from kappa.replay.findings import Finding, Severity
from kappa.replay.plan import BESIDE_LIVE, FIRST_EPOCH, ReplayPlan
from kappa.replay.proof.verdict import CheckResult, DiffReport, Drift, OutputDiff, Sample, TableDiff, ThresholdResult
from kappa.replay.request import ReplayRequest, Seed
from kappa.replay.starts import ToEarliest

#: What each stage of a candidate takes, for events that follow one another.
_STEP = timedelta(seconds=20)
CANDIDATE = ("planned", "rewound", "seeded", "replayed", "caught_up", "verified")


@dataclass(kw_only=True)
class TopologyStory:
    """A topology whose history is written down, event by event.

    Args:
        config: where the lake is.
        name: the topology.
        partitions: of its one topic.
        shapes: keys and columns of its tables and outputs, for what reads them from a ledger.
    """

    config: Config
    name: str
    partitions: int = 4
    topic: str = "pos"
    masked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    shapes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.epochs = Epochs(self.config.lake)
        self._grown: dict[int, Ledger] = {}

    def paths(self, epoch: int) -> EpochPaths:
        return EpochPaths(lake=self.config.lake, topology=self.name, epoch=epoch)

    def at(self, offset: int) -> Offsets:
        return Offsets({self.topic: dict.fromkeys(range(self.partitions), offset)})

    def tell(
        self, epoch: int, event: str, when: datetime, *, actor: str = "ann", reason: str = "", **detail: Any
    ) -> None:
        kind: Any = event
        row = Event(topology=self.name, epoch=epoch, event=kind, at=when, actor=actor, reason=reason, detail=detail)
        self.epochs.change(self.name, lambda now: [row])

    def plan(self, epoch: int, live: int | None, upto: int, at: datetime, **more: Any) -> ReplayPlan:
        return ReplayPlan(
            **{
                "topology": self.name,
                "topology_version": str(epoch),
                "code": f"{epoch:02d}c0ffee" * 4,
                "epoch": epoch,
                "live_epoch": live,
                "live_seq": None if live is None else 40,
                "start": self.at(0),
                "end": self.at(upto),
                "origin": self.at(0),
                "topic_ids": {},
                "seed": Seed.EMPTY,
                "seed_epoch": None,
                "seed_seq": None,
                "tables": ("rewards",),
                "appends": ("notifications",),
                "topics": ("loyalty",),
                "stages": FIRST_EPOCH if live is None else BESIDE_LIVE,
                "findings": (),
                "estimate": Estimate(offsets=upto * self.partitions, records=upto * self.partitions, seconds=95.0),
                "created_at": at,
                "request": ReplayRequest(topology=self.name, start=ToEarliest(), reason="", actor="ann"),
                **more,
            }
        )

    def begin(
        self,
        epoch: int,
        at: datetime,
        *,
        live: int | None = None,
        upto: int = 0,
        stages: Sequence[str] = ("planned", "rewound", "seeded"),
        report: DiffReport | None = None,
        reason: str = "",
        actor: str = "ann",
        **more: Any,
    ) -> datetime:
        """Events up to a stage; when the last one was."""
        plan = self.plan(epoch, live, upto, at, **more)
        by_event: dict[str, dict[str, Any]] = {
            "planned": {
                "plan_id": plan.id,
                "plan": plan.to_json(),
                "start": plan.start.to_json(),
                "version": str(epoch),
            },
            "verified": {} if report is None else {"verdict": report.verdict.value, "report": report.to_json()},
        }
        for event in stages:
            why = reason if event == "planned" else ""
            who = actor if event == "planned" else "driver"
            self.tell(epoch, event, at, actor=who, reason=why, **{"code": plan.code, **by_event.get(event, {})})
            at += _STEP
        return at

    def move(self, epoch: int, before: int | None, offset: int, at: datetime, **more: Any) -> None:
        self.tell(epoch, "moved", at, **{"from": before, "at": self.at(offset).as_dict(), **more})

    def ledger(self, epoch: int, slices: Sequence[tuple[datetime, int, int, str]], *, take: float = 0.8) -> None:
        """Rows of a ledger: for each slice when it was committed, its first and last offset, and what it sends."""
        ledger = Ledger(self.paths(epoch).ledger)
        ledger.create()
        begin = slices[0][0] - timedelta(seconds=5) if slices else clock.now()
        start = slices[0][1] if slices else 0
        seed = {
            "masked": {place: list(columns) for place, columns in self.masked.items()},
            **({"shapes": self.shapes} if self.shapes else {}),
        }
        rows = [
            LedgerRow(kind="claim", seq=-1, writer="d", at=begin, code="c"),
            LedgerRow(kind="commit", seq=0, writer="d", at=begin, ranges=self._ranges(start, start), detail=seed),
        ]
        if any(sends == "live" for *_, sends in slices):
            rows.append(LedgerRow(kind="resume", seq=0, writer="d", at=begin))
        for seq, (at, first, last, sends) in enumerate(slices, start=1):
            count = (last - first) * self.partitions
            plan = LedgerRow(
                kind="plan",
                seq=seq,
                writer="d",
                at=at - timedelta(seconds=take),
                ranges=self._ranges(first, last),
                sends=sends,  # type: ignore[arg-type]
                code="c",
            )
            effects = replace(plan, kind="effects", at=at - timedelta(seconds=take * 0.35), ranges=())
            commit = replace(
                plan,
                kind="commit",
                at=at,
                rows_read=count,
                rows_parsed=count - (seq % 41 == 0),
                rows_dead=int(seq % 41 == 0),
                detail={"started_at": plan.at.isoformat()},
            )
            rows += [plan, effects, commit]
        log = ledger._log
        log.refresh()
        log.append([{k: v for k, v in _to_record(row).items() if k != "n"} for row in rows])

    def dead_letters(self, epoch: int, values: Mapping[str, bytes | None], micros: int | None = None) -> None:
        """One dead letter of each reason, with its value, in one more slice; at a time, by default now."""
        paths, ledger = self.paths(epoch), Ledger(self.paths(epoch).ledger)
        last = ledger.begun().committed
        tables.create(paths.dead_letters, tables.DEAD_LETTER)
        columns = {
            "_seq": [last.seq + 1] * len(values),
            "topic": [self.topic] * len(values),
            "partition": pa.array([0] * len(values), pa.int32()),
            "offset": list(range(len(values))),
            "timestamp": pa.array([clock.now() if micros is None else micros] * len(values), pa.timestamp("us", "UTC")),
            "key": pa.array([None] * len(values), pa.string()),
            "value": pa.array(list(values.values()), pa.binary()),
            "reason": list(values),
        }
        tables.append(paths.dead_letters, pa.table(columns), last.seq + 1, "plan")
        commit = replace(
            last,
            seq=last.seq + 1,
            ranges=tuple(replace(one, start=one.end) for one in last.ranges),
            rows_read=0,
            rows_parsed=0,
            rows_dead=0,
            delta_versions={"dead_letters": 1},
        )
        ledger._log.append([{k: v for k, v in _to_record(commit).items() if k != "n"}])

    def grow(self, epoch: int, each: int = 20) -> None:
        """One more slice in a ledger, committed now."""
        ledger = self._grown.setdefault(epoch, Ledger(self.paths(epoch).ledger))
        last = ledger.begun().committed
        ranges = tuple(replace(one, start=one.end, end=one.end + each) for one in last.ranges)
        at, read = clock.now(), each * self.partitions
        plan = LedgerRow(kind="plan", seq=last.seq + 1, writer="d", at=at, ranges=ranges, sends="live", code="c")
        commit = replace(plan, kind="commit", rows_read=read, rows_parsed=read)
        rows = (plan, replace(plan, kind="effects", ranges=()), commit)
        ledger._log.append([{k: v for k, v in _to_record(row).items() if k != "n"} for row in rows])

    def _ranges(self, first: int, last: int) -> tuple[OffsetRange, ...]:
        return tuple(OffsetRange(topic=self.topic, partition=p, start=first, end=last) for p in range(self.partitions))

    def beat(self, epoch: int, **fields: Any) -> None:
        """A driver that runs, for as long as this process does."""
        beat = replace(heartbeat.this_process("d", "c"), **{"role": "live", **fields})
        heartbeat.write(self.paths(epoch).heartbeat, beat)


def live_story(base: Path) -> TopologyStory:
    """A live epoch of code ``old`` with three slices, in a lake below this folder whose drivers run elsewhere."""
    folders = {f"KAPPA_{name}": str(base / name.lower()) for name in ("HOME", "LAKE", "TOPOLOGIES")}
    config = Config.from_env({**folders, "KAPPA_LAUNCHER": "elsewhere"})
    story, now = TopologyStory(config=config, name="a.waits", partitions=1), clock.now()
    story.begin(1, now, topic_ids={"pos": "id-1"}, code="old")
    story.move(1, None, 0, now)
    story.ledger(1, steady(now, 3))
    return story


def steady(
    until: datetime, count: int, *, first: int = 0, each: int = 100, seconds: float = 10.0, sends: str = "live"
) -> list[tuple[datetime, int, int, str]]:
    """Slices that end at a time, one after the other, a little uneven."""
    slices = []
    for index in range(count):
        size = each + (index * 37) % max(1, each // 2)
        at = until - timedelta(seconds=seconds * (count - 1 - index))
        slices.append((at, first, first + size, sends))
        first += size
    return slices


def report(name: str = "retail.loyalty", *, live: int = 1, candidate: int = 2, **more: Any) -> DiffReport:
    """A report with all that one can have."""
    changed = {"CustomerCardNo": "C0451882", "TotalLoyaltyPoints": "1204.5000", "Tier": "silver"}
    table = TableDiff(
        name="rewards",
        rows_live=48_112,
        rows_candidate=48_204,
        keys_added=104,
        keys_removed=12,
        keys_changed=6_310,
        changed_columns={"TotalLoyaltyPoints": 6_310, "Tier": 412},
        drift={
            "TotalLoyaltyPoints": Drift(
                keys=6_310,
                sum_live=8_120_333.5,
                sum_candidate=8_407_112.0,
                mean_difference=45.4,
                max_difference=1_200.0,
                share=0.0353,
            )
        },
        columns_added=("LastVisit",),
        samples=(
            Sample(
                key={"CustomerCardNo": "C0451882"},
                live=changed,
                candidate={**changed, "TotalLoyaltyPoints": "1324.5000", "Tier": "gold"},
            ),
            Sample(
                key={"CustomerCardNo": "C0099120"},
                live={**changed, "CustomerCardNo": "C0099120", "TotalLoyaltyPoints": "88.0000"},
                candidate={**changed, "CustomerCardNo": "C0099120", "TotalLoyaltyPoints": "93.5000"},
            ),
            Sample(key={"CustomerCardNo": "C0733001"}, live=None, candidate={**changed, "CustomerCardNo": "C0733001"}),
            Sample(key={"CustomerCardNo": "C0000017"}, live={**changed, "CustomerCardNo": "C0000017"}, candidate=None),
        ),
    )
    values: dict[str, Any] = {
        "topology": name,
        "live_epoch": live,
        "live_seq": 311,
        "candidate_epoch": candidate,
        "candidate_seq": 12,
        "at": Offsets({"pos": {0: 31_204, 1: 30_998, 2: 31_410, 3: 30_877}}),
        "tables": (table,),
        "outputs": (
            OutputDiff(
                name="notifications", rows_live=124_489, rows_candidate=124_489, rows_added=6_310, rows_removed=6_310
            ),
        ),
        "checks": (CheckResult(name="no customer is lost", ok=True),),
        "thresholds": (ThresholdResult(measure="rewards.keys_removed", allowed=50, ok=True, found=12),),
        "notes": ("notifications: compared by topic, partition and offset of the invoice that they come from.",),
    }
    return DiffReport(**{**values, **more})


def demo(config: Config) -> None:
    """Six topologies: one of each state that a page has to show."""
    now = clock.now()
    day = timedelta(days=1)
    hour = timedelta(hours=1)

    loyalty = TopologyStory(config=config, name="retail.loyalty")
    loyalty.begin(1, now - 3 * day, reason="first epoch")
    loyalty.move(1, None, 0, now - 3 * day + 2 * _STEP)
    same = replace(report(), tables=(), outputs=())
    loyalty.begin(
        2, now - 2 * day, live=1, upto=14_000, stages=CANDIDATE, report=same, reason="points of returns count"
    )
    loyalty.move(2, 1, 16_000, now - 2 * day + hour, certificate='{"complete": true}')
    loyalty.tell(1, "recalled", now - 1.5 * day, reason="points of returns were counted twice")
    loyalty.tell(1, "caught_up", now - 1.5 * day + _STEP, actor="driver")
    loyalty.move(1, 2, 22_000, now - 1.5 * day + 3 * _STEP, certificate='{"complete": true}')
    loyalty.tell(2, "recalled", now - day, reason="it was the other way round")
    loyalty.tell(2, "caught_up", now - day + _STEP, actor="driver")
    loyalty.move(2, 1, 25_000, now - day + 3 * _STEP, certificate='{"complete": true}')
    warning = Finding(
        code="live_is_behind",
        severity=Severity.WARN,
        message="The live epoch is 12,400 offsets behind its topics.",
        remedy="The replay follows it from its last commit.",
    )
    loyalty.begin(
        3,
        now - 0.4 * hour,
        live=2,
        upto=31_000,
        stages=CANDIDATE,
        report=report(live=2, candidate=3),
        reason="a balance for every customer",
        findings=(warning,),
    )
    turns = [(16_000, "live"), (22_000, "held"), (25_000, "live")]
    loyalty.ledger(1, turned(steady(now - day, 150, each=200, seconds=1_000), turns))
    turns = [(16_000, "held"), (22_000, "live"), (25_000, "held"), (10**9, "live")]
    loyalty.ledger(2, turned(steady(now, 170, each=200, seconds=11), turns))
    loyalty.ledger(3, [(at, a, b, "held") for at, a, b, _ in steady(now, 12, each=3_300, seconds=20)])
    loyalty.dead_letters(
        2,
        {
            "the value is not a JSON object": b'{"CustomerCardNo": "C0451882", "Earned',
            "CustomerCardNo is NOT NULL and absent": b'{"EarnedLoyaltyPoints": 12}',
            "the value is null": None,
            "set aside by decision 41: points of 31 June, sent by the till of store 7": b'{"Points": "1e400"}',
        },
    )
    loyalty.beat(2, seq=170, message="slice 171: applying changes", records_per_second=84.0, owner="team-loyalty")
    loyalty.beat(3, seq=12, message="follows epoch 2", records_per_second=2_140.0)

    shipments = TopologyStory(config=config, name="retail.shipments", topic="shipments", partitions=2)
    shipments.begin(1, now - 5 * day)
    shipments.move(1, None, 0, now - 5 * day + hour)
    shipments.ledger(1, steady(now, 150, each=50, seconds=12))
    shipments.beat(1, seq=150, message="waits for records", records_per_second=11.0)
    shipments.begin(2, now - timedelta(minutes=4), live=1, upto=9_000, reason="windows of an hour")
    shipments.ledger(2, steady(now, 8, each=420, seconds=15, sends="held"), take=14)
    shipments.beat(2, seq=8, message="replays slice 9", records_per_second=1_890.0, role="candidate")

    refunds = TopologyStory(config=config, name="retail.refunds", topic="refunds", partitions=1)
    refunds.begin(1, now - 9 * day)
    refunds.move(1, None, 0, now - 9 * day + hour)
    refunds.ledger(1, steady(now - 0.2 * hour, 60, each=30, seconds=20))
    refunds.beat(1, seq=60, state="stuck", message="stuck: slice 61 failed 3 times: a step raised ArithmeticException")

    prices = TopologyStory(config=config, name="market.prices", topic="ticks", partitions=8)
    prices.begin(1, now - 30 * day)
    prices.move(1, None, 0, now - 30 * day + hour)
    failed = replace(
        report("market.prices"),
        thresholds=(ThresholdResult(measure="rewards.keys_removed", allowed=5, ok=False, found=12),),
    )
    prices.begin(2, now - 2 * hour, live=1, upto=7_000, stages=CANDIDATE, report=failed, reason="other rounding")
    prices.ledger(1, steady(now, 160, each=60, seconds=11))
    prices.ledger(2, steady(now, 4, each=2_000, seconds=20, sends="held"))
    prices.beat(1, seq=160, message="waits for records", records_per_second=51.0)
    prices.beat(2, seq=4, message="follows epoch 1", records_per_second=3_000.0)

    baskets = TopologyStory(config=config, name="retail.baskets", topic="pos", partitions=4)
    baskets.begin(1, now - timedelta(minutes=1), upto=31_000, reason="first epoch")
    baskets.ledger(1, [])
    baskets.beat(1, message="seeds tables", role="candidate")

    clicks = TopologyStory(config=config, name="web.clicks", topic="clicks", partitions=3)
    clicks.begin(1, now - 4 * day)
    clicks.move(1, None, 0, now - 4 * day + hour)
    clicks.ledger(1, steady(now - 2 * hour, 80, each=90, seconds=15))


def turned(
    slices: Sequence[tuple[datetime, int, int, str]], turns: Sequence[tuple[int, str]]
) -> list[tuple[datetime, int, int, str]]:
    """The same slices, with an end at each joint, and what they send in each turn; none after the last turn."""
    parts: list[tuple[datetime, int, int, str]] = []
    reached = slices[0][1]
    for at, _, last, _ in slices:
        for end, sends in turns:
            if reached < min(end, last):
                parts.append((at, reached, min(end, last), sends))
                reached = min(end, last)
    return parts
