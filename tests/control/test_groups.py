"""Consumer groups on a real broker: set exactly, or refused and left as they were. Law 9."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer.testing
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from support.streams_group import streams_member

from kappa.cli import app
from kappa.control import groups
from kappa.control.adoptions.job_positions import of_group
from kappa.errors import RefusedError, UnknownGroupError, UsageError
from kappa.kafka.broker import Broker
from kappa.offsets.vector import Offsets
from kappa.replay.group_reset import GroupRequest
from kappa.replay.starts import ToEarliest, ToLatest

if TYPE_CHECKING:
    from conftest import TopicFactory

pytestmark = pytest.mark.broker

#: Records of each partition, and the first that is left of partition 0.
RECORDS, LOW = 10, 3


@pytest.fixture
def pos(kafka: Broker, topic: TopicFactory) -> str:
    """A topic with two partitions of ten records each, one an hour from 2026 on; three were removed from the first."""
    name = topic(2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition in (0, 1):
        for number in range(RECORDS):
            producer.produce(name, b"v", b"k", partition=partition, timestamp=1767225600000 + number * 3_600_000)
    assert producer.flush(10) == 0
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for answer in admin.delete_records([TopicPartition(name, 0, LOW)]).values():
        answer.result()
    return name


@pytest.fixture
def group(kafka: Broker, pos: str) -> Iterator[str]:
    """A group that stands at 5 and 6."""
    name = f"{pos}.readers"
    kafka.set_group_offsets(name, Offsets({pos: {0: 5, 1: 6}}))
    yield name
    kafka.delete_group(name)


@pytest.fixture
def run(kafka: Broker, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Runs ``kappa offsets``; exit code and output."""

    def invoke(*words: str) -> tuple[int, str]:
        environment = {"KAPPA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "KAPPA_HOME": str(tmp_path)}
        result = typer.testing.CliRunner().invoke(app, ["offsets", *words], env=environment)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output

    return invoke


Run = Callable[..., tuple[int, str]]


@pytest.mark.parametrize(
    ("words", "after"),
    [
        (["--topic", "POS", "--to-earliest"], (LOW, 0)),
        (["--topic", "POS", "--to-latest"], (RECORDS, RECORDS)),
        (["--topic", "POS", "--to-current"], (5, 6)),
        (["--topic", "POS", "--to-datetime", "2026-01-01T03:30:00Z"], (4, 4)),
        (["--topic", "POS", "--shift-by", "-2"], (3, 4)),
        (["--topic", "POS:1", "--shift-by", "4"], (5, 10)),
        (["--to-offset", "POS=7", "--to-offset", "POS:1=8"], (7, 8)),
    ],
)
def test_each_verb_sets_the_group_and_a_dry_run_does_not(
    kafka: Broker, run: Run, pos: str, group: str, words: list[str], after: tuple[int, int]
) -> None:
    arguments = ["--group", group, *(word.replace("POS", pos) for word in words)]
    code, output = run(*arguments)
    assert (code, kafka.group_offsets(group)) == (0, Offsets({pos: {0: 5, 1: 6}})), output
    assert "Nothing was changed" in output
    code, output = run(*arguments, "--execute")
    assert (code, kafka.group_offsets(group)) == (0, Offsets({pos: dict(enumerate(after))})), output


def test_an_empty_group_is_a_usage_error(run: Run) -> None:
    with pytest.raises(UsageError, match="empty"):
        run("--group", "")


@pytest.mark.parametrize("blank", [" ", "\t", "\n"])
def test_a_name_that_the_client_takes_for_that_of_another_group_is_refused(
    kafka: Broker, run: Run, pos: str, group: str, blank: str
) -> None:
    with pytest.raises(UsageError, match="would set the group"):
        run("--group", blank + group, "--topic", pos, "--to-earliest", "--execute")
    assert kafka.group_offsets(group) == Offsets({pos: {0: 5, 1: 6}})


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--to-offset", "POS=2"], "offset-outside-log"),
        (["--to-offset", "POS=11"], "offset-outside-log"),
        (["--topic", "POS", "--shift-by", "-3"], "shift-outside-log"),
        (["--topic", "POS", "--shift-by", "5"], "shift-outside-log"),
        (["--topic", "POS", "--to-datetime", "2031-01-01T00:00:00Z"], "time-without-record"),
        (["--topic", "POS", "--by-duration", "PT1S"], "time-without-record"),
        (["--topic", "POS", "--to-datetime", "2026-01-01T01:00:00Z"], "group-time-below-low-watermark"),
        (["--topic", "POS.none", "--to-earliest"], "unknown-partition"),
        (["--topic", "POS:7", "--to-earliest"], "unknown-partition"),
        (["--to-offset", "POS:7=1"], "start-names-unknown"),
        (["--topic", "POS", "--to-offset", "POS:0=5"], "start-lacks-partition"),
    ],
)
def test_what_cannot_be_done_as_asked_is_refused_and_the_group_stays(
    kafka: Broker, run: Run, pos: str, group: str, words: list[str], code: str
) -> None:
    status, output = run("--group", group, *(word.replace("POS", pos) for word in words), "--execute", "--json")
    answer = json.loads(output)
    assert (status, answer["executed"]) == (1, False)
    assert code in [finding["code"] for finding in answer["findings"] if finding["severity"] == "refuse"]
    assert kafka.group_offsets(group) == Offsets({pos: {0: 5, 1: 6}})


