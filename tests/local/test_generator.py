from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.config import Config
from kappa.errors import TopologyError, UsageError
from kappa.offsets.vector import Offsets
from kappa_local.generators.generator import Produced, produce
from kappa_local.generators.invoices import DEFAULT_START, Invoices

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker
    from kappa_local.kafka import KafkaProcess

START_MS = int(DEFAULT_START.timestamp() * 1000)
SPOILED = Invoices(bad_share=0.2, out_of_order=0.3, rogue_future=True)


def is_good(value: bytes) -> bool:
    try:
        return "InvoiceNumber" in json.loads(value)
    except ValueError:
        return False


@given(start=st.integers(0, 20_000), before=st.integers(0, 5_000), count=st.integers(0, 30))
def test_an_index_gives_the_same_record_whatever_was_read_before(start: int, before: int, count: int) -> None:
    whole = list(SPOILED.records(max(0, start - before), start + count))
    assert list(SPOILED.records(start, start + count)) == whole[len(whole) - count :]


def test_another_seed_gives_other_invoices() -> None:
    assert list(Invoices(seed=1).records(0, 50)) != list(Invoices(seed=2).records(0, 50))


def test_the_first_invoice_stays_the_same() -> None:
    [(key, value, time_ms)] = Invoices().records(0, 1)
    assert (key, time_ms) == (b"STR1004", START_MS)
    assert json.loads(value)["CustomerCardNo"] == "2000000014"


def test_an_invoice_has_every_field_and_adds_up() -> None:
    index = -1
    for index, (key, value, time_ms) in enumerate(Invoices().records(0, 2_000)):
        invoice: dict[str, Any] = json.loads(value)
        cents = [round(line["TotalValue"] * 100) for line in invoice["InvoiceLineItems"]]
        assert [round(line["ItemPrice"] * 100) * line["ItemQty"] for line in invoice["InvoiceLineItems"]] == cents
        assert round(invoice["TotalAmount"] * 100) == sum(cents)
        assert invoice["NumberOfItems"] == len(cents)
        assert invoice["InvoiceNumber"] == str(100_000_000 + index)
        assert invoice["StoreID"].encode() == key
        assert invoice["CreatedTime"] == time_ms == START_MS + 100 * index
        assert invoice["CustomerType"] in ("PRIME", "NONPRIME")
        assert ("DeliveryAddress" in invoice) == (invoice["DeliveryType"].upper() == "HOME-DELIVERY")
        assert {"PosID", "CashierID", "PaymentMethod", "TaxableAmount", "CGST", "SGST", "CESS"} <= set(invoice)
    assert index == 1_999


@pytest.mark.parametrize("count", [200, 5_000])
def test_customers_come_again_and_buy_in_several_stores(count: int) -> None:
    stores: dict[str, set[bytes]] = defaultdict(set)
    kinds: dict[str, set[str]] = defaultdict(set)
    for key, value, _ in Invoices().records(0, count):
        invoice = json.loads(value)
        stores[invoice["CustomerCardNo"]].add(key)
        kinds[invoice["CustomerCardNo"]].add(invoice["CustomerType"])
    assert len(stores) <= count / 8
    assert sum(len(keys) > 1 for keys in stores.values()) > len(stores) / 2
    assert all(len(kind) == 1 for kind in kinds.values())


def test_numbers_of_stores_and_customers_are_as_requested() -> None:
    records = [(key, json.loads(value)) for key, value, _ in Invoices(stores=3, customers=7).records(0, 500)]
    assert {key for key, _ in records} == {b"STR1000", b"STR1001", b"STR1002"}
    assert len({invoice["CustomerCardNo"] for _, invoice in records}) == 7


def test_bad_records_are_as_many_as_reported_and_about_the_share() -> None:
    bad = sum(not is_good(value) for _, value, _ in SPOILED.records(100, 10_100))
    assert bad == SPOILED.bad(100, 10_100)
    assert 1_800 < bad < 2_200
    assert Invoices().bad(0, 10_000) == 0
    assert Invoices(bad_share=1).bad(0, 10_000) == 10_000


def test_times_out_of_order_lie_in_the_past_unless_the_future_is_requested() -> None:
    def shifts(invoices: Invoices) -> list[int]:
        times = [time_ms - START_MS - 100 * index for index, (_, _, time_ms) in enumerate(invoices.records(0, 10_000))]
        return [shift for shift in times if shift]

    past, both = shifts(Invoices(out_of_order=0.3)), shifts(SPOILED)
    assert 2_800 < len(past) < 3_200
    assert max(past) < 0
    year, lateness = 365 * 86_400_000, 600_000
    assert all(-lateness <= shift or shift <= -year for shift in past)
    assert 20 < sum(shift <= -year for shift in past) < 120
    assert 10 < sum(shift >= year for shift in both) < 60


def test_times_are_never_before_1970() -> None:
    invoices = Invoices(out_of_order=1, start_time=datetime(1970, 1, 1, tzinfo=UTC), time_step=timedelta(0))
    assert {time_ms for _, _, time_ms in invoices.records(0, 1_000)} == {0}


@pytest.mark.parametrize(
    "wrong",
    [
        {"bad_share": 1.1},
        {"out_of_order": -0.1},
        {"stores": 0},
        {"customers": 0},
        {"start_time": datetime.fromisoformat("2025-01-01")},
    ],
)
def test_nonsensical_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Invoices(**wrong)


