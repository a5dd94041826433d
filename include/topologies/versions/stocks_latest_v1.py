"""The newest tick of each share of the HDFC group: a table that follows its topic, and its updates as a stream."""

from kappa import Slice, Source, Topic, Topology
from kappa.operators import newest_by

TICK = "symbol STRING NOT NULL, CreatedTime BIGINT NOT NULL, price DECIMAL(12,2) NOT NULL, volume INT NOT NULL"
HDFC = "^HDFC"

ticks = Source(topic="ticks", schema=TICK, key_schema="symbol STRING", tombstones=True)
newest = newest_by(ticks, key="symbol", table="latest")


def follow(slice: Slice) -> None:
    """Keep only the last tick of each symbol in the slice, as readers of the updates get no other; a null value
    deletes.
    """
    newest(slice, slice["ticks"].where(f"symbol RLIKE '{HDFC}'"))


latest = Topology(
    name="stocks.latest",
    version="1",
    sources=[ticks],
    operators=[newest],
    outputs=[Topic(name="latest-ticks", of="latest", key="symbol", on_replay="reconcile")],
    step=follow,
)
