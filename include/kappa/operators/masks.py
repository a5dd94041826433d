"""Masks that tables and topics may hold in place of personal values: keyed hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa.operators.keys import in_sql
from kappa.topology.masking import check

if TYPE_CHECKING:
    from pyspark.sql import Column

#: SHA-256 works on blocks of this many bytes.
_BLOCK = 64


def masked(column: str, key: str) -> Column:
    """The mask of a column's value under a key: HMAC-SHA256 as 64 hexadecimal digits, null for null.

    The same value and key always give the same mask, so that masked columns still join; without the key, no value can
    be found by trying all possible ones. Another key gives other masks: a replay under it differs in every row. The
    value is hashed as UTF-8 text.

    The key is in no plan: it comes from a subquery over one row in memory, which Spark prints as ``LocalTableScan``. A
    literal would appear in ``explain``, in the UI and in event logs. The key still is in the memory of the driver and
    its executors, and in the tasks that the driver sends them, so encrypt those (``spark.network.crypto.enabled``).

    Args:
        column: the column, or a field of one: ``DeliveryAddress.ContactNumber``.
        key: the key, ``slice.mask_key``.

    Raises:
        TopologyError: the key is too short; the message does not contain it.

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
    """The two blocks that HMAC hashes first, as one value that Spark evaluates only at run time."""
    import hashlib

    import pyarrow as pa
    from pyspark.sql import SparkSession

    block = (hashlib.sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    both = {"inner": bytes(byte ^ 0x36 for byte in block), "outer": bytes(byte ^ 0x5C for byte in block)}
    session = SparkSession.active()
    return session.createDataFrame(pa.table({"pads": pa.array([both])})).scalar()
