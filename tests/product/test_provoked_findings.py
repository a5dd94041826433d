"""Each finding, provoked for real on a real broker: exit code, code, numbers, remedy, and that nothing was changed.

A rule without a case fails; so does a case without a rule. Law 9.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from support import adoption_findings, backfill_findings, chain_findings, needed_findings, output_findings
from support.findings import CASES, ROOT, Provoked, findings_of, prove, provokes
from support.sites import Site, eager_broker, site

from kappa import control
from kappa.control.plans import planning
from kappa.environments import files, interpreters
from kappa.kafka.broker import Broker
from kappa.kafka.registry import Registry
from kappa.offsets.vector import Offsets
from kappa.record import code as code_store
from kappa.record import savepoints
from kappa.record.ledger import Ledger
from kappa.record.schemas import StoredSchema, store
from kappa.replay.catalogue import ALLOWABLE, DECLARED
from kappa.replay.estimates import Measured
from kappa.replay.starts import FromMarker
from kappa.slices.run import LOST_RELEASES, LOST_SET_ASIDES
from kappa.slices.topics import ownership
from kappa_local.registry import server as registry_server

#: The fixture, and the module whose import registers its cases.
__all__ = [
    "adoption_findings",
    "backfill_findings",
    "chain_findings",
    "eager_broker",
    "needed_findings",
    "output_findings",
]
from kappa.topology.masking import fingerprint

pytestmark = pytest.mark.broker

WINDOWS_REFUSED = "test_an_output_that_no_interval_bounds_is_refused_with_a_remedy"
#: Findings that only Spark or a driver gives, and the tests that provoke them.
ELSEWHERE = {
    "reads-clock": ("verify/test_inspection.py", "test_a_function_is_found_wherever_it_is_hidden"),
    "draws-random": ("verify/test_inspection.py", "test_a_function_is_found_wherever_it_is_hidden"),
    "depends-on-partitions": ("verify/test_inspection.py", "test_a_function_is_found_wherever_it_is_hidden"),
    "nondeterministic-function": (
        "verify/test_inspection.py",
        "test_a_python_function_marked_nondeterministic_is_found",
    ),
    "order-undefined": ("verify/test_inspection.py", "test_a_limit_is_found_unless_the_rows_are_sorted"),
    "step-not-inspected": ("verify/test_inspection.py", "test_a_step_that_needs_rows_is_reported_and_does_not_raise"),
    "backfill-cumulative": ("product/test_backfill.py", "test_running_totals_are_refused_and_nothing_is_changed"),
    "backfill-without-time": ("product/test_backfill_windows.py", WINDOWS_REFUSED),
    "backfill-off-grid": ("product/test_backfill_windows.py", WINDOWS_REFUSED),
    "backfill-still-open": ("product/test_backfill_windows.py", WINDOWS_REFUSED),
    "backfill-state-gone": (
        "product/test_backfill_windows.py",
        "test_an_interval_before_the_beginning_of_the_epoch_is_refused",
    ),
    "backfill-leaves-tables": (
        "replay/test_backfill_rules.py",
        "test_tables_made_with_an_output_are_named_and_a_replay_is_suggested",
    ),
    "backfill-other-parameters": (
        "product/test_backfill_windows.py",
        "test_intervals_read_with_another_grace_are_refused",
    ),
    "backfill-not-inspected": ("product/test_backfill.py", "test_a_step_that_needs_rows_is_refused"),
    "backfill-other-environment": (
        "control/test_environments_of_moves.py",
        "test_a_backfill_with_other_libraries_than_the_driver_is_named",
    ),
    "backfill-sends-nothing": ("product/test_backfill.py", "test_the_end_of_the_log_is_left_to_the_live_epoch"),
    "backfill-not-final": ("product/test_backfill.py", "test_the_end_of_the_log_is_left_to_the_live_epoch"),
    "backfill-before-epoch": ("product/test_backfill.py", "test_records_before_the_epoch_are_refused"),
    "topics-missing": (
        "local/test_logins.py",
        "test_a_login_without_create_is_told_all_topics_of_an_epoch_and_their_commands",
    ),
    "upgrade-fails": (
        "product/test_upgrade.py",
        "test_evidence_compares_new_code_with_what_was_written_and_leaves_nothing",
    ),
}


_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker_client(eager_broker: str) -> Iterator[Broker]:
    with Broker(eager_broker) as client:
        yield client


@pytest.fixture
def here(tmp_path: Path, broker_client: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site that nobody else uses."""
    monkeypatch.setattr(planning, "WATCH_SECONDS", 0.1)  # of a lost lake's epochs nothing is sent here
    with site(tmp_path / "site", broker_client, next(_numbers)) as here:
        yield here


def test_findings_and_cases_correspond_one_to_one() -> None:
    assert set(CASES) | set(ELSEWHERE) == set(DECLARED)
    assert not set(CASES) & set(ELSEWHERE)


