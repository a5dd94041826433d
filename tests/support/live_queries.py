"""Structured Streaming's side of a live epoch, without the epoch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kappa.offsets.vector import Offsets
from kappa.spark.live_query import LiveQuery, OnBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def live_query(
    session: SparkSession,
    servers: str,
    start: Offsets,
    folder: Path,
    on_batch: OnBatch,
    position: Callable[[], Offsets] | None = None,
) -> LiveQuery:
    """A query of small micro-batches, with its checkpoint in a folder below this one."""
    return LiveQuery(
        session,
        servers,
        start,
        checkpoint=str(folder / "checkpoint" / "1"),
        trigger_seconds=0.1,
        max_records=10,
        headers=False,
        position=position or (lambda: start),
        on_batch=on_batch,
    )
