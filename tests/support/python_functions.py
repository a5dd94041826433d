"""A topology whose step runs Python functions in Spark's workers, and what must come out of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Producer

from kappa.delta import queries
from support.epochs import Lab

BESIDE = '''
"""Beside the topology."""

import dataclasses

OFFSET = 1000


@dataclasses.dataclass(frozen=True)
class Rate:
    percent: int

    def of(self, amount):
        return amount * self.percent // 100


def shifted(amount):
    return amount + OFFSET
'''

FILE = '''
"""Every kind of Python function that Spark runs in its workers."""

import pandas as pd
import pyarrow as pa
from pyspark.sql.functions import pandas_udf, udf
from pyspark.sql.types import LongType

import {beside}
from {beside} import Rate, shifted
from kappa.topology import Append, Source, Topology

FACTOR = 3
RATE = Rate(percent=50)


def scaled(amount):
    return amount * FACTOR


@udf(LongType())
def plain(amount):
    """A constant and a function of this file, and both ways to name one of the file beside it."""
    return scaled(amount) + {beside}.shifted(0) + shifted(0)


@pandas_udf(LongType())
def by_series(amounts: pd.Series) -> pd.Series:
    return amounts.map(RATE.of)


def by_batch(batches):
    for batch in batches:
        tripled = [scaled(amount) for amount in batch.column("amount").to_pylist()]
        yield pa.RecordBatch.from_pydict({{**batch.to_pydict(), "by_batch": tripled}}, schema=SCHEMA)


SCHEMA = pa.schema({{
    "id": pa.string(), "amount": pa.int64(), "plain": pa.int64(), "by_series": pa.int64(), "by_batch": pa.int64(),
}})
ROWS = "id STRING NOT NULL, amount BIGINT, plain BIGINT, by_series BIGINT, by_batch BIGINT"


def step(slice):
    rows = slice["{topic}"].select("id", "amount")
    rows = rows.withColumn("plain", plain("amount")).withColumn("by_series", by_series("amount"))
    return {{"rows": rows.mapInArrow(by_batch, ROWS)}}


functions = Topology(
    name="{name}", version="1", sources=[Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL")],
    outputs=[Append(name="rows", schema=ROWS)], step=step,
)
'''


def write(folder: Path, name: str, topic: str, beside: str = "functions_beside") -> None:
    """Put the topology and the file beside it into a folder."""
    (folder / f"{beside}.py").write_text(BESIDE)
    (folder / "functions.py").write_text(FILE.format(name=name, topic=topic, beside=beside))


def value(number: int) -> bytes:
    """A record."""
    return orjson.dumps({"id": f"id-{number}", "amount": number})


def expected(numbers: Iterable[int]) -> list[dict[str, Any]]:
    """Rows of these records, computed here."""
    return [
        {"id": f"id-{n}", "amount": n, "plain": n * 3 + 2000, "by_series": n * 50 // 100, "by_batch": n * 3}
        for n in numbers
    ]


def produce(lab: Lab, numbers: Iterable[int]) -> None:
    """Records of the topology's topic, in one partition and one batch."""
    producer = Producer({"bootstrap.servers": lab.config.bootstrap_servers, "linger.ms": 60_000})
    for number in numbers:
        producer.produce(lab.topic, value=value(number), timestamp=1_700_000_000_000 + number, partition=0)
    assert producer.flush(60) == 0


def written(lab: Lab, epoch: int) -> list[dict[str, Any]]:
    """Rows of the epoch's output."""
    rows = queries.query(lab.paths(epoch).output("rows"), None).to_pylist()
    names = ("id", "amount", "plain", "by_series", "by_batch")
    return sorted(({name: row[name] for name in names} for row in rows), key=lambda row: row["amount"])
