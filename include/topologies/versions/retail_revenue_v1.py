"""What is earned by each way of payment, taxes included: of each partition first, then of all."""

from kappa import Effects, Slice, Source, Topology
from kappa.operators import agg, two_phase

INVOICE = "InvoiceNumber STRING NOT NULL, PaymentMethod STRING NOT NULL, TotalAmount DECIMAL(12,2) NOT NULL"

earned = two_phase(
    rows=INVOICE, key="PaymentMethod", aggregates={"Invoices": agg.count(), "Revenue": agg.sum("TotalAmount")}
)


def add_up(slice: Slice) -> Effects:
    """The totals of invoices."""
    added = earned(slice["pos"], before=slice.table("revenue"), parts=slice.table("revenue_parts"))
    return {"revenue": added.changes, "revenue_parts": added.parts}


revenue = Topology(
    name="retail.revenue",
    version="1",
    sources=[Source(topic="pos", schema=INVOICE)],
    tables=[earned.table("revenue"), earned.parts_table("revenue_parts")],
    step=add_up,
)
