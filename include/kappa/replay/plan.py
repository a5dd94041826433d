"""A replay as data: what it will do, frozen, with all objections to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any

from kappa.errors import LedgerError, UsageError
from kappa.offsets import set_asides
from kappa.offsets.set_asides import SetAsides
from kappa.offsets.vector import OffsetRange, Offsets, ranges_as_dict, ranges_from_json
from kappa.replay import stored
from kappa.replay.adoption import Adoption, ExistingTable
from kappa.replay.chains import Binding, bindings_as_dict, bindings_from_dict
from kappa.replay.estimates import Estimate
from kappa.replay.findings import Finding, Severity, check, refusals
from kappa.replay.request import ReplayRequest, Seed
from kappa.replay.stages import Stage
from kappa.topology.shapes import SentForm

#: The format that this code writes, and the newest one that it reads.
FORMAT = 1
#: The stages that a replay beside a live epoch passes automatically.
BESIDE_LIVE = (Stage.REWOUND, Stage.SEEDED, Stage.REPLAYED, Stage.CAUGHT_UP, Stage.VERIFIED)
#: The stages of an epoch without a live one beside it: it goes live as soon as it is seeded.
FIRST_EPOCH = (Stage.REWOUND, Stage.SEEDED, Stage.CUT_OVER)


@dataclass(frozen=True, kw_only=True)
class ReplayPlan:
    """What a replay will do.

    Attributes:
        topology_version: its author's name for this state of the code.
        code: content hash of the code that will run.
        epoch: the epoch that will be built.
        live_epoch: the epoch that it may replace; ``None`` if there is none.
        live_seq: the live epoch's commit at which bulk work ends.
        start: next offset to read of every partition; empty if it could not be resolved.
        end: where bulk work ends and catching up begins; where there is no live epoch, or it does not read the
            topic, the end of the log at planning.
        origin: where the history in the tables begins: the start, or that of what they are seeded from.
        topic_ids: topic -> Kafka's id of it; checked before records are read.
        seed: what the tables hold before the first slice.
        seed_epoch: epoch whose tables or changelog they are taken from; ``None`` if they start empty.
        seed_seq: the slice of that epoch after which they are taken.
        tables: names of the tables that are computed.
        appends: names of the append outputs that are computed.
        topics: names of the topics that the epoch will send to once it is live.
        versioned: those of them that are the epoch's own; it sends history to these too.
        reconciled: those that get the differences when the epoch goes live, with the table that each is made from.
        sent_forms: those topics, with the form of the values that they get.
        sends: ``hold``: nothing is sent for history to topics that epochs share.
        bound: source -> the versioned topic of another topology's epoch that is read in its place; offsets are those of
            that topic.
        roots: where ``start`` and ``origin`` are in root topics; empty when nothing is bound.
        archived: the parts of the span that are read from archives, sorted; the rest is read from Kafka.
        set_aside: records of the span that the live epoch set aside and that this one leaves out too.
        brought_in: records of the span that the live epoch set aside and that this one computes, as requested.
        adoption: the tables of another job with which the history in the tables begins, and where that job stood.
        stages: the stages that the driver passes automatically, in order; none if the plan is refused.
        findings: objections to it.
        estimate: how much work it is.
        created_at: when it was made; not part of the id.
        request: the request that it answers.
        id: first 16 digits of the SHA-256 of everything else, except the number of the stored format.
    """

    topology: str
    topology_version: str
    code: str
    epoch: int
    live_epoch: int | None
    live_seq: int | None
    start: Offsets
    end: Offsets
    origin: Offsets
    topic_ids: Mapping[str, str]
    seed: Seed
    seed_epoch: int | None
    seed_seq: int | None
    tables: tuple[str, ...]
    appends: tuple[str, ...]
    topics: tuple[str, ...]
    stages: tuple[Stage, ...]
    findings: tuple[Finding, ...]
    estimate: Estimate
    created_at: datetime
    request: ReplayRequest
    versioned: tuple[str, ...] = ()
    reconciled: Mapping[str, str] = field(default_factory=dict)
    sent_forms: Mapping[str, SentForm] = field(default_factory=dict)
    sends: str = "hold"
    bound: Mapping[str, Binding] = field(default_factory=dict)
    roots: Mapping[str, Offsets] = field(default_factory=dict)
    archived: tuple[OffsetRange, ...] = ()
    set_aside: SetAsides = ()
    brought_in: SetAsides = ()
    adoption: Adoption | None = None
    id: str = field(default="")

    def __post_init__(self) -> None:
        expected = _digest(self.as_dict())
        if self.id not in ("", expected):
            raise UsageError(f"Plan {self.id} was changed after it was made: its content is that of {expected}.")
        object.__setattr__(self, "id", expected)

    @property
    def is_refused(self) -> bool:
        """Whether a finding refuses the plan."""
        return bool(self.refusals)

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """The findings that refuse the plan."""
        return refusals(self.findings)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that do not refuse it."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.WARN)

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """The offsets that the bulk work reads, by partition.

        Raises:
            DataLossError: the plan is refused because its end is before its start.
        """
        return self.start.span_to(self.end)

    @property
    def seed_tables(self) -> tuple[ExistingTable, ...]:
        """The tables of another job whose rows seed the epoch."""
        return self.adoption.tables if self.adoption is not None and self.seed is Seed.FROM_TABLES else ()

    def check(self) -> None:
        """Accept the plan or refuse it.

        Raises:
            RefusedError: a finding refuses it; the message holds all of them.
        """
        check(self.findings, f"The plan for {self.topology!r}")

    def as_dict(self) -> dict[str, Any]:
        """The plan as JSON values."""
        # Empty values are left out: a plan's id is a hash of this, and plans of code without archives, for example,
        # have none.
        archived = {"archived": ranges_as_dict(self.archived)} if self.archived else {}
        versioned = {"versioned": self.versioned} if self.versioned else {}
        reconciled: dict[str, Any] = {"reconciled": dict(self.reconciled)} if self.reconciled else {}
        if self.sent_forms:
            reconciled["sent_forms"] = {topic: asdict(form) for topic, form in self.sent_forms.items()}
        aside = {
            name: set_asides.as_list(records)
            for name, records in (("set_aside", self.set_aside), ("brought_in", self.brought_in))
            if records
        }
        chain: dict[str, Any] = {"bound": bindings_as_dict(self.bound)} if self.bound else {}
        if self.roots:
            chain["roots"] = {name: offsets.as_dict() for name, offsets in self.roots.items()}
        nested = (
            *("request", "findings", "estimate", "archived", "versioned", "reconciled", "bound", "roots"),
            *("sent_forms", "set_aside", "brought_in", "adoption"),
        )
        return {
            "format": FORMAT,
            **{name: value for name, value in vars(self).items() if name not in nested},
            **archived,
            **versioned,
            **reconciled,
            **aside,
            **chain,
            **({} if self.adoption is None else {"adoption": self.adoption.as_dict()}),
            "start": self.start.as_dict(),
            "end": self.end.as_dict(),
            "origin": self.origin.as_dict(),
            "topic_ids": dict(self.topic_ids),
            "findings": [finding.as_dict() for finding in self.findings],
            "estimate": self.estimate.as_dict(),
            "created_at": self.created_at.isoformat(),
            "request": self.request.as_dict(),
        }

    def to_json(self) -> str:
        """The plan as canonical JSON.

        Raises:
            UsageError: newer code made the plan, and fields that this code does not know would be lost.
        """
        values = self.as_dict()
        if self.id != _digest(values):
            raise UsageError(
                f"Plan {self.id} was made by newer code and has fields that this code does not know. Use that version "
                f"of Kappa, or plan again: kappa plan {self.topology}"
            )
        return _canonical(values)

    @classmethod
    def from_json(cls, text: str) -> ReplayPlan:
        """Read what :meth:`to_json` wrote.

        Fields of newer code are ignored, but remain part of the id.

        Raises:
            UsageError: the text is not a plan, or was changed after it was made.
            NewerFormatError: newer code wrote it in a format that this code does not read.
        """
        try:
            values = json.loads(text)
            id_ = str(values["id"])
            stored.check_format(values.get("format"), FORMAT, what="plan", where=f"the JSON of {id_}")
            expected = _digest(values)
            if id_ != expected:
                raise UsageError(f"Plan {id_} was changed after it was made: its content is that of {expected}.")
            vectors = {name: Offsets.from_json(values[name]) for name in ("start", "end", "origin")}
            names = {name: tuple(values[name]) for name in ("tables", "appends", "topics")}
            parts = {
                "seed": Seed(values["seed"]),
                "stages": tuple(Stage(stage) for stage in values["stages"]),
                "findings": tuple(Finding.from_dict(finding) for finding in values["findings"]),
                "estimate": stored.read(Estimate, values["estimate"]),
                "created_at": datetime.fromisoformat(values["created_at"]),
                "request": ReplayRequest.from_dict(values["request"]),
                "archived": ranges_from_json(values.get("archived", {})),
                "versioned": tuple(values.get("versioned", ())),
                "sent_forms": {t: SentForm.from_dict(one) for t, one in values.get("sent_forms", {}).items()},
                "set_aside": set_asides.from_list(values.get("set_aside", ())),
                "brought_in": set_asides.from_list(values.get("brought_in", ())),
                "bound": bindings_from_dict(values.get("bound", {})),
                "roots": {name: Offsets.from_json(offsets) for name, offsets in values.get("roots", {}).items()},
                "adoption": Adoption.from_dict(values["adoption"]) if values.get("adoption") else None,
            }
            field_names = {item.name for item in fields(cls)} - {"id"}
            plan = cls(**{**{name: values[name] for name in field_names & values.keys()}, **vectors, **names, **parts})
            object.__setattr__(plan, "id", id_)
            return plan
        except (AttributeError, KeyError, TypeError, ValueError, LedgerError) as error:
            raise UsageError(f"This is not a plan: {error!r}.") from error


def _digest(values: Mapping[str, Any]) -> str:
    content = {name: value for name, value in values.items() if name not in ("id", "created_at", "format")}
    return hashlib.sha256(_canonical(content).encode()).hexdigest()[:16]


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
