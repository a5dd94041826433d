"""Loyalty points of PRIME customers: a notification for each invoice."""

from kappa import Append, Effects, Slice, Source, Topic, Topology

INVOICE = """
    InvoiceNumber STRING NOT NULL, CustomerType STRING NOT NULL, CustomerCardNo STRING,
    TotalAmount DECIMAL(12,2) NOT NULL
"""
NOTIFICATION = """
    InvoiceNumber STRING NOT NULL, CustomerCardNo STRING NOT NULL, TotalAmount DECIMAL(12,2) NOT NULL,
    EarnedLoyaltyPoints DECIMAL(15,4) NOT NULL
"""


def score(slice: Slice) -> Effects:
    """Points for each PRIME invoice."""
    prime = slice["pos"].where("CustomerType = 'PRIME' AND CustomerCardNo IS NOT NULL")
    return {"notifications": prime.selectExpr("*", "TotalAmount * 0.02 AS EarnedLoyaltyPoints")}


loyalty = Topology(
    name="retail.loyalty",
    version="1",
    sources=[Source(topic="pos", schema=INVOICE)],
    outputs=[
        Append(name="notifications", schema=NOTIFICATION),
        Topic(name="loyalty", of="notifications", key="CustomerCardNo"),
    ],
    step=score,
)