@pytest.mark.parametrize("code", sorted(ELSEWHERE))
def test_a_finding_without_a_case_is_named_in_the_test_listed_for_it(code: str) -> None:
    file, name = ELSEWHERE[code]
    tree = ast.parse((ROOT / "tests" / file).read_text())
    (test,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    assert code in ast.unparse(test)


@pytest.mark.parametrize("code", sorted(DECLARED.keys() - ELSEWHERE.keys()))
def test_a_provoked_finding_is_reported_with_its_numbers_and_changes_nothing(code: str, here: Site) -> None:
    prove(code, here)


def ready(here: Site, count: int = 10) -> int:
    """A topic with this many records in partition 0, all read by a live epoch."""
    here.create()
    here.produce(count)
    return here.live()


# The log


@provokes("unknown-topic")
def _(here: Site) -> Provoked:
    ready(here)
    here.delete()
    return Provoked(command="plan NAME", numbers={"topic": here.topic}, says="is not a topic", remedy="Create it")


@provokes("recreated-topic")
def _(here: Site) -> Provoked:
    ready(here)
    was = here.ids[here.topic]
    here.recreate()
    here.produce(20)
    now = here.ids[here.topic]
    assert now != was
    return Provoked(
        command="plan NAME",
        numbers={"topic": here.topic, "recorded": was, "found": now},
        says=f"recorded id {was}, the broker has {now}",
        remedy="Deploy the topology under a new name",
    )


@provokes("stored-vector-beyond-end")
def _(here: Site) -> Provoked:
    ready(here)
    here.recreate()
    here.produce(3)
    return Provoked(
        command="plan NAME",
        numbers={"topic": here.topic, "partition": 0, "stored": 10, "end": 3},
        says="stands at offset 10",
        remedy="Check the broker's address",
    )


@provokes("partition-count-changed")
def _(here: Site) -> Provoked:
    ready(here)
    here.add_partition()
    return Provoked(
        command="plan NAME",
        numbers={"topic": here.topic, "before": 2, "now": 3},
        says="had 2 partitions when its history began and has 3 now",
        remedy="--allow partition-count-changed",
    )


@provokes("start-below-low-watermark")
def _(here: Site) -> Provoked:
    here.create(segment_ms="100")
    here.produce(10)
    here.live()
    here.expire(10)
    return Provoked(
        command="plan NAME",
        numbers={"topic": here.topic, "partition": 0, "low": 10, "start": 0, "removed": 10},
        says="retention removed 10 offsets",
        remedy="--allow partial-history",
    )


@provokes("end-above-high-watermark")
def _(here: Site) -> Provoked:
    here.create()
    here.produce(10)
    return Provoked(
        request={"end": Offsets({here.topic: {0: 11, 1: 0}})},
        numbers={"topic": here.topic, "partition": 0, "high": 10, "end": 11},
        says="ends at offset 10, the plan at 11: 1 too many",
        remedy="Omit the end",
    )


def hanging(here: Site) -> tuple[int, int, int]:
    """A partition with an open transaction of two records: its number, where it can be read to, where it ends."""
    here.create()
    here.produce(10)
    here.hang()
    stable, high = here.end, here.kafka.high_watermarks([here.topic])
    (partition,) = [at[1] for at, end in high.items() if stable[at] < end]
    return partition, stable[here.topic, partition], high[here.topic, partition]


@provokes("end-above-stable-offset")
def _(here: Site) -> Provoked:
    partition, stable, high = hanging(here)
    return Provoked(
        request={"end": here.end.with_(here.topic, partition, high)},
        numbers={"topic": here.topic, "partition": partition, "stable": stable, "end": high},
        says="a transaction is open",
        remedy="Wait until its producer ends it",
    )


@provokes("open-transactions")
def _(here: Site) -> Provoked:
    partition, stable, high = hanging(here)
    return Provoked(
        command="plan NAME",
        numbers={"topic": here.topic, "partition": partition, "stable": stable, "high": high},
        says=f"can be read up to offset {stable} of {high}",
        remedy="transaction.timeout.ms",
    )


# What was asked for


@provokes("unknown-topology")
def _(here: Site) -> Provoked:
    name = here.name.replace("balances", "balance")
    return Provoked(
        command=f"plan {name}",
        numbers={"name": name},
        says=here.name,
        remedy="Did you mean 'NAME'?".replace("NAME", here.name),
    )


@provokes("code-does-not-import")
def _(here: Site) -> Provoked:
    ready(here)
    here.deploy(top="from pathlib import Path\nPath(__file__).with_name('rates.csv').read_text()")
    (here.config.topologies / "rates.csv").touch()  # which no epoch stores
    return Provoked(
        command="plan NAME", says="No such file or directory: 'rates.csv'", remedy="Correct it and plan again"
    )


@provokes("unknown-threshold")
def _(here: Site) -> Provoked:
    ready(here)
    return Provoked(
        command="plan NAME --threshold balance.keys_removed=0",
        numbers={"name": "balance.keys_removed"},
        says="'balance.keys_removed'",
        remedy="balances.keys_removed",
    )


@provokes("determinism-without-live-epoch")
def _(here: Site) -> Provoked:
    here.create()
    return Provoked(request={"determinism": True}, says="No epoch is live", remedy="Start it without --determinism")


@provokes("replay-already-active")
def _(here: Site) -> Provoked:
    ready(here)
    plan = control.plan(here.config, here.request())
    epoch = control.replay(here.config, plan, actor="ada", reason="the first of two")
    return Provoked(
        command="plan NAME",
        numbers={"epoch": epoch, "stage": "PLANNED", "plan": plan.id},
        says=f"Epoch {epoch} of '{here.name}' is being replayed",
        remedy=f"kappa abort {here.name} {epoch}",
    )


@provokes("end-ahead-of-live")
def _(here: Site) -> Provoked:
    ready(here)
    here.produce(5)
    return Provoked(
        request={"end": Offsets({here.topic: {0: 11, 1: 0}})},
        numbers={"topic": here.topic, "partition": 0, "committed": 10, "end": 11},
        says="up to 10, the plan ends at 11",
        remedy="wait until the live epoch is there",
    )


@provokes("start-after-end")
def _(here: Site) -> Provoked:
    ready(here)
    here.produce(5)
    return Provoked(
        command="plan NAME --to-offset TOPIC:0=11 --to-offset TOPIC:1=0",
        numbers={"topic": here.topic, "partition": 0, "start": 11, "end": 10},
        says="begins at offset 11",
        remedy="Choose an earlier start",
    )


@provokes("time-without-record")
def _(here: Site) -> Provoked:
    ready(here)
    return Provoked(
        command="plan NAME --to-datetime 2031-01-01T00:00:00Z",
        numbers={"at": "2031-01-01T00:00:00+00:00", "ends": {here.topic: {"0": 10, "1": 0}}},
        says=f"{here.topic}[0] ends at 10",
        remedy="times are UTC",
    )


@provokes("quiet-partitions")
def _(here: Site) -> Provoked:
    ready(here)
    return Provoked(
        command="plan NAME --to-datetime 2026-01-01T00:00:00Z",
        numbers={"partitions": [f"{here.topic}[1]"]},
        says="1 of 2 partitions have no record from 2026-01-01T00:00:00+00:00 on and begin at their end: "
        f"{here.topic}[1] at 0",
        remedy="check the time",
    )


@provokes("time-below-low-watermark")
def _(here: Site) -> Provoked:
    here.create(segment_ms="100")
    here.produce(10)
    here.live()
    here.expire(10)
    return Provoked(
        command="plan NAME --to-datetime 2026-01-01T00:00:00Z",
        numbers={"topic": here.topic, "partition": 0, "low": 10, "at": "2026-01-01T00:00:00+00:00"},
        says="retention may have removed others of that time",
        remedy="--allow partial-history",
    )


@provokes("unknown-savepoint")
def _(here: Site) -> Provoked:
    ready(here)
    return Provoked(
        command="plan NAME --from-savepoint 7", numbers={"kept": [0, 1]}, says="at seq 7", remedy="--to-earliest"
    )


@provokes("unknown-savepoint-name")
def _(here: Site) -> Provoked:
    ready(here)
    savepoints.create(here.config, here.name, "sale", actor="ada")
    return Provoked(
        command="plan NAME --from-savepoint sail",
        numbers={"name": "sail", "known": ["sale"]},
        remedy="Did you mean 'sale'?",
    )


@provokes("savepoint-of-other-epoch")
def _(here: Site) -> Provoked:
    first = ready(here)
    savepoints.create(here.config, here.name, "sale", actor="ada")
    second = here.live()
    return Provoked(
        command="plan NAME --from-savepoint sale",
        numbers={"name": "sale", "epoch": first, "seq": 1, "live": second},
        says=f"is seq 1 of epoch {first}, and epoch {second} is live",
        remedy="kappa rollback",
    )


@provokes("unknown-epoch")
def _(here: Site) -> Provoked:
    epoch = ready(here)
    here.marker(epoch)
    return Provoked(
        request={"start": FromMarker(epoch=9)},
        numbers={"epoch": 9, "known": [epoch]},
        says="No epoch 9 left a marker",
        remedy="Name one of those",
    )


@provokes("marker-behind-last-sender")
def _(here: Site) -> Provoked:
    here.create()
    here.produce(10)
    here.marker(1, Offsets({here.topic: {0: 5, 1: 0}}))
    here.marker(2)
    return Provoked(
        request={"start": FromMarker(epoch=1)},
        numbers={"epoch": 1, "last_epoch": 2, "sent": {here.topic: {"0": 10, "1": 0}}},
        says="would send records twice",
        remedy="the changelog of epoch 2",
    )


@provokes("changelog-goes-on")
def _(here: Site) -> Provoked:
    epoch = ready(here)
    here.marker(epoch)
    here.beat(epoch)
    return Provoked(
        command="rebuild NAME --from-changelog",
        numbers={"epoch": epoch, "seq": 1},
        says=f"The driver of epoch {epoch} runs",
        remedy="kappa stop",
    )


@provokes("other-lake-superseded")
def _(here: Site) -> Provoked:
    here.create()
    here.produce(10)
    ownership.claim(here.kafka, replace(here.paths(1), lake="/elsewhere"), "0123456789")
    here.marker(1)
    return Provoked(
        command="rebuild NAME --from-changelog",
        numbers={"epoch": 1},
        says="belongs to lake 01234567 (/elsewhere on ",
        remedy="KAPPA_LAKE",
    )


@provokes("partial-history")
def _(here: Site) -> Provoked:
    ready(here)
    return Provoked(
        command="plan NAME --to-offset TOPIC:0=4 --to-offset TOPIC:1=0",
        numbers={"start": {here.topic: {"0": 4, "1": 0}}},
        says=f"{here.topic}[0] at 4",
        remedy="--to-earliest",
    )


@provokes("append-outputs-lost")
def _(here: Site) -> Provoked:
    here.marker(ready(here))
    return Provoked(
        command="rebuild NAME --from-changelog",
        numbers={"outputs": ["moves"]},
        says="['moves']",
        remedy="--to-earliest",
    )


# Starts by number


@provokes("start-names-unknown")
def _(here: Site) -> Provoked:
    ready(here)
    return Provoked(
        command="plan NAME --to-offset TOPIC=0 --to-offset TOPIC:7=1",
        numbers={"topic": here.topic, "named": f"{here.topic}[7]=1", "partitions": [0, 1]},
        says="has the partitions 0 to 1",
        remedy="Correct the name",
    )


@provokes("start-lacks-partition")
def _(here: Site) -> Provoked:
    ready(here)
    return Provoked(
        command="plan NAME --to-offset TOPIC:0=1",
        numbers={"topic": here.topic, "partitions": [1]},
        says="none is guessed",
        remedy=f"{here.topic}:1=<offset>",
    )


@provokes("start-above-high-watermark")
def _(here: Site) -> Provoked:
    ready(here)
    return Provoked(
        command="plan NAME --to-offset TOPIC:0=12 --to-offset TOPIC:1=0",
        numbers={"topic": here.topic, "partition": 0, "high": 10, "start": 12},
        says="ends at offset 10, the start is 12: 2 too many",
        remedy="Start at 10 or before",
    )


@provokes("start-above-stable-offset")
def _(here: Site) -> Provoked:
    partition, stable, high = hanging(here)
    return Provoked(
        command=f"plan NAME --to-offset TOPIC:{partition}={high} --to-offset TOPIC:{1 - partition}=0",
        numbers={"topic": here.topic, "partition": partition, "stable": stable, "start": high},
        says="a transaction is open",
        remedy=f"Start at {stable} or before",
    )


@provokes("shift-without-live-epoch")
def _(here: Site) -> Provoked:
    here.create()
    return Provoked(
        command="plan NAME --shift-by -3", numbers={"by": -3}, says="no epoch is live", remedy="--to-earliest"
    )


@provokes("shift-outside-log")
def _(here: Site) -> Provoked:
    ready(here)
    here.produce(4, partition=1)
    return Provoked(
        command="plan NAME --shift-by -11",
        numbers={"topic": here.topic, "partition": 0, "position": 10, "by": -11, "low": 0, "end": 10},
        says="at 10 shifted by -11 is -1",
        remedy="--to-offset",
    )


# Seeds


def reshaped(here: Site, **parts: str) -> str:
    """Other code, and the command that would seed it from the live epoch."""
    ready(here)
    here.deploy(**parts)
    return "plan NAME --from-savepoint 1"


def table(schema: str, key: str = "id", name: str = "balances") -> str:
    return f'Table(name="{name}", key=["{key}"], schema="{schema}")'


@provokes("seed-lacks-table")
def _(here: Site) -> Provoked:
    both = f"{table('id STRING NOT NULL, total BIGINT')}, {table('id STRING NOT NULL', name='visits')}"
    return Provoked(
        command=reshaped(here, tables=both),
        numbers={"table": "visits", "seeded": ["balances"]},
        says="would begin without its history",
        remedy="--to-earliest",
    )


@provokes("seed-key-changed")
def _(here: Site) -> Provoked:
    return Provoked(
        command=reshaped(here, tables=table("id STRING, total BIGINT NOT NULL", key="total")),
        numbers={"name": "balances", "key": ["total"], "seed_key": ["id"]},
        says="has the key ['total']",
        remedy="--to-earliest",
    )


@provokes("seed-type-changed")
def _(here: Site) -> Provoked:
    return Provoked(
        command=reshaped(here, tables=table("id STRING NOT NULL, total STRING")),
        numbers={"name": "balances", "columns": ["total"]},
        says="['total'] of 'balances' have another type",
        remedy="--to-earliest",
    )


@provokes("seed-operator-changed")
def _(here: Site) -> Provoked:
    windows = "tumbling_window(size=5 seconds)"
    state = f'Table(name="balances", key=["id"], schema="id STRING NOT NULL, total BIGINT", made_by="{windows}")'
    return Provoked(
        command=reshaped(here, tables=state),
        numbers={"name": "balances", "made_by": windows, "seed_made_by": "no operator"},
        says=windows,
        remedy="--to-earliest",
    )


def timed(
    time: str = "amount", grace: str = "10 seconds", by: str = "tumbling_window(size=1 minute)"
) -> dict[str, str]:
    """A source with event time, and a table whose rows close by it."""
    schema = "id STRING NOT NULL, amount BIGINT NOT NULL, sent BIGINT"
    return {
        "sources": f'Source(topic="{{topic}}", schema="{schema}", time="{time}", grace="{grace}")',
        "tables": 'Table(name="balances", key=["id"], schema="id STRING NOT NULL, total BIGINT", expires=True, '
        f'made_by="{by}")',
    }


def retimed(here: Site, command: str, **parts: str) -> str:
    """A live epoch with a table that closes, other code, and a command."""
    here.deploy(**timed())
    ready(here)
    here.deploy(**(parts or timed(grace="1 hour")))
    return command


@provokes("seed-time-changed")
def _(here: Site) -> Provoked:
    return Provoked(
        command=retimed(here, "plan NAME --from-savepoint 1", **timed(time="sent")),
        numbers={
            "name": "balances",
            "changes": [f"source '{here.topic}' takes its time from 'sent', not from 'amount'"],
        },
        says="another event time than in the savepoint",
        remedy="--to-datetime",
    )


@provokes("seed-time-unknown")
def _(here: Site) -> Provoked:
    balances = {"key": ["id"], "columns": {"id": "STRING", "total": "BIGINT"}, "required": ["id"]}
    windows = {**balances, "made_by": "tumbling_window(size=1 minute)"}
    here.seeded["shapes"] = {"tables/balances": windows, "outputs/moves": {**balances, "key": []}}
    return Provoked(
        command=retimed(here, "plan NAME --from-savepoint 1", **timed()),
        numbers={"name": "balances"},
        says="an earlier version of Kappa wrote it",
        remedy="kappa upgrade",
    )


@provokes("seed-grace-changed")
def _(here: Site) -> Provoked:
    return Provoked(
        command=retimed(here, "plan NAME --from-savepoint 1"),
        numbers={"topic": here.topic, "was": "10 seconds", "now": "1 hour"},
        says="what is closed stays closed",
        remedy="No action needed",
    )


@provokes("seed-lacks-required-column")
def _(here: Site) -> Provoked:
    return Provoked(
        command=reshaped(here, tables=table("id STRING NOT NULL, total BIGINT, tier STRING NOT NULL")),
        numbers={"name": "balances", "columns": ["tier"]},
        says="['tier']",
        remedy="--to-earliest",
    )


@provokes("seed-lacks-column")
def _(here: Site) -> Provoked:
    return Provoked(
        command=reshaped(here, tables=table("id STRING NOT NULL, total BIGINT, tier STRING")),
        numbers={"name": "balances", "columns": ["tier"]},
        says="they are null in its rows",
        remedy="--to-earliest",
    )


@provokes("seed-lacks-output")
def _(here: Site) -> Provoked:
    both = 'Append(name="moves", schema="id STRING NOT NULL, amount BIGINT"), Append(name="more", schema="id STRING")'
    return Provoked(
        command=reshaped(here, outputs=both),
        numbers={"output": "more"},
        says="no output 'more'",
        remedy="--to-earliest",
    )


# Topics of an epoch's own

VERSIONED = """Append(name="moves", schema="id STRING NOT NULL, amount BIGINT"),
        Topic(name="{topic}.moves", of="moves", key="id", on_replay="versioned")"""


@provokes("versioned-topic-taken")
def _(here: Site) -> Provoked:
    ready(here)
    here.deploy(outputs=VERSIONED)
    name = f"{here.topic}.moves.e0002"
    here.create(name)
    here.produce(1, topic=name)
    return Provoked(
        command="plan NAME",
        numbers={"wanted": [name], "taken": [name]},
        says=f"{name} exists already",
        remedy="remove it, or give the topic output another name",
    )


@provokes("versioned-history-partial")
def _(here: Site) -> Provoked:
    epoch = ready(here)
    here.marker(epoch)
    here.deploy(outputs=VERSIONED)
    return Provoked(
        command="rebuild NAME --from-changelog",
        numbers={"topics": [f"{here.topic}.moves"]},
        says=f"{here.topic}.moves.e0002 will begin with what is computed from its marker on",
        remedy="--to-earliest",
    )


@provokes("reconcile-sends-everything")
def _(here: Site) -> Provoked:
    ready(here)
    here.deploy(
        outputs='Append(name="moves", schema="id STRING NOT NULL, amount BIGINT"), '
        'Topic(name="{topic}.balances", of="balances", key="id", on_replay="reconcile")'
    )
    return Provoked(
        command="plan NAME",
        numbers={"topic": f"{here.topic}.balances"},
        says="does not reconcile it with that table",
        remedy="the topic is new",
    )


# Archives and compaction


def compacted(here: Site) -> None:
    """A topic whose older records per key were really compacted away."""
    here.create(cleanup_policy="compact", segment_ms="50", min_cleanable_dirty_ratio="0.001", delete_retention_ms="0")
    here.produce(10)

    def is_compacted() -> bool:
        here.produce(1, at=datetime.now(UTC))  # a closed segment is cleaned, and only a record closes one
        messages = [
            m for batch in here.kafka.read(Offsets({here.topic: {0: 0}}), here.end.only([here.topic])) for m in batch
        ]
        return len(messages) < here.end[here.topic, 0]

    here.wait(is_compacted)


@provokes("compacted-source")
def _(here: Site) -> Provoked:
    compacted(here)
    return Provoked(
        command="plan NAME",
        numbers={"topic": here.topic, "policy": "compact"},
        says="older records of a key are gone",
        remedy="--allow compacted-source",
    )


@provokes("compacted-source-archived")
def _(here: Site) -> Provoked:
    here.create(cleanup_policy="compact")
    here.produce(10)
    here.archived(10)
    return Provoked(
        command="plan NAME",
        numbers={"topic": here.topic, "policy": "compact"},
        says="took every offset of the plan",
        remedy="No action needed.",
    )


@provokes("archive-of-another-topic")
def _(here: Site) -> Provoked:
    here.create()
    here.produce(10)
    here.archived(10)
    was = here.ids[here.topic]
    here.recreate()
    return Provoked(
        command="plan NAME",
        numbers={"topic": here.topic, "archived": was, "found": here.ids[here.topic]},
        says="nothing is read from the archive",
        remedy="move the old archive away",
    )


@provokes("archive-behind-log")
def _(here: Site) -> Provoked:
    here.create(segment_ms="100")
    here.produce(10)
    here.archived(4)
    here.expire(10)
    return Provoked(
        command="plan NAME",
        numbers={"topic": here.topic, "partition": 0, "archived": 4, "low": 10},
        says="6 offsets are in neither",
        remedy="--skip-lost",
    )


# The live epoch


SENSITIVE = 'Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL", sensitive=True)'


@provokes("wall-clock-time")
def _(here: Site) -> Provoked:
    source = 'Source(topic="{topic}", schema="id STRING NOT NULL", time="wall clock", grace="0 seconds")'
    here.deploy(sources=source)
    epoch = ready(here)
    return Provoked(
        command="plan NAME --to-earliest",
        numbers={"topics": [here.topic], "epoch": epoch},
        says="is the wall clock",
        remedy="Rebuild from the changelog",
    )


@provokes("live-cuts-unknown")
def _(here: Site) -> Provoked:
    ready(here)
    begin = Offsets({here.topic: {0: 0, 1: 0}}).to_json()
    start = Offsets({here.topic: {0: 4, 1: 0}}).to_json()
    return Provoked(
        command="plan NAME --cuts live --to-offset TOPIC:0=4 --to-offset TOPIC:1=0",
        numbers={"why": f"its slices begin at {begin}; the replay would begin at {start}"},
        says="should end its slices where those of the live epoch ended",
        remedy="Omit --cuts live",
    )


@provokes("future-timestamps")
def _(here: Site) -> Provoked:
    here.deploy(sources='Source(topic="{topic}", schema="id STRING NOT NULL", grace="0 seconds")')
    here.create(message_timestamp_after_max_ms="864000000")
    here.produce(10)
    here.live()
    return Provoked(
        command="plan NAME",
        numbers={"topic": here.topic, "ms": 864_000_000},
        says="accepts records whose timestamp lies 10 days ahead",
        remedy="--add-config message.timestamp.after.max.ms=3600000",
    )


@provokes("time-in-seconds")
def _(here: Site) -> Provoked:
    row = "id STRING NOT NULL, amount BIGINT"
    here.deploy(sources=f'Source(topic="{{topic}}", schema="{row}", time="amount", grace="0 seconds")')
    here.create()
    here.produce(10, at=datetime(2026, 3, 1, tzinfo=UTC), amount=1_772_323_200)
    here.produce(1, at=datetime(2026, 3, 1, tzinfo=UTC), value=b"[" * 100_000)  # deeper than Python reads JSON
    here.live()
    return Provoked(
        command="plan NAME",
        numbers={"topic": here.topic, "column": "amount", "value": 1_772_323_200},
        says="as epoch milliseconds is 1970-01-21T12:18:43.200Z; Kafka's timestamp of the record is 2026-03-01",
        remedy="timestamps='epoch_seconds'",
    )


@provokes("releases-lost")
def _(here: Site) -> Provoked:
    here.deploy(
        sources='Source(topic="{topic}", schema="id STRING NOT NULL", grace="0 seconds", idle_after="1 minute")'
    )
    here.seeded[LOST_RELEASES] = True
    epoch = ready(here)
    return Provoked(
        command="plan NAME --to-earliest",
        numbers={"topics": [here.topic], "epoch": epoch},
        says="was rebuilt from a changelog",
        remedy="Compare the difference before the cutover",
    )


def aside(here: Site, *offsets: int) -> list[dict[str, Any]]:
    """What a ledger says of records of partition 0 that a decision set aside."""
    hashes = {str(offset): "0123456789abcdef" for offset in offsets}
    place = {"topic": here.topic, "topic_id": here.ids[here.topic], "partition": 0}
    return [{"decision": 9, "reason": "bad deploy", **place, "offsets": hashes}]


@provokes("bring-in-unknown")
def _(here: Site) -> Provoked:
    ready(here)
    return Provoked(
        command="plan NAME --to-earliest --bring-in 7",
        numbers={"choice": "7"},
        says="set aside none",
        remedy="kappa dead-letters",
    )


@provokes("bring-in-before-start")
def _(here: Site) -> Provoked:
    here.create()
    here.produce(10)
    here.seeded["set_aside"] = aside(here, 2, 3)
    here.live()
    return Provoked(
        command="plan NAME --to-offset TOPIC:0=3 --allow partial-history --bring-in 9",
        numbers={"choice": "9", "count": 1},
        says=f"begins after 1 record, {here.topic}[0] at 2",
        remedy="--to-earliest",
    )


@provokes("set-asides-lost")
def _(here: Site) -> Provoked:
    here.seeded[LOST_SET_ASIDES] = True
    epoch = ready(here)
    return Provoked(
        command="plan NAME --to-earliest",
        numbers={"epoch": epoch},
        says="this replay computes them",
        remedy="Set them aside again",
    )


@provokes("mask-key-missing")
def _(here: Site) -> Provoked:
    here.deploy(sources=SENSITIVE)
    here.create()
    return Provoked(
        command="plan NAME", numbers={"shortest": 16}, says="KAPPA_MASK_KEY is not set", remedy="Set KAPPA_MASK_KEY"
    )


@provokes("library-unversioned")
def _(here: Site) -> Provoked:
    here.create()
    here.produce()
    packages = here.config.home / "packages"
    for name, origin in (("prices", {"dir_info": {"editable": True}}), ("rates", {"archive_info": {}})):
        metadata = packages / f"{name}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "direct_url.json").write_text(json.dumps({"url": f"file:///srv/{name}", **origin}))
    patch = here.stack.enter_context(pytest.MonkeyPatch.context())
    patch.setenv("PYTHONPATH", os.pathsep.join([str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]))
    return Provoked(
        command="plan NAME",
        numbers={"names": ["prices"]},
        says="Distributions prices are installed from folders",
        remedy="build a wheel of it",
    )


AVRO_IN = 'Source(topic="{topic}", format="avro", schema="id STRING NOT NULL, amount BIGINT NOT NULL")'
AVRO_OUT = 'Append(name="moves", schema="id STRING NOT NULL, total BIGINT"), Topic(name="{topic}.moves", of="moves", '
AVRO_OUT += 'key="id", format="avro")'


@provokes("schema-registry-missing")
def _(here: Site) -> Provoked:
    here.deploy(sources=AVRO_IN)
    here.create()
    return Provoked(
        command="plan NAME",
        numbers={"lacking": [here.topic]},
        says="KAPPA_SCHEMA_REGISTRY is not set",
        remedy="Set KAPPA_SCHEMA_REGISTRY to the URL",
    )


@provokes("schema-refused")
def _(here: Site) -> Provoked:
    served = here.stack.enter_context(registry_server(here.config.home, 0))
    threading.Thread(target=served.serve_forever, daemon=True).start()
    here.stack.callback(served.shutdown)
    here.config = replace(here.config, schema_registry=f"http://127.0.0.1:{served.server_address[1]}")
    Registry(here.config.schema_registry).register(
        f"{here.topic}.moves-value", '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}'
    )
    here.deploy(outputs=AVRO_OUT)
    here.create()
    return Provoked(
        command="plan NAME",
        numbers={"refused": [f"{here.topic}.moves"]},
        says="not compatible with the latest one",
        remedy="a new one may be null",
    )


@provokes("source-is-avro")
def _(here: Site) -> Provoked:
    store(here.config.lake, here.topic, StoredSchema(id=1, text='"int"', subject=f"{here.topic}-value"))
    here.create()
    return Provoked(
        command="plan NAME",
        numbers={"sources": [here.topic]},
        says="would be a dead letter",
        remedy="--allow source-is-avro",
    )


@provokes("mask-key-changed")
def _(here: Site) -> Provoked:
    here.config = replace(here.config, mask_key="the key of this year")
    here.deploy(sources=SENSITIVE)
    epoch = ready(here)
    here.config = replace(here.config, mask_key="another key, of the next year")
    return Provoked(
        command="plan NAME",
        numbers={
            "epoch": epoch,
            "live": fingerprint("the key of this year"),
            "now": fingerprint("another key, of the next year"),
        },
        says="Every masked value would differ",
        remedy="--allow mask-key-changed",
    )


@provokes("reader-schema-changed")
def _(here: Site) -> Provoked:
    ready(here)
    here.deploy(tables=table("id STRING NOT NULL, sum BIGINT"))
    return Provoked(
        command="plan NAME",
        numbers={"name": "balances", "dropped": ["total"], "retyped": [], "gone": False},
        says="lacks the columns ['total']: readers of live epoch 1",
        remedy="--allow reader-schema-changed",
    )


@provokes("group-moved")
def _(here: Site) -> Provoked:
    epoch = ready(here)
    here.kafka.set_group_offsets(here.paths(epoch).name, Offsets({here.topic: {0: 3}}))
    return Provoked(
        command="plan NAME",
        numbers={
            "group": here.paths(epoch).name,
            "found": {here.topic: {"0": 3, "1": 0}},
            "ledger": {here.topic: {"0": 10, "1": 0}},
        },
        says=f"{here.topic}[0] at 3 instead of 10",
        remedy="the next slice corrects it",
    )


@provokes("order-across-cuts")
def _(here: Site) -> Provoked:
    more = f"{here.topic}.more"
    sources = ", ".join(f'Source(topic="{name}", schema="id STRING NOT NULL")' for name in (here.topic, more))
    here.deploy(sources=sources)
    here.create()
    here.create(more)
    here.produce(10)
    here.live(position=here.kafka.stable_offsets([here.topic, more]))
    return Provoked(
        command="plan NAME",
        numbers={"epoch": 1, "topics": [here.topic, more]},
        says="cut its slices as records arrived",
        remedy="kappa replay --determinism",
    )


# Time and room


def slow(here: Site, *, disk_bytes: int = 0) -> None:
    """A replay of this topology took a second for each record."""
    here.measured(Measured(offsets=10, records=10, seconds=10.0, bytes=300, disk_bytes=disk_bytes))


def expiring(here: Site, *, lifetime: timedelta, count: int, segment_ms: str = "1000") -> None:
    """A topic that keeps an hour, whose records have this much of it left, read by a live epoch."""
    here.create(retention_ms="3600000", segment_ms=segment_ms)
    here.produce(count, at=datetime.now(UTC) - timedelta(hours=1) + lifetime)
    here.live()
    slow(here)


@provokes("retention-overtakes-replay")
def _(here: Site) -> Provoked:
    expiring(here, lifetime=timedelta(seconds=60), count=150)
    return Provoked(
        command="plan NAME --slice-records 500",
        numbers={"topic": here.topic, "partition": 0, "retention_ms": 3_600_000},
        says="may be removed from",
        remedy=f"kappa archive start {here.topic}",
    )


@provokes("retention-close-behind")
def _(here: Site) -> Provoked:
    expiring(here, lifetime=timedelta(seconds=60), count=150, segment_ms="86400000")
    return Provoked(
        command="plan NAME --slice-records 500",
        numbers={"topic": here.topic, "partition": 0, "retention_ms": 3_600_000},
        says="stays for as long as a later record of its segment does",
        remedy="Raise the topic's retention",
    )


def growing(here: Site, *, keeps: int, hours: int) -> None:
    """A topic that keeps this many bytes and got 3 MB in the last hour, and a replay that takes some hours."""
    here.create(retention_bytes=str(keeps), segment_bytes=str(1 << 20))
    here.produce(300, at=datetime.now(UTC) - timedelta(minutes=30), size=10_000)
    here.live()
    here.measured(Measured(offsets=300, records=300, seconds=3600.0 * hours, bytes=300 * 10_000))


@provokes("size-overtakes-replay")
def _(here: Site) -> Provoked:
    growing(here, keeps=4 << 20, hours=10)
    here.settings(retention_bytes=str(1 << 20))
    return Provoked(
        command="plan NAME --allow partial-history",
        numbers={"topic": here.topic, "partition": 0, "retention_bytes": 1 << 20},
        says="everything that it holds now is removed before the end",
        remedy="--allow size-overtakes-replay",
    )


@provokes("size-close-behind")
def _(here: Site) -> Provoked:
    growing(here, keeps=4 << 20, hours=1)
    return Provoked(
        command="plan NAME",
        numbers={
            "topic": here.topic,
            "partition": 0,
            "retention_bytes": 4 << 20,
            "held": 3_000_000,
            "growth": 3_000_000,
        },
        says="3,000,000 while the replay runs",
        remedy="Raise the topic's retention",
    )


@provokes("not-enough-disk")
def _(here: Site) -> Provoked:
    ready(here)
    slow(here, disk_bytes=1 << 50)
    return Provoked(
        command="plan NAME",
        numbers={"needed": 1 << 50},
        says=f"takes about {1 << 50:,} bytes and the disk of {here.config.lake} has",
        remedy="kappa housekeeping",
    )


@provokes("disk-gets-tight")
def _(here: Site) -> Provoked:
    import shutil

    ready(here)
    needed = int(shutil.disk_usage(here.config.lake).free * 0.75)
    slow(here, disk_bytes=needed)
    return Provoked(command="plan NAME", numbers={"needed": needed}, says="more than half of it", remedy="kappa retire")


@provokes("fold-outlasts-tombstones")
def _(here: Site) -> Provoked:
    epoch = ready(here)
    here.marker(epoch, delete_retention_ms="0")
    return Provoked(
        command="rebuild NAME --from-changelog",
        numbers={"epoch": epoch, "delete_retention_ms": 0},
        says=f"The changelog of epoch {epoch} spans 1",  # ten records and the markers of their transaction
        remedy="Raise delete.retention.ms",
    )


@provokes("fold-may-outlast-tombstones")
def _(here: Site) -> Provoked:
    epoch = ready(here)
    here.marker(epoch, delete_retention_ms="0")
    here.produce(40, topic=here.paths(epoch).changelog("balances"))
    here.settings(here.paths(epoch).changelog("balances"), delete_retention_ms="1")
    return Provoked(
        command="rebuild NAME --from-changelog",
        numbers={"epoch": epoch, "delete_retention_ms": 1},
        says="per second or more, not measured",
        remedy="Raise delete.retention.ms",
    )


# Consumer groups of others


def grouped(here: Site, **offsets: int) -> str:
    """A group of another team."""
    here.create()
    here.produce(10)
    group = f"{here.topic}.readers"
    if offsets:
        here.kafka.set_group_offsets(group, Offsets({here.topic: {int(p[1:]): o for p, o in offsets.items()}}))
    return f"offsets --group {group}"


@provokes("group-of-epoch")
def _(here: Site) -> Provoked:
    name = here.paths(ready(here)).name
    return Provoked(
        command=f"offsets --group {name} --topic TOPIC --to-earliest",
        numbers={"group": name, "topology": here.name},
        says=here.name,
        remedy=f"kappa replay {here.name}",
    )


@provokes("group-has-members")
def _(here: Site) -> Provoked:
    command = grouped(here, p0=5, p1=0)
    group = f"{here.topic}.readers"
    member = Consumer(
        {"bootstrap.servers": here.kafka.bootstrap_servers, "group.id": group, "enable.auto.commit": False}
    )
    here.stack.callback(member.close)
    member.subscribe([here.topic])
    here.wait(lambda: member.poll(0.05) is not None and bool(member.assignment()))
    return Provoked(
        command=f"{command} --topic TOPIC --to-earliest",
        numbers={"group": group, "members": 1},
        says="has 1 active member",
        remedy="Stop them",
    )


@provokes("group-without-offset")
def _(here: Site) -> Provoked:
    return Provoked(
        command=f"{grouped(here, p0=5)} --topic TOPIC --shift-by -1",
        numbers={"group": f"{here.topic}.readers", "partitions": [f"{here.topic}[1]"]},
        says=f"no offset for {here.topic}[1]",
        remedy="--to-earliest",
    )


@provokes("unknown-partition")
def _(here: Site) -> Provoked:
    return Provoked(
        command=f"{grouped(here, p0=5)} --topic TOPIC:7 --to-earliest",
        numbers={"topic": here.topic, "missing": [7], "partitions": [0, 1]},
        says="There is no partition 7",
        remedy="Correct the name",
    )


@provokes("offset-outside-log")
def _(here: Site) -> Provoked:
    return Provoked(
        command=f"{grouped(here, p0=5)} --to-offset TOPIC:0=11",
        numbers={"topic": here.topic, "partition": 0, "offset": 11, "low": 0, "high": 10},
        says="1 after its end",
        remedy="Choose 0 to 10",
    )


@provokes("group-time-below-low-watermark")
def _(here: Site) -> Provoked:
    here.create(segment_ms="100")
    here.produce(10)
    here.kafka.set_group_offsets(f"{here.topic}.readers", here.end)
    here.expire(10)
    return Provoked(
        command=f"offsets --group {here.topic}.readers --topic TOPIC:0 --to-datetime 2026-01-01T00:00:00Z",
        numbers={"topic": here.topic, "partition": 0, "low": 10},
        says="retention may have removed others of that time",
        remedy="Choose a later time",
    )


@provokes("group-is-new")
def _(here: Site) -> Provoked:
    return Provoked(
        command=f"{grouped(here)} --topic TOPIC --to-earliest",
        numbers={"group": f"{here.topic}.readers"},
        says="No group is called",
        remedy="correct the name",
    )


# New code for the live epoch, where it is


def upgraded(here: Site, **parts: str) -> str:
    """A live epoch, other code, and the command that looks at the upgrade without Spark."""
    ready(here)
    here.deploy(**parts)
    return "upgrade NAME --slices 0"


@provokes("upgrade-same-code")
def _(here: Site) -> Provoked:
    return Provoked(command=upgraded(here), says="runs the deployed code already", remedy="Deploy the new file first")


@provokes("upgrade-changes-sources")
def _(here: Site) -> Provoked:
    sources = 'Source(topic="{topic}", schema="id STRING NOT NULL, amount STRING NOT NULL")'
    return Provoked(command=upgraded(here, sources=sources), says="column 'amount' of source", remedy="`kappa replay`")


@provokes("upgrade-changes-tables")
def _(here: Site) -> Provoked:
    return Provoked(
        command=upgraded(here, tables=table("id STRING NOT NULL, total BIGINT, tier STRING")),
        numbers={"changes": ["column 'tier' of table 'balances' is new"]},
        remedy="--from-savepoint",
    )


@provokes("upgrade-changes-time")
def _(here: Site) -> Provoked:
    return Provoked(
        command=retimed(here, "upgrade NAME --slices 0", **timed(time="sent")),
        numbers={"changes": [f"source '{here.topic}' takes its time from 'sent', not from 'amount'"]},
        remedy="--to-datetime",
    )


@provokes("upgrade-changes-grace")
def _(here: Site) -> Provoked:
    return Provoked(
        command=retimed(here, "upgrade NAME --slices 0"),
        numbers={"topic": here.topic, "was": "10 seconds", "now": "1 hour"},
        says="It takes effect from where the frontiers stand",
        remedy="No action needed",
    )


@provokes("upgrade-changes-operators")
def _(here: Site) -> Provoked:
    return Provoked(
        command=retimed(here, "upgrade NAME --slices 0", **timed(by="tumbling_window(size=5 minutes)")),
        says="tumbling_window(size=5 minutes), not that of tumbling_window(size=1 minute)",
        remedy="--to-datetime",
    )


@provokes("upgrade-revises-operators")
def _(here: Site) -> Provoked:
    balances = {"key": ["id"], "columns": {"id": "STRING", "total": "BIGINT"}, "required": ["id"]}
    windows = {**balances, "made_by": "tumbling_window@2(size=1 minute)"}
    moves = {"key": [], "columns": {"id": "STRING", "amount": "BIGINT"}, "required": ["id"]}
    here.seeded["shapes"] = {"tables/balances": windows, "outputs/moves": moves}
    return Provoked(
        command=retimed(here, "upgrade NAME --slices 0"),
        says="operator 'tumbling_window' has revision 1, and tables/balances was made by revision 2",
        remedy="goes on with the release that it runs",
    )


@provokes("upgrade-changes-outputs")
def _(here: Site) -> Provoked:
    outputs = 'Append(name="moves", schema="id STRING NOT NULL")'
    return Provoked(
        command=upgraded(here, outputs=outputs),
        numbers={"changes": ["column 'amount' of output 'moves' is gone"]},
        remedy="`kappa replay`",
    )


@provokes("upgrade-changes-topics")
def _(here: Site) -> Provoked:
    outputs = (
        'Append(name="moves", schema="id STRING NOT NULL, amount BIGINT"), Topic(name="sent", of="moves", key="id")'
    )
    return Provoked(
        command=upgraded(here, outputs=outputs),
        numbers={"changes": ["topic 'sent' is new"]},
        remedy="at an exact offset",
    )


#: Code that differs in nothing that history shows.
FASTER = {"top": "import math"}


@provokes("upgrade-beside-candidate")
def _(here: Site) -> Provoked:
    command = upgraded(here, **FASTER)
    epoch = control.replay(here.config, control.plan(here.config, here.request()), actor="ada", reason="v2")
    return Provoked(
        command=command, numbers={"epoch": epoch}, says=f"Epoch {epoch}", remedy=f"kappa abort {here.name} {epoch}"
    )


@provokes("upgrade-during-handover")
def _(here: Site) -> Provoked:
    command = upgraded(here, **FASTER)
    epoch = control.replay(here.config, control.plan(here.config, here.request()), actor="ada", reason="v2")
    for event in ("rewound", "seeded", "replayed", "caught_up", "verified"):
        here.epochs.add(here.name, epoch, event, actor="driver", verdict="same")
    control.cut_over(here.config, here.name, epoch, actor="ada", reason="v2")
    return Provoked(
        command=command, numbers={"epoch": epoch}, says=f"handed over to epoch {epoch}", remedy="kappa history"
    )


@provokes("upgrade-pending")
def _(here: Site) -> Provoked:
    command = upgraded(here, **FASTER)
    status, output = here.run(f"{command} --history-stands --reason faster --execute --detach")
    assert status == 0, output
    return Provoked(command=command, says="asked for an upgrade", remedy="Wait for it")


@provokes("upgrade-other-environment")
def _(here: Site) -> Provoked:
    epoch = ready(here)
    other = replace(interpreters.own(here.config).environment, distributions={"pricing": "1.0"})
    files.store(here.paths(epoch), other)
    ledger = Ledger(here.paths(epoch).ledger)
    ledger.claim("driver", "earlier", ledger.state(), environment={"environment": other.id})
    here.deploy(**FASTER)
    return Provoked(
        command="upgrade NAME --slices 0",
        numbers={"epoch": epoch, "environment": other.id},
        says="pricing was 1.0, and is missing now",
        remedy=f"`kappa status {here.name}`",
    )


@provokes("upgrade-without-evidence")
def _(here: Site) -> Provoked:
    return Provoked(
        command=upgraded(here, **FASTER),
        says="No row shows whether the deployed code gives the same",
        remedy="kappa replay",
    )


def test_times_beyond_the_calendar_and_endless_retention_do_not_stop_a_plan(here: Site) -> None:
    here.create(retention_ms=str(2**63 - 1), message_timestamp_after_max_ms=str(2**63 - 1))
    here.produce(1)
    producer = Producer({"bootstrap.servers": here.kafka.bootstrap_servers})
    producer.produce(here.topic, b"{}", b"a", partition=1, timestamp=2**62)
    assert producer.flush(30) == 0
    here.live()
    assert here.run("plan NAME")[0] == 0


def test_a_key_in_two_partitions_is_found_in_the_records(here: Site) -> None:
    here.create()
    here.produce(5)
    here.produce(5, partition=1)
    here.live()
    (finding,) = json.loads(here.run("plan NAME --json")[1])["findings"]
    assert (finding["code"], finding["numbers"]["tables"]) == ("order-across-cuts", ["balances"])
    here.deploy(sources='Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL", keyed=False)')
    assert json.loads(here.run("plan NAME --json")[1])["findings"] == []


# What an allowance does


@pytest.mark.parametrize("code", sorted(ALLOWABLE - {"partial-history"} - ELSEWHERE.keys()))
def test_an_allowed_finding_becomes_a_warning(code: str, here: Site) -> None:
    case = CASES[code](here)
    status, output = here.run(f"{case.command} --allow {code} --json")
    severities = {finding["severity"] for finding in findings_of(output) if finding["code"] == code}
    assert (severities, status) == ({"warn"}, 0), output


def test_an_ordinary_plan_has_no_findings_and_the_size_of_its_records(here: Site) -> None:
    here.create()
    here.produce(300, partition=0)
    here.produce(100, partition=1, size=1000, account="b")
    here.live()
    before = here.listing()
    status, output = here.run("plan NAME --json")
    plan = json.loads(output)
    assert (status, plan["findings"]) == (0, [])
    assert here.listing() == before
    messages = [m for batch in here.kafka.read(Offsets({here.topic: {0: 0, 1: 0}}), here.end) for m in batch]
    size = sum(len(m.key() or b"") + len(m.value() or b"") for m in messages)
    estimate = plan["estimate"]
    assert (estimate["offsets"], estimate["records"], estimate["bytes"]) == (400, 400, size)
    assert "no replay measured yet" in here.run("plan NAME")[1]


def test_a_plan_has_the_hash_of_the_code_that_it_is_about_where_files_change_meanwhile(here: Site) -> None:
    here.create()
    other = (
        "from pathlib import Path\nfile = Path(__file__)\nfile.write_text(file.read_text().replace('\"1\"', '\"2\"'))"
    )
    here.deploy(top=other)  # as a deployment at that moment
    code = code_store.code_hash(here.config.topologies, here.name)
    plan = json.loads(here.run("plan NAME --json")[1])
    assert (plan["topology_version"], plan["code"]) == ("1", code)
    assert code_store.code_hash(here.config.topologies, here.name) != code
