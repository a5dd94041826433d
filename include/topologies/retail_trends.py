"""Sales by place: one row for each line of an invoice, without a customer's name, address or number."""

from kappa import Append, Effects, Slice, Source, Topic, Topology
from kappa.operators import masked

INVOICE = """
    InvoiceNumber STRING NOT NULL, CreatedTime BIGINT NOT NULL, StoreID STRING NOT NULL, PosID STRING,
    CustomerType STRING, CustomerCardNo STRING, PaymentMethod STRING, DeliveryType STRING,
    DeliveryAddress STRUCT<AddressLine: STRING, City: STRING, State: STRING, PinCode: STRING, ContactNumber: STRING>,
    InvoiceLineItems ARRAY<STRUCT<
        ItemCode: STRING, ItemDescription: STRING, ItemPrice: DECIMAL(12,2), ItemQty: INT, TotalValue: DECIMAL(14,2)>>
"""
LINE = """
    InvoiceNumber STRING NOT NULL, CreatedTime BIGINT NOT NULL, Day DATE NOT NULL, StoreID STRING NOT NULL, PosID
    STRING, CustomerType STRING, Customer STRING, PaymentMethod STRING, DeliveryType STRING, Address STRING, Contact
    STRING, City STRING, State STRING, PinCode STRING, ItemCode STRING, ItemDescription STRING, ItemPrice
    DECIMAL(12,2), ItemQty INT, TotalValue DECIMAL(14,2)
"""


def spread(slice: Slice) -> Effects:
    """Lines of every invoice. A mask cannot be undone, and equal values have equal masks."""
    invoices = slice["pos"].withColumns(
        {
            "Customer": masked("CustomerCardNo", slice.mask_key),
            "Address": masked("DeliveryAddress.AddressLine", slice.mask_key),
            "Contact": masked("DeliveryAddress.ContactNumber", slice.mask_key),
        }
    )
    lines = invoices.selectExpr(
        "* EXCEPT (InvoiceLineItems, CustomerCardNo)",
        "TO_DATE(TIMESTAMP_MILLIS(CreatedTime)) AS Day",
        "INLINE(InvoiceLineItems)",
    )
    return {
        "lines": lines.selectExpr(
            "* EXCEPT (DeliveryAddress)", "DeliveryAddress.City", "DeliveryAddress.State", "DeliveryAddress.PinCode"
        )
    }


trends = Topology(
    name="retail.trends",
    version="2",
    sources=[Source(topic="pos", schema=INVOICE, sensitive=True)],
    outputs=[
        Append(name="lines", schema=LINE, partition_by=["Day"]),
        Topic(name="hadoop-sink", of="lines", key="StoreID"),
    ],
    step=spread,
)