def test_an_unknown_scenario_names_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean 'retail'"):
        produce(config_of("127.0.0.1:1", tmp_path), "retial", records=1)


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (float("nan"), "rate=nan must be positive numbers"),
        (float("inf"), "rate=inf must be positive numbers"),
        (0.0, "rate=0.0 must be positive numbers"),
        (1e-300, "2 records at rate=1e-300 per second would take longer than 10 years"),
    ],
)
def test_a_rate_at_which_records_never_come_is_refused(tmp_path: Path, rate: float, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        produce(config_of("127.0.0.1:1", tmp_path), "retail", records=2, rate=rate)


@pytest.mark.broker
def test_records_past_the_end_of_the_calendar_are_refused(kafka: Broker, topic: TopicFactory, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="after the year 9999"):
        produce(config_of(kafka.bootstrap_servers, tmp_path), "retail", records=10**13, topic=topic(3))


def config_of(bootstrap_servers: str, home: Path) -> Config:
    return Config.from_env({"KAPPA_HOME": str(home), "KAPPA_BOOTSTRAP_SERVERS": bootstrap_servers})


def contents(kafka: Broker, topic: str) -> list[tuple[bytes, bytes]]:
    end = kafka.stable_offsets([topic])
    read = [message for batch in kafka.read(Offsets(), end) for message in batch]
    return sorted((message.key() or b"", message.value() or b"") for message in read)


@pytest.mark.broker
def test_two_runs_give_the_records_of_one(kafka: Broker, topic: TopicFactory, tmp_path: Path) -> None:
    config, name, steps = config_of(kafka.bootstrap_servers, tmp_path), topic(3), list[tuple[int, int]]()
    first = produce(config, "retail", records=300, topic=name, bad_share=0.2, out_of_order=0.1)
    second = produce(
        config,
        "retail",
        records=200,
        topic=name,
        bad_share=0.2,
        out_of_order=0.1,
        progress=lambda *at: steps.append(at),
    )
    invoices = Invoices(bad_share=0.2, out_of_order=0.1)
    assert (first.records, first.next_index, second.first, second.records) == (300, 300, 300, 200)
    assert first.bad + second.bad == invoices.bad(0, 500)
    assert first.repeated == second.repeated == 0
    assert contents(kafka, name) == sorted((key, value) for key, value, _ in invoices.records(0, 500))
    assert steps[-1] == (200, 200)


@pytest.mark.broker
def test_a_created_topic_keeps_records_of_any_time(kafka: Broker, topic: TopicFactory, tmp_path: Path) -> None:
    config, name = config_of(kafka.bootstrap_servers, tmp_path), topic()
    kafka.delete_topics([name])
    produce(config, "retail", records=2_000, topic=name, out_of_order=0.5, rogue_future=True, partitions=2)
    assert kafka.partitions(name) == 2
    assert kafka.topic_configs([name])[name]["retention.ms"] == "-1"
    assert len(contents(kafka, name)) == 2_000
    assert kafka.topic_configs([name])[name]["message.timestamp.after.max.ms"] == str(2**63 - 1)
    with pytest.raises(TopologyError, match="exists with 2 partitions; 3"):
        produce(config, "retail", records=1, topic=name)


@pytest.mark.broker
def test_a_created_topic_accepts_no_record_from_the_far_future(
    kafka: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    config, name = config_of(kafka.bootstrap_servers, tmp_path), topic()
    kafka.delete_topics([name])
    produce(config, "retail", records=10, topic=name)
    assert kafka.topic_configs([name])[name]["message.timestamp.after.max.ms"] == "3600000"
    for later in ({"rogue_future": True}, {"start_time": datetime.now(UTC) + timedelta(hours=2)}):
        with pytest.raises(UsageError, match=f"1:00:00 ahead .*--entity-name {name} --add-config"):
            produce(config, "retail", records=1, topic=name, **later)  # type: ignore[arg-type]
    assert len(contents(kafka, name)) == 10


@pytest.mark.broker
def test_a_rate_is_kept(kafka: Broker, topic: TopicFactory, tmp_path: Path) -> None:
    report = produce(config_of(kafka.bootstrap_servers, tmp_path), "retail", records=200, rate=400, topic=topic(3))
    assert report.seconds > 0.45


@pytest.mark.broker
@pytest.mark.parametrize("start_time", [datetime.now(UTC), DEFAULT_START], ids=["today", "long ago"])
def test_a_killed_broker_loses_nothing_and_repetitions_are_counted(
    mortal_broker: KafkaProcess, kafka: Broker, topic: TopicFactory, tmp_path: Path, start_time: datetime
) -> None:
    config, name, count = config_of(kafka.bootstrap_servers, tmp_path), topic(3), 20_000
    positions, reports = list[int](), list[Produced]()

    def generate() -> None:
        report = produce(
            config,
            "retail",
            records=count,
            rate=5_000,
            topic=name,
            start_time=start_time,
            progress=lambda at, _: positions.append(at),
        )
        reports.append(report)

    run = threading.Thread(target=generate)
    run.start()
    deadline = time.monotonic() + 30
    while not positions and time.monotonic() < deadline:
        time.sleep(0.01)
    mortal_broker.kill()
    mortal_broker.restart()
    run.join(120)
    assert positions[-1] == count
    expected = Counter((key, value) for key, value, _ in Invoices(start_time=start_time).records(0, count))
    records = Counter(contents(kafka, name))
    assert not expected - records
    assert (records - expected).total() == reports[0].repeated
    if start_time != DEFAULT_START:
        assert reports[0].repeated == 0
