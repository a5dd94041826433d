"""Envelopes around the row of a source: change records, as a Debezium connector writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from kappa.errors import TopologyError
from kappa.topology.schemas.wire_schemas import OF_COLUMNS

if TYPE_CHECKING:
    from kappa.topology.members import Source

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


def check_envelope(source: Source) -> None:
    """Check that the envelope and its options fit the source.

    Raises:
        TopologyError: they do not.
    """
    what = f"Source {source.topic!r}"
    if source.envelope not in ENVELOPES:
        raise TopologyError(f"{what}: envelope {source.envelope!r} is not one of {', '.join(ENVELOPES)}.")
    if source.decimals not in DECIMALS:
        raise TopologyError(f"{what}: decimals {source.decimals!r} is not one of {', '.join(DECIMALS)}.")
    if source.envelope == "none":
        if source.decimals != "precise":
            raise TopologyError(
                f"{what} has decimals={source.decimals!r} but no envelope. Only change records have decimals in "
                "several forms: add envelope='debezium', or omit decimals."
            )
        return
    if source.format not in OF_COLUMNS:
        raise TopologyError(
            f"{what}: envelope={source.envelope!r} needs JSON or Avro, but format is {source.format!r}. Use "
            f"format={' or format='.join(map(repr, OF_COLUMNS))}."
        )
    if source.tombstones:
        raise TopologyError(
            f"{what} has envelope={source.envelope!r} and tombstones=True. A null value follows the record of a "
            "deletion and adds nothing: omit tombstones."
        )
    if source.key_schema and source.key_format not in OF_COLUMNS:
        raise TopologyError(
            f"{what}: keys of envelope={source.envelope!r} are objects, but key_format is {source.key_format!r}. Use "
            f"key_format={' or key_format='.join(map(repr, OF_COLUMNS))}."
        )
    if source.defaults or source.record:
        raise TopologyError(
            f"{what} has envelope={source.envelope!r} and record or defaults, which concern the value and not the row "
            "within it. Omit them."
        )


def timeless(source: Source) -> str | None:
    """SQL: whether a record has no event time of its own; None where each has one."""
    if source.envelope == "none":
        return "_tombstone" if source.tombstones else None
    if source.time is None or source.is_wall_clock or source.time == SOURCE_TIME:
        return "_operation IS NULL"
    return f"COALESCE(_operation NOT IN ({', '.join(map(repr, WITH_ROW))}), TRUE)"
