"""The events of the record of epochs, and the rows of its table that become events when somebody asks for them."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from kappa.delta.row_files import LateColumn, python_rows
from kappa.errors import UsageError
from kappa.offsets import set_asides
from kappa.offsets.set_asides import SetAsides
from kappa.replay import stored
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    import pyarrow as pa

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

    Raises:
        UsageError: actor or reason is not text in UTF-8.
    """

    n: int = 0
    topology: str
    epoch: int
    event: EventKind
    at: datetime
    actor: str
    reason: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for text in (self.actor, self.reason):
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise UsageError(
                    f"The text {text!r} has half a character, {text[error.start]!r}, which no file can hold. Nothing "
                    "was put on record. Write it anew: --reason TEXT"
                ) from error


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
    document, more = row.get("document"), dict[str, Callable[[], Any]]()
    if document is not None:
        more = {DOCUMENTS[row["event"]]: lambda: document}
    elif late is not None and row.get("format") == FORMAT:
        more = {DOCUMENTS[row["event"]]: partial(late.value, row["n"])}
    return stored.read(Event, {**row, "detail": StoredDetail(row.get("detail") or "{}", more)})


class StoredDetail(Mapping[str, Any]):
    """A detail as its text in the record, which is parsed when one of its fields is asked for, and its document.

    Of most events nobody asks for any.

    Args:
        text: the JSON text.
        more: fields beside it, each with what gives it.
    """

    def __init__(self, text: str, more: Mapping[str, Callable[[], Any]]) -> None:
        self._text, self._more = text, more

    @cached_property
    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(self._text)
        return fields

    def __getitem__(self, name: str) -> Any:
        if name in self._more:
            return self._more[name]()
        if f'"{name}"' not in self._text:  # names of fields have no letters that JSON escapes
            raise KeyError(name)
        return self._fields[name]

    def __contains__(self, name: object) -> bool:
        return name in self._more or (f'"{name}"' in self._text and name in self._fields)

    def __iter__(self) -> Iterator[str]:
        return iter((*self._fields, *self._more))

    def __len__(self) -> int:
        return len(self._fields) + len(self._more)

    def __repr__(self) -> str:
        return self._text


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


#: How rows are put in order.
_ORDER = [("name", "ascending"), ("is_recent", "ascending"), ("n", "ascending")]


class Rows:
    """Some rows of the table, by number; they are copied out of it when they are asked for.

    Args:
        table: rows of all topologies, without their details.
        details: details of the same rows: they are most of them, and stay in the pieces that were read.
        late: their documents.
        places: which of them these are.
    """

    def __init__(self, table: pa.Table, details: pa.ChunkedArray, late: LateColumn, places: pa.Array) -> None:
        self._table, self._details, self._late, self._places = table, details, late, places

    def columns(self, *names: str) -> list[list[Any]]:
        """The values of some columns."""
        rows = self._table.select(names).take(self._places)
        return [rows[name].to_pylist() for name in names]

    def events(self) -> list[Event]:
        """Their events."""
        rows = python_rows(self._table.take(self._places))
        for row, place in zip(rows, self._places.to_pylist(), strict=True):
            row["detail"] = self._details[place].as_py()
        return [event_of(row, self._late) for row in rows]

    def of(self, spans: Iterable[tuple[int, int]]) -> Rows:
        """Some of these, by where each span of them begins and how long it is."""
        import pyarrow as pa

        places = pa.concat_arrays([self._places.slice(*span) for span in spans])
        return Rows(self._table, self._details, self._late, places)


def rows_by_topology(rows: pa.Table, floor: int, late: LateColumn) -> Iterator[tuple[str, bool, Rows]]:
    """Each topology with its rows: first those of epochs that were rolled up, and then the others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names, numbers = (rows[name].combine_chunks() for name in ("topology", "n"))
    is_recent = _is_recent(rows) if floor else pc.is_valid(numbers)
    columns = [names.dictionary_encode().indices, is_recent.cast(pa.int8()), numbers]
    order = pc.sort_indices(pa.Table.from_arrays(columns, [name for name, _ in _ORDER]), _ORDER)
    # Of pieces, rows would be copied one piece after the other.
    whole = Rows(rows.drop_columns(["detail"]).combine_chunks(), rows["detail"], late, order)
    runs = zip(names.take(order).to_pylist(), is_recent.take(order).to_pylist(), strict=True)
    begin = 0
    for (name, one_is_recent), run in groupby(runs):
        count = sum(1 for _ in run)
        yield name, not one_is_recent, whole.of([(begin, count)])
        begin += count


def late_numbers(rows: pa.Table) -> set[int]:
    """Numbers of the rows that a look at the record does not need: those of epochs that were rolled up, but for a few
    of each topology.

    Args:
        rows: all rows.
    """
    begins: dict[str, int] = {}
    past: dict[str, Rows] = {}
    for name, is_past, own in rows_by_topology(rows, 1, LateColumn("")):
        if is_past:
            past[name] = own
        else:
            begins[name] = own.columns("n")[0][0]
    numbers: set[int] = set()
    for name, own in past.items():
        numbers.update(own.columns("n")[0])
        numbers.difference_update(felt_rows(own, begins.get(name)).columns("n")[0])
    return numbers


def _is_recent(rows: pa.Table) -> pa.Array:
    """Whether the epoch of a row was not rolled up."""
    import pyarrow.compute as pc

    epochs, is_plan = _epochs(rows), pc.match_substring(rows["event"], "planned").combine_chunks()
    is_rolled_up = pc.match_substring(rows["detail"].filter(is_plan), f'"{ROLLED_UP}"').combine_chunks()
    return pc.invert(pc.is_in(epochs, value_set=epochs.filter(is_plan).filter(is_rolled_up)))


def _epochs(rows: pa.Table) -> pa.Array:
    """The epoch of each row, as a text: its topology, its number, and its topology again as what ends both."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names, numbers = (rows[name].combine_chunks() for name in ("topology", "epoch"))
    return pc.binary_join_element_wise(names, names, pc.utf8_lpad(numbers.cast(pa.string()), 20, "0"))


def felt_rows(past: Rows, begin: int | None) -> Rows:
    """Rows of epochs that were rolled up, without which an event and those after it would tell something else.

    These are the last move before it, all that comes after it, and the plans of their epochs. Nothing else of such an
    epoch was pending by then: what is pending is of an epoch that has not ended. Where the lake is belongs to none.

    Args:
        past: the rows.
        begin: number of the event; None for none: then that of the last plan.
    """
    numbers, kinds, epochs = past.columns("n", "event", "epoch")
    if begin is None:
        begin = max(n for n, kind in zip(numbers, kinds, strict=True) if kind == "planned")
    later = bisect_left(numbers, begin)
    move = next(([at] for at in reversed(range(later)) if kinds[at] == "moved"), [])
    before = [*move, *(at for at in range(later) if kinds[at] == "relocated")]
    of = {epochs[at] for at in (*before, *range(later, len(numbers)))}
    plans = (at for at in range(later) if kinds[at] == "planned" and epochs[at] in of)
    return past.of([*((at, 1) for at in sorted({*plans, *before})), (later, len(numbers) - later)])
