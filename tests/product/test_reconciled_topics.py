"""Reconciled topics: whoever folds one has the served table, after each move, and got exactly the keys that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from support.epochs import lab, read_messages
from support.kills import OUTPUT, Mortal
from typer.testing import CliRunner

from kappa import control, faults
from kappa.cli import app
from kappa.driver.handovers.reconciliation import _marked_by
from kappa.errors import RefusedError
from kappa.replay.stages import Stage
from kappa.topology import Table
from kappa.verify import key_comparison
from kappa.verify.topic_recount import recount_topics

if TYPE_CHECKING:
    from conftest import TopicFactory
    from pyspark.sql import DataFrame, SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

RECONCILED = OUTPUT + ' Topic(name="{topic}.balances", of="balances", key="id", on_replay="reconcile"),'
HELD = OUTPUT + ' Topic(name="{topic}.balances", of="balances", key="id"),'
#: Readers were told that a topic ends.
TOLD: Any = {"allow": frozenset({"reader-schema-changed"})}
#: Version 1 leaves account z out, version 2 leaves d out and counts a twice.
COUNTED = {
    1: """.where("id != 'z'").selectExpr("*", "amount AS counted")""",
    2: """.where("id != 'd'").selectExpr("*", "IF(id = 'a', 2 * amount, amount) AS counted")""",
    3: """.where("id NOT IN ('d', 'b')").selectExpr("*", "amount AS counted")""",
}
ROWS = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("z", 50), ("d", 6), ("a", 7), ("c", 8)]

#: Key and value of a record; None is a tombstone.
Sent = tuple[str, int | None]


@dataclass(kw_only=True)
class Reconciled(Mortal):
    """A table with a topic that is reconciled, beside a topic that holds."""

    outputs: str = RECONCILED

    def deploy(self, version: int, factor: int | None = None) -> None:
        super().deploy(version, 1)
        file = self.config.topologies / "balances.py"
        text, expression = file.read_text(), '.selectExpr("*", "CAST(amount * 1 AS BIGINT) AS counted")'
        assert expression in text
        file.write_text(text.replace(expression, COUNTED[version]))

    def sent_to_balances(self) -> Counter[Sent]:
        """Records of the topic, as a plain consumer reads them."""
        return Counter(map(record, read_messages(self.config.bootstrap_servers, f"{self.topic}.balances")))

    def folded_topic(self) -> dict[str, int]:
        """The newest value per key, as a consumer keeps it."""
        totals: dict[str, int] = {}
        for message in read_messages(self.config.bootstrap_servers, f"{self.topic}.balances"):
            account, total = record(message)
            totals.pop(account, None)
            if total is not None:
                totals[account] = total
        return totals

    def newest_values(self) -> dict[str, Any]:
        """The newest value per key, as it was sent."""
        messages = read_messages(self.config.bootstrap_servers, f"{self.topic}.balances")
        return {message.key().decode(): orjson.loads(message.value()) for message in messages}

    def first(self) -> int:
        return self.live_first(ROWS)

    def resumed(self, epoch: int) -> Any:
        """Detail of the last row by which an epoch began to send."""
        return [row for row in self.ledger(epoch).rows() if row.kind == "resume"][-1].detail


def record(message: Any) -> Sent:
    value = message.value()
    return message.key().decode(), None if value is None else orjson.loads(value)["total"]


@pytest.fixture
def stream_of(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reconciled]:
    with lab(tmp_path / "world", kafka, spark, topic(partitions=2), kind=Reconciled) as stream:
        monkeypatch.setattr(faults, "os", stream.reaper)
        yield stream
        kafka.delete_topics(kafka.topics(f"{stream.topic}."))


def test_a_reconciled_topic_gets_the_keys_that_differ_and_holds_the_served_table(stream_of: Reconciled) -> None:
    stream = stream_of
    first = stream.first()
    assert stream.folded_topic() == stream.balances() == {"a": 11, "b": 2, "c": 12, "d": 6}
    before = stream.sent_to_balances()
    stream.deploy(2)
    second = stream.verified(slice_records=4)
    assert stream.sent_to_balances() == before

    control.cut_over(stream.config, stream.name, second, actor="test", reason="new rules")
    stream.dies("reconcile.differences", "moved", "reconcile.open", "reconcile.send", "resume")
    stream.await_live(second)
    changed: Counter[Sent] = Counter([("a", 22), ("z", 50), ("d", None)])
    assert stream.sent_to_balances() - before == changed
    assert stream.folded_topic() == stream.balances() == {"a": 22, "b": 2, "c": 12, "z": 50}
    counts = {f"{stream.topic}.balances": {"upserts": 2, "tombstones": 1}}
    assert stream.resumed(second)["reconciled"] == counts
    assert stream.record().moves[-1].detail["reconciled"] == counts
    shown = CliRunner().invoke(app, ["history", stream.name], env={**stream.config.to_env(), "COLUMNS": "400"})
    assert "2 changed rows and 1 tombstones sent" in shown.output
    stream.wait(lambda: not Path(stream.paths(second).root, "reconciled").exists(), "what was sent is removed")

    stream.tell([("a", 10), ("d", 100), ("z", 1), ("e", 3)], minute=1)
    assert stream.folded_topic() == stream.balances() == {"a": 42, "b": 2, "c": 12, "e": 3, "z": 51}
    before = stream.sent_to_balances()

    control.rollback(stream.config, stream.name, to=first, actor="test", reason="back")
    stream.wait(lambda: control.progress(stream.config, stream.name, first).is_caught_up, "it caught up")
    control.cut_over(stream.config, stream.name, first, actor="test", reason="back")
    stream.dies("reconcile.send")
    stream.await_live(first)
    assert stream.sent_to_balances() - before == Counter([("a", 21), ("d", 106), ("z", None)])
    assert stream.folded_topic() == stream.balances() == {"a": 21, "b": 2, "c": 12, "d": 106, "e": 3}
    stream.tell([("b", 1)], minute=2)
    before = stream.sent_to_balances()

    stream.roll_back_to(second)
    assert stream.sent_to_balances() - before == Counter([("a", 42), ("z", 51), ("d", None)])
    stream.tell([("b", 5)], minute=3)
    assert stream.folded_topic() == stream.balances() == {"a": 42, "b": 8, "c": 12, "e": 3, "z": 51}
    assert control.certify(stream.config, stream.name).complete


@pytest.mark.parametrize("most", [key_comparison.MOST, 0], ids=["of candidates", "of whole tables"])
def test_a_handover_compares_only_keys_that_differed_or_changed_since(
    stream_of: Reconciled, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    stream, compared = stream_of, []
    between = key_comparison.among

    def spied(rows: DataFrame, keys: DataFrame | None, table: Table) -> DataFrame:
        compared.append(None if keys is None else {row["id"] for row in keys.collect()})
        return between(rows, keys, table)

    monkeypatch.setattr(key_comparison, "among", spied)
    monkeypatch.setattr(key_comparison, "MOST", most)
    first = stream.first()
    stream.tell([("f", 1), ("g", 1), ("h", 2)], minute=1)
    stream.deploy(2)
    second = stream.verified("reconcile.compared", slice_records=4)
    assert compared and set(map(type, compared)) == {type(None)}, "at first the whole tables"
    # On both sides, new on both, and of an account that version 1 leaves out.
    stream.tell([("b", 5), ("q", 1), ("z", 1), ("h", -2)], minute=2)
    before, compared[:] = stream.sent_to_balances(), []
    control.cut_over(stream.config, stream.name, second, actor="test", reason="test")
    stream.await_live(second)
    assert compared == ([{"a", "b", "d", "h", "q", "z"}] * 2 if most else [None] * 2)
    assert stream.sent_to_balances() - before == Counter([("a", 22), ("z", 51), ("d", None)])
    assert stream.folded_topic() == stream.balances()
    stream.wait(lambda: not Path(stream.paths(second).root, "key_comparisons").exists(), "comparisons are removed")

    compared.clear()
    stream.tell([("c", 1), ("d", 1)], minute=3)
    stream.roll_back_to(first)
    assert compared[-1] == ({"a", "c", "d", "z"} if most else None) or compared[-1] == (
        {"a", "d", "z"} if most else None
    )
    assert stream.folded_topic() == stream.balances()


def test_an_epoch_is_not_retired_before_its_successor_has_published(stream_of: Reconciled) -> None:
    stream = stream_of
    first = stream.first()
    before = stream.sent_to_balances()
    stream.deploy(2)
    second = stream.verified()
    stream.reaper.environ[faults.VARIABLE] = "moved"
    control.cut_over(stream.config, stream.name, second, actor="test", reason="test")
    # Without tending: the new driver is dead.
    stream.until(lambda: stream.record().live == second and not stream.running[first][1].is_alive(), "it moved")
    recount = recount_topics(stream.config, stream.paths(second), stream.kafka)
    assert recount.problems == () and any("is not sent yet" in line for line in recount.unread)
    with pytest.raises(RefusedError, match="shows its files still"):
        control.retire(stream.config, stream.name, first, actor="test", reason="at once")
    assert stream.record().epoch(first).stage is Stage.RETIRED
    stream.await_live(second)
    control.retire(stream.config, stream.name, first, actor="test", reason="now")
    assert stream.sent_to_balances() - before == Counter([("a", 22), ("z", 50), ("d", None)])
    assert stream.folded_topic() == stream.balances()


def test_a_new_topic_gets_every_row_and_a_former_hold_topic_tombstones_too(stream_of: Reconciled) -> None:
    stream = stream_of
    stream.outputs = OUTPUT
    stream.first()
    stream.deploy(2)
    stream.outputs = HELD
    stream.deploy(2)
    held = stream.verified()
    stream.cut_over_to(held)
    stream.tell([("b", 1)], minute=1)
    assert stream.folded_topic() == {"b": 3}  # it holds: no history

    stream.outputs = RECONCILED
    stream.deploy(3)
    third = stream.verified()
    (finding,) = [f for f in stream.plan(third).warnings if f.code == "reconcile-sends-everything"]
    assert "does not reconcile it with that table" in finding.message
    before = stream.sent_to_balances()
    stream.cut_over_to(third)
    assert stream.sent_to_balances() - before == Counter([("a", 11), ("c", 12), ("z", 50), ("b", None)])
    assert stream.folded_topic() == stream.balances() == {"a": 11, "c": 12, "z": 50}

    stream.outputs = RECONCILED.replace("{topic}.balances", "{topic}.anew")
    stream.deploy(3)
    fourth = stream.verified(**TOLD)
    stream.cut_over_to(fourth)
    anew = [record(m) for m in read_messages(stream.config.bootstrap_servers, f"{stream.topic}.anew")]
    assert sorted(anew, key=str) == [("a", 11), ("c", 12), ("z", 50)]
    assert stream.kafka.topic_configs([f"{stream.topic}.anew"])[f"{stream.topic}.anew"]["cleanup.policy"] == "compact"


@pytest.mark.parametrize("outputs", [OUTPUT, HELD], ids=["not sent between", "held between"])
def test_keys_that_went_while_an_epoch_did_not_keep_the_topic_get_null_values(
    stream_of: Reconciled, outputs: str
) -> None:
    stream = stream_of
    stream.first()
    stream.outputs = outputs
    stream.deploy(2)
    stream.cut_over_to(stream.verified(**TOLD))
    assert set(stream.folded_topic()) - set(stream.balances()) == {"d"}
    stream.outputs = RECONCILED
    stream.deploy(3)
    third = stream.verified()
    (finding,) = [f for f in stream.plan(third).warnings if f.code == "reconcile-sends-everything"]
    assert "Keys that the table lacks get a null value" in finding.message
    stream.cut_over_to(third)
    assert stream.folded_topic() == stream.balances() == {"a": 11, "c": 12, "z": 50}
    assert recount_topics(stream.config, stream.paths(third), stream.kafka).problems == ()


def test_every_row_is_sent_where_a_topic_gets_other_columns(stream_of: Reconciled) -> None:
    stream = stream_of
    stream.outputs = RECONCILED.replace('key="id",', 'key="id", columns=["id"],')
    first = stream.live_first(ROWS)
    stream.outputs = RECONCILED
    stream.deploy(1)  # equal rows
    second = stream.verified()
    (finding,) = [f for f in stream.plan(second).warnings if f.code == "reconcile-sends-everything"]
    assert "sends columns ['id'] of it" in finding.message
    stream.cut_over_to(second)
    assert stream.newest_values() == {key: {"id": key, "total": n} for key, n in stream.balances().items()}
    assert recount_topics(stream.config, stream.paths(second), stream.kafka).problems == ()
    stream.roll_back_to(first)
    stream.wait(lambda: all("total" not in value for value in stream.newest_values().values()), "every row is sent")
    assert recount_topics(stream.config, stream.paths(first), stream.kafka).problems == ()


def test_readers_can_leave_an_epoch_that_cannot_send_its_differences(stream_of: Reconciled) -> None:
    stream = stream_of
    stream.config = replace(stream.config, attempts=3)  # of processes that die there may be any number
    first = stream.first()
    stream.deploy(2)
    second = stream.verified()
    _limit(stream, "85")  # less than any row; Kafka's own end of a transaction fits
    control.cut_over(stream.config, stream.name, second, actor="test", reason="test")
    stream.until(lambda: any(e.event == "stuck" for e in stream.record().events), "nothing can be sent")
    assert stream.record().live == second
    control.rollback(stream.config, stream.name, to=first, actor="test", reason="back")
    stream.run(first)
    stream.until(lambda: control.progress(stream.config, stream.name, first).is_caught_up, "it caught up")
    stream.stop(first)
    control.cut_over(stream.config, stream.name, first, actor="test", reason="back")
    handover = stream.record().handover.n
    stream.until(lambda: stream.ledger(second).state().yielded_for == handover, "the stuck epoch yields")
    # A new process of it is not stuck, and could send now; but the other one builds on that it has not.
    stream.stop(second)
    _limit(stream, "1048588")
    stream.run(second)
    doing = f"yielded to epoch {first}"
    stream.until(lambda: control.driver_status(stream.config, stream.name, second).message == doing, "it waits")
    stream.run(first)
    stream.until(lambda: stream.record().live == first and not stream.ledger(first).state().is_yielded, "it is live")
    assert [row.kind for row in stream.ledger(second).rows()].count("resume") == 0
    assert stream.folded_topic() == stream.balances() == {"a": 11, "b": 2, "c": 12, "d": 6}
    assert control.certify(stream.config, stream.name).complete


def test_rows_are_compared_by_the_columns_of_the_new_table_and_nulls_are_equal(spark: SparkSession) -> None:
    wide = "id STRING, n INT, gone INT, tags MAP<STRING, INT>"
    was = spark.createDataFrame(
        [
            ("same", 1, 1, {"x": 1, "y": 2}),
            ("null", None, 2, None),
            ("less", 5, None, None),
            ("more", None, None, None),
            ("tags", 1, None, {"x": 1}),
            ("new", 3, None, None),
            ("old", 9, None, None),
        ],
        wide,
    )
    table = Table(name="t", key=["id"], schema="id STRING NOT NULL, n BIGINT, tags MAP<STRING, INT>, fresh INT")
    now = spark.createDataFrame(
        [
            ("same", 1, {"y": 2, "x": 1}, None),
            ("null", None, None, None),
            ("less", None, None, None),
            ("more", 7, None, None),
            ("tags", 1, {"x": 2}, None),
            ("new", 3, None, 4),
            ("added", None, None, None),
        ],
        "id STRING, n BIGINT, tags MAP<STRING, INT>, fresh INT",
    )
    rows = {row["id"]: row.asDict() for row in _marked_by(now, was, table, 7).collect()}
    assert rows == {
        "less": {"id": "less", "n": None, "tags": None, "fresh": None, "_deleted": False, "_handover": 7},
        "more": {"id": "more", "n": 7, "tags": None, "fresh": None, "_deleted": False, "_handover": 7},
        "tags": {"id": "tags", "n": 1, "tags": {"x": 2}, "fresh": None, "_deleted": False, "_handover": 7},
        "new": {"id": "new", "n": 3, "tags": None, "fresh": 4, "_deleted": False, "_handover": 7},
        "added": {"id": "added", "n": None, "tags": None, "fresh": None, "_deleted": False, "_handover": 7},
        "old": {"id": "old", "n": None, "tags": None, "fresh": None, "_deleted": True, "_handover": 7},
    }


def _limit(stream: Reconciled, most: str) -> None:
    """Let the topic take records of this many bytes at most."""
    entry = ConfigEntry("max.message.bytes", most, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, f"{stream.topic}.balances", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": stream.config.bootstrap_servers})
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result()
