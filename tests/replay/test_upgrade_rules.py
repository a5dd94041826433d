"""Which new code a live epoch can take without a replay, and which it cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kappa.operators import agg, tumbling_window
from kappa.replay.facts import topology_facts
from kappa.replay.findings import Severity
from kappa.replay.rules import upgrade as upgrade_rules
from kappa.topology import Append, Check, Source, Table, Topic, Topology


def step(_: object) -> dict[str, Any]:
    """A step that nobody calls."""
    return {}


POS = Source(topic="pos", schema="id STRING NOT NULL, amount BIGINT")
BALANCES = Table(name="balances", key=["id"], schema="id STRING NOT NULL, total BIGINT")
MOVES = Append(name="moves", schema="id STRING, amount BIGINT")
SENT = Topic(name="sent", of="moves", key="id")
BEFORE = Topology(name="a.b", version="1", sources=[POS], tables=[BALANCES], outputs=[MOVES, SENT], step=step)


def codes(**changes: Any) -> list[str]:
    findings = upgrade_rules.needs_replay(BEFORE, replace(BEFORE, **changes))
    assert all(f.severity is Severity.REFUSE and "kappa replay" in f.remedy for f in findings)
    return [f.code.removeprefix("upgrade-changes-") for f in findings]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"version": "2"},
        {"owner": "team-b"},
        {"step": lambda _: {}},
        {"checks": [Check(name="c", sql="SELECT 1")]},
        {"tables": [replace(BALANCES, masked=["total"])]},
        {"sources": [replace(POS, schema="id STRING NOT NULL, amount BIGINT, tier STRING")]},
        {"sources": [replace(POS, schema="id STRING NOT NULL")]},
        {"sources": [replace(POS, keyed=False)]},
        {"sources": [replace(POS, headers=True)]},
        {"sources": [replace(POS, sensitive=True)]},
        {"outputs": [MOVES, replace(SENT, columns=["id", "amount"])]},
        {"tables": [replace(BALANCES, schema="total BIGINT, id STRING NOT NULL")]},
    ],
)
def test_changes_that_leave_history_alone_need_no_replay(changes: dict[str, Any]) -> None:
    assert codes(**changes) == []


def test_a_field_within_a_value_that_may_no_longer_be_null_needs_a_replay() -> None:
    loose, strict = (replace(POS, schema=f"id STRING NOT NULL, s STRUCT<x: INT{word}>") for word in ("", " NOT NULL"))
    (finding,) = upgrade_rules.needs_replay(replace(BEFORE, sources=[loose]), replace(BEFORE, sources=[strict]))
    assert "STRUCT<x: INT NOT NULL>, not STRUCT<x: INT>" in finding.message


def test_an_owner_is_a_fact_of_no_plan() -> None:
    assert topology_facts(replace(BEFORE, owner="team-b"), "code") == topology_facts(BEFORE, "code")


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        (
            {"sources": [replace(POS, schema="id STRING, amount BIGINT")]},
            "sources",
            "'id' of source 'pos' is STRING, not STRING NOT NULL",
        ),
        (
            {"sources": [replace(POS, schema="id STRING NOT NULL, amount INT")]},
            "sources",
            "'amount' of source 'pos' is INT, not BIGINT",
        ),
        (
            {"sources": [replace(POS, schema="id STRING NOT NULL, amount BIGINT, x INT NOT NULL")]},
            "sources",
            "column 'x'",
        ),
        ({"sources": [replace(POS, schema="", format="string")]}, "sources", "read as string"),
        ({"sources": [POS, replace(POS, topic="other")]}, "sources", "source 'other' is new"),
        ({"sources": [replace(POS, topic="other")]}, "sources", "source 'pos' is gone"),
        (
            {"tables": [replace(BALANCES, schema="id STRING NOT NULL, total BIGINT, tier STRING")]},
            "tables",
            "column 'tier' of table 'balances' is new",
        ),
        (
            {"tables": [replace(BALANCES, schema="id STRING NOT NULL, total BIGINT NOT NULL")]},
            "tables",
            "BIGINT NOT NULL, not BIGINT",
        ),
        ({"tables": [BALANCES, replace(BALANCES, name="more")]}, "tables", "table 'more' is new"),
        ({"tables": []}, "tables", "table 'balances' is gone"),
        (
            {
                "tables": [
                    Table(name="balances", key=["id", "total"], schema="id STRING NOT NULL, total BIGINT NOT NULL")
                ]
            },
            "tables",
            "keyed by ['id', 'total']",
        ),
        ({"outputs": [replace(MOVES, schema="id STRING, amount DOUBLE"), SENT]}, "outputs", "is DOUBLE, not BIGINT"),
        ({"outputs": [MOVES, replace(MOVES, name="more"), SENT]}, "outputs", "output 'more' is new"),
        (
            {"outputs": [replace(MOVES, schema="id STRING, amount BIGINT, more STRING"), SENT]},
            "outputs",
            "column 'more' of output 'moves' is new",
        ),
        ({"outputs": [MOVES]}, "topics", "topic 'sent' is gone"),
        ({"outputs": [MOVES, SENT, replace(SENT, name="other")]}, "topics", "topic 'other' is new"),
        ({"outputs": [MOVES, replace(SENT, key="amount")]}, "topics", "by ['amount']"),
        ({"outputs": [MOVES, replace(SENT, of="balances")]}, "topics", "of 'balances'"),
        ({"outputs": [MOVES, replace(SENT, on_replay="versioned")]}, "topics", "on_replay='versioned', not 'hold'"),
        ({"outputs": [MOVES, replace(SENT, format="avro")]}, "topics", "is sent as avro, not as json"),
        ({"outputs": [MOVES, replace(SENT, columns=["id"])]}, "topics", "sends columns ['id'], not ['id', 'amount']"),
        ({"outputs": [MOVES, replace(SENT, columns=["amount", "id"])]}, "topics", "sends columns ['amount', 'id']"),
        (
            {"outputs": [MOVES, replace(SENT, time="amount")]},
            "topics",
            "topic 'sent' has the time of column 'amount', not that of sending",
        ),
        ({"sources": [replace(POS, timestamps="epoch_ms")]}, "sources", "has timestamps 'epoch_ms', not 'text'"),
        ({"sources": [replace(POS, key_schema="id STRING")]}, "sources", "has key_schema 'id STRING', not ''"),
    ],
)
def test_changes_that_affect_history_are_refused_with_the_change(
    changes: dict[str, Any], kind: str, words: str
) -> None:
    assert codes(**changes) == [kind]
    (finding,) = upgrade_rules.needs_replay(BEFORE, replace(BEFORE, **changes))
    assert words in finding.message


@pytest.mark.parametrize(
    ("rule", "code", "word"),
    [
        (lambda: upgrade_rules.same_code("c0de", "c0de"), "upgrade-same-code", "c0de"),
        (lambda: upgrade_rules.epoch_is_busy("a.b", 7, None, None), "upgrade-beside-candidate", "kappa abort a.b 7"),
        (lambda: upgrade_rules.epoch_is_busy("a.b", None, 7, None), "upgrade-during-handover", "epoch 7"),
        (lambda: upgrade_rules.epoch_is_busy("a.b", None, None, "ada"), "upgrade-pending", "ada"),
        (lambda: upgrade_rules.fails_on_real_records("KeyError"), "upgrade-fails", "KeyError"),
    ],
)
def test_each_obstacle_to_an_upgrade_is_refused(rule: Callable[[], Any], code: str, word: str) -> None:
    (one,) = rule()
    assert (one.code, one.severity) == (code, Severity.REFUSE)
    assert word in str(one)


def test_an_unobstructed_upgrade_has_no_findings_and_lacking_evidence_warns() -> None:
    assert upgrade_rules.same_code("a", "b") == []
    assert upgrade_rules.epoch_is_busy("a.b", None, None, None) == []
    assert [f.severity for f in upgrade_rules.without_evidence("none")] == [Severity.WARN]


def timed(size: str = "1 minute", total: str = "a", of: Sequence[str] = ("pos",), **source: Any) -> Topology:
    """A topology with a window over some of its sources with event time."""
    row = "k STRING, a BIGINT, b BIGINT, at BIGINT, sent BIGINT"
    arguments = {"topic": "pos", "schema": row, "time": "at", "grace": "1 minute", **source}
    pos, other = Source(**arguments), Source(topic="other", schema=row, time="at", grace="1 minute")
    read = [other] if pos.grace is None else [one for one in (pos, other) if one.topic in of]
    sums = tumbling_window(read, key="k", size=size, aggregates={"n": agg.sum(total)}, table="w")
    return Topology(
        name="a.b",
        version="1",
        sources=[pos, other],
        operators=[sums],
        outputs=[Append(name="out", of=sums.final)],
        step=step,
    )


@pytest.mark.parametrize(
    ("after", "code", "words"),
    [
        (timed(size="5 minutes"), "upgrade-changes-operators", "size=5 minutes"),
        (timed(total="b"), "upgrade-changes-operators", "n=sum(b)"),
        (timed(of=["other", "pos"]), "upgrade-changes-operators", "of (other+pos), not that of"),
        (timed(time="sent"), "upgrade-changes-time", "takes its time from 'sent', not from 'at'"),
        (timed(time=None, grace=None), "upgrade-changes-time", "no longer has event time"),
    ],
)
def test_changed_operators_and_times_are_refused_with_their_former_values(
    after: Topology, code: str, words: str
) -> None:
    finding = {one.code: one for one in upgrade_rules.needs_replay(timed(), after)}[code]
    assert finding.severity is Severity.REFUSE
    assert words in finding.message and "--to-datetime" in finding.remedy


def followable(time: str | None) -> Topology:
    moves = Source(topic="moves", schema="id STRING, at TIMESTAMP", time="at", grace="1 minute")
    hours = tumbling_window(moves, key="id", size="1 hour", aggregates={"n": agg.count()}, table="hours")
    outputs = [
        Append(name="counts", of=hours.final),
        Topic(name="told", of="counts", key="id", time=time, on_replay="versioned"),
    ]
    return Topology(name="shop.hours", version="1", sources=[moves], operators=[hours], outputs=outputs)


def test_a_topic_that_others_may_follow_keeps_its_final_times() -> None:
    assert upgrade_rules.needs_replay(followable("window_end"), followable("window_end")) == []
    assert upgrade_rules.needs_replay(followable("window_start"), followable("window_start")) == []
    for after in (followable(None), followable("window_start")):
        (finding,) = upgrade_rules.needs_replay(followable("window_end"), after)
        assert finding.code == "upgrade-changes-topics"
        assert "topic 'told' no longer reports final rows by 'window_end'" in finding.message


KEYED = Source(topic="pos", schema="id BIGINT, at TIMESTAMP", key_schema="id BIGINT", key_format="json")
AVRO = Source(topic="pos", schema="id BIGINT, currency STRING", format="avro", record="Sale")
CHANGES = Source(topic="pos", schema="id BIGINT", envelope="debezium")


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        (KEYED, {"key_format": "avro"}),
        (KEYED, {"key_schema": "id BIGINT NOT NULL"}),
        (KEYED, {"key_schema": "id BIGINT, region STRING"}),
        (KEYED, {"tombstones": True}),
        (KEYED, {"timestamps": "epoch_us"}),
        (AVRO, {"record": ("Sale", "Refund")}),
        (AVRO, {"defaults": {"currency": "EUR"}}),
        (CHANGES, {"envelope": "none"}),
        (CHANGES, {"decimals": "string"}),
    ],
)
def test_a_source_is_read_on_in_the_same_way(source: Source, changes: dict[str, Any]) -> None:
    (finding,) = upgrade_rules.sources_changed([source], [replace(source, **changes)])
    assert finding.code == "upgrade-changes-sources"
    assert next(iter(changes)) in finding.message


def test_a_new_column_may_have_a_default_and_words_for_the_same_key_may_change() -> None:
    wider = replace(AVRO, schema=f"{AVRO.schema}, shop STRING", defaults={"shop": "main"})
    assert upgrade_rules.sources_changed([AVRO], [wider]) == []
    assert upgrade_rules.sources_changed([KEYED], [replace(KEYED, key_schema="`id`  bigint")]) == []


def followed(**how: str) -> Topology:
    counts = Source(topic="told", schema="id STRING, window_end TIMESTAMP", of="shop.hours", time="window_end", **how)
    days = tumbling_window(counts, key="id", size="1 day", aggregates={"n": agg.count()}, table="days")
    outputs = [Append(name="counts", of=days.final)]
    return Topology(name="shop.days", version="1", sources=[counts], operators=[days], outputs=outputs)


def test_a_source_cannot_change_between_grace_and_following_its_upstream() -> None:
    (finding,) = upgrade_rules.needs_replay(followed(grace="1 minute"), followed())
    assert finding.code == "upgrade-changes-time"
    assert "source 'told' follows shop.hours now, and has a grace before" in finding.message
    assert upgrade_rules.needs_replay(followed(), followed()) == []


@pytest.mark.parametrize(
    ("grace", "effect"), [("1 hour", "what is closed stays closed"), ("1 second", "close with the next slice")]
)
def test_a_changed_grace_is_reported_with_its_effect(grace: str, effect: str) -> None:
    (finding,) = upgrade_rules.needs_replay(timed(), timed(grace=grace))
    assert (finding.code, finding.severity) == ("upgrade-changes-grace", Severity.WARN)
    assert f"was 1 minute and is {grace}" in finding.message and effect in finding.message
    assert upgrade_rules.needs_replay(timed(), timed(ahead="2 hours", idle_after="1 hour")) == []
