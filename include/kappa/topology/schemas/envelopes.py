"""Envelopes around the row of a source: change records, as a Debezium connector writes them."""

from __future__ import annotations

from typing import Literal, get_args

#: Kinds of a record's value: the row itself, or a change of a row of a database.
Envelope = Literal["none", "debezium"]
ENVELOPES: tuple[str, ...] = get_args(Envelope)
#: Meanings of a text in a DECIMAL column without a schema beside it, by the connector's ``decimal.handling.mode``.
Decimals = Literal["precise", "string", "double"]
DECIMALS: tuple[str, ...] = get_args(Decimals)
#: Columns that the records of such a source have beside those of every record:
#:
#: - ``_operation``: ``c`` create, ``u`` update, ``d`` delete, ``r`` read by a snapshot, ``t`` truncate, ``m`` message;
#:   null for a null value, which follows a deletion and says nothing new.
#: - ``_position``: where the change is in the source's own log, as text that sorts as the log does; empty where the
#:   connector has no position that is known here.
#: - ``_source_time``: when the source made the change.
#: - ``_unchanged``: columns that the record does not hold since the change left them as they were: they are null.
CHANGE_COLUMNS = {
    "_operation": "STRING",
    "_position": "STRING",
    "_source_time": "TIMESTAMP",
    "_unchanged": "ARRAY<STRING>",
}
#: Operations whose records have a row.
WITH_ROW = ("c", "u", "r")
#: Operations of one key.
OF_KEY = (*WITH_ROW, "d")
OPERATIONS = (*OF_KEY, "t", "m")
SOURCE_TIME = "_source_time"
