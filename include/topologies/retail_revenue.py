"""Revenue per payment method: first per partition, then in total."""

from kappa import Check, Slice, Source, Topology
from kappa.operators import agg, two_phase

INVOICE = """
    InvoiceNumber STRING NOT NULL, PaymentMethod STRING NOT NULL, TotalAmount DECIMAL(12,2) NOT NULL,
    CGST DECIMAL(12,2), SGST DECIMAL(12,2), CESS DECIMAL(12,2)
"""
WHOLE = "SELECT PaymentMethod, Revenue FROM revenue"
PARTS = "SELECT PaymentMethod, CAST(SUM(Revenue) AS DECIMAL(25,2)) FROM revenue_parts GROUP BY ALL"
NET = "PaymentMethod STRING, Net DECIMAL(15,2)"

pos = Source(topic="pos", schema=INVOICE)
sums = {"Invoices": agg.count(), "Revenue": agg.sum("Net")}
earned = two_phase(pos, rows=NET, key="PaymentMethod", aggregates=sums, table="revenue", parts="revenue_parts")


def add_up(slice: Slice) -> None:
    """Add up what the shop keeps from each invoice: its total without taxes."""
    taxes = "COALESCE(CGST, 0) + COALESCE(SGST, 0) + COALESCE(CESS, 0)"
    earned(slice, slice["pos"].selectExpr("*", f"CAST(TotalAmount - ({taxes}) AS DECIMAL(15,2)) AS Net"))


revenue = Topology(
    name="retail.revenue",
    version="2",
    sources=[pos],
    operators=[earned],
    checks=[Check(name="the whole is the sum of its parts", sql=f"{WHOLE} EXCEPT {PARTS}")],
    step=add_up,
)
