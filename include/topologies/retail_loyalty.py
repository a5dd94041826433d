"""Loyalty points of PRIME customers: a notification for each invoice, and every customer's balance."""

from kappa import Append, Check, Schedule, Slice, Source, Topic, Topology
from kappa.operators import running_total

INVOICE = """
    InvoiceNumber STRING NOT NULL, CustomerType STRING NOT NULL, CustomerCardNo STRING,
    TotalAmount DECIMAL(12,2) NOT NULL
"""
EARNED = """
    InvoiceNumber STRING NOT NULL, CustomerCardNo STRING NOT NULL, TotalAmount DECIMAL(12,2) NOT NULL,
    EarnedLoyaltyPoints DECIMAL(15,4) NOT NULL
"""

pos = Source(topic="pos", schema=INVOICE)
rewards = running_total(
    pos, rows=EARNED, key="CustomerCardNo", amount="EarnedLoyaltyPoints", total="TotalLoyaltyPoints", table="rewards"
)


def score(slice: Slice) -> None:
    """Points for each PRIME invoice, and the customer's balance after it."""
    prime = slice["pos"].where("CustomerType = 'PRIME' AND CustomerCardNo IS NOT NULL")
    prime = prime.drop("CustomerType", "_key", "_timestamp")  # columns that no effect needs are neither sorted nor kept
    rewards(slice, prime.selectExpr("*", "TotalAmount * 0.02 AS EarnedLoyaltyPoints"))


loyalty = Topology(
    name="retail.loyalty",
    version="2",
    sources=[pos],
    operators=[rewards],
    outputs=[
        Append(name="notifications", of=rewards.rows),
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
