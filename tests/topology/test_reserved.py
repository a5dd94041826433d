"""Names of the platform's own columns, and other names that no schema may have."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kappa
from kappa.delta import tables
from kappa.errors import TopologyError
from kappa.kafka.changelogs import FORMAT_HEADER
from kappa.operators import newest_by
from kappa.topology import RECORD_COLUMNS, Append, Source, Table, reserved
from kappa.topology.times.event_time import EVENT_COLUMNS

#: Words in texts of the code that are not columns: of folders and files, of names that something is put before, and
#: columns of tables and frames that are the platform's alone.
NO_COLUMNS = {
    *("_delta_log", "_last_checkpoint", "_archive", "_broker", "_history", "_item", "_members", "_offsets", "_kappa"),
    *("_first", "_last", "_e", "_now", "_recomputed", "_truncated", "__debezium_unavailable_value"),
}


def texts(*rooms: str) -> Iterator[str]:
    """Strings of the code, docstrings aside; of all rooms, or of some."""
    root = Path(kappa.__file__).parent
    for file in (file for room in rooms or ("",) for file in (root / room).rglob("*.py")):
        tree = ast.parse(file.read_text())
        bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
        docs = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                yield node.value


def words_of_texts() -> Iterator[str]:
    """Words of them that begin with ``_``."""
    for text in texts():
        yield from re.findall(r"(?<![\w`'./}-])_[a-z]\w*", text)


def test_a_variable_of_sql_hides_no_column_of_a_user() -> None:
    heads = [re.findall(r"(\w+|\([\w, ]+\)) ->", text) for text in texts("operators", "topology")]
    variables = {name for head in heads for names in head for name in re.findall(r"\w+", names)}
    assert {"_one", "_so_far"} <= variables
    assert not {name for name in variables if not reserved.is_reserved(name)}, "take a name of kappa.topology.reserved"


def test_every_column_that_the_platform_adds_to_user_columns_is_reserved() -> None:
    assert FORMAT_HEADER
    open_names = {word for word in words_of_texts() if not reserved.is_reserved(word)} - NO_COLUMNS
    assert not open_names, (
        "add them to kappa.topology.reserved, or to NO_COLUMNS where they stand beside no user's column"
    )


def test_columns_of_records_and_tables_are_reserved() -> None:
    stored = {column.name for column in (tables.SEQ, tables.DELETED, *tables.LINEAGE)}
    assert {*RECORD_COLUMNS, *EVENT_COLUMNS, *stored} <= reserved.NAMES


MEMBERS: dict[str, Callable[[str], Any]] = {
    "Source 'in'": lambda name: Source(topic="in", schema=f"id STRING, `{name}` STRING"),
    "Table 'state'": lambda name: Table(name="state", key="id", schema=f"id STRING NOT NULL, `{name}` STRING"),
    "Output 'rows'": lambda name: Append(name="rows", schema=f"id STRING, `{name}` STRING"),
}


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("name", ["_value", "_DEAD", "_State", "_offset", "_Seq", "_deleted", "_EVENT_time", "_raw_x"])
def test_a_reserved_name_is_refused_in_any_case(member: str, name: str) -> None:
    with pytest.raises(TopologyError, match=f"{member}: '{name}' is a name of Kappa's own columns"):
        MEMBERS[member](name)


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("name", ["_id", "_class", "_ID", "__v", "@type", "$set", "a b", "a.b", "select", "ä"])
def test_other_names_are_accepted(member: str, name: str) -> None:
    assert MEMBERS[member](name).columns[1].name == name


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("id STRING, `Id` INT", "more than once"),
        ("s STRUCT<a: INT, A: INT>", "more than once"),
        ("s ARRAY<STRUCT<a: INT, `a`: INT>>", "more than once"),
        ("`` INT", "at least one character"),
        ("`a\nb` INT", "no control characters"),
        ("s MAP<STRING, STRUCT<`a\tb`: INT>>", "no control characters"),
    ],
)
def test_names_that_spark_and_delta_cannot_tell_apart_are_refused(schema: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Append(name="rows", schema=schema)


def test_a_column_with_the_name_of_what_an_operator_keeps_is_told_from_one_named_twice() -> None:
    flights = Source(topic="flights", schema="id STRING, origin STRING, destination STRING")
    with pytest.raises(TopologyError, match=r"with what newest_by keeps beside your columns, names \['origin'\] more"):
        newest_by(flights, key="id", table="flights")


@pytest.mark.parametrize("kind", ["STRUCT<a: INT>", "ARRAY<INT>", "MAP<STRING, INT>", "DOUBLE", "FLOAT"])
def test_a_key_of_an_unsuitable_type_is_refused(kind: str) -> None:
    with pytest.raises(TopologyError, match="whose values cannot be keys"):
        Table(name="state", key="id", schema=f"id {kind} NOT NULL")


@pytest.mark.parametrize(
    "kind", ["STRING", "BINARY", "BIGINT", "TINYINT", "BOOLEAN", "DATE", "TIMESTAMP", "DECIMAL(20,2)"]
)
def test_a_key_of_a_suitable_type_is_accepted(kind: str) -> None:
    assert Table(name="state", key="id", schema=f"id {kind} NOT NULL").columns[0].is_key


def test_a_key_that_names_a_column_twice_is_refused() -> None:
    with pytest.raises(TopologyError, match="names a column twice"):
        Table(name="state", key=["id", "id"], schema="id STRING NOT NULL")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (["s"], "which is STRUCT<a: INT>"),
        (["d"], "which is DECIMAL"),
        (["f"], "which is DOUBLE"),
        (["b"], "which is BINARY"),
        (["ID"], "is not in its schema"),
        (["id", "id"], "names a column twice"),
        (["a:b"], "a folder with ':'"),
    ],
)
def test_unsuitable_partition_columns_are_refused(parts: list[str], message: str) -> None:
    schema = "id STRING, s STRUCT<a: INT>, d DECIMAL(9,2), f DOUBLE, b BINARY, `a:b` STRING"
    with pytest.raises(TopologyError, match=message):
        Append(name="rows", schema=schema, partition_by=parts)


def test_an_output_is_not_partitioned_by_all_of_its_columns() -> None:
    with pytest.raises(TopologyError, match="leaves no column for the files"):
        Append(name="rows", schema="a STRING, b INT", partition_by=["a", "b"])
    assert Append(name="rows", schema="a STRING, b INT", partition_by="a").partition_by == ("a",)
