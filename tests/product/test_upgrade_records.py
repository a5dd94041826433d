"""New code whose rows are equal is not equal when it would send them otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kappa import control
from kappa.replay.stages import Stage
from kappa.topology.registry import load_apart
from kappa.verify import sent_records
from kappa.verify.trial import Trial, trial

if TYPE_CHECKING:
    from support.epochs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.broker]

#: Five kinds of what a slice sends: JSON, a time of its own, a key of two columns, a versioned topic, and a changelog.
TOPOLOGY = """
from kappa.topology import Append, Source, Table, Topic, Topology

def step(slice):
    rows = slice["{topic}"]
    sales = rows.selectExpr("id", "amount", "_timestamp AS at")
    return {{"sales": sales, "none": sales.where("FALSE"), "lasts": rows.select("id", "amount")}}


topology = Topology(
    name="{name}",
    version="1",
    sources=[Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL")],
    tables=[Table(name="lasts", key="id", schema="id STRING NOT NULL, amount BIGINT")],
    outputs=[
        Append(name="sales", schema="id STRING, amount BIGINT, at TIMESTAMP"),
        Append(name="none", schema="id STRING, amount BIGINT, at TIMESTAMP"),
        Topic(name="{topic}.sales", of="sales", key="id"),
        Topic(name="{topic}.dated", of="sales", key=("id", "amount"), time="at"),
        Topic(name="{topic}.story", of="sales", key="id", on_replay="versioned"),
        Topic(name="{topic}.lasts", of="lasts", key="id", on_replay="reconcile"),
    ],
    step=step,
)
"""
#: The same without the versioned topic, which an epoch fills before its first slice.
UNVERSIONED = "".join(line for line in TOPOLOGY.splitlines(keepends=True) if "versioned" not in line)


def deploy(stream: Lab, template: str) -> None:
    (stream.config.topologies / "balances.py").write_text(template.format(topic=stream.topic, name=stream.name))


def begun(stream: Lab) -> int:
    """A live epoch of three slices."""
    deploy(stream, TOPOLOGY)
    stream.produce([("a", 1), ("b", 2)])
    epoch = stream.start_live()
    for number, rows in enumerate(([("a", 3), ("c", 4)], [("b", 6)]), start=1):
        stream.produce(rows, start_ms=1_700_000_000_000 + 60_000 * number)
        stream.settle(epoch)
    return epoch


def tried(stream: Lab, epoch: int, *change: str, slices: int = 2) -> Trial:
    """A trial of the code with one piece of its text replaced."""
    file = stream.config.topologies / "balances.py"
    text = TOPOLOGY.format(topic=stream.topic, name=stream.name)
    file.write_text(text.replace(*change) if change else text)
    assert not change or file.read_text() != text
    running = stream.record().epoch(epoch).code
    after = load_apart(file.parent, stream.name)
    return trial(stream.config, stream.session, stream.paths(epoch), running, after, slices)


#: Text of the code, its replacement, and the topics whose records change with it. ``changelog`` is that of the table.
CHANGES = {
    "key": ('of="sales", key="id")', 'of="sales", key="amount")', [".sales"]),
    "order of keys": ('key=("id", "amount")', 'key=("amount", "id")', [".dated"]),
    "time": (', time="at")', ")", [".dated"]),
    "versioned": ('key="id", on_replay="versioned"', 'key="amount", on_replay="versioned"', [".story.e0001"]),
    "no records": ('of="sales", key="id", on_replay', 'of="none", key="id", on_replay', [".story.e0001"]),
    "columns of an output": (
        '"id STRING, amount BIGINT, at',
        '"amount BIGINT, id STRING, at',
        [".dated", ".sales", ".story.e0001"],
    ),
    "columns of a table": (
        'schema="id STRING NOT NULL, amount BIGINT")',
        'schema="amount BIGINT, id STRING NOT NULL")',
        ["changelog"],
    ),
}


def test_records_that_would_be_sent_otherwise_are_named(stream: Lab) -> None:
    epoch = begun(stream)
    same = tried(stream, epoch)
    assert same.is_equal and same.gaps == () and same.report is not None and same.report.checks == ()
    assert same.rows == 3 + 3, "rows of the output and changes of the table; their records are not counted again"
    changelog = stream.paths(epoch).changelog("lasts")
    for name, (text, replacement, topics) in CHANGES.items():
        other = tried(stream, epoch, text, replacement)
        assert other.report is not None and not other.is_equal, name
        assert all(one.is_same for one in (*other.report.tables, *other.report.outputs)), "the rows do not show it"
        assert all(not check.ok for check in other.report.checks), name
        named = {check.name.removeprefix("records of topic ") for check in other.report.checks}
        assert named == {changelog if one == "changelog" else stream.topic + one for one in topics}, name
        cleaned = [gap for gap in other.gaps if f"topic {stream.topic}.lasts" in gap]
        assert len(cleaned) == len(other.gaps) == ("changelog" in topics), "compaction could have removed these"


def test_the_same_code_is_equal_however_its_epoch_went_live(stream: Lab) -> None:
    deploy(stream, UNVERSIONED)
    stream.produce([("a", 1), ("b", 2)])
    first = stream.start_live()

    def move_to(epoch: int) -> None:
        control.cut_over(stream.config, stream.name, epoch, actor="test", reason="test")
        stream.await_live(epoch)
        key = f"of epoch {epoch} and {stream.ledger(epoch).begun().committed.seq}"
        stream.produce([(key, epoch)], start_ms=1_700_000_600_000 + 60_000 * len(stream.record().moves))
        stream.settle(epoch)
        assert not is_unequal(epoch)

    def is_unequal(epoch: int) -> list[object]:
        running = stream.record().epoch(epoch).code
        after = load_apart(stream.config.topologies, stream.name)
        paths = stream.paths(epoch)
        each = [trial(stream.config, stream.session, paths, running, after, slices) for slices in (1, 9)]
        return [one for one in each if not one.is_equal]

    assert not is_unequal(first)
    second = stream.plan_replay()
    stream.run(second)
    stream.await_stage(second, Stage.VERIFIED)
    move_to(second)
    stream.stop(first)
    control.rollback(stream.config, stream.name, actor="test", reason="back")
    stream.run(first)
    stream.wait(lambda: control.progress(stream.config, stream.name, first).is_caught_up, "it caught up")
    move_to(first)


def test_what_is_not_in_a_topic_any_more_is_a_gap(stream: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = begun(stream)
    with monkeypatch.context() as context:  # a topic that got many records since
        context.setattr(sent_records, "MOST_OFFSETS", 0)
        evidence = tried(stream, epoch)
    assert len(evidence.gaps) == 4 and not evidence.is_equal, "a gap per topic; a changelog has what it has"
    sales = f"{stream.topic}.sales"
    stream.delete_before(dict.fromkeys(range(stream.kafka.partitions(sales)), -1), sales)
    evidence = tried(stream, epoch)
    assert evidence.report is not None and evidence.report.checks == () and not evidence.is_equal
    (gap,) = evidence.gaps
    assert gap.startswith("3 of 3 records are not in topic") and gap in evidence.report.notes
    stream.kafka.delete_topics([sales])
    (gap,) = tried(stream, epoch).gaps
    assert "cannot be read" in gap
