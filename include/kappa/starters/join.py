"""Two streams joined by key if their times are near each other."""

TOPOLOGY = '''
"""Each order with its payments of the ten minutes after it, and those that are not paid in that time."""

from kappa import Append, Slice, Source, Topic, Topology
from kappa.operators import interval_join

ORDER = "orderID STRING NOT NULL, customerID STRING, CreatedTime BIGINT NOT NULL"
PAYMENT = "paymentID STRING NOT NULL, orderID STRING NOT NULL, amount DECIMAL(12,2) NOT NULL"
TOPIC = "$name"

EVENT = f"{ORDER}, type STRING NOT NULL"
PAID = f"{PAYMENT}, CreatedTime BIGINT NOT NULL"

orders = Source(topic="order-events", schema=EVENT, time="CreatedTime", grace="1 minute")
payments = Source(topic="payments", schema=PAID, time="CreatedTime", grace="1 minute")
paid = interval_join(
    orders,
    payments,
    key="orderID",
    after="10 minutes",
    how="left",
    tables=("unpaid", "payments"),
    left_rows=ORDER,
    right_rows=PAYMENT,
)


def match(slice: Slice) -> None:
    """Orders that were placed: an event may also cancel one."""
    paid(slice, slice["order-events"].where("type = 'PLACED'"))


topology = Topology(
    name="$name",
    version="1",
    sources=[orders, payments],
    operators=[paid],
    outputs=[Append(name="settled", of=paid.rows), Topic(name=TOPIC, of="settled", key="orderID")],
    step=match,
)
'''

TEST = '''
def order(number: int, second: int, type: str = "PLACED") -> Input:
    """An order of this many seconds after 1970 began, or its cancellation."""
    value = {"orderID": f"{number}", "type": type, "CreatedTime": 1000 * second}
    return Input(topic="order-events", value=value, timestamp_ms=1000 * second)


def payment(number: int, second: int) -> Input:
    """The payment of an order."""
    value = {"paymentID": f"p{number}", "orderID": f"{number}", "amount": 10, "CreatedTime": 1000 * second}
    return Input(topic="payments", value=value, timestamp_ms=1000 * second)


def test_a_payment_within_ten_minutes_meets_its_order(session: SparkSession) -> None:
    driver = TopologyDriver(topology, session)

    driver.pipe([order(1, second=0), order(2, second=1), order(3, second=2, type="CANCELLED")])
    driver.pipe([payment(1, second=600), payment(3, second=600)])
    assert [(row["orderID"], row["paymentID"]) for row in driver.rows("settled")] == [("1", "p1")]
    assert [key for key, value in driver.sent(NAME)] == [b"1"]

    driver.pipe([order(4, second=700), payment(4, second=700)])
    assert ("2", None) in [(row["orderID"], row["paymentID"]) for row in driver.rows("settled")]

    driver.pipe([payment(2, second=601)])
    assert [row["operator"] for row in driver.rows("late_records")] == ["interval_join"]
    assert len(driver.rows("settled")) == 3


def test_it_gives_the_same_however_the_log_is_cut(session: SparkSession) -> None:
    log = [order(1, second=0), payment(1, second=600), payment(2, second=700)]
    assert_slice_invariant(topology, log, session, cuts=1)
'''
