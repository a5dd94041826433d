"""Avro records of one slice without a broker: in memory and beyond it the same, with and without a registry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.avro import FakeRegistry, record, wired

from kappa import clock
from kappa.errors import RegistryUnreachableError, SchemaRefusedError
from kappa.offsets.vector import OffsetRange
from kappa.record.ledger_rows import LedgerRow
from kappa.record.schemas import UNKNOWN, StoredSchema, load, store
from kappa.replay.proof.certificate import Sends
from kappa.slices.input.reader_schemas import Schemas
from kappa.slices.input.reading import Counts, Reading
from kappa.topology import Source

if TYPE_CHECKING:
    from conftest_spark import Log, Sent
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FIRST = record(("n", "int"), ("at", {"type": "long", "logicalType": "timestamp-millis"}))
SECOND = record(
    ("tags", {"type": "map", "values": {"type": "array", "items": "string"}}),
    ("n", ["null", "long"]),
    ("at", {"type": "long", "logicalType": "timestamp-micros"}),
    ("m", {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}),
)
SOURCE = Source(
    topic="pos",
    format="avro",
    schema="n BIGINT NOT NULL, at TIMESTAMP, m DECIMAL(10,2), tags MAP<STRING, ARRAY<STRING>>",
    time="at",
    grace="1 hour",
    key_schema="k STRING",
    tombstones=True,
)
BASE = 1_700_000_000_000


def value(n: int) -> bytes | None:
    """Records by the schemas of two writers, and every kind of dead letter."""
    odd: dict[int, bytes | None] = {
        3: b'{"n": 3}',
        5: b"\0\0\0\0\x63\x02",
        7: b"\0\0\0\0\1",
        8: wired(2, SECOND, {"n": None, "at": (BASE + n) * 1000, "m": b"", "tags": {}}),
        9: None,
    }
    if n % 10 in odd:
        return odd[n % 10]
    if n % 2:
        return wired(1, FIRST, {"n": n, "at": BASE + n})
    return wired(2, SECOND, {"n": n, "at": (BASE + n) * 1000, "m": b"\x04\xd2", "tags": {"é": [str(n)]}})


def sent(count: int) -> list[Sent]:
    return [(0, BASE + n, value(n), b"key") for n in range(count)]


def read(
    spark: SparkSession, raw: DataFrame, schemas: Schemas, count: int, small_slice: int, sends: Sends = "held"
) -> tuple[list[str], list[str], Counts]:
    """Rows and dead letters of a slice, sorted text; its counts."""
    ranges = (OffsetRange(topic="pos", partition=0, start=0, end=count),)
    plan = LedgerRow(kind="plan", seq=1, writer="test", at=clock.now(), ranges=ranges, sends=sends)
    committed = LedgerRow(kind="commit", seq=0, writer="test", at=clock.now())
    with Reading(spark, "", [SOURCE], plan, committed, raw, small_slice=small_slice, schemas=schemas) as reading:
        rows = [repr(row) for row in reading.records["pos"].toArrow().to_pylist()]
        letters = [repr(row) for row in reading.dead_letters().to_pylist()]
        return sorted(rows), sorted(letters), reading.counts()


def registry() -> FakeRegistry:
    return FakeRegistry({1: FIRST, 2: SECOND})


def test_slices_in_and_beyond_memory_read_the_same_avro_records(log: Log, spark: SparkSession, tmp_path: Path) -> None:
    raw = log(sent(200)).localCheckpoint()
    for lake in ("one", "two"):
        store(str(tmp_path / lake), "pos", StoredSchema(id=99, text="", kind=UNKNOWN))
    small = read(spark, raw, Schemas(str(tmp_path / "one"), registry()), 200, 50_000)
    large = read(spark, raw, Schemas(str(tmp_path / "two"), registry()), 200, 10)
    assert small == large
    rows, letters, counts = small
    assert (counts.rows_read, counts.rows_parsed, counts.rows_dead) == (200, 120, 80)
    assert (len(rows), len(letters)) == (120, 80)
    assert counts.stream_times == {"pos": {0: BASE + 196}}  # neither tombstones nor dead letters move it
    for reason in (
        "the value does not begin with zero and the id of a schema",
        "schema 99 is not in the schema registry",
        "the value does not decode with schema 1",
        "n is NOT NULL and absent",
    ):
        assert sum(f"'{reason}'" in letter for letter in letters) == 20


@pytest.mark.parametrize("small_slice", [50_000, 10], ids=["in memory", "beyond"])
def test_a_slice_waits_for_its_registry_and_later_ones_read_without_it(
    log: Log, spark: SparkSession, tmp_path: Path, small_slice: int
) -> None:
    lake, schema_registry = str(tmp_path), registry()
    raw = log([(0, BASE + n, value(n)) for n in range(40) if n % 10 != 5]).localCheckpoint()
    schema_registry.is_away = True
    with pytest.raises(RegistryUnreachableError):
        read(spark, raw, Schemas(lake, schema_registry), 36, small_slice)
    schema_registry.is_away = False
    first = read(spark, raw, Schemas(lake, schema_registry), 36, small_slice)
    assert load(lake, "pos").keys() == {1, 2}
    schema_registry.is_away = True
    assert read(spark, raw, Schemas(lake, schema_registry), 36, small_slice) == first


def test_a_schema_unknown_to_the_registry_is_requested_again(log: Log, spark: SparkSession, tmp_path: Path) -> None:
    raw, schema_registry = log([(0, BASE, wired(3, FIRST, {"n": 1, "at": BASE}), b"key")]).localCheckpoint(), registry()
    schemas = Schemas(str(tmp_path), schema_registry)
    with pytest.raises(RegistryUnreachableError, match=r"does not have schema 3 of 'pos'"):
        read(spark, raw, schemas, 1, 50_000)
    for small_slice in (50_000, 0):
        assert read(spark, raw, schemas, 1, small_slice)[2].rows_dead == 1
    assert {number: one.kind for number, one in load(str(tmp_path), "pos").items()} == {3: "UNKNOWN"}
    schema_registry.is_away = True
    for sends, small_slice in [("held", 50_000), ("versioned", 0)]:
        assert read(spark, raw, Schemas(str(tmp_path), schema_registry), 1, small_slice, sends)[2].rows_dead == 1
    for small_slice in (50_000, 0):  # it may have been registered since
        with pytest.raises(RegistryUnreachableError):
            read(spark, raw, schemas, 1, small_slice, "live")
    schema_registry.is_away = False
    schema_registry.schemas[3] = schema_registry.schemas[1]
    for small_slice in (50_000, 0):
        assert read(spark, raw, schemas, 1, small_slice, "live")[2].rows_dead == 0
    assert load(str(tmp_path), "pos")[3].kind == "AVRO"


@pytest.mark.parametrize("small_slice", [50_000, 0], ids=["in memory", "beyond"])
def test_a_slice_waits_once_for_a_registry_that_is_behind(
    log: Log, spark: SparkSession, tmp_path: Path, small_slice: int
) -> None:
    values = [wired(3, FIRST, {"n": 1, "at": BASE}), wired(4, FIRST, {"n": 2, "at": BASE})]
    raw = log([(0, BASE, one, b"key") for one in values]).localCheckpoint()
    behind = registry()
    with pytest.raises(RegistryUnreachableError, match=r"does not have schema 3, 4 of 'pos'"):
        read(spark, raw, Schemas(str(tmp_path), behind), 2, small_slice, "live")
    behind.schemas |= {3: behind.schemas[1], 4: behind.schemas[1]}
    assert read(spark, raw, Schemas(str(tmp_path), behind), 2, small_slice, "live")[2].rows_dead == 0


def test_hostile_schema_ids_leave_few_files(tmp_path: Path) -> None:
    schemas = Schemas(str(tmp_path), registry())
    with pytest.raises(RegistryUnreachableError, match="It may be behind"):
        schemas.look_up("pos", range(1, 301))
    schemas_by_id = schemas.look_up("pos", range(1, 301))
    assert [number for number, one in schemas_by_id.items() if one is not None] == [1, 2]
    assert len(load(str(tmp_path), "pos")) == 102


def test_a_registry_with_another_schema_under_a_stored_id_is_ignored(tmp_path: Path) -> None:
    lake = str(tmp_path)
    assert Schemas(lake, registry()).look_up("pos", [1, 2]).keys() == {1, 2}
    assert Schemas(lake, registry()).look_up("pos", [1]).keys() == {1, 2}
    with pytest.raises(SchemaRefusedError, match="another registry"):
        Schemas(lake, FakeRegistry({1: SECOND})).look_up("pos", [1])
    assert Schemas(lake, FakeRegistry({})).look_up("pos", [1]).keys() == {1, 2}
    assert Schemas(lake, FakeRegistry({1: SECOND})).look_up("another", [1]).keys() == {1}


def test_a_stored_schema_is_never_replaced(tmp_path: Path) -> None:
    lake = str(tmp_path)
    store(lake, "pos", StoredSchema(id=1, text='{"type": "string"}'))
    store(lake, "pos", StoredSchema(id=1, text='{ "type":"string" }'))
    with pytest.raises(SchemaRefusedError):
        store(lake, "pos", StoredSchema(id=1, text='"int"'))
    assert load(lake, "pos") == {1: StoredSchema(id=1, text='{"type": "string"}')}
    store(lake, "pos", StoredSchema(id=1, text='{"type": "string"}', subject="pos-value"))
    assert load(lake, "pos")[1].subject == "pos-value"


def test_a_schema_is_registered_once(tmp_path: Path) -> None:
    schema_registry: Any = FakeRegistry({1: FIRST})
    text = '{"type": "string"}'
    assert Schemas(str(tmp_path), schema_registry).id_of("pos", text) == 2
    schema_registry.is_away = True
    assert Schemas(str(tmp_path), schema_registry).id_of("pos", text) == 2
    with pytest.raises(RegistryUnreachableError):
        Schemas(str(tmp_path), schema_registry).id_of("pos", '"int"')
