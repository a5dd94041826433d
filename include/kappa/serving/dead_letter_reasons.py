"""Why records of an epoch are dead letters: counted by reason, with a few of them each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kappa.delta import queries
from kappa.errors import visible
from kappa.names import EpochPaths
from kappa.record.ledger_rows import LedgerRow
from kappa.wire.json.json_forms import json_forms

#: Most characters of a value that are shown.
_SHOWN = 120
#: Of how many reasons letters are shown, the most frequent ones: those of each are a query over all letters.
MOST = 20


@dataclass(frozen=True, kw_only=True)
class Letter:
    """One dead letter.

    Attributes:
        topic: its topic.
        partition: its partition.
        offset: its offset.
        timestamp: Kafka's time of it in its JSON form, since any number of milliseconds may come; None where it could
            not be read.
        size: bytes of the value; None for a null value.
        value: the beginning of the value as text; for a sensitive source its stand-in.
    """

    topic: str
    partition: int
    offset: int
    timestamp: str | None
    size: int | None
    value: str | None


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Dead letters with one reason.

    Attributes:
        reason: the reason.
        count: how many they are.
        letters: the newest of them, by slice and offset; none beyond the first :data:`MOST` reasons.
    """

    reason: str
    count: int
    letters: tuple[Letter, ...]


def reasons_of(
    paths: EpochPaths, committed: LedgerRow, *, reason: str = "", samples: int = 3, with_values: bool = True
) -> tuple[Reason, ...]:
    """Dead letters of an epoch as of a commit, by reason, the most frequent first. Without Spark.

    Args:
        reason: text within the reason; all where it is empty.
        samples: how many are shown of each.
        with_values: whether their values are shown.
    """
    version = committed.delta_versions["dead_letters"]
    condition = f"_seq <= {committed.seq}"
    if reason:
        condition += f" AND strpos(reason, {_literal(reason)}) > 0"
    counts = queries.counted(paths.dead_letters, version, "reason", where=condition)
    return tuple(
        Reason(
            reason=text,
            count=count,
            letters=()
            if place >= MOST
            else _letters(paths, version, f"{condition} AND reason = {_literal(text)}", samples, with_values),
        )
        for place, (text, count) in enumerate(counts)
    )


def _letters(paths: EpochPaths, version: int, condition: str, samples: int, with_values: bool) -> tuple[Letter, ...]:
    if not samples:
        return ()
    rows = queries.query(
        paths.dead_letters,
        version,
        select='"topic", "partition", "offset", "timestamp", "value"',
        where=condition,
        order_by='"_seq" DESC, "topic", "partition", "offset" DESC',
        limit=samples,
    )
    times = json_forms(rows["timestamp"].combine_chunks())
    dicts: list[dict[str, Any]] = rows.drop_columns(["timestamp"]).to_pylist()
    return tuple(
        Letter(
            topic=row["topic"],
            partition=row["partition"],
            offset=row["offset"],
            timestamp=at,
            size=None if row["value"] is None else len(row["value"]),
            value=_text(row["value"]) if with_values else None,
        )
        for row, at in zip(dicts, times, strict=True)
    )


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = visible(value[: 4 * _SHOWN].decode(errors="replace"))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
