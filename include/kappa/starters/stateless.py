"""Rows that are selected and shaped one by one."""

TOPOLOGY = '''
"""Large invoices, as they come."""

from kappa import Append, Effects, Slice, Source, Topic, Topology

INVOICE = "InvoiceNumber STRING NOT NULL, StoreID STRING, TotalAmount DECIMAL(12,2) NOT NULL"
LARGE = "InvoiceNumber STRING NOT NULL, StoreID STRING, TotalAmount DECIMAL(12,2) NOT NULL, IsHuge BOOLEAN NOT NULL"
TOPIC = "$name"


def choose(slice: Slice) -> Effects:
    """Invoices of 1,000 and more."""
    large = slice["pos"].where("TotalAmount >= 1000")
    return {"large": large.selectExpr("*", "TotalAmount >= 5000 AS IsHuge")}


topology = Topology(
    name="$name",
    version="1",
    sources=[Source(topic="pos", schema=INVOICE)],
    outputs=[Append(name="large", schema=LARGE), Topic(name=TOPIC, of="large", key="StoreID")],
    step=choose,
)
'''

TEST = '''
def invoice(number: int, amount: float) -> Input:
    """The second one is a second after the first, and so on."""
    value = {"InvoiceNumber": f"{number}", "StoreID": "S1", "TotalAmount": amount}
    return Input(topic="pos", value=value, timestamp_ms=1000 * number)


def test_invoices_of_1000_and_more_are_kept(session: SparkSession) -> None:
    driver = TopologyDriver(topology, session)

    driver.pipe([invoice(1, 999.99), invoice(2, 1000), invoice(3, 5000), Input(topic="pos", value="no JSON")])

    assert [(row["InvoiceNumber"], row["IsHuge"]) for row in driver.rows("large")] == [("2", False), ("3", True)]
    assert [key for key, value in driver.sent(NAME)] == [b"S1", b"S1"]
    assert len(driver.dead_letters) == 1


def test_it_gives_the_same_however_the_log_is_cut(session: SparkSession) -> None:
    log = [invoice(1, 999.99), invoice(2, 1000), invoice(3, 5000)]
    assert_slice_invariant(topology, log, session, cuts=1)
'''