@pytest.mark.parametrize("verb", [["--to-current"], ["--shift-by", "1"]])
def test_a_group_without_offsets_is_not_counted_from_and_not_made(
    kafka: Broker, run: Run, pos: str, verb: list[str]
) -> None:
    status, output = run("--group", f"{pos}.nobody", "--topic", pos, *verb, "--execute")
    assert (status, "[group-without-offset]" in output) == (1, True)
    assert kafka.groups(f"{pos}.nobody") == ()


def test_a_new_group_is_made_and_said_to_be_new(kafka: Broker, run: Run, pos: str) -> None:
    name = f"{pos}.new"
    try:
        status, output = run("--group", name, "--topic", pos, "--to-earliest", "--execute")
        assert (status, "[group-is-new]" in output) == (0, True)
        assert kafka.group_offsets(name) == Offsets({pos: {0: LOW, 1: 0}})
    finally:
        kafka.delete_group(name)


def test_a_group_of_an_epoch_is_left_to_its_ledger(kafka: Broker, run: Run, pos: str) -> None:
    name = f"kappa.{pos}.e0001"
    kafka.set_group_offsets(name, Offsets({pos: {0: 5, 1: 6}}))
    try:
        status, output = run("--group", name, "--topic", pos, "--to-latest", "--execute")
        assert (status, f"`kappa replay {pos}`" in output, "[group-of-epoch]" in output) == (1, True, True)
        assert kafka.group_offsets(name) == Offsets({pos: {0: 5, 1: 6}})
        assert run("--group", name)[0] == 0, "looking is free"
    finally:
        kafka.delete_group(name)


def test_a_group_with_members_is_refused_and_stays(kafka: Broker, run: Run, pos: str, group: str) -> None:
    member = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "enable.auto.commit": False})
    member.subscribe([pos])
    try:
        deadline = time.monotonic() + 30
        while not member.assignment():
            member.poll(0.05)
            assert time.monotonic() < deadline
        assert kafka.group_members(group) == 1
        status, output = run("--group", group, "--topic", pos, "--to-latest", "--execute")
        assert (status, "[group-has-members]" in output) == (1, True)
        assert kafka.group_offsets(group) == Offsets({pos: {0: 5, 1: 6}})
    finally:
        member.close()
    assert kafka.group_members(group) == 0
    assert kafka.group_members(f"{group}.none") == 0


def test_a_group_of_kafka_streams_is_not_taken_for_one_without_members(kafka: Broker, pos: str, group: str) -> None:
    assert of_group(kafka, group, [pos]).offsets == Offsets({pos: {0: 5, 1: 6}})
    with streams_member(kafka.bootstrap_servers, group, pos), pytest.raises(RefusedError, match="is not known"):
        of_group(kafka, group, [pos])


def test_a_group_is_shown_and_its_file_sets_it_again(
    kafka: Broker, run: Run, pos: str, group: str, tmp_path: Path
) -> None:
    rows = json.loads(run("--group", group, "--json")[1])
    assert rows == [
        {"topic": pos, "partition": 0, "offset": 5, "low": LOW, "high": RECORDS, "lag": 5},
        {"topic": pos, "partition": 1, "offset": 6, "low": 0, "high": RECORDS, "lag": 4},
    ]
    file = tmp_path / "group.csv"
    assert "topic" in run("--group", group, "--export", str(file))[1]
    assert file.read_text() == f"{pos},0,5\n{pos},1,6\n"
    kafka.set_group_offsets(group, Offsets({pos: {0: 9, 1: 9}}))
    status, output = run("--group", group, "--from-file", str(file), "--execute")
    assert (status, kafka.group_offsets(group)) == (0, Offsets({pos: {0: 5, 1: 6}})), output


def test_what_retention_removed_is_no_lag(kafka: Broker, pos: str, group: str) -> None:
    kafka.set_group_offsets(group, Offsets({pos: {0: 1}}))
    rows = groups.positions(kafka, group)
    assert [(row.offset, row.lag) for row in rows] == [(1, RECORDS - LOW), (6, RECORDS - 6)]


@pytest.mark.parametrize(("beyond", "lag"), [(0, 0), (1, None)])
def test_a_group_beyond_the_end_of_the_log_has_no_lag(
    kafka: Broker, pos: str, group: str, beyond: int, lag: int | None
) -> None:
    kafka.set_group_offsets(group, Offsets({pos: {0: RECORDS + beyond}}))
    assert groups.positions(kafka, group)[0].lag == lag


def test_a_group_that_is_not_there_is_named(run: Run, pos: str) -> None:
    with pytest.raises(UnknownGroupError, match="has no offsets"):
        run("--group", f"{pos}.nobody")


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--execute"], "Say where to"), (["--topic", "pos"], "--topic selects"), (["--to-latest"], "No partition")],
)
def test_a_call_that_says_half_is_wrong(run: Run, pos: str, words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run("--group", f"{pos}.g", *words)


def test_setting_twice_is_as_setting_once(kafka: Broker, pos: str, group: str) -> None:
    for start in (ToLatest(), ToEarliest()):
        for _ in range(2):
            reset = groups.plan_reset(kafka, GroupRequest(group=group, start=start, partitions={pos: None}))
            groups.apply_reset(kafka, reset)
            assert kafka.group_offsets(group) == reset.after
