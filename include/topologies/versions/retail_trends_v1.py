"""Sales by place: one row for each line of an invoice, without anything that distinguishes customers."""

from kappa import Append, Effects, Slice, Source, Topic, Topology

INVOICE = """
    InvoiceNumber STRING NOT NULL, CreatedTime BIGINT NOT NULL, StoreID STRING NOT NULL, PosID STRING,
    CustomerType STRING, CustomerCardNo STRING, PaymentMethod STRING, DeliveryType STRING,
    DeliveryAddress STRUCT<AddressLine: STRING, City: STRING, State: STRING, PinCode: STRING, ContactNumber: STRING>,
    InvoiceLineItems ARRAY<STRUCT<
        ItemCode: STRING, ItemDescription: STRING, ItemPrice: DECIMAL(12,2), ItemQty: INT, TotalValue: DECIMAL(14,2)>>
"""
LINE = """
    InvoiceNumber STRING NOT NULL, CreatedTime BIGINT NOT NULL, Day DATE NOT NULL, StoreID STRING NOT NULL, PosID
    STRING, CustomerType STRING, PaymentMethod STRING, DeliveryType STRING, City STRING, State STRING, PinCode STRING,
    ItemCode STRING, ItemDescription STRING, ItemPrice DECIMAL(12,2), ItemQty INT, TotalValue DECIMAL(14,2)
"""


def spread(slice: Slice) -> Effects:
    """Lines of every invoice."""
    lines = slice["pos"].selectExpr(
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
    version="1",
    sources=[Source(topic="pos", schema=INVOICE, sensitive=True)],
    outputs=[
        Append(name="lines", schema=LINE, partition_by=["Day"]),
        Topic(name="hadoop-sink", of="lines", key="StoreID"),
    ],
    step=spread,
)
