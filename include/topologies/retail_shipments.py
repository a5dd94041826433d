"""Deliveries: one shipment for each invoice with home delivery."""

from kappa import Append, Effects, Slice, Source, Topic, Topology

SHIPMENT = """
    InvoiceNumber STRING NOT NULL, CreatedTime BIGINT, StoreID STRING, NumberOfItems INT, DeliveryType STRING,
    DeliveryAddress STRUCT<AddressLine: STRING, City: STRING, State: STRING, PinCode: STRING, ContactNumber: STRING>,
    InvoiceLineItems ARRAY<STRUCT<ItemCode: STRING, ItemDescription: STRING, ItemQty: INT>>
"""


def ship(slice: Slice) -> Effects:
    """Invoices with home delivery, however it is spelled."""
    return {"shipments": slice["pos"].where("upper(DeliveryType) = 'HOME-DELIVERY'")}


shipments = Topology(
    name="retail.shipments",
    version="2",
    sources=[Source(topic="pos", schema=SHIPMENT)],
    outputs=[Append(name="shipments", schema=SHIPMENT), Topic(name="shipment", of="shipments", key="InvoiceNumber")],
    step=ship,
)
