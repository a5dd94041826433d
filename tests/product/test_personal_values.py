"""No value of a sensitive source is in any byte that its topology wrote: lake, topics and logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
from support.epochs import Lab, lab, read_messages
from support.topologies import renamed

from kappa import control
from kappa.delta import queries
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

KEY = "a key that is in no lake"
#: What may be nowhere. Each is unlike anything that a hash, a file name or another column could hold by chance.
PERSONAL = ("card-zq7x-0815", "Zwetschgenweg 77", "+49-zq-5550199")


@pytest.fixture
def stream(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Lab]:
    """`retail.trends` on a topic of its own; a late record would be one of an hour ago."""
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), mask_key=KEY) as stream:
        stream.name = f"retail.trends_{stream.topic.replace('-', '_').replace('.', '_').lower()}"
        write(stream, "1")
        yield stream


def write(stream: Lab, version: str, old: str = "", new: str = "") -> None:
    topics = {"pos": stream.topic, "hadoop-sink": f"{stream.topic}.sink"}
    text = renamed("retail.trends", {"retail.trends": stream.name, "2": version}, topics)
    assert old in text
    (stream.config.topologies / "trends.py").write_text(text.replace(old, new))


def invoices(first: int) -> list[tuple[str, int] | bytes]:
    """Valid invoices, one of which lacks a column, and a truncated one."""
    card, street, phone = PERSONAL
    good = {
        "CreatedTime": 1_767_225_600_000,
        "StoreID": "STR1",
        "CustomerType": "PRIME",
        "CustomerCardNo": card,
        "DeliveryAddress": {"AddressLine": street, "City": "Köln", "ContactNumber": phone},
        "InvoiceLineItems": [{"ItemCode": "milk", "ItemPrice": 1.5, "ItemQty": 1, "TotalValue": 1.5}],
    }
    rows = [orjson.dumps({"InvoiceNumber": str(first + n), **good}) for n in range(5)]
    return [*rows, orjson.dumps(good), rows[0][:-1]]


def written(stream: Lab) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of everything that the topology wrote; Parquet files as rows too, since they are compressed."""
    for base in (Path(stream.config.lake), stream.config.home):
        for path in base.rglob("*"):
            if path.is_file():
                yield str(path), path.read_bytes()
                if path.suffix == ".parquet":
                    import pyarrow.parquet as pq

                    yield f"rows of {path}", repr(pq.ParquetFile(path).read().to_pylist()).encode()
    topics = [name for name in stream.kafka.topics() if stream.name in name or name == f"{stream.topic}.sink"]
    assert len(topics) >= 2
    for topic in topics:
        for message in read_messages(stream.config.bootstrap_servers, topic):
            yield topic, (message.key() or b"") + (message.value() or b"") + repr(message.headers()).encode()


def holding(contents: dict[str, bytes]) -> dict[str, str]:
    """What holds a personal value, and which."""
    return {name: value for name, content in contents.items() for value in PERSONAL if value.encode() in content}


def test_no_written_byte_holds_a_personal_value(stream: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    stream.produce(invoices(1), partition=0)
    first = stream.start_live()
    write(stream, "2", 'AS Day",', 'AS Day",\n        "UPPER(CustomerType) AS Kind",')
    second = stream.plan_replay(slice_records=3)
    stream.run(second)
    stream.await_stage(second, Stage.VERIFIED)
    stream.produce(invoices(100), partition=1)
    stream.settle(first)
    report = control.diff(stream.config, stream.name, second).to_json()
    history = repr(control.chronicle(stream.config, stream.name))

    contents = dict(written(stream))
    contents |= {"report": report.encode(), "history": history.encode(), "output": "".join(capfd.readouterr()).encode()}
    assert holding(contents) == {}
    assert not [name for name, content in contents.items() if KEY.encode() in content]
    assert sum("rows of" in name for name in contents) > 5

    letters = queries.query(stream.paths(first).dead_letters, None)
    letters = letters.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()
    assert len(letters) == 4
    assert all(row["value"].startswith(b"withheld: ") and row["reason"] for row in letters)
    assert letters[0]["value"].split()[1] == str(len(invoices(1)[5])).encode()
    days = {path.parent.name for path in Path(stream.paths(first).output("lines")).rglob("*.parquet")}
    assert "Day=2026-01-01" in days

    # Another key would give equal values two masks.
    assert stream.stop(first) == []
    stream.config = replace(stream.config, mask_key="another key, as long as that")
    stream.produce(invoices(200), partition=0)
    driver = stream.run(first)
    _, thread, errors = stream.running[first]
    thread.join(120)
    assert not thread.is_alive() and driver is not None
    assert "are masked under the key with fingerprint" in str(errors[0])
    del stream.running[first]


def test_an_error_of_the_step_is_told_without_the_personal_value_at_which_it_fails(
    stream: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    numbers = "CreatedTime + CAST(DeliveryAddress.ContactNumber AS BIGINT)"
    write(stream, "1", "MILLIS(CreatedTime)", f"MILLIS({numbers})")
    live = stream.start_live()
    stream.produce(invoices(1)[:1], partition=0)
    stream.wait(lambda: control.driver_status(stream.config, stream.name, live).state == "stuck", "stuck")

    status = control.driver_status(stream.config, stream.name, live)
    contents = dict(written(stream))
    contents |= {"history": repr(control.chronicle(stream.config, stream.name)).encode()}
    contents |= {"status": repr(status).encode(), "output": "".join(capfd.readouterr()).encode()}
    assert holding(contents) == {}
    assert "CAST_INVALID_INPUT" in status.message and "its message is not shown" in status.message
