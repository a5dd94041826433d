"""The newest tick of each bank's share: a table that follows its topic, and the table's updates as a stream."""

from kappa import Effects, Slice, Source, Table, Topic, Topology
from kappa.operators import newest, tombstones

TICK = "symbol STRING NOT NULL, CreatedTime BIGINT NOT NULL, price DECIMAL(12,2) NOT NULL, volume INT NOT NULL"
BANKS = "^(AXIS|HDFC|ICICI|KOTAK)BANK$|^SBIN$"


def follow(slice: Slice) -> Effects:
    """The last tick of each symbol in the slice, which is all that readers of the updates get; a null value deletes."""
    ticks = tombstones(slice["ticks"], key="symbol").where(f"symbol RLIKE '{BANKS}'")
    return {"latest": newest(ticks, key="symbol")}


latest = Topology(
    name="stocks.latest",
    version="2",
    sources=[Source(topic="ticks", schema=TICK, key_schema="symbol STRING", tombstones=True)],
    tables=[Table(name="latest", key=["symbol"], schema=TICK)],
    outputs=[Topic(name="latest-ticks", of="latest", key="symbol", on_replay="reconcile")],
    step=follow,
)
