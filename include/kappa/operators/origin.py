"""Where an emitted row comes from: the record that contributed to it and is last in the total order."""

from __future__ import annotations

from kappa.topology import ORDER

#: The column of a state table that keeps it, with its type.
ORIGIN = "origin"
ORIGIN_TYPE = "STRUCT<_order_timestamp: TIMESTAMP, _topic: STRING, _partition: INT, _offset: BIGINT>"
#: Of rows of state, as an aggregate. Structs compare by their fields, in this order.
OF_PARTS = f"MAX({ORIGIN})"
#: As a scalar: of one row.
OF_ROW = f"STRUCT({', '.join(ORDER)})"
#: The columns that an output keeps of it.
COLUMNS = tuple(f"{ORIGIN}.{name} AS {name}" for name in ORDER)
