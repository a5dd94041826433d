"""Bodies of answers to queries, as in their description."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Stale(_Answer):
    """How far an answer is behind the log."""

    offsets: int | None = Field(description="Offsets behind the end of the log; null if that is not known.")
    seconds: float | None = Field(
        description="Seconds since the slice was committed; 0 if the log has nothing newer, null if that is not known."
    )


class SnapshotOf(_Answer):
    """The state that an answer shows."""

    epoch: int
    seq: int = Field(description="The slice; request it again with ?epoch= and ?seq=.")
    is_live: bool = Field(description="Whether the epoch is live.")
    position: dict[str, dict[str, int]] = Field(
        description="Topic, partition, and the offset up to which rows are computed."
    )
    committed_at: datetime
    stale: Stale


class RowAnswer(_Answer):
    """The row of a key."""

    snapshot: SnapshotOf
    row: dict[str, Any] = Field(description="Column and value in its JSON form; withheld ones are null.")
    withheld: list[str] = Field(description="Masked columns whose values the caller may not read.")


class PageAnswer(_Answer):
    """Rows of a scan, in the order of their keys."""

    snapshot: SnapshotOf
    rows: list[dict[str, Any]]
    withheld: list[str] = Field(description="Masked columns whose values the caller may not read.")
    next: str | None = Field(description="?cursor= of the next page, in the same snapshot; null on the last page.")


class ColumnOf(_Answer):
    """A column."""

    type: str = Field(description="Spark DDL.")
    required: bool
    masked: bool


class TableOf(_Answer):
    """A table, and where its files are."""

    key: list[str]
    columns: dict[str, ColumnOf]
    path: str = Field(description="The Delta table.")
    delta_version: int
    merged_to: int = Field(description="The slice up to which that version has all changes.")


class Writer(_Answer):
    """The driver that writes an epoch."""

    state: str
    host: str | None
    pid: int | None
    heartbeat_at: datetime | None
    message: str


class TopologyOf(_Answer):
    """A topology on record."""

    name: str
    live_epoch: int | None
    epochs: list[int] = Field(description="Those that were not removed.")


class TopologiesAnswer(_Answer):
    """The topologies that the caller may read."""

    topologies: list[TopologyOf]


class MetadataAnswer(_Answer):
    """The epoch and tables that serve a topology."""

    topology: str
    version: str
    code: str = Field(description="Content hash of the code that runs the epoch.")
    snapshot: SnapshotOf
    writer: Writer
    tables: dict[str, TableOf]
    topics: dict[str, str] = Field(description="Topic output, and the topic to which the epoch sends it.")


class ProblemAnswer(BaseModel):
    """An answer that is not a result (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
