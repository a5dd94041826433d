"""The estimated work of a plan, from earlier replays; and the error of the estimate afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kappa.offsets.coverage import common
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.replay import stored
from kappa.replay.facts import Facts

#: An estimate for more than FAR times the records that it was measured on is rough: a small replay is nearly all fixed
#: cost.
FAR = 20
#: The measures that an estimate and a measurement have in common.
MEASURES = ("records", "bytes", "seconds", "disk_bytes")


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The work of a plan.

    Attributes:
        offsets: offsets spanned from start to end; at least as many as there are records.
        bytes: size of the records, keys and values, if it was measured.
        seconds: time for the bulk work, if a rate was measured.
        records: number of records among the offsets, if it is known.
        disk_bytes: space that the new epoch takes in the lake at the end of the bulk work, if that was measured.
        measured_epoch: the epoch whose replay gave the rate.
        rough: whether that replay was so much smaller that the estimate refuses nothing.
    """

    offsets: int
    bytes: int | None = None
    seconds: float | None = None
    records: int | None = None
    disk_bytes: int | None = None
    measured_epoch: int | None = None
    rough: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The estimate as JSON values."""
        # A plan's id is a hash of this, and older plans have only the first three.
        first = ("offsets", "bytes", "seconds")
        return {name: value for name, value in asdict(self).items() if name in first or value not in (None, False)}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The measured bulk work of a replay.

    Attributes:
        offsets: offsets of its slices.
        records: records that they read.
        seconds: time that its slices took; pauses between them are not counted.
        bytes: size of the records, keys and values; ``None`` if some came from an archive, which does not record it.
        disk_bytes: space that the epoch took in the lake at the end.
    """

    offsets: int
    records: int
    seconds: float
    bytes: int | None = None
    disk_bytes: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The measurement as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Measured:
        """Read what :meth:`as_dict` gave; fields of later code are ignored."""
        return stored.read(cls, values)

    def ratios(self, estimate: Estimate) -> dict[str, float]:
        """Ratio of measurement to estimate per estimated measure: 1.25 took a quarter more than estimated."""
        pairs = {name: (getattr(estimate, name), getattr(self, name)) for name in MEASURES}
        return {name: round(real / guess, 4) for name, (guess, real) in pairs.items() if guess and real is not None}


def estimated(start: Offsets, end: Offsets, facts: Facts, *, is_seeded: bool = False) -> Estimate:
    """The work from ``start`` to ``end``, estimated from earlier measurements.

    Args:
        start: where it begins.
        end: where it ends.
        facts: the facts.
        is_seeded: whether the tables begin with rows, which take space too.
    """
    spans = [
        OffsetRange(topic=at[0], partition=at[1], start=start.get(*at) or 0, end=last)
        for at, last in end.items()
        if (start.get(*at) or 0) < last
    ]
    offsets = sum(span.count for span in spans)
    records = _records(spans, offsets, facts)
    counted = offsets if records is None else records
    size, rate, disk = facts.bytes_per_record, facts.records_per_second, facts.disk_per_record
    return Estimate(
        offsets=offsets,
        bytes=None if size is None else round(counted * size),
        seconds=None if not rate else round(counted / rate, 1),
        records=records,
        disk_bytes=None if disk is None else round(counted * disk) + (facts.live_bytes or 0) * is_seeded,
        measured_epoch=facts.measured_epoch if rate else None,
        rough=bool(rate) and facts.measured_records is not None and counted > FAR * facts.measured_records,
    )


def _records(spans: list[OffsetRange], offsets: int, facts: Facts) -> int | None:
    """One record per offset in an archive without holes; elsewhere the ratio of earlier replays."""
    ids = facts.log.topic_ids
    whole = [item for t, archive in facts.archives.items() if ids.get(t) == archive.topic_id for item in archive.whole]
    sure = sum(item.count for item in common(spans, whole))
    if sure == offsets and offsets:
        return offsets
    return None if facts.records_per_offset is None else sure + round((offsets - sure) * facts.records_per_offset)


def comparison(estimate: Estimate, measured: Measured) -> str:
    """Estimate, measurement and their difference in one line."""
    parts = []
    for name, unit in zip(MEASURES, ("records", "read", "", "in the lake"), strict=True):
        guess, real = getattr(estimate, name), getattr(measured, name)
        if real is None:
            continue
        word = "took" if name == "seconds" else "were" if name == "records" else "was"
        shown = _shown(name, real)
        tail = f" {unit}" if unit else ""
        if guess:
            parts.append(
                f"estimated {_shown(name, guess)}{tail}, {word} {shown} ({round(100 * (real / guess - 1)):+d} %)"
            )
        else:
            parts.append(f"{word} {shown}{tail}, not estimated")
    return "; ".join(parts)


def size(count: float) -> str:
    """Bytes for people."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= scale:
            return f"{count / scale:,.3g} {unit}"
    return f"{count:,.0f} bytes"


def _shown(name: str, value: float) -> str:
    match name:
        case "seconds":
            return f"{value:,.3g} s" if value < 1000 else f"{value:,.0f} s"
        case "records":
            return f"{value:,.0f}"
        case _:
            return size(value)
