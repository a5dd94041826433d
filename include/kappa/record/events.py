"""An event of the record of epochs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from kappa.offsets import set_asides
from kappa.offsets.set_asides import SetAsides
from kappa.replay import stored
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from kappa.delta.row_files import LateColumn

#: What this code writes, and the newest that it reads.
FORMAT = 2
#: Field of a detail that is a document, by kind. In format 2 it has a column of its own, which a look does not read.
DOCUMENTS: Mapping[str, str] = {"verified": "report", "upgrade": "report", "moved": "certificate"}
#: The first ten bring an epoch to a stage: :data:`STAGE_OF`. Of the others, those whose names need a word:
#: ``standing``: a live epoch of several that hand over together sends no further than they agree on.
#: ``own_topics``: names of the topics that the epoch has for itself.
#: ``superseded``: rebuilt in another lake.
#: ``relocated``: the lake is at another address from then on; one for each topology, in one commit.
#: ``restored``: commits of another program were undone.
#: ``asked``: an approval is pending.
#: ``set_aside``: records that the epoch, and those after it, leave out.
#: ``upgrade``, ``backfill``: requested; ``upgraded``, ``backfilled``: done.
EventKind = Literal[
    "planned",
    "rewound",
    "seeded",
    "replayed",
    "caught_up",
    "verified",
    "approved",
    "moved",
    "dropped",
    "aborted",
    "handover",
    "standing",
    "withdrawn",
    "asked",
    "rejected",
    "reopened",
    "recalled",
    "released",
    "start",
    "stop",
    "stuck",
    "savepoint",
    "savepoint_dropped",
    "upgrade",
    "upgraded",
    "upgrade_withdrawn",
    "backfill",
    "backfilled",
    "backfill_withdrawn",
    "own_topics",
    "superseded",
    "relocated",
    "restored",
    "set_aside",
    "set_aside_withdrawn",
]

#: Events of an epoch that answer a ``stuck`` one: it is to be tried again.
DECISIONS: tuple[EventKind, ...] = ("start", "recalled", "moved", "upgraded", "set_aside")
#: Events that stay on record of an epoch that ended long ago, without the documents in their details: what was live and
#: when, which topics it had, how fast it was, what was set aside, where the lake is.
LASTING: tuple[EventKind, ...] = (
    "planned",
    "seeded",
    "replayed",
    "own_topics",
    "moved",
    "superseded",
    "set_aside",
    "set_aside_withdrawn",
    "relocated",
    "aborted",
    "dropped",
)
#: Field of an event ``planned``: the file with all events of an epoch that ended long ago.
ROLLED_UP = "rolled_up"
#: What stays of the events that say how fast an epoch was: plans of its topology are estimated by it.
_MEASURES: Mapping[str, tuple[str, ...]] = {"seeded": ("folded",), "replayed": ("seq", "measured")}
#: Events that bring an epoch to a stage.
STAGE_OF: Mapping[EventKind, Stage] = {
    "planned": Stage.PLANNED,
    "rewound": Stage.REWOUND,
    "seeded": Stage.SEEDED,
    "replayed": Stage.REPLAYED,
    "caught_up": Stage.CAUGHT_UP,
    "verified": Stage.VERIFIED,
    "approved": Stage.APPROVED,
    "moved": Stage.CUT_OVER,
    "dropped": Stage.DROPPED,
    "aborted": Stage.ABORTED,
}


@dataclass(frozen=True, kw_only=True)
class Event:
    """One row of the record.

    Attributes:
        n: position in the record, from 1.
        topology: the topology's name.
        epoch: the epoch's number.
        event: what happened. Kinds that this code does not know are passed over.
        actor: the person or program that asked for it.
        detail: fields of the kind, as :data:`kappa.record.detail_schema.EVENTS` declares them.
    """

    n: int = 0
    topology: str
    epoch: int
    event: EventKind
    at: datetime
    actor: str
    reason: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


def row_of(event: Event) -> dict[str, Any]:
    """The row of an event, without its number."""
    row = {name: getattr(event, name) for name in event.__dataclass_fields__ if name != "n"}
    detail = dict(event.detail)
    document = detail.pop(DOCUMENTS.get(event.event, ""), None)
    number = 1 if document is None else FORMAT
    return {**row, "detail": json.dumps(detail), "document": document, "format": number}


def event_of(row: Mapping[str, Any], late: LateColumn | None = None) -> Event:
    """The event of a row.

    Args:
        row: the row.
        late: its document, where the row has not got its column.
    """
    detail: Mapping[str, Any] = json.loads(row.get("detail") or "{}")
    name, document = DOCUMENTS.get(row["event"], ""), row.get("document")
    if document is not None:
        detail = {**detail, name: document}
    elif late is not None and row.get("format") == FORMAT:
        detail = LateDetail(detail, name, partial(late.value, row["n"]))
    return stored.read(Event, {**row, "detail": detail})


class LateDetail(Mapping[str, Any]):
    """A detail whose document is read when it is asked for."""

    def __init__(self, fields: Mapping[str, Any], name: str, document: Callable[[], Any]) -> None:
        self._fields, self._name, self._document = fields, name, document

    def __getitem__(self, name: str) -> Any:
        return self._document() if name == self._name else self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._fields, self._name))

    def __len__(self) -> int:
        return len(self._fields) + 1


def records_of(event: Event) -> SetAsides:
    """The records of an event ``set_aside``."""
    decision = {"decision": event.n, "reason": event.reason}
    return set_asides.from_list({**one, **decision} for one in event.detail["records"])


def intent(event: Event) -> str:
    """The act of an event, as an infinitive without "to"."""
    epoch, detail = f"epoch {event.epoch} of {event.topology}", event.detail
    commit, name = f"seq {detail.get('seq')} of", repr(detail.get("name"))
    intents = {
        "planned": f"build {epoch}",
        "start": f"put on record that the driver of {epoch} is to run",
        "stop": f"stop the driver of {epoch}",
        "handover": f"hand over {event.topology} from epoch {detail.get('from')} to epoch {event.epoch}",
        "withdrawn": f"withdraw the handover to {epoch}",
        "recalled": f"bring back {epoch} to be live again",
        "approved": f"approve {epoch}",
        "rejected": f"reject {epoch} and stop its driver",
        "reopened": f"take up {epoch} again",
        "aborted": f"abort {epoch}",
        "backfill": f"replace rows of {epoch} from {detail.get('from')} to {detail.get('to')}",
        "set_aside": f"set {detail.get('count', 0):,} records aside in {epoch}",
        "released": f"retire {epoch} again",
        "dropped": f"remove retired {epoch} for good",
        "upgrade": f"give live {epoch} code {str(detail.get('code'))[:12]} at its next slice boundary",
        "upgrade_withdrawn": f"withdraw the upgrade that live {epoch} was to make",
        "savepoint": f"name {commit} live epoch {event.epoch} {name}, at {json.dumps(detail.get('offsets'))}",
        "savepoint_dropped": f"take the name {name} from {commit} epoch {event.epoch}",
        "relocated": f"put on record that the lake with {epoch} is at {detail.get('to')} from now on",
        "restored": f"put on record that commits of other programs in {epoch} were undone",
    }
    where = f", in environment {detail['in_environment'][:12]} from then on" if "in_environment" in detail else ""
    return intents.get(event.event, f"put {event.event!r} of {epoch} on record") + where


def lasting(row: Mapping[str, Any], file: str) -> dict[str, Any] | None:
    """What stays of a row of the record when its epoch is rolled up into a file; None where nothing does."""
    if row["event"] not in LASTING:
        return None
    detail = json.loads(row["detail"] or "{}")
    if row["event"] == "planned":
        plan = json.loads(detail.get("plan", "{}"))
        detail = {name: value for name, value in detail.items() if name not in ("plan", "start", "origin")}
        detail |= {name: plan[field] for name, field in (("seed", "seed"), ("sends_to", "topics")) if field in plan}
        detail[ROLLED_UP] = file
    elif row["event"] in _MEASURES:
        detail = {name: value for name, value in detail.items() if name in _MEASURES[row["event"]]}
    detail.pop("certificate", None)  # of format 1
    return {**row, "detail": json.dumps(detail), "document": None, "format": 1}
