"""Where an emitted row comes from, and its place in the order of emission.

A row's origin is the record that contributed to it and is last in the total order. A row that is emitted with its
record has that record's place. A row that is final by a frontier comes in the order (time final, origin): the time at
which it became final stands in ``_order_timestamp``, and topics, ``newest`` and whatever follows the total order take
such rows in one order, wherever slices end. See docs/decisions/final-rows-have-a-place-of-their-own.md.
"""

from __future__ import annotations

from kappa.topology import ORDER

#: The column of a state table that keeps it, with its type.
ORIGIN = "origin"
ORIGIN_TYPE = "STRUCT<_order_timestamp: TIMESTAMP, _topic: STRING, _partition: INT, _offset: BIGINT>"
#: Of rows of state, as an aggregate. Structs compare by their fields, in this order.
OF_PARTS = f"MAX({ORIGIN})"
#: As a scalar: of one row.
OF_ROW = f"STRUCT({', '.join(ORDER)})"


def final_at(time: str, of: str = ORIGIN) -> tuple[str, ...]:
    """SQL of the order columns of a row that is final by a frontier.

    Args:
        time: SQL of the event time at which it became final, the same in each cut of the log: what the frontier passed.
        of: SQL of its origin, a struct, or the alias of a row that has its columns.
    """
    first, *record = ORDER
    return f"{time} AS {first}", *(f"{of}.{name} AS {name}" for name in record)
