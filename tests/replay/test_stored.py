"""Records stored by other code are read: unknown fields are ignored, absent ones have their default."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support import lake_formats

from kappa.errors import LedgerError
from kappa.kafka import markers
from kappa.kafka.markers import Marker
from kappa.names import EpochPaths, epochs_log
from kappa.offsets.vector import Offsets
from kappa.presence import heartbeat
from kappa.presence.heartbeat import Heartbeat
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.replay import stored
from kappa.replay.adoption import Adoption
from kappa.replay.findings import Finding
from kappa.replay.proof.certificate import Certificate

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

#: As code stored them that had not a single optional field.
OLDEST_BEAT = {"writer": "w", "host": "h", "pid": 7, "started": 8, "at": "2026-01-02T03:04:05+00:00"}
OLDEST_MARKER = {
    "seq": 3,
    "end": {"pos": {"0": 12}},
    "max_timestamps": {"pos": {"0": 1700000000000}},
    "topic_ids": {"pos": "abc"},
    "shapes": {},
    "code": "feed",
    "topology_version": "1",
    "sends": "live",
}
OLDEST_ROW = {"n": 1, "kind": "claim", "seq": -1, "writer": "w", "at": AT}
OLDEST_EVENT = {"n": 1, "topology": "a.b", "epoch": 1, "event": "start", "at": AT, "actor": "me"}

LATER: dict[str, Any] = {"moon": "full", "tides": {"high": [1, 2]}}


class Markers:
    """A broker with one record in a markers topic."""

    def __init__(self, content: dict[str, Any]) -> None:
        self._value = json.dumps(content).encode()

    def has_topic(self, _: str) -> bool:
        return True

    def last_record(self, topic: str, partition: int, *, key: bytes | None = None) -> tuple[bytes, bytes]:
        return b"marker", self._value


def paths_in(folder: Path) -> EpochPaths:
    return EpochPaths(lake=str(folder), topology="a.b", epoch=1)


@pytest.mark.parametrize("later", [{}, LATER], ids=["older", "newer"])
def test_a_heartbeat_of_other_code_is_read(tmp_path: Path, later: dict[str, Any]) -> None:
    (tmp_path / "beat").write_text(json.dumps({**OLDEST_BEAT, **later}))
    assert heartbeat.read(str(tmp_path / "beat")) == Heartbeat(writer="w", host="h", pid=7, started=8, at=AT)


@pytest.mark.parametrize("later", [{}, LATER], ids=["older", "newer"])
def test_a_marker_of_other_code_is_read(tmp_path: Path, later: dict[str, Any]) -> None:
    marker = markers.read(Markers({**OLDEST_MARKER, **later}), paths_in(tmp_path))  # type: ignore[arg-type]
    assert isinstance(marker, Marker)
    assert (marker.seq, marker.end.get("pos", 0), marker.reconciled, marker.roots) == (3, 12, None, None)


@pytest.mark.parametrize("later", [{}, {"moon": "full", "tides": 2}], ids=["older", "newer"])
def test_a_ledger_of_other_code_is_read_and_written(tmp_path: Path, later: dict[str, Any]) -> None:
    path = str(tmp_path / "ledger")
    write_deltalake(path, pa.Table.from_pylist([{**OLDEST_ROW, **later}]))
    ledger = Ledger(path)
    assert ledger.rows() == [LedgerRow(n=1, kind="claim", seq=-1, writer="w", at=AT)]
    ledger.claim("me", "feed", ledger.state())
    ledger.append(LedgerRow(kind="plan", seq=1, writer="me", at=AT, code="feed", detail={"moon": "new"}))
    assert [(row.n, row.kind, row.code) for row in Ledger(path).rows()] == [
        (1, "claim", ""),
        (2, "claim", "feed"),
        (3, "plan", "feed"),
    ]
    columns = {field.name for field in DeltaTable(path).schema().fields}
    assert set(later) <= columns, "what newer code added stays"


@pytest.mark.parametrize("later", [{}, {"moon": "full"}], ids=["older", "newer"])
def test_a_record_of_epochs_by_other_code_is_read_and_written(tmp_path: Path, later: dict[str, Any]) -> None:
    planned = {**OLDEST_EVENT, "event": "planned"}
    write_deltalake(epochs_log(str(tmp_path)), pa.Table.from_pylist([{**planned, **later}]))
    lake_formats.number(epochs_log(str(tmp_path)))
    epochs = Epochs(str(tmp_path))
    assert epochs.events() == [Event(n=1, topology="a.b", epoch=1, event="planned", at=AT, actor="me")]
    epochs.add("a.b", 1, "stop", actor="me")
    assert [event.event for event in Epochs(str(tmp_path)).events()] == ["planned", "stop"]


def test_findings_and_certificates_of_newer_code_are_read() -> None:
    finding = {"code": "c", "severity": "warn", "message": "m", "remedy": "r", **LATER}
    assert Finding.from_dict(finding).code == "c"
    certificate = {
        "topology": "a.b",
        "at_epoch": 1,
        "at": {},
        "complete": True,
        "problems": [],
        "unproved": [],
        "partitions": [],
        "rows_read": 1,
        "rows_parsed": 1,
        "rows_dead": 0,
        "codes": {},
        **LATER,
    }
    assert Certificate.from_json(json.dumps(certificate)).complete


def test_null_means_the_default_and_a_missing_required_field_is_named() -> None:
    assert stored.read(LedgerRow, {**OLDEST_ROW, "rows_read": None}).rows_read == 0
    with pytest.raises(LedgerError, match="LedgerRow has no seq, at"):
        stored.read(LedgerRow, {"kind": "plan", "writer": "w", "moon": 1})


@pytest.mark.parametrize("absent", ["tables", "offsets", "job"])
def test_an_adoption_without_a_field_names_it(absent: str) -> None:
    values = Adoption(tables=(), offsets=Offsets({"pos": {0: 1}}), job="a job").as_dict()
    assert Adoption.from_dict(values).job == "a job"
    with pytest.raises(LedgerError, match=f"A stored Adoption has no {absent}"):
        Adoption.from_dict({name: value for name, value in values.items() if name != absent})
