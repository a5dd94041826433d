"""Objections to beginning with the tables of another job, brought about on a real broker with real Delta tables."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from kappa import control
from kappa.replay.starts import ToOffset
from support.findings import Provoked, provokes
from support.sites import Site

#: The columns of the deployed table.
ROWS: dict[str, pa.Array] = {"id": pa.array(["a", "b"]), "total": pa.array([6, 4], pa.int64())}


def job(here: Site, columns: dict[str, Any] | pa.Table = ROWS, **parts: str) -> Path:
    """A job has read the ten records of the topic into a Delta table and was stopped; the path of the table."""
    here.deploy(**parts)
    here.create()
    here.produce()
    table = Path(here.config.home) / "job"
    write_deltalake(str(table), columns if isinstance(columns, pa.Table) else pa.table(columns))
    lines = [f"{here.topic},{partition},{offset}\n" for partition, offset in ((0, 10), (1, 0))]
    (table.parent / "job.csv").write_text("".join(lines))
    return table


def adopting(table: Path, more: str = "", name: str = "balances") -> str:
    """The command that takes the job over."""
    return f"adopt NAME --table {name}={table} --from-file {table.parent / 'job.csv'} {more}"


def adopted(here: Site) -> Path:
    """The job was taken over, and the epoch is live; the path of its table."""
    table = job(here)
    position = control.by_file(ToOffset(offsets=here.end, file="job.csv"))
    tables = {"tables/balances": (str(table), None), "outputs/moves": (str(_moves(here)), None)}
    here.adopted(control.adoption_plan(here.config, here.name, tables, position, actor="test", reason="test"))
    return table


def _moves(here: Site) -> Path:
    path = Path(here.config.home) / "moves"
    write_deltalake(str(path), pa.table({"id": ["a"], "amount": pa.array([1], pa.int64())}))
    return path


@provokes("adoption-missing")
def _(here: Site) -> Provoked:
    here.create()
    here.produce()
    here.live()
    return Provoked(
        command="plan NAME --seed from-tables",
        says="did not begin with tables of another job",
        remedy="Replay --to-earliest",
    )


@provokes("adopted-version-gone")
def _(here: Site) -> Provoked:
    table = adopted(here)
    shutil.rmtree(table)
    return Provoked(
        command="plan NAME --seed from-tables",
        numbers={"place": "tables/balances", "version": 0, "address": str(table)},
        says=f"Version 0 of {table}",
        remedy="--from-savepoint",
    )


@provokes("adopted-rows-left-out")
def _(here: Site) -> Provoked:
    table = adopted(here)
    return Provoked(command="plan NAME", says=f"began with rows of {table}", remedy="--seed from-tables")


@provokes("adoption-lacks-table")
def _(here: Site) -> Provoked:
    table = job(
        here,
        tables='Table(name="balances", key=["id"], schema="id STRING NOT NULL, total BIGINT"), '
        'Table(name="others", key=["id"], schema="id STRING NOT NULL")',
    )
    return Provoked(
        command=adopting(table), numbers={"table": "others"}, says="'others'", remedy="--table others=ADDRESS"
    )


@provokes("adoption-lacks-output")
def _(here: Site) -> Provoked:
    table = job(here)
    return Provoked(
        command=adopting(table), numbers={"output": "moves"}, says="'moves'", remedy="--output moves=ADDRESS"
    )


@provokes("adoption-names-unknown")
def _(here: Site) -> Provoked:
    table = job(here)
    return Provoked(
        command=adopting(table, name="balance"),
        numbers={"place": "tables/balance"},
        says="no 'tables/balance'",
        remedy="Correct the name",
    )


@provokes("adopted-lacks-internal-columns")
def _(here: Site) -> Provoked:
    table = job(
        here,
        {"id": ["a"], "total": pa.array([1], pa.int64())},
        top="""from kappa.topology import Source
from kappa.operators import agg, aggregate

records = Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL")
sums = aggregate(records, key="id", aggregates={{"mean": agg.avg("amount")}}, table="balances")""",
        sources="records",
        tables="",
        outputs='Append(name="moves", schema="id STRING NOT NULL, amount BIGINT")], operators=[sums',
    )
    return Provoked(
        command=adopting(table), says="in which the operator of table 'balances' keeps its state", remedy="kappa start"
    )


@provokes("adopted-lacks-required-column")
def _(here: Site) -> Provoked:
    table = job(here, {"total": ROWS["total"]})
    return Provoked(
        command=adopting(table), numbers={"columns": ["id"]}, says="may not be null", remedy="Add them to the existing"
    )


@provokes("adopted-lacks-column")
def _(here: Site) -> Provoked:
    table = job(here, {"id": ROWS["id"]})
    return Provoked(
        command=adopting(table), numbers={"columns": ["total"]}, says="they are null in its rows", remedy="No action"
    )


@provokes("adopted-column-left-out")
def _(here: Site) -> Provoked:
    table = job(here, {**ROWS, "mail": pa.array(["x", "y"])})
    return Provoked(
        command=adopting(table), numbers={"columns": ["mail"]}, says="not taken over", remedy="add them to the schema"
    )


@provokes("adopted-type-differs")
def _(here: Site) -> Provoked:
    table = job(here, {**ROWS, "total": pa.array(["6", "4"])})
    return Provoked(
        command=adopting(table),
        numbers={"column": "total", "existing": "string"},
        says="values would be lost",
        remedy="Declare the type that the table has",
    )


@provokes("adopted-table-timed")
def _(here: Site) -> Provoked:
    table = job(
        here,
        top="""from kappa.topology import Source
from kappa.operators import agg, tumbling_window

records = Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL, at BIGINT", time="at",
                 grace="10 seconds")
sums = tumbling_window(records, key="id", size="5 seconds", table="balances", aggregates={{"n": agg.count()}})""",
        sources="records",
        tables="",
        outputs='Append(name="moves", of=sums.final)], operators=[sums',
    )
    return Provoked(command=adopting(table), says="come and go by event time", remedy="kappa start")


def query_checkpoint(here: Site, more: Mapping[str, str] = {}) -> Path:
    """The query checkpoint of a query that read the ten records in a batch; the path of its folder."""
    checkpoint = Path(here.config.home) / "checkpoint"
    end = json.dumps({here.topic: {"0": 10, "1": 0}})
    offsets = {"metadata": '{"id":"q-1"}', "offsets/0": f"v1\n{{}}\n{end}", "commits/0": "v1\n{}"}
    for name, content in {**offsets, **more}.items():
        file = checkpoint / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return checkpoint


@provokes("adopted-written-by-others")
def _(here: Site) -> Provoked:
    table = job(here)
    for query in ("q-1", "q-2"):
        properties = CommitProperties(app_transactions=[Transaction(query, 0)])
        write_deltalake(str(table), pa.table(ROWS), mode="overwrite", commit_properties=properties)
    return Provoked(
        command=f"adopt NAME --table balances={table} --checkpoint {query_checkpoint(here)}",
        numbers={"others": f"version 2 of {table} is a WRITE of query q-2, batch 0"},
        says="of query q-2, batch 0",
        remedy="Name the query checkpoint of the query that wrote last: --checkpoint",
    )


@provokes("adopted-key-padded")
def _(here: Site) -> Provoked:
    char = pa.field("id", pa.string(), metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(3)"})
    table = job(here, pa.table(ROWS, schema=pa.schema([char, pa.field("total", pa.int64())])))
    return Provoked(
        command=adopting(table), numbers={"columns": ["id"]}, says="padded their values with spaces", remedy="rtrim"
    )


@provokes("adopted-job-keeps-state")
def _(here: Site) -> Provoked:
    table = job(here)
    checkpoint = query_checkpoint(here, {"state/0/0/1.delta": "open windows"})
    return Provoked(
        command=f"adopt NAME --table balances={table} --checkpoint {checkpoint}",
        numbers={"folder": f"{checkpoint}/state"},
        says="The job keeps state in",
        remedy="--allow adopted-job-keeps-state",
    )


@provokes("adopted-values-unmasked")
def _(here: Site) -> Provoked:
    table = job(
        here, sources='Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL", sensitive=True)'
    )
    return Provoked(command=adopting(table), says="are not masked under its key", remedy="kappa start")
