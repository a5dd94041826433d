"""The origin of an emitted row, and its place in the order of emission.

A row's origin is the last record in the total order that contributed to it. A row that is emitted with its record has
that record's place. Rows that are final by a frontier have the order (time final, origin): ``_order_timestamp`` is the
time at which a row became final. So topics, ``newest`` and everything else that follows the total order get such rows
in one order, wherever slices end. See docs/decisions/final-rows-have-a-place-of-their-own.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kappa.topology import ORDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The order in which an operator's rows reach a topic, however the log is cut. ``topic``: one order in each partition,
#: by the places of rows that are final by a frontier. ``key``: the rows of a key in the order of its records, if these
#: lie in one partition. ``contributor``: pairs of a join, which follow the arrival of their contributors. ``none``:
#: updates of a table; at equal offsets the newest one of each key is the same.
Order = Literal["topic", "key", "contributor", "none"]
#: The order of each operator's rows. Operators that are not named keep the order of their input.
ORDERS: dict[str, Order] = {
    "aggregate": "none",
    "aggregate_table": "none",
    "at_most_every": "topic",
    "cdc_table": "key",
    "cogroup": "none",
    "deduplicate": "key",
    "foreign_key_join": "none",
    "hopping_window": "topic",
    "interval_join": "contributor",
    "lookup": "key",
    "newest": "key",
    "newest_by": "none",
    "newest_table_join": "key",
    "running_total": "key",
    "session_window": "topic",
    "sliding_window": "topic",
    "table_join": "topic",
    "table_table_join": "none",
    "tumbling_window": "topic",
    "two_phase": "none",
}
#: In the metadata of the first order column.
_ORDER = "kappa.order"

#: The column of a state table for the origin, with its type.
ORIGIN = "origin"
ORIGIN_TYPE = "STRUCT<_order_timestamp: TIMESTAMP, _topic: STRING, _partition: INT, _offset: BIGINT>"
#: The origin of several rows, as an aggregate. Structs compare by their fields, in this order.
OF_PARTS = f"MAX({ORIGIN})"
#: The origin of one row, as a scalar.
OF_ROW = f"STRUCT({', '.join(ORDER)})"


def ordered(rows: DataFrame, order: Order) -> DataFrame:
    """The rows that an operator emits, marked with their order; the mark follows their first order column."""
    return rows.withMetadata(ORDER[0], {_ORDER: order})


def order_of(rows: DataFrame) -> Order | None:
    """The order that rows are marked with; None for records, and for rows without a place."""
    if ORDER[0] not in rows.columns:
        return None
    order: Order | None = rows.schema[ORDER[0]].metadata.get(_ORDER)
    return order


def final_at(time: str, of: str = ORIGIN) -> tuple[str, ...]:
    """SQL of the order columns of a row that is final by a frontier.

    Args:
        time: SQL of the event time at which it became final, which the frontier passed; the same in each cut of the
            log.
        of: SQL of its origin, a struct, or the alias of a row that has its columns.
    """
    first, *record = ORDER
    return f"{time} AS {first}", *(f"{of}.{name} AS {name}" for name in record)
