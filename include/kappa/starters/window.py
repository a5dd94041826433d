"""Aggregates per key in windows of event time."""

TOPOLOGY = '''
"""What each store sells in a minute: windows that are open, in a table, and a row for each that is closed."""

from kappa import Append, Source, Topic, Topology
from kappa.operators import agg, tumbling_window

INVOICE = "InvoiceNumber STRING NOT NULL, StoreID STRING, TotalAmount DECIMAL(12,2) NOT NULL, CreatedTime BIGINT"
TOPIC = "$name"

pos = Source(topic="pos", schema=INVOICE, time="CreatedTime", grace="10 seconds")
sales = tumbling_window(
    pos,
    key="StoreID",
    size="1 minute",
    aggregates={"Invoices": agg.count(), "Amount": agg.sum("TotalAmount"), "Largest": agg.max("TotalAmount")},
    table="windows",
)

topology = Topology(
    name="$name",
    version="1",
    sources=[pos],
    operators=[sales],
    outputs=[Append(name="sales", of=sales.final), Topic(name=TOPIC, of="sales", key="StoreID")],
)
'''

TEST = '''
def invoice(number: int, store: str, amount: float, second: int) -> Input:
    """An invoice of this many seconds after 1970 began."""
    value = {"InvoiceNumber": f"{number}", "StoreID": store, "TotalAmount": amount, "CreatedTime": 1000 * second}
    return Input(topic="pos", value=value, timestamp_ms=1000 * second)


def test_a_window_closes_once_the_grace_after_it_has_passed(session: SparkSession) -> None:
    driver = TopologyDriver(topology, session)

    driver.pipe([invoice(1, "S1", 10, second=5), invoice(2, "S1", 5, second=59), invoice(3, "S2", 1, second=61)])
    assert driver.rows("sales") == []
    assert len(driver.rows("windows")) == 2

    driver.pipe([invoice(4, "S2", 2, second=70)])
    assert [(row["StoreID"], row["Invoices"], row["Amount"], row["Largest"]) for row in driver.rows("sales")] == [
        ("S1", 2, Decimal("15.00"), Decimal("10.00"))
    ]
    assert [key for key, value in driver.sent(NAME)] == [b"S1"]

    driver.pipe([invoice(5, "S1", 7, second=58)])
    assert [row["operator"] for row in driver.rows("late_records")] == ["tumbling_window"]
    assert len(driver.rows("sales")) == 1


def test_it_gives_the_same_however_the_log_is_cut(session: SparkSession) -> None:
    log = [invoice(1, "S1", 10, second=5), invoice(2, "S1", 5, second=75), invoice(3, "S1", 1, second=58)]
    assert_slice_invariant(topology, log, session, cuts=1)
'''
