"""Revenue per payment method, including taxes: first per partition, then in total."""

from kappa import Source, Topology
from kappa.operators import agg, two_phase

INVOICE = "InvoiceNumber STRING NOT NULL, PaymentMethod STRING NOT NULL, TotalAmount DECIMAL(12,2) NOT NULL"

pos = Source(topic="pos", schema=INVOICE)
earned = two_phase(
    pos,
    key="PaymentMethod",
    aggregates={"Invoices": agg.count(), "Revenue": agg.sum("TotalAmount")},
    table="revenue",
    parts="revenue_parts",
)

revenue = Topology(name="retail.revenue", version="1", sources=[pos], operators=[earned])
