"""Change records as operators read them: changes of one key, and changes that empty the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.operators import origin
from kappa.operators.frames import check_rows
from kappa.operators.keys import key_ddl, quoted_names, with_key
from kappa.topology.ddl import Column, quote
from kappa.topology.schemas.envelopes import CHANGE_COLUMNS, OF_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The place of a record: its position in the source's log, then its place in the total order.
PLACE = f"STRUCT(_position AS position, {origin.OF_ROW} AS origin)"
PLACE_TYPE = f"STRUCT<position: STRING, origin: {origin.ORIGIN_TYPE}>"
#: Distinguishes the records of a key: the position, or the place in the total order if the source has no positions.
VERSION = (
    "IF(_position <> '', _position, CONCAT_WS('/', LPAD(CAST(UNIX_MICROS(_order_timestamp) AS STRING), 20, '0'), "
    "_topic, LPAD(CAST(_partition AS STRING), 10, '0'), LPAD(CAST(_offset AS STRING), 20, '0')))"
)
#: Spark DDL of the table of truncates: the last one of each topic.
TRUNCATES = f"topic STRING NOT NULL, _place {PLACE_TYPE}"


@dataclass(frozen=True, kw_only=True)
class OfChanges:
    """The state of change records, before it is bound.

    Attributes:
        columns: columns of the rows.
        key: the key columns among them.
    """

    columns: tuple[Column, ...]
    key: tuple[Column, ...]

    def _row(self, *more: str) -> str:
        """Spark DDL of the rows, with further columns. If a log begins in the middle, even a column that is never null
        in the source may be null.
        """
        return ", ".join([key_ddl(self.key), *(f"{quote(c.name)} {c.type}" for c in self._rest), *more])

    @cached_property
    def _rest(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column not in self.key)


def check_changes(rows: DataFrame, columns: Iterable[Column], operator: str) -> None:
    """Check that the rows are change records, with their columns.

    Raises:
        TopologyError: they are not.
    """
    missing = [name for name in CHANGE_COLUMNS if name not in rows.columns]
    if missing:
        raise TopologyError(
            f"{operator}: the rows lack {missing}, which change records have. Pass rows of its source, and keep these "
            "columns where the step selects."
        )
    check_rows(rows, columns, operator)


def of_slice(rows: DataFrame, key: Iterable[Column]) -> tuple[DataFrame, DataFrame]:
    """Records of one key each, and truncates. Messages, and null values after deletions, do not concern a row."""
    operations = ", ".join(f"'{operation}'" for operation in OF_KEY)
    return with_key(rows.where(f"_operation IN ({operations})"), key), rows.where("_operation = 't'")


def marked_as_touched(stored: DataFrame, own: DataFrame, key: Sequence[Column], *, seeks: bool) -> DataFrame:
    """Rows of a state with ``_mine``, true for the keys of a slice and null for others.

    Args:
        stored: the rows.
        own: the records of the slice.
        key: the key columns.
        seeks: whether its keys are sought in the state, see :meth:`kappa.topology.Slice.seeks`.
    """
    from pyspark.sql import functions as F

    own_keys = own.selectExpr(*quoted_names(key), "TRUE AS _mine").distinct()
    return stored.join(F.broadcast(own_keys) if seeks else own_keys, on=[column.name for column in key], how="left")


def marked_truncates(truncates: DataFrame, before: DataFrame) -> DataFrame:
    """The changes of the table of truncates: the newer ones of a slice.

    Args:
        truncates: the truncates of the slice.
        before: the table before the slice.
    """
    new = truncates.selectExpr("_topic AS topic", f"{PLACE} AS _place").groupBy("topic").agg({"_place": "max"})
    new = new.toDF("topic", "_place")
    last_places = before.selectExpr("topic", "_place AS _known")
    newer = new.join(last_places, on="topic", how="left").where("_known IS NULL OR _place > _known")
    return newer.selectExpr("topic", "_place", "FALSE AS _deleted")
