"""A record that a step refuses: its epoch names it, a decision sets it aside, and replays obey or bring it in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from support.deaths import ENDLESS
from support.epochs import TOPOLOGY, Lab, lab
from support.kills import Mortal

from kappa import control, faults
from kappa.control import set_aside_listings, setting_aside
from kappa.errors import RefusedError, UsageError
from kappa.offsets import set_asides
from kappa.record.epochs import Epochs
from kappa.record.ledger_rows import plan_hash
from kappa.replay.stages import Stage
from kappa.serving.dead_letter_reasons import reasons_of

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = pytest.mark.spark

#: Counts each amount once, and divides by zero at 13.
REFUSES_13 = "(1 DIV IF(amount = 13, 0, 1))"
DIVIDED = "DIVIDE_BY_ZERO"


def stuck(stream: Lab, epoch: int) -> Any:
    """Wait until an epoch waits for a decision; the event."""
    stream.wait(lambda: control.driver_status(stream.config, stream.name, epoch).state == "stuck", "stuck")
    return [e for e in stream.record().events if e.event == "stuck" and e.epoch == epoch][-1]


def decide(
    stream: Lab,
    *offsets: int,
    partition: int = 0,
    epoch: int | None = None,
    why: str = "bad deploy",
    topic: str | None = None,
) -> int:
    """Set records aside, as the command does; number of the decision."""
    about = setting_aside.subject(stream.config, stream.name, epoch, topic, partition)
    listing = set_aside_listings.named(stream.config, about, offsets)
    return setting_aside.set_aside(stream.config, listing, actor="ann", reason=why).n


def counted(stream: Lab, epoch: int) -> tuple[int, int, int, int]:
    """Records read, parsed, dead and set aside by the commits of an epoch."""
    rows = stream.ledger(epoch).state().commits
    names = ("rows_read", "rows_parsed", "rows_dead", "rows_set_aside")
    sums = [sum(getattr(row, name) for row in rows) for name in names]
    return sums[0], sums[1], sums[2], sums[3]


def test_a_refused_record_is_named_set_aside_and_brought_in_later(stream: Lab) -> None:
    stream.deploy(1, REFUSES_13)
    stream.produce([("a", 1), ("b", 2), ("c", 13), b"bad", ("a", 4)], partition=0)
    stream.produce([("d", 5)], partition=1)
    first = stream.start()
    stream.await_live(first)
    event = stuck(stream, first)
    record = event.detail["record"]
    assert (record["topic"], record["partition"], record["offset"]) == (stream.topic, 0, 2)
    assert (record["error"], record["cause"]) == (DIVIDED, "code")
    command = f"kappa set-aside {stream.name} --topic {stream.topic} --partition 0 --offset 2 --reason '...' --execute"
    assert event.reason.endswith(command) and "with empty tables too" in event.reason
    assert command in stream.output_of("status", stream.name)
    with pytest.raises(RefusedError, match=r"has committed .* up to offset 2"):
        set_aside_listings.named(stream.config, setting_aside.subject(stream.config, stream.name, None, None, 0), [1])

    for words, why in (
        (("--partition", "0", "--offset", "60"), r"\[0\] holds 0 to 4, without 60"),
        (("--partition", "7", "--offset", "2"), r"has no partition 7; it has 0, 1"),
    ):
        for how in ((), ("--unreadable",)):
            with pytest.raises(UsageError, match=why):
                stream.output_of("set-aside", stream.name, *words, *how)
    call = ("set-aside", stream.name, "--partition", "0", "--offset", "2")
    shown = stream.output_of(*call)
    assert "1 records in" in shown and "bytes, hash " in shown and "Nothing was changed" in shown
    assert '"amount"' not in shown, "never a value"
    with pytest.raises(UsageError, match="A decision says why"):
        stream.output_of(*call, "--execute")
    answer = stream.output_of(*call, "--reason", "till 7 sent nonsense", "--execute")
    stream.settle(first)
    assert "sets 1 records aside" in answer
    assert stream.balances() == {"a": 5, "b": 2, "d": 5}
    assert counted(stream, first) == (6, 4, 1, 1)
    state = stream.ledger(first).begun()
    (aside,) = state.set_aside
    assert (aside.partition, dict(aside.offsets)) == (0, {2: set_asides.value_hash(b'{"id":"c","amount":13}')})
    reasons = {one.reason: one.count for one in reasons_of(stream.paths(first), state.committed)}
    assert reasons[f"set aside by decision {aside.decision}: till 7 sent nonsense"] == 1
    certificate = control.certify(stream.config, stream.name)
    assert certificate.complete and certificate.rows_set_aside == 1, certificate.problems
    with pytest.raises(RefusedError, match="has committed"):
        decide(stream, 2)

    stream.deploy(2, REFUSES_13)
    obeys = stream.plan_replay(determinism=True)
    assert set_asides.count(stream.plan(obeys).set_aside) == 1
    stream.run(obeys)
    stream.await_stage(obeys, Stage.VERIFIED)
    assert counted(stream, obeys) == (6, 4, 1, 1)
    assert stream.record().epoch(obeys).verified.detail["verdict"] == "same"
    assert stream.stop(obeys) == []
    control.abort(stream.config, stream.name, obeys, actor="test", reason="seen")

    stream.deploy(3, "1")
    assert "sets aside 1 record" in stream.output_of("plan", stream.name)
    refused = stream.config
    brings = stream.plan_replay(bring_in=(str(aside.decision),))
    assert set_asides.count(stream.plan(brings).brought_in) == 1 and not stream.plan(brings).set_aside
    stream.run(brings)
    stream.await_stage(brings, Stage.VERIFIED)
    assert stream.balances(brings) == {"a": 5, "b": 2, "c": 13, "d": 5}
    verified = stream.record().epoch(brings).verified
    assert verified.detail["verdict"] == "differs" and "brings in 1 record" in verified.detail["report"]
    stream.produce([("a", 1)], partition=0)
    control.cut_over(refused, stream.name, brings, actor="test", reason="mended")
    stream.await_live(brings)
    stream.settle(brings)
    assert stream.balances() == {"a": 6, "b": 2, "c": 13, "d": 5}
    assert sorted(stream.sent()) == [("a", 1), ("a", 1), ("a", 4), ("b", 2), ("d", 5)], "a hold topic never gets it"
    certificate = control.certify(stream.config, stream.name)
    assert certificate.complete and certificate.brought_in == {brings: 1}, certificate.problems


def test_one_decision_clears_ten_thousand_records_of_a_bad_deploy(stream: Lab) -> None:
    stream.deploy(1, REFUSES_13)
    stream.produce([("a", 1)], partition=0)
    live = stream.start_live()
    stream.produce([("bad", 13)] * 10_000, partition=0)
    stream.produce([("a", 2)], partition=0)
    stuck(stream, live)
    decide(stream, *range(1, 10_001))
    stream.settle(live)
    assert stream.balances() == {"a": 3}
    assert counted(stream, live) == (10_002, 2, 0, 10_000)
    assert len(stream.ledger(live).state().commits) < 60, "slices grow again"


def test_a_listing_by_error_class_has_the_records_that_fail_with_it_alone(stream: Lab, spark: Any) -> None:
    stream.deploy(1, REFUSES_13)
    stream.produce([("a", 1)], partition=0)
    live = stream.start_live()
    rows = [("a", 13 if 20 <= index < 40 or index == 7 else 1) for index in range(60)]
    stream.produce(rows, partition=0)
    stuck(stream, live)
    about = setting_aside.subject(stream.config, stream.name, None, None, 0)

    def listed(error: str, *span: int | None, limit: int = 10_000) -> list[int]:
        begin, end = span or (None, None)
        listing = set_aside_listings.failing(stream.config, about, error, begin, end, limit=limit, session=spark)
        assert listing.is_capped is (len(listing.offsets) == limit)
        return list(listing.offsets)

    assert listed(DIVIDED) == [8, *range(21, 41)]
    assert listed(DIVIDED, 9, 23) == [21, 22]
    assert listed(DIVIDED, limit=2) == [8, 21]
    with pytest.raises(RefusedError, match="fails alone with CAST_INVALID_INPUT"):
        listed("CAST_INVALID_INPUT")


def test_records_set_aside_by_a_candidate_alone_show_in_its_verdict(stream: Lab) -> None:
    stream.deploy(1)
    stream.produce([("a", 1), ("b", 2), ("c", 3)], partition=0)
    live = stream.start_live()
    stream.deploy(2, "(1 DIV IF(id = 'c' AND amount = 3, 0, 1))")
    second = stream.plan_replay()
    stream.run(second)
    event = stuck(stream, second)
    assert f"kappa set-aside {stream.name} --epoch {second} --topic" in event.reason
    decide(stream, 2, epoch=second, why="c is gone")
    stream.await_stage(second, Stage.VERIFIED)
    assert stream.balances(second) == {"a": 1, "b": 2}
    report = control.diff(stream.config, stream.name, second)
    assert (report.verdict, report.set_aside) == ("differs", 1)
    assert any("alone sets aside 1 record" in note and "c is gone" in note for note in report.notes)
    assert not stream.ledger(live).state().set_aside, "what a candidate leaves out is no matter of the live epoch"

    stream.produce([("c", 3)], partition=0)
    stuck(stream, second)
    decide(stream, 3, epoch=second, why="c came back")
    stream.await_stage(second, Stage.VERIFIED)
    report = control.diff(stream.config, stream.name, second)
    assert report.set_aside == 2, "it was compared before that"


def test_a_record_that_fails_only_with_the_current_tables_is_distinguished(stream: Lab) -> None:
    stream.produce([("a", 1)], partition=0)
    live = stream.start_live()
    driver, _, _ = stream.running[live]
    whole = driver.epoch.topology

    def refusing(slice: Any) -> Any:
        is_there = slice[stream.topic].where("id = 'c'").count() and slice.table("balances").count()
        if is_there:
            raise ValueError("an account again")
        return whole.step(slice)

    driver.engines.slice_run.topology = replace(whole, step=refusing)
    stream.produce([("b", 2), ("c", 3), ("d", 4)], partition=0)
    event = stuck(stream, live)
    record = event.detail["record"]
    assert (record["offset"], record["error"], record["cause"]) == (2, "ValueError", "state")
    assert "an account again" in event.reason and "not with empty tables" in event.reason
    decide(stream, 2)
    stream.settle(live)
    assert stream.balances() == {"a": 1, "b": 2, "d": 4}


def test_unreadable_records_are_skipped_without_a_value(stream: Lab) -> None:
    stream.deploy(1, REFUSES_13)
    stream.produce([("a", 1)], partition=0)
    live = stream.start_live()
    stream.produce([("a", 13), ("a", 13), ("a", 2)], partition=0)
    stuck(stream, live)
    answer = stream.output_of(
        *("set-aside", stream.name, "--partition", "0", "--offset", "1-2", "--unreadable"),
        *("--reason", "the disk of broker 2", "--execute"),
    )
    assert "no value" in answer
    stream.settle(live)
    assert stream.balances() == {"a": 3} and counted(stream, live) == (4, 2, 0, 2)
    assert stream.dead_letters(live) == [(0, 1), (0, 2)]


class BesidePersonalValues(Lab):
    """A lab whose topology has a second source, which is sensitive."""

    template = TOPOLOGY.replace(
        "sources=[MOVES]", 'sources=[MOVES, Source(topic="{topic}.cards", schema="card STRING", sensitive=True)]'
    )


@pytest.fixture
def masked(tmp_path: Path, kafka: Broker, spark: Any, topic: TopicFactory) -> Iterator[Lab]:
    """Such a lab, whose topics have one partition."""
    moves, kind = topic(), BesidePersonalValues
    kafka.create_topic(f"{moves}.cards", 1)
    with lab(tmp_path / "masked", kafka, spark, moves, kind=kind, mask_key="a key that is in no lake") as stream:
        stream.deploy(1, REFUSES_13)
        yield stream
    kafka.delete_topics([f"{moves}.cards"])


def test_decisions_are_obeyed_beside_personal_values_and_under_another_key(masked: Lab) -> None:
    cards = replace(masked, topic=f"{masked.topic}.cards")
    masked.produce([("a", 1)])
    live = masked.start_live()
    masked.produce([("b", 13), ("c", 2)])
    stuck(masked, live)
    other = replace(masked, config=replace(masked.config, mask_key="another key, as long as that"))
    cards.produce([b"{}"])
    with pytest.raises(RefusedError, match=r"has the key with fingerprint \w+, and KAPPA_MASK_KEY has"):
        decide(other, 0, topic=cards.topic)
    decide(masked, 0, topic=cards.topic)
    decide(masked, 1, topic=masked.topic)
    masked.settle(live, [masked.topic, cards.topic])
    assert masked.balances() == {"a": 1, "c": 2} and counted(masked, live) == (4, 2, 0, 2)

    second = other.plan_replay(allow=("mask-key-changed",))
    other.run(second)
    other.await_stage(second, Stage.VERIFIED)
    assert masked.balances(second) == {"a": 1, "c": 2} and counted(masked, second) == (4, 2, 0, 2)


def test_what_was_never_a_record_is_not_set_aside_unread(stream: Lab) -> None:
    stream.deploy(1, REFUSES_13)
    stream.produce([("a", 1)], partition=0)
    live = stream.start_live()
    assert stream.stop(live) == []
    producer = Producer({"bootstrap.servers": stream.config.bootstrap_servers, "transactional.id": stream.topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(stream.topic, key=b"k", value=b'{"id": "a", "amount": 13}', partition=0)
    producer.commit_transaction()
    stream.produce([("a", 2)], partition=0)
    stream.wait(lambda: stream.kafka.stable_offsets([stream.topic]).get(stream.topic, 0) == 4, "it is committed")
    before = stream.record().events
    for offsets in ("1-3", "2"):
        with pytest.raises(RefusedError, match=r"\[0\] has no record at 2: "):
            stream.output_of(
                *("set-aside", stream.name, "--partition", "0", "--offset", offsets, "--unreadable"),
                *("--reason", "the disk of broker 2", "--execute"),
            )
    assert stream.record().events == before


@pytest.fixture
def world(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Mortal]:
    with lab(tmp_path / "world", kafka, spark, topic(partitions=2), kind=Mortal) as stream:
        monkeypatch.setattr(faults, "os", stream.reaper)
        yield stream
        kafka.delete_topics(kafka.topics(f"{stream.topic}."))


def test_a_decision_is_obeyed_once_wherever_a_driver_dies(world: Mortal) -> None:
    live = world.live_first()
    world.deploy(2, REFUSES_13)  # type: ignore[arg-type]  # SQL, as of any lab
    world.config = replace(world.config, attempts=2)  # until it is stuck; deaths count as attempts too
    second = world.verified()
    world.cut_over_to(second)
    totals = world.balances()
    world.reaper.environ[faults.VARIABLE] = "probe"
    world.produce([("bad", 13)], partition=0)
    world.wait(lambda: world.deaths == 1, "the driver dies when it knows the record")
    offset = stuck(world, second).detail["record"]["offset"]
    world.produce([("a", 1)], partition=0)
    world.config = replace(world.config, attempts=ENDLESS)
    with pytest.raises(RefusedError, match="has committed"):
        decide(world, offset - 1)
    for deaths, point in enumerate(("abandon", "plan", "effects.dead_letters", "effects", "send", "commit"), start=2):
        world.reaper.environ[faults.VARIABLE] = point
        if point == "abandon":
            decide(world, offset)
        # The epoch was stuck, which any other wait of this world takes for a failure.
        world.until(lambda deaths=deaths: world.tend() or world.deaths == deaths, f"the driver dies at {point}")
    ends = world.kafka.stable_offsets([world.topic])
    world.until(lambda: world.tend() or world.ledger(second).state().position == ends, "it reads everything")
    assert world.balances() == {**totals, "a": totals["a"] + 1}
    assert counted(world, second)[3] == 1 and len(world.dead_letters(second)) == 1
    plans = {plan_hash(row) for row in world.ledger(second).rows() if row.kind == "commit" and row.set_aside}
    assert len(plans) == 1
    certificate = control.certify(world.config, world.name)
    assert certificate.complete, certificate.problems
    assert live != second


def test_a_late_decision_is_withdrawn_and_its_record_stays_computed(stream: Lab) -> None:
    stream.produce([("a", 1), ("b", 2)], partition=0)
    live = stream.start_live()
    place = {"topic": stream.topic, "topic_id": stream.plan(live).topic_ids[stream.topic], "partition": 0}
    records = [{**place, "offsets": {"1": "0123456789abcdef", "2": "0123456789abcdef"}}]
    Epochs(stream.config.lake).add(
        stream.name, live, "set_aside", actor="ann", reason="a race", records=records, count=2, failing=""
    )
    stream.produce([("c", 3)], partition=0)
    stream.settle(live)
    (withdrawn,) = [e for e in stream.record().events if e.event == "set_aside_withdrawn"]
    assert "has committed 1 record" in withdrawn.reason
    assert stream.balances() == {"a": 1, "b": 2, "c": 3} and not stream.ledger(live).state().set_aside
