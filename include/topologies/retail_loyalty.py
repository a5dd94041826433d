"""Loyalty points of PRIME customers: a notification for each invoice, and every customer's balance."""

from kappa import Append, Check, Effects, Schedule, Slice, Source, Table, Topic, Topology
from kappa.operators import newest, running_total

INVOICE = """
    InvoiceNumber STRING NOT NULL, CustomerType STRING NOT NULL, CustomerCardNo STRING,
    TotalAmount DECIMAL(12,2) NOT NULL
"""
NOTIFICATION = """
    InvoiceNumber STRING NOT NULL, CustomerCardNo STRING NOT NULL, TotalAmount DECIMAL(12,2) NOT NULL,
    EarnedLoyaltyPoints DECIMAL(15,4) NOT NULL, TotalLoyaltyPoints DECIMAL(18,4) NOT NULL
"""
REWARD = "CustomerCardNo STRING NOT NULL, TotalLoyaltyPoints DECIMAL(18,4) NOT NULL"


def score(slice: Slice) -> Effects:
    """Points for each PRIME invoice, and the balance that its customer has with it."""
    prime = slice["pos"].where("CustomerType = 'PRIME' AND CustomerCardNo IS NOT NULL")
    prime = prime.drop("CustomerType", "_key", "_timestamp")  # what no effect needs is not sorted and kept
    notifications = running_total(
        prime.selectExpr("*", "TotalAmount * 0.02 AS EarnedLoyaltyPoints"),
        key="CustomerCardNo",
        amount="EarnedLoyaltyPoints",
        total="TotalLoyaltyPoints",
        before=slice.table("rewards"),
    )
    return {"notifications": notifications, "rewards": newest(notifications, key="CustomerCardNo")}


loyalty = Topology(
    name="retail.loyalty",
    version="2",
    sources=[Source(topic="pos", schema=INVOICE)],
    tables=[Table(name="rewards", key=["CustomerCardNo"], schema=REWARD)],
    outputs=[
        Append(name="notifications", schema=NOTIFICATION),
        Topic(name="loyalty", of="notifications", key="CustomerCardNo"),
    ],
    checks=[
        Check(
            name="every customer who was notified has a balance",
            sql="SELECT CustomerCardNo FROM notifications EXCEPT SELECT CustomerCardNo FROM rewards",
        )
    ],
    reprocess=Schedule(cron="0 3 * * 0"),
    step=score,
)
