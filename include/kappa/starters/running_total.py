"""A total per key, in a table and at each record."""

TOPOLOGY = '''
"""What each customer has spent."""

from kappa import Append, Check, Slice, Source, Topic, Topology
from kappa.operators import running_total

INVOICE = "InvoiceNumber STRING NOT NULL, CustomerCardNo STRING, TotalAmount DECIMAL(12,2) NOT NULL"
TOPIC = "$name"

pos = Source(topic="pos", schema=INVOICE)
spent = running_total(pos, key="CustomerCardNo", amount="TotalAmount", total="Spent", table="totals")


def add_up(slice: Slice) -> None:
    """Each invoice with its customer's total so far, and the newest total of each customer."""
    spent(slice, slice["pos"].where("CustomerCardNo IS NOT NULL"))


topology = Topology(
    name="$name",
    version="1",
    sources=[pos],
    operators=[spent],
    outputs=[Append(name="purchases", of=spent.rows), Topic(name=TOPIC, of="purchases", key="CustomerCardNo")],
    checks=[Check(name="no total is negative", sql="SELECT * FROM totals WHERE Spent < 0")],
    step=add_up,
)
'''

TEST = '''
def invoice(number: int, customer: str | None, amount: float) -> Input:
    """The second one is a second after the first, and so on."""
    value = {"InvoiceNumber": f"{number}", "CustomerCardNo": customer, "TotalAmount": amount}
    return Input(topic="pos", value=value, timestamp_ms=1000 * number)


def test_a_total_goes_on_from_slice_to_slice(session: SparkSession) -> None:
    driver = TopologyDriver(topology, session)

    driver.pipe([invoice(1, "c1", 10), invoice(2, "c2", 1), invoice(3, None, 99)])
    driver.pipe([invoice(4, "c1", 5), Input(topic="pos", value="no JSON")])

    assert driver.rows("totals") == [
        {"CustomerCardNo": "c1", "Spent": Decimal("15.00")},
        {"CustomerCardNo": "c2", "Spent": Decimal("1.00")},
    ]
    assert [(row["InvoiceNumber"], row["Spent"]) for row in driver.rows("purchases")] == [
        ("1", Decimal("10.00")),
        ("2", Decimal("1.00")),
        ("4", Decimal("15.00")),
    ]
    assert [key for key, value in driver.sent(NAME)] == [b"c1", b"c2", b"c1"]
    assert len(driver.dead_letters) == 1


def test_it_gives_the_same_however_the_log_is_cut(session: SparkSession) -> None:
    log = [invoice(1, "c1", 10), invoice(2, "c2", 1), invoice(3, "c1", 5)]
    assert_slice_invariant(topology, log, session, cuts=1)
'''
