"""Objections to a plan whose topic outputs or tables are there already, brought about on a real broker."""

from __future__ import annotations

from typing import Any

import pyarrow
from deltalake import write_deltalake

from support.findings import Provoked, provokes
from support.sites import Site

ROWS = 'Append(name="moves", schema="id STRING, amount BIGINT, at TIMESTAMP")'
TIMED = 'Topic(name="{topic}.out", of="moves", key=["id", "amount"], time="at")'
KEYED = 'Topic(name="{topic}.out", of="moves", key="id")'
STATE = 'Topic(name="{topic}.out", of="balances", key="id", on_replay="reconcile")'


def beside(here: Site, output: str, **settings: Any) -> str:
    """The site sends to a topic that is there with these settings; its name."""
    here.create()
    here.produce()
    here.create(f"{here.topic}.out", **settings)
    here.deploy(outputs=f"{ROWS}, {output}")
    return f"{here.topic}.out"


@provokes("output-rewrites-timestamps")
def _(here: Site) -> Provoked:
    out = beside(here, TIMED, message_timestamp_type="LogAppendTime")
    return Provoked(
        command="plan NAME",
        numbers={"topic": out, "column": "at"},
        says="windows of its readers would differ",
        remedy=f"--entity-name {out} --add-config message.timestamp.type=CreateTime",
    )


@provokes("output-drops-old-records")
def _(here: Site) -> Provoked:
    out = beside(here, TIMED, retention_ms="604800000")
    return Provoked(
        command="plan NAME",
        numbers={"topic": out, "column": "at", "ms": 604_800_000},
        says="keeps records for 7.0 days by their timestamps",
        remedy="retention.ms=-1",
    )


@provokes("output-refuses-times")
def _(here: Site) -> Provoked:
    out = beside(here, TIMED, message_timestamp_before_max_ms="3600000")
    return Provoked(
        command="plan NAME",
        numbers={"topic": out, "setting": "message.timestamp.before.max.ms", "ms": 3_600_000},
        says="more than 3600000 ms before",
        remedy="message.timestamp.before.max.ms=9223372036854775807",
    )


@provokes("output-refuses-null-keys")
def _(here: Site) -> Provoked:
    out = beside(here, KEYED, cleanup_policy="compact")
    return Provoked(
        command="plan NAME",
        numbers={"topic": out, "policy": "compact", "column": "id"},
        says="refuses records without a key",
        remedy="Declare the column NOT NULL",
    )


@provokes("output-is-compacted")
def _(here: Site) -> Provoked:
    out = beside(here, TIMED, cleanup_policy="compact")
    return Provoked(
        command="plan NAME",
        numbers={"topic": out, "of": "moves"},
        says="all but the newest row of each key are removed",
        remedy="cleanup.policy=delete",
    )


@provokes("output-forgets-keys")
def _(here: Site) -> Provoked:
    out = beside(here, STATE, retention_ms="604800000")
    return Provoked(
        command="plan NAME",
        numbers={"topic": out, "of": "balances", "ms": 604_800_000},
        says="a reader misses the keys",
        remedy="cleanup.policy=compact",
    )


@provokes("output-limits-records")
def _(here: Site) -> Provoked:
    out = beside(here, KEYED, max_message_bytes="1000")
    return Provoked(
        command="plan NAME",
        numbers={"topic": out, "bytes": 1000, "source": here.topic},
        says="a larger row stops the epoch",
        remedy="max.message.bytes=",
    )


@provokes("published-path-taken")
def _(here: Site) -> Provoked:
    here.create()
    here.produce()
    path = here.paths(1).published("balances")
    write_deltalake(path, pyarrow.table({"id": ["a"], "total": [1]}))
    return Provoked(
        command="plan NAME",
        numbers={"path": path},
        says=f"Another program has a Delta table at {path}",
        remedy="Move that table to another folder",
    )
