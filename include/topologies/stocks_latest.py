"""The newest tick of each bank's share: a table that follows its topic, and the table's updates as a stream."""

from kappa import Slice, Source, Topic, Topology
from kappa.operators import newest_by

TICK = "symbol STRING NOT NULL, CreatedTime BIGINT NOT NULL, price DECIMAL(12,2) NOT NULL, volume INT NOT NULL"
BANKS = "^(AXIS|HDFC|ICICI|KOTAK)BANK$|^SBIN$"

ticks = Source(topic="ticks", schema=TICK, key_schema="symbol STRING", tombstones=True)
newest = newest_by(ticks, key="symbol", table="latest")


def follow(slice: Slice) -> None:
    """Keep only the last tick of each symbol in the slice, as readers of the updates get no other; a null value
    deletes.
    """
    newest(slice, slice["ticks"].where(f"symbol RLIKE '{BANKS}'"))


latest = Topology(
    name="stocks.latest",
    version="2",
    sources=[ticks],
    operators=[newest],
    outputs=[Topic(name="latest-ticks", of="latest", key="symbol", on_replay="reconcile")],
    step=follow,
)
