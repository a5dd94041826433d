"""Records with another key, and the partition in which Kafka's clients look for a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.operators.keys import in_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Types whose text is the key that a topic output sends.
_AS_TEXT = ("string", "boolean", "tinyint", "smallint", "int", "bigint")
_MASK, _MIXER, _SEED = 0xFFFFFFFF, 0x5BD1E995, 0x9747B28C


def rekey(df: DataFrame, *, key: str, partitions: int | None = None) -> DataFrame:
    """The rows with another record key: ``_key`` becomes the text of a column (``selectKey`` in Kafka Streams).

    No operator needs it: each takes its key as an argument, and Spark brings the rows of a key together within the
    slice. Where Kafka Streams needs a repartition topic, use a topic output, ``Topic(key=...)``: it sends each record
    to the partition of Kafka's default partitioner (murmur2), where all other clients look for it. With ``partitions``
    the row names that partition.

    Rows keep the place and order of the record that they come from. No state. Class: any cut as a multiset; the order
    in which a topic with the new key gets records of several partitions follows the slices.

    Args:
        df: rows with the new key.
        key: column of type STRING, BOOLEAN or an integer; null keys stay null.
        partitions: number of partitions of the target topic.

    Returns:
        The rows with ``_key STRING`` and, with ``partitions``, ``_key_partition INT``, null for a null key.

    Raises:
        TopologyError: the column has another type, or the number of partitions is not positive.

    Examples:
        >>> from kappa.operators import rekey
        >>> rekey(spark.sql("SELECT 7 AS customer"), key="customer").collect()
        [Row(customer=7, _key='7')]
    """
    kind = df.select(in_sql(key, df.columns)).schema[0].dataType.simpleString()
    if kind not in _AS_TEXT:
        raise TopologyError(
            f"rekey: column {key!r} is {kind.upper()}, which has no unique text. Cast it to STRING first."
        )
    rows = df.withColumns({"_key": df[in_sql(key, df.columns)].cast("string")})
    if partitions is None:
        return rows
    from pyspark.sql import functions as F

    return rows.withColumn("_key_partition", F.expr(partition_of("_key", partitions)))


def partition_of(text: str, partitions: int) -> str:
    """SQL of the partition, INT, that Kafka's default partitioner gives a key.

    Args:
        text: SQL of the key, STRING.
        partitions: number of partitions of the topic.

    Raises:
        TopologyError: there are none.
    """
    if partitions < 1:
        raise TopologyError(f"A topic with {partitions} partitions has no place for a key. Give 1 or more.")
    return f"CAST(({murmur2(text)} & {0x7FFFFFFF}L) % {partitions} AS INT)"


def murmur2(text: str) -> str:
    """SQL of Kafka's murmur2 of a text, as an unsigned number, BIGINT; null for null.

    Source: ``org.apache.kafka.common.utils.Utils.murmur2``. Products stay below 2^63: the mixer has 31 bits.
    """
    size = "(LENGTH(b) DIV 2)"
    words = f"TRANSFORM(IF({size} >= 4, SEQUENCE(0, {size} DIV 4 - 1), ARRAY()), _at -> {_times(_word('_at'))})"
    mixed = f"TRANSFORM({words}, _one -> {_times('(_one ^ SHIFTRIGHT(_one, 24))')})"
    whole = f"AGGREGATE({mixed}, {_SEED}L ^ {size}, (_so_far, _one) -> {_times('_so_far')} ^ _one)"
    tail = _word(f"({size} DIV 4)")
    hashed = _let("h", whole, f"IF({size} % 4 = 0, h, {_times(f'(h ^ {tail})')})")
    spread = _let("h", hashed, _times("(h ^ SHIFTRIGHT(h, 13))"))
    return _let("b", f"HEX({text})", _let("h", spread, "h ^ SHIFTRIGHT(h, 15)"))


def _times(number: str) -> str:
    return f"({number} * {_MIXER}L & {_MASK}L)"


def _word(at: str) -> str:
    """Up to four bytes of the hexadecimal text ``b``, the least significant first; there are none after its end."""
    digits = ", ".join(f"SUBSTRING(b, 8 * {at} + {first}, 2)" for first in (7, 5, 3, 1))
    return f"CAST(CONV(CONCAT({digits}), 16, 10) AS BIGINT)"


def _let(name: str, value: str, body: str) -> str:
    """A value that a body uses several times, computed once."""
    return f"TRANSFORM(ARRAY({value}), {name} -> {body})[0]"
