"""``kappa query`` and ``kappa lag`` on raw input, and on a log that an open transaction holds back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from support.slices import TOPOLOGY, Epoch
from typer.testing import CliRunner, Result

from kappa.cli import app
from kappa.config import Config
from kappa.errors import DataLossError, UnknownTopologyError, UsageError
from kappa.kafka.broker import Broker
from kappa.names import EpochPaths
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.topology import Table

if TYPE_CHECKING:
    from conftest import TopicFactory


def put_live(config: Config, topology: str) -> None:
    """Put on record that epoch 1 is live."""
    for name in ("planned", "rewound", "seeded", "moved"):
        row = Event(topology=topology, epoch=1, event=name, at=datetime.now(UTC), actor="test", detail={"code": "c"})
        Epochs(config.lake).change(row.topology, lambda _, row=row: [row])  # type: ignore[misc]


@pytest.fixture
def served(tmp_path: Path) -> Any:
    """Asks a live epoch with two keys."""
    config = Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": str(tmp_path / "lake")})
    put_live(config, "sums")
    Epoch(tmp_path / "lake").slice({("a", 0): 3, ("b", 1): 5})

    def query(*words: str) -> Result:
        return CliRunner().invoke(app, ["query", "sums", *words], env=config.to_env())

    return query


def test_a_condition_and_an_order_choose_rows(served: Any) -> None:
    output = served("sums", "--where", "total > 1 -- all of them", "--order-by", "total DESC").output
    assert [line.split()[0] for line in output.splitlines()[1:3]] == ["b", "a"]


def test_what_is_refused_is_said_once(served: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(served("sums", "--order-by", "id; drop").exception, UsageError)
    assert caplog.records == []


def test_a_value_writes_one_line_and_moves_no_cursor(tmp_path: Path) -> None:
    config = Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": str(tmp_path / "lake")})
    put_live(config, "sums")
    text, shown = "\x1b]0;title\x07\x1b[2J\nb  0  7\u202e", r"\x1b]0;title\x07\x1b[2J\nb  0  7\u202e"
    stop = Event(topology="sums", epoch=1, event="stop", at=datetime.now(UTC), actor="ann", reason=text)
    Epochs(config.lake).change("sums", lambda _: [stop])
    Epoch(tmp_path / "lake").slice({(text, 0): 1})
    for words, lines in ((["query", "sums", "sums"], 2), (["sql", "SELECT * FROM sums.sums"], 2), (["history"], 6)):
        output = CliRunner().invoke(app, words, env=config.to_env(), color=True).output
        assert all(character.isprintable() for character in output.replace("\n", ""))
        assert shown in output.splitlines()[lines - 1]


def test_values_that_json_lacks_have_the_forms_of_sql_and_of_http(tmp_path: Path) -> None:
    config = Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": str(tmp_path / "lake")})
    put_live(config, "sums")
    columns = "id STRING NOT NULL, `select` INT NOT NULL, d DOUBLE, b BINARY, m MAP<STRING, INT>, t TIMESTAMP"
    topology = replace(TOPOLOGY, tables=[Table(name="sums", key=["id", "select"], schema=columns)])
    epoch = Epoch(tmp_path / "lake", topology)
    far = 70_000 * 365 * 86_400_000_000  # microseconds: a year that Python does not have
    epoch.put({"id": "a", "select": 0, "d": float("nan"), "b": b"\x00\xff", "m": [("a", 1)], "t": far})

    def values(*words: str) -> dict[str, Any]:
        answer = CliRunner().invoke(app, [*words, "--json"], env=config.to_env())
        assert answer.exception is None, answer.exception
        (only,) = json.loads(answer.output, parse_constant=pytest.fail)["rows"]
        return dict(only)

    queried = values("query", "sums", "sums")
    assert queried == values("sql", "SELECT * FROM sums.sums")
    assert (queried["d"], queried["b"], queried["m"]) == ("NaN", "AP8=", {"a": 1})
    cells = CliRunner().invoke(app, ["query", "sums", "sums"], env=config.to_env()).output
    assert "AP8=" in cells and '{"a":1}' in cells


@pytest.mark.parametrize(
    "where", ["totl = 3", "total = ", "1=1 UNION ALL SELECT * FROM t", "total > 'x' AND nope(total)", "( )"]
)
def test_a_condition_that_the_engine_cannot_take_is_an_error_in_words(served: Any, where: str) -> None:
    result = served("sums", "--where", where)
    assert isinstance(result.exception, UsageError), result.exception
    assert where in str(result.exception)


def test_an_unknown_table_is_named_before_the_engine_is_asked(served: Any) -> None:
    assert isinstance(served("nope", "--where", "a = 1").exception, UnknownTopologyError)


@pytest.mark.broker
def test_lag_says_what_waits_behind_an_open_transaction(kafka: Broker, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic()
    config = Config.from_env(
        {
            "KAPPA_HOME": str(tmp_path),
            "KAPPA_LAKE": str(tmp_path / "lake"),
            "KAPPA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        }
    )
    put_live(config, "held.back")
    ledger = Ledger(EpochPaths(lake=config.lake, topology="held.back", epoch=1).ledger)
    ledger.create()
    ledger.claim("me", "code", ledger.state())
    ranges = (OffsetRange(topic=name, partition=0, start=0, end=0),)
    detail = {"topic_ids": kafka.topic_ids([name])}
    ledger.append(LedgerRow(kind="commit", seq=0, writer="me", at=datetime.now(UTC), ranges=ranges, detail=detail))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{name}.open"})
    producer.init_transactions()
    producer.begin_transaction()
    try:
        for number in range(12):
            producer.produce(name, str(number).encode())
        assert producer.flush(30) == 0
        assert kafka.stable_offsets([name]) == Offsets({name: {0: 0}})
        output = CliRunner().invoke(app, ["lag", "held.back"], env=config.to_env()).output
    finally:
        producer.abort_transaction()
    assert "0 offsets behind the stable end" in output
    assert "12 more offsets wait behind an open transaction" in output

    ahead = (OffsetRange(topic=name, partition=0, start=0, end=100),)  # as after an election of a replica that lags
    ledger.append(LedgerRow(kind="commit", seq=1, writer="me", at=datetime.now(UTC), ranges=ahead, detail=detail))
    output = CliRunner().invoke(app, ["lag", "held.back"], env=config.to_env()).output
    assert "the lag of 1 partitions is not known, the rest is 0 offsets behind the stable end" in output
    assert ": 0 offsets behind" not in output, "scripts that wait for that would go on"
    assert f"the epoch stands at offset 100 of {name}[0], the log ends at offset" in output
    answer = json.loads(CliRunner().invoke(app, ["lag", "held.back", "--json"], env=config.to_env()).output)
    assert (answer["lag"], answer["partitions"][0]["lag"], answer["recreated"]) == (None, None, [])
    assert answer["beyond"][0]["code"] == "stored-vector-beyond-end"

    kafka.delete_topics([name])
    while name in kafka.topics():
        pass
    refused = CliRunner().invoke(app, ["lag", "held.back"], env=config.to_env()).exception
    assert isinstance(refused, DataLossError) and refused.data["topic"] == name
    assert "Create it" not in str(refused) and "do not create the topic again" in str(refused)
