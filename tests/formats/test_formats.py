"""Stored records keep their meaning: an example of each, with format numbers and fields of other code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support import lake_formats

from kappa.environments import launchers
from kappa.environments.environment import Environment
from kappa.environments.launchers import Launcher
from kappa.errors import LedgerError, NewerFormatError, UsageError
from kappa.kafka import changelogs, markers
from kappa.kafka.markers import Marker
from kappa.names import EpochPaths, epochs_log
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.presence import heartbeat
from kappa.presence.heartbeat import Heartbeat
from kappa.record import detail_schema
from kappa.record import schemas as lake_schemas
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.schemas import StoredSchema
from kappa.record.topology_records import record_of
from kappa.replay.plan import ReplayPlan, _digest
from kappa.replay.request import ReplayRequest, Seed
from kappa.slices.topics import ownership
from kappa.slices.topics.ownership import Owner
from kappa.topology import Table
from kappa.wire.encoding import Record

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "formats.md"
PATHS = EpochPaths(lake="/srv/lake", topology="sales.story", epoch=2)
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = {"moon": "full"}
TABLE = Table(name="balances", schema="id STRING NOT NULL, total DOUBLE", key=["id"])

Values = dict[str, Any]


@dataclass
class Message:
    """A record that a consumer got."""

    record: Record

    def topic(self) -> str:
        return self.record.topic

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value

    def headers(self) -> Any:
        return self.record.headers


class OneTopic:
    """A broker with one record in the markers topic, or none."""

    bootstrap_servers = ""

    def __init__(self, *records: Record) -> None:
        self.records = list(records)

    def topics(self, _: str = "") -> tuple[str, ...]:
        return (PATHS.markers,)

    def has_topic(self, name: str) -> bool:
        return name == PATHS.markers

    def last_record(self, _: str, __: int, *, key: bytes) -> tuple[bytes | None, bytes | None, int] | None:
        matches = [record for record in self.records if record.key == key]
        return (matches[-1].key, matches[-1].value, 0) if matches else None

    def low_watermarks(self, _: Any) -> Offsets:
        return Offsets()

    stable_offsets = low_watermarks

    def read(self, *_: Any) -> Iterator[list[Message]]:
        yield [Message(record) for record in self.records]


def examples(name: str) -> list[Values]:
    """The stored examples of a record, oldest first: ``marker.json``, then ``marker.2.json`` and so on."""
    later = sorted((HERE / "examples").glob(f"{name}.*.json"), key=lambda file: int(file.name.split(".")[1]))
    return [json.loads(file.read_text()) for file in (HERE / "examples" / f"{name}.json", *later)]


def example(name: str) -> Values:
    """The first example of a record."""
    return examples(name)[0]


def newest(name: str) -> Values:
    """The example of the present format."""
    return examples(name)[-1]


def next_format(name: str) -> int:
    """A number that newer code may write."""
    return int(newest(name).get("format") or 1) + 1


def _in_topic(key: bytes, values: Values) -> Any:
    return OneTopic(Record(PATHS.markers, key, json.dumps(values).encode()))


def _read_heartbeat(values: Values, folder: Path) -> Any:
    (folder / "beat").write_text(json.dumps(values))
    return heartbeat.read(str(folder / "beat"))


def _written_heartbeat(value: Any, folder: Path) -> Values:
    heartbeat.write(str(folder / "beat"), value)
    written: Values = json.loads((folder / "beat").read_text())
    return written


def _written_claim(value: Owner, _: Path) -> Values:
    topic: Any = OneTopic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ownership, "append", lambda _, record: topic.records.append(record))
        patch.setattr(ownership.socket, "gethostname", lambda: value.host)
        ownership.claim(topic, replace(PATHS, lake=value.path), value.lake)
    claim: Values = json.loads(topic.records[0].value)
    return claim


def _table(path: str, values: Values) -> None:
    write_deltalake(path, pa.Table.from_pylist([{**values, "at": datetime.fromisoformat(values["at"])}]))


def _last(path: str) -> Values:
    row: Values = max(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda row: int(row["n"]))
    return {**row, "n": 1, "at": row["at"].isoformat()}


def _read_event(values: Values, folder: Path) -> Any:
    _table(epochs_log(str(folder)), values)
    lake_formats.number(epochs_log(str(folder)))
    return Epochs(str(folder)).events()[0]


def _written_event(value: Event, folder: Path) -> Values:
    epochs = Epochs(str(folder / "again"))
    if value.event != "planned":
        epochs.add(value.topology, value.epoch, "planned", actor=value.actor)
    epochs.change(value.topology, lambda _: [value])
    return _last(epochs_log(str(folder / "again")))


def _read_row(values: Values, folder: Path) -> Any:
    _table(str(folder / "ledger"), values)
    return Ledger(str(folder / "ledger")).rows()[0]


def _written_row(value: LedgerRow, folder: Path) -> Values:
    ledger = Ledger(str(folder / "again"))
    ledger.create()
    ledger.claim(value.writer, value.code, ledger.state())
    ledger.append(value)
    return _last(ledger.path)


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a record is read and written, and what its example says."""

    read: Callable[[Values, Path], Any]
    write: Callable[[Any, Path], Values]
    means: Any


