"""Starts of a replay, or positions for a consumer group: each kind is a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from kappa.errors import UsageError
from kappa.offsets.notation import (
    duration_text,
    parsed_duration,
    parsed_offsets,
    parsed_savepoint,
    parsed_shift,
    parsed_time,
)
from kappa.offsets.vector import Offsets


@dataclass(frozen=True, kw_only=True)
class ToEarliest:
    """From the beginning of the history: the log's low watermark, or earlier where the live epoch began earlier."""


@dataclass(frozen=True, kw_only=True)
class ToLatest:
    """From the end of what may be read: the live epoch's last commit, so that nothing is computed again."""


@dataclass(frozen=True, kw_only=True)
class ToDatetime:
    """From the first record of each partition whose timestamp is not before ``at``."""

    at: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", _aware(self.at))


@dataclass(frozen=True, kw_only=True)
class ByDuration:
    """Like :class:`ToDatetime`, at the time of the plan minus ``duration``."""

    duration: timedelta

    def __post_init__(self) -> None:
        if self.duration <= timedelta(0):
            raise UsageError(
                f"The duration {duration_text(self.duration)} does not lie in the past. Write it without a sign, like "
                "P7D."
            )


@dataclass(frozen=True, kw_only=True)
class ShiftBy:
    """Start N offsets after (before, if negative) the live epoch's last commit, in every partition."""

    by: int


@dataclass(frozen=True, kw_only=True)
class ToOffset:
    """From offsets that are named one by one, or one for all partitions of a topic.

    Attributes:
        offsets: offset of each partition that is named individually.
        topics: topic -> offset of each of its partitions that is not named individually.
        file: where they were written, if they were read from a file; for the record.

    Raises:
        UsageError: nothing is named, or an offset is negative.
    """

    offsets: Offsets = field(default_factory=Offsets)
    topics: Mapping[str, int] = field(default_factory=dict)
    file: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", dict(sorted(self.topics.items())))
        if not len(self.offsets) and not self.topics:
            raise UsageError("No offset is named. Write them like pos:0=1200, or pos=1200 for all partitions of pos.")
        for topic, offset in self.topics.items():
            if offset < 0:
                raise UsageError(f"Offset {offset} of {topic!r} is negative: offsets begin at 0.")

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> ToOffset:
        """Read ``pos:0=1200`` and ``pos=1200``, each with the partition or topic that it names.

        Raises:
            UsageError: one is malformed, or two name the same.
        """
        offsets, topics = parsed_offsets(texts)
        return cls(offsets=offsets, topics=topics)


@dataclass(frozen=True, kw_only=True)
class ToCurrent:
    """Where a consumer group stands already; not a start of a replay."""


@dataclass(frozen=True, kw_only=True)
class FromSavepoint:
    """From a commit of the live epoch, by its ``seq``, its ``name``, or as the last one finished by a time ``at``."""

    seq: int | None = None
    at: datetime | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if sum(part is not None for part in (self.seq, self.at, self.name)) != 1:
            raise UsageError("A savepoint is given by its ledger seq, a time or its name: give exactly one of them.")
        if self.at is not None:
            object.__setattr__(self, "at", _aware(self.at))


@dataclass(frozen=True, kw_only=True)
class FromMarker:
    """From the position in an epoch's last marker; ``epoch`` ``None`` means the one that sent last."""

    epoch: int | None = None


Start = ToEarliest | ToLatest | ToDatetime | ByDuration | ShiftBy | ToOffset | FromSavepoint | FromMarker

_KINDS: dict[str, Any] = {
    "to_earliest": ToEarliest,
    "to_latest": ToLatest,
    "to_datetime": ToDatetime,
    "by_duration": ByDuration,
    "shift_by": ShiftBy,
    "to_offset": ToOffset,
    "to_current": ToCurrent,
    "from_savepoint": FromSavepoint,
    "from_marker": FromMarker,
}


_FROM_TEXT: dict[str, Callable[[str], Start]] = {
    "to_datetime": lambda text: ToDatetime(at=parsed_time(text)),
    "by_duration": lambda text: ByDuration(duration=parsed_duration(text)),
    "shift_by": lambda text: ShiftBy(by=parsed_shift(text)),
    "to_offset": lambda text: ToOffset.from_texts(text.replace(",", " ").split()),
    "from_savepoint": lambda text: FromSavepoint(**parsed_savepoint(text)),
}


def start_from_text(kind: str, text: str) -> Start:
    """The start of a kind that takes one value, from that value as text.

    Raises:
        UsageError: the text is malformed.
        KeyError: the kind takes no value, or one of another form.
    """
    return _FROM_TEXT[kind](text)


def start_kind(start: Start | ToCurrent) -> str:
    """The start's name in requests and options: ``to_earliest`` and so on."""
    return next(name for name, kind in _KINDS.items() if type(start) is kind)


def start_time(start: Start | ToCurrent, now: datetime) -> datetime | None:
    """The time that a start names, if it names one whose records have to be looked up.

    Raises:
        UsageError: its duration reaches back beyond the year 1.
    """
    if isinstance(start, ByDuration):
        try:
            return now.astimezone(UTC) - start.duration
        except OverflowError as error:
            duration = duration_text(start.duration)
            raise UsageError(
                f"The duration {duration} begins before the year 1. Name a shorter one, or --to-earliest."
            ) from error
    return start.at if isinstance(start, ToDatetime) else None


def start_as_dict(start: Start) -> dict[str, Any]:
    """The start as JSON values."""
    values: dict[str, Any] = {"kind": start_kind(start), **vars(start)}
    match start:
        case ToDatetime() | FromSavepoint(at=datetime()):
            values["at"] = start.at.isoformat() if start.at else None
        case ByDuration():
            values["duration"] = duration_text(start.duration)
        case ToOffset():
            values["offsets"] = start.offsets.as_dict()
    if values.get("name", "") is None:
        del values["name"]  # plans that were made before savepoints had names keep their content hash
    return values


def start_from_dict(values: Mapping[str, Any]) -> Start:
    """Read what :func:`start_as_dict` gave.

    Raises:
        KeyError, TypeError, ValueError, UsageError: the values are not a start.
    """
    parts = dict(values)
    kind = parts.pop("kind")
    if kind == "to_current":
        raise ValueError("to_current is not a start of a replay")
    if parts.get("at"):
        parts["at"] = datetime.fromisoformat(parts["at"])
    if "duration" in parts:
        parts["duration"] = parsed_duration(parts["duration"])
    if "offsets" in parts:
        parts["offsets"] = Offsets.from_json(parts["offsets"])
    start: Start = _KINDS[kind](**parts)
    return start


def described(start: Start | ToCurrent, now: datetime) -> str:
    """The start in words, as the options spell it; ``now`` is when the plan was or is made."""
    argument = ""
    match start:
        case ToDatetime():
            argument = f" {start.at.isoformat()}"
        case ByDuration():
            argument = f" {duration_text(start.duration)}, which is {start_time(start, now)}"
        case ShiftBy():
            argument = f" {start.by:+d}"
        case ToOffset(file=str()):
            return f"from-file {start.file}"
        case FromSavepoint():
            argument = f" {start.name or (start.at.isoformat() if start.at else start.seq)}"
        case FromMarker(epoch=int()):
            argument = f" of epoch {start.epoch}"
    return start_kind(start).replace("_", "-") + argument


def _aware(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise UsageError(f"The time {at.isoformat()} has no zone. Write it as {at.isoformat()}Z or with an offset.")
    return at.astimezone(UTC)
