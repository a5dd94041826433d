"""Rows from elsewhere as the content of an epoch's tables before its first slice, in the declared columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kappa.delta import tables
from kappa.slices.rows import partition_values
from kappa.slices.rows.effects import stored_type
from kappa.slices.run import EpochRun
from kappa.topology import Append, Table
from kappa.topology.ddl import Column, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def seed_table(run: EpochRun, table: Table, rows: DataFrame) -> None:
    """Replace all rows of a table. Idempotent."""
    tables.overwrite_frame(run.paths.table(table.name), _fitted(rows, table.columns), 0)


def seed_output(run: EpochRun, append: Append, rows: DataFrame) -> None:
    """Replace all rows of an append output. Idempotent.

    They are of slice 0, since they belong to no slice of this epoch.
    """
    fitted = _fitted(rows, (*append.columns, *tables.LINEAGE))
    parts = {c.name: partition_values.as_kept(c) for c in append.columns if c.name in append.partition_by}
    expressions = (parts.get(name, quote(name)) for name in fitted.columns)
    seeded = fitted.selectExpr("CAST(0 AS BIGINT) AS _seq", *expressions)
    tables.overwrite_frame(run.paths.output(append.name), seeded, 0)


def _fitted(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """The declared columns in their types; a column that the rows lack becomes null."""
    from pyspark.sql import functions as F

    return frame.select(
        *(
            (F.col(quote(c.name)) if c.name in frame.columns else F.lit(None))
            .cast(stored_type([c])[0].dataType)
            .alias(c.name)
            for c in columns
        )
    )