FORMS: Mapping[str, Form] = {
    "marker": Form(
        read=lambda values, _: markers.read(_in_topic(markers.KEY, values), PATHS),
        write=lambda value, _: json.loads(markers.record(PATHS, value).value or b""),
        means=Marker(
            seq=3,
            end=Offsets({"pos": {0: 12, 1: 9}}),
            max_timestamps={"pos": {0: 1700000000000}},
            topic_ids={"pos": "abc"},
            shapes={"tables/balances": {"key": ["id"], "columns": [["id", "STRING", False]]}},
            code="feed",
            topology_version="2",
            sends="live",
            reconciled=12,
            roots={"till": {"0": 40}},
            lake="lake-1",
            plan="0123456789abcdef",
            kind="superseded",
            turn=2,
            superseded_by=5,
            superseded_lake="lake-2",
        ),
    ),
    "claim_of_names": Form(
        read=lambda values, _: ownership.owner(_in_topic(b"lake:1", values), PATHS),
        write=_written_claim,
        means=Owner(lake="lake-1", path="/srv/lake", host="h"),
    ),
    "heartbeat": Form(
        read=_read_heartbeat,
        write=_written_heartbeat,
        means=Heartbeat(
            writer="w",
            host="h",
            pid=7,
            started=8,
            at=AT,
            seq=4,
            role="live",
            message="reading",
            state="slow",
            records_per_second=1.5,
            code="feed",
            boot="b",
            monotonic=9.5,
            line="write",
            line_seconds=61.0,
        ),
    ),
    "schema": Form(
        read=lambda values, _: lake_schemas.from_json(json.dumps(values), "/srv/lake/_kappa/schemas/pos/7.json"),
        write=lambda value, _: json.loads(lake_schemas.to_json(value)),
        means=StoredSchema(id=7, text='"shop.Id"', references=('"int"',), kind="AVRO", subject="pos-value"),
    ),
    "environment": Form(
        read=lambda values, _: Environment.from_json(
            json.dumps(values), "/srv/lake/sales.story/e0002/environments/7.json"
        ),
        write=lambda value, _: json.loads(value.to_json()),
        means=Environment(python="3.11.7", distributions={"kappa-replay": "0.1.0", "pricing": "1.0"}, image="orders:7"),
    ),
    "launcher": Form(
        read=lambda values, _: launchers.from_json(json.dumps(values), "/srv/lake/_kappa/launchers/h.json"),
        write=lambda value, _: json.loads(launchers.to_json(value)),
        means=Launcher(host="h", own="e1", environments=("e0", "e1")),
    ),
    "event": Form(
        read=_read_event,
        write=_written_event,
        means=Event(
            n=1,
            topology="sales.story",
            epoch=2,
            event="planned",
            at=AT,
            actor="ada",
            reason="why",
            detail={"plan_id": "p"},
        ),
    ),
    "ledger_row": Form(
        read=_read_row,
        write=_written_row,
        means=LedgerRow(
            n=1,
            kind="commit",
            seq=3,
            writer="w",
            at=AT,
            ranges=(OffsetRange(topic="pos", partition=0, start=5, end=12),),
            sends="live",
            logged=True,
            code="feed",
            rows_read=7,
            rows_parsed=6,
            rows_dead=1,
            max_timestamps={"pos": {0: 1700000000000}},
            delta_versions={"tables/balances": 4},
            detail={"started_at": "2026-01-02T03:04:00+00:00"},
        ),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_first_stored_example_keeps_its_meaning(name: str, tmp_path: Path) -> None:
    assert FORMS[name].read(example(name), tmp_path) == FORMS[name].means


@pytest.mark.parametrize("name", FORMS)
def test_every_stored_example_is_read_and_the_newest_is_written_unchanged(name: str, tmp_path: Path) -> None:
    for number, values in enumerate(examples(name)):
        folder = tmp_path / str(number)
        folder.mkdir()
        value = FORMS[name].read(values, folder)
    # Fields that came later are written too, as what a record without them means.
    written = FORMS[name].write(value, folder)
    assert {field: written[field] for field in values} == values
    assert not any(json.loads(v or "null") if isinstance(v, str) else v for f, v in written.items() if f not in values)


@pytest.mark.parametrize("name", FORMS)
def test_a_record_without_a_number_is_of_format_1(name: str, tmp_path: Path) -> None:
    values = {field: value for field, value in example(name).items() if field != "format"}
    assert FORMS[name].read(values, tmp_path) == FORMS[name].means


@pytest.mark.parametrize("name", FORMS)
def test_an_unknown_field_is_ignored(name: str, tmp_path: Path) -> None:
    assert FORMS[name].read({**example(name), **LATER}, tmp_path) == FORMS[name].means


@pytest.mark.parametrize("name", FORMS)
def test_an_unknown_format_number_is_refused_with_place_and_remedy(name: str, tmp_path: Path) -> None:
    number = next_format(name)
    message = rf"has format {number}, and this code reads formats up to {number - 1}.*kappa upgrade"
    with pytest.raises(NewerFormatError, match=message) as error:
        FORMS[name].read({**example(name), "format": number}, tmp_path)
    assert str(error.value.data["where"]) in str(error.value)


# Changelog records


def sent(seq: int) -> Record:
    (record,) = changelogs.changelog_records("log", TABLE, pa.table({"id": ["a"], "total": [1.5]}), seq)
    return record


@pytest.mark.parametrize("field", ["folded", "folds"])
def test_a_ledger_row_with_a_renamed_field_is_refused_by_name(field: str, tmp_path: Path) -> None:
    values = json.loads((HERE / "examples" / "ledger_row.json").read_text())
    former = {**values, "detail": json.dumps({field: {"balances": {"seq": 1, "key": ["id"]}}})}
    with pytest.raises(
        LedgerError, match=rf"Row 1 .* slice 3, has the field {field} .* begin a new lake: set KAPPA_LAKE"
    ):
        _read_row(former, tmp_path)


def test_a_changelog_record_is_written_as_in_the_stored_example() -> None:
    stored, record = newest("changelog_record"), sent(7)
    assert (json.loads(record.key or b""), json.loads(record.value or b"")) == (stored["key"], stored["value"])
    assert {name: value.decode() for name, value in record.headers or ()} == stored["headers"]
    (tombstone,) = changelogs.tombstones("log", {record.key or b""}, 7)
    assert tombstone == record._replace(value=None)


@pytest.mark.parametrize("later", [{}, {"format": "1"}, {"moon": "full"}])
@pytest.mark.parametrize("stored", examples("changelog_record"))
def test_a_changelog_record_names_its_slice_in_headers(stored: Values, later: dict[str, str]) -> None:
    headers = [(name, value.encode()) for name, value in {**later, **stored["headers"]}.items()]
    message: Any = Message(sent(7)._replace(headers=headers))
    assert changelogs.seq_of(message) == int(stored["headers"]["seq"])
    assert changelogs.seq_of(Message(sent(7)._replace(headers=None))) == -1  # type: ignore[arg-type]


def test_a_changelog_record_of_a_newer_format_is_refused() -> None:
    number = changelogs.FORMAT + 1
    message: Any = Message(sent(7)._replace(headers=[("seq", b"7"), ("format", str(number).encode())]))
    with pytest.raises(NewerFormatError, match=f"changelog record in topic log has format {number}"):
        changelogs.seq_of(message)
    with pytest.raises(NewerFormatError, match=f"changelog record in topic log has format {number}"):
        changelogs.check_format(number, "log")


# Plans


def plan_text(**changes: Any) -> str:
    values = {**example("plan"), **changes}
    return json.dumps({**values, "id": _digest(values)})


def test_a_stored_plan_is_read_and_written_unchanged() -> None:
    plan = ReplayPlan.from_json(json.dumps(example("plan")))
    assert (plan.id, plan.topology, plan.seed, plan.end) == (
        example("plan")["id"],
        "sales.story",
        Seed.FROM_SAVEPOINT,
        Offsets({"pos": {0: 12, 1: 9}}),
    )
    assert plan.bound["pos"].epoch == 4 and plan.archived[0].end == 5 and plan.request.upstream == {"sales.pos": 4}
    written = ReplayPlan.from_json(json.dumps(newest("plan")))
    assert json.loads(written.to_json()) == newest("plan")
    assert ReplayPlan.from_json(written.to_json()) == written


def test_a_plan_without_a_number_is_of_format_1() -> None:
    values = {name: value for name, value in example("plan").items() if name != "format"}
    assert ReplayPlan.from_json(json.dumps(values)) == ReplayPlan.from_json(json.dumps(example("plan")))


def test_a_plan_with_newer_fields_is_read_but_not_written_without_them() -> None:
    request, estimate = ({**example("plan")[name], **LATER} for name in ("request", "estimate"))
    plan = ReplayPlan.from_json(plan_text(**LATER, request=request, estimate=estimate))
    assert replace(plan, id="") == ReplayPlan.from_json(json.dumps(example("plan")))
    with pytest.raises(UsageError, match="made by newer code"):
        plan.to_json()


def test_a_plan_of_a_newer_format_is_refused() -> None:
    number = next_format("plan")
    with pytest.raises(NewerFormatError, match=rf"A plan in the JSON of \w{{16}} has format {number}"):
        ReplayPlan.from_json(plan_text(format=number))


def test_a_plan_is_parsed_once_however_often_the_record_is_read() -> None:
    text = json.dumps(example("plan"))
    event = Event(n=1, topology="a.b", epoch=2, event="planned", at=AT, actor="ada", detail={"plan": text})
    first, second = (record_of("a.b", [event]).epoch(2) for _ in range(2))
    assert first.plan is second.plan and first.origin == Offsets({"pos": {0: 0, 1: 0}})


# The page

PAGES = {
    "Marker": Marker,
    "Claim of names": Owner,
    "Ledger row": LedgerRow,
    "Event": Event,
    "Heartbeat": Heartbeat,
    "Environment": Environment,
    "Launcher": Launcher,
    "Plan": ReplayPlan,
    "Request": ReplayRequest,
    "Schema": StoredSchema,
}


@pytest.mark.parametrize("title", PAGES)
def test_the_page_lists_each_field_with_its_type(title: str) -> None:
    section = re.split(r"^## ", DOCS.read_text(), flags=re.MULTILINE)
    (page,) = [text for text in section if text.startswith(f"{title}\n")]
    rows = re.findall(r"^\| `(\w+)` \| `(.+?)` \| .+ \| (.+) \| (\d+) \|$", page, re.MULTILINE)
    assert [(name, kind.replace("\\|", "|")) for name, kind, *_ in rows] == [
        (item.name, item.type) for item in fields(PAGES[title])
    ]
    assert f"`{PAGES[title].__module__}`" in page


def test_an_undeclared_field_is_named() -> None:
    assert detail_schema.undeclared(detail_schema.EVENTS.get("rewound"), {"group": "g", "moon": "full"}) == ["moon"]
    assert detail_schema.undeclared(detail_schema.EVENTS.get("aborted"), {"moon": "full"}) == ["moon"]


@pytest.mark.spark
def test_a_fold_reads_header_numbers_that_some_records_lack(spark: Any) -> None:
    from pyspark.sql import functions as F

    rows = [([("seq", b"7")],), (None,), ([],), ([("seq", b"8"), ("format", b"2")],)]
    raw = spark.createDataFrame(rows, "headers array<struct<key:string,value:binary>>")
    numbers = [F.expr(changelogs.header(name)) for name in (changelogs.SEQ, changelogs.FORMAT_HEADER)]
    numbers_of_records = [tuple(row) for row in raw.select(*numbers).collect()]
    assert numbers_of_records == [(7, None), (None, None), (None, None), (8, 2)]
