"""Personal values that tables and topics may hold: a keyed hash in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa.operators.keys import in_sql
from kappa.topology.masking import check

if TYPE_CHECKING:
    from pyspark.sql import Column

#: SHA-256 works on blocks of this many bytes.
_BLOCK = 64


def masked(column: str, key: str) -> Column:
    """The value of a column under a key: HMAC-SHA256 as 64 hexadecimal digits, null where the value is null.

    The same value gives the same mask wherever the key is the same, so that masked columns still join; without the key
    no value can be found by trying all that are possible. Another key gives other masks: a replay under it differs in
    every row. The value is taken as text, UTF-8.

    The key is in no plan: it comes from a subquery over one row in memory, which Spark prints as ``LocalTableScan``.
    As a literal it stood in ``explain``, in the UI and in event logs. What remains: the memory of the driver and its
    executors, and the tasks that the driver sends them, so encrypt those (``spark.network.crypto.enabled``).

    Args:
        column: the column, or a field of one: ``DeliveryAddress.ContactNumber``.
        key: the key, ``slice.mask_key``.

    Raises:
        TopologyError: the key is too short; the message does not hold it.

    Source: RFC 2104, RFC 4231 for its test vectors.

    Examples:
        >>> from kappa.operators import masked
        >>> people = spark.sql("SELECT 'ada' AS name").select(masked("name", "k" * 32).alias("name"))
        >>> len(people.first()["name"])
        64
    """
    check(key)
    from pyspark.sql import functions as F

    pads = _pads(key.encode())
    inner = F.unhex(F.sha2(F.concat(pads.getField("inner"), F.expr(f"CAST({in_sql(column)} AS BINARY)")), 256))
    return F.sha2(F.concat(pads.getField("outer"), inner), 256)


def _pads(key: bytes) -> Column:
    """The two blocks that HMAC hashes first, as one value that Spark knows only when it runs."""
    import hashlib

    import pyarrow as pa
    from pyspark.sql import SparkSession

    block = (hashlib.sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    both = {"inner": bytes(byte ^ 0x36 for byte in block), "outer": bytes(byte ^ 0x5C for byte in block)}
    session = SparkSession.active()
    return session.createDataFrame(pa.table({"pads": pa.array([both])})).scalar()
