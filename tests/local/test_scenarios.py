"""The records of the scenarios: the same for an index, as bad as they say, and fit for what the scenario shows."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kappa.config import Config
from kappa.offsets.vector import Offsets
from kappa_local.generators.draws import Generated, Stream
from kappa_local.generators.generator import SCENARIOS, produce

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

#: Of the first 700 records: what is shown in a document or measured today is there tomorrow.
DIGESTS = {
    "stocks": "af5e82e2f018",
    "logs": "ec4d7e39405b",
    "page-views": "0e8d9ed88a49",
    "captcha": "8e952433ae13",
    "text": "e353792da61d",
    "inventory": "8ada7535cdc3",
    "movies": "5a4f6f8480b8",
    "music": "eccb34179e20",
    "customers": "9e65f57b4980",
    "order-events": "42cbfd51f421",
    "payments": "d20ec9e5fc51",
    "products": "9a64cf8a0187",
}
NAMES = [name for name, scenario in SCENARIOS.items() if scenario.make is not None]


def stream(name: str, **options: Any) -> Stream:
    scenario = SCENARIOS[name]
    assert scenario.make is not None
    return Stream(make=scenario.make, is_text=scenario.is_text, **options)


def is_bad(value: bytes | None, *, is_text: bool) -> bool:
    try:
        if value is not None:
            text = value.decode()
            if not is_text:
                json.loads(text)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("name", NAMES)
def test_an_index_gives_the_same_record_whatever_was_read_before(name: str) -> None:
    source = stream(name, bad_share=0.2, out_of_order=0.3)
    whole = list(source.records(0, 5_000))
    assert list(source.records(4_090, 4_110)) == whole[4_090:4_110]
    assert list(stream(name, seed=2).records(0, 50)) != whole[:50]


@pytest.mark.parametrize("name", NAMES)
def test_bad_records_are_as_many_as_reported(name: str) -> None:
    source, is_text = stream(name, bad_share=0.2), SCENARIOS[name].is_text
    assert sum(is_bad(value, is_text=is_text) for _, value, _ in source.records(0, 5_000)) == source.bad(0, 5_000)
    assert not any(is_bad(value, is_text=is_text) for _, value, _ in stream(name).records(0, 5_000))


@pytest.mark.parametrize("name", NAMES)
def test_records_stay_the_same(name: str) -> None:
    digest = hashlib.sha256(repr(list(stream(name).records(0, 700))).encode()).hexdigest()
    assert digest[:12] == DIGESTS[name]


def values(name: str, count: int = 5_000) -> list[tuple[Generated, Any]]:
    return [(one, one[1] and json.loads(one[1])) for one in stream(name).records(0, count)]


def test_symbols_are_delisted_and_come_back() -> None:
    gone, back = set(), set()
    for (key, value, _), _ in values("stocks"):
        if value is None:
            gone.add(key)
        elif key in gone:
            back.add(key)
    assert len(gone) > 5 and back == gone


def test_some_pages_have_most_views_and_crawlers_are_among_them() -> None:
    views = Counter(view["page"] for _, view in values("page-views"))
    assert views.most_common(1)[0][1] > 500 > 20 > min(views.values())
    assert 800 < sum(view["agent"].endswith("Bot") for _, view in values("page-views")) < 1_200


def test_customers_change_as_their_events_say() -> None:
    table: dict[int, Any] = {}
    ops = Counter[str]()
    for (key, _, _), event in values("customers"):
        id = json.loads(key or b"")["id"]
        if event is None:
            assert id not in table
            continue
        ops[event["op"]] += 1
        assert event["before"] == table.pop(id, None)
        if event["after"] is not None:
            assert event["after"]["id"] == id
            table[id] = event["after"]
    assert set(ops) == {"r", "c", "u", "d"}
    assert len(table) > 300


def test_viewers_rate_some_movies_again() -> None:
    rated = Counter((rating["userID"], rating["movieID"]) for _, rating in values("movies"))
    assert 100 < sum(count > 1 for count in rated.values()) < len(rated) / 2


def test_cancellations_come_soon_after_long_after_and_before_their_order() -> None:
    placed: dict[str, int] = {}
    cancelled: dict[str, list[int]] = {}
    for at, (_, event) in enumerate(values("order-events")):
        if event["type"] == "PLACED":
            assert placed.setdefault(event["orderID"], at) == at
        else:
            assert set(event) == {"orderID", "type", "CreatedTime"}
            cancelled.setdefault(event["orderID"], []).append(at)
    behind = [10 * (at - placed[id]) for id, places in cancelled.items() if id in placed for at in places]
    kinds = Counter("before" if seconds < 0 else "soon" if seconds < 120 else "late" for seconds in behind)
    assert {seconds > 1_800 for seconds in behind if seconds >= 120} == {True}
    assert len(placed) == 4_000
    assert kinds["soon"] == 500 and min(kinds["before"], kinds["late"]) > 200


def test_most_payments_are_in_time_and_some_have_no_order() -> None:
    placed = {event["orderID"]: at for at, (_, event) in enumerate(values("order-events")) if "sku" in event}
    paid = [(payment["orderID"], at) for at, (_, payment) in enumerate(values("payments"))]
    gaps = Counter(
        "before" if at < placed[id] else "in time" if 10 * (at - placed[id]) <= 600 else "too late"
        for id, at in paid
        if id in placed
    )
    times = Counter(id for id, _ in paid)
    assert gaps["in time"] > 2_500 and min(gaps["before"], gaps["too late"]) > 300
    assert 490 < sum(id not in placed for id, _ in paid) < 520
    assert sum(id not in times for id in placed) > 500 < sum(number > 1 for number in times.values())


def test_products_change_vanish_and_return_and_two_ordered_ones_never_exist() -> None:
    prices: dict[bytes | None, set[float]] = {}
    gone, back = set(), set()
    for (key, value, _), product in values("products"):
        if value is None:
            gone.add(key)
        else:
            assert product["sku"].encode() == key
            prices.setdefault(key, set()).add(product["price"])
            back |= {key} & gone
    ordered = {event["sku"].encode() for _, event in values("order-events") if "sku" in event}
    assert len(prices) == 60 and min(len(amounts) for amounts in prices.values()) > 10
    assert len(gone) > 50 and back == gone
    assert len(ordered - prices.keys()) == 2


def test_stock_is_seldom_sold_out() -> None:
    stock = Counter[tuple[str, str]]()
    for _, item in values("inventory", 50_000):
        sign = 1 if item["type"] == "RESTOCK" else -1
        stock[item["storeID"], item["sku"]] += sign * item["quantity"]
    assert sum(number < 0 for number in stock.values()) < len(stock) / 4


def test_scenarios_of_orders_are_minutes_long() -> None:
    times = [time for _, _, time in stream("order-events", time_step=SCENARIOS["order-events"].time_step).records(0, 3)]
    assert [time - times[0] for time in times] == [0, 10_000, 20_000]


@pytest.mark.broker
def test_null_values_and_records_without_a_key_are_sent(kafka: Broker, topic: TopicFactory, tmp_path: Path) -> None:
    config = Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers})
    for name in ("customers", "text"):
        sent = topic(3)
        produce(config, name, records=400, topic=sent)
        read = [message for batch in kafka.read(Offsets(), kafka.stable_offsets([sent])) for message in batch]
        expected = [(key, value) for key, value, _ in stream(name).records(0, 400)]
        assert Counter((message.key(), message.value()) for message in read) == Counter(expected)
