"""Two streams joined by key if their times are near each other."""

TOPOLOGY = '''
"""Each invoice with its payments of the ten minutes after it, and those that are not paid in that time."""

from kappa import Append, Source, Topic, Topology
from kappa.operators import interval_join

INVOICE = "InvoiceNumber STRING NOT NULL, TotalAmount DECIMAL(12,2) NOT NULL, CreatedTime BIGINT"
PAYMENT = "PaymentId STRING NOT NULL, InvoiceNumber STRING NOT NULL, PaidTime BIGINT"
TOPIC = "$name"

pos = Source(topic="pos", schema=INVOICE, time="CreatedTime", grace="10 seconds")
payments = Source(topic="payments", schema=PAYMENT, time="PaidTime", grace="10 seconds")
paid = interval_join(pos, payments, key="InvoiceNumber", after="10 minutes", how="left", tables=("unpaid", "payments"))

topology = Topology(
    name="$name",
    version="1",
    sources=[pos, payments],
    operators=[paid],
    outputs=[Append(name="settled", of=paid.rows), Topic(name=TOPIC, of="settled", key="InvoiceNumber")],
)
'''

TEST = '''
def invoice(number: int, second: int) -> Input:
    """An invoice of this many seconds after 1970 began."""
    value = {"InvoiceNumber": f"{number}", "TotalAmount": 10, "CreatedTime": 1000 * second}
    return Input(topic="pos", value=value, timestamp_ms=1000 * second)


def payment(number: int, second: int) -> Input:
    """The payment of an invoice."""
    value = {"PaymentId": f"p{number}", "InvoiceNumber": f"{number}", "PaidTime": 1000 * second}
    return Input(topic="payments", value=value, timestamp_ms=1000 * second)


def test_a_payment_within_ten_minutes_meets_its_invoice(session: SparkSession) -> None:
    driver = TopologyDriver(topology, session)

    driver.pipe([invoice(1, second=0), invoice(2, second=1)])
    driver.pipe([payment(1, second=600)])
    assert [(row["InvoiceNumber"], row["PaymentId"]) for row in driver.rows("settled")] == [("1", "p1")]
    assert [key for key, value in driver.sent(NAME)] == [b"1"]

    driver.pipe([invoice(4, second=700), payment(3, second=700)])
    assert ("2", None) in [(row["InvoiceNumber"], row["PaymentId"]) for row in driver.rows("settled")]

    driver.pipe([payment(2, second=601)])
    assert [row["operator"] for row in driver.rows("late_records")] == ["interval_join"]
    assert len(driver.rows("settled")) == 2


def test_it_gives_the_same_however_the_log_is_cut(session: SparkSession) -> None:
    log = [invoice(1, second=0), payment(1, second=600), payment(2, second=700)]
    assert_slice_invariant(topology, log, session, cuts=1)
'''
