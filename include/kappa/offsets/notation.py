"""The notation of times, durations and offsets for people, as in Kafka's tools; parsed strictly, never guessed."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from kappa import zones
from kappa.errors import UsageError
from kappa.offsets.vector import Offsets, TopicPartition

_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,6})?)S)?)?",
    re.ASCII,
)
_NUMBER = r"\d{1,19}"
_OFFSET = re.compile(rf"(?P<topic>[A-Za-z0-9._-]+)(?::(?P<partition>{_NUMBER}))?=(?P<offset>-?{_NUMBER})", re.ASCII)
_SAVEPOINT = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}", re.ASCII)


def is_number(text: str) -> bool:
    """Whether a text is a natural number that a BIGINT may be; Python reads no more than some thousand digits."""
    return re.fullmatch(_NUMBER, text, re.ASCII) is not None


def parsed_time(text: str) -> datetime:
    """An ISO 8601 time with a zone, in UTC.

    Raises:
        UsageError: it is not a time, has no zone, or is beyond the years 1 to 9999 in UTC.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a time. Write it like 2026-03-01T00:00:00Z.") from error
    if time.tzinfo is None:
        full = text if len(text) > len("2026-03-01") else f"{text}T00:00:00"
        raise UsageError(f"The time {text!r} has no zone. Write it as {full}Z or with an offset like +02:00.")
    try:
        return time.astimezone(UTC)
    except OverflowError as error:
        raise UsageError(f"{text!r} is beyond the years 1 to 9999 in UTC. Write a time within them.") from error


def local_time(text: str, zone: str) -> datetime:
    """A day or a time of a zone, in UTC; a day means its first instant. A time with an offset is used as it is.

    Args:
        text: ISO 8601, like ``2026-03-29`` or ``2026-03-29T06:00``.
        zone: name of the zone.

    Raises:
        UsageError: it is not a time, the zone does not exist, or its clock showed that time twice or never.
    """
    wrong = zones.objection(zone)
    if wrong:
        raise UsageError(f"The zone {wrong}")
    try:
        local = datetime.fromisoformat(text) if "T" in text or " " in text else date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a day or a time. Write it like 2026-03-29 or 2026-03-29T06:00.") from error
    try:
        if not isinstance(local, datetime):
            return zones.day_begin(local, zone)
        if local.tzinfo is not None:
            return local.astimezone(UTC)
        first, second = (local.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC) for fold in (0, 1))
    except OverflowError as error:
        raise UsageError(f"{text!r} in {zone} is beyond the years 1 to 9999.") from error
    if first != second:
        # The first of two equal clock times has the greater offset; for a skipped clock time it has the lesser one.
        how = "twice" if first < second else "never"
        raise UsageError(
            f"The clock of {zone} showed {text} {how}. Write it with an offset: "
            f"{first.isoformat()} or {second.isoformat()}."
        )
    return first


def utc(at: datetime) -> str:
    """A time for people: ``2026-03-01 00:00 UTC``, with seconds if it has any."""
    at = at.astimezone(UTC)
    return f"{at:%Y-%m-%d %H:%M}{f':{at:%S}' if at.second else ''} UTC"


def parsed_duration(text: str) -> timedelta:
    """An ISO 8601 duration of weeks, days, hours, minutes and seconds: ``P7D``, ``PT6H``, ``P1DT12H``.

    Raises:
        UsageError: it is not one. Months and years are refused, because their length depends on the date.
    """
    match = _DURATION.fullmatch(text)
    parts = {name: float(value) for name, value in (match.groupdict() if match else {}).items() if value}
    if not parts or text.endswith("T"):
        raise UsageError(f"{text!r} is not a duration. Write days and times like P7D, PT6H or P1DT12H30M.")
    try:
        return timedelta(**parts)
    except OverflowError as error:
        raise UsageError(f"The duration {text!r} is longer than any log.") from error


def duration_text(duration: timedelta) -> str:
    """A duration in the notation of :func:`parsed_duration`; a negative one has a sign in front."""
    if duration < timedelta(0):
        return f"-{duration_text(-duration)}"
    minutes, seconds = divmod(duration.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    exact = f"{seconds}.{duration.microseconds:06d}" if duration.microseconds else str(seconds)
    days = f"{duration.days}D" if duration.days else ""
    parts = [f"{hours}H" if hours else "", f"{minutes}M" if minutes else "", "" if exact == "0" else f"{exact}S"]
    rest = "".join(parts)
    return f"P{days}{f'T{rest}' if rest else ''}" if days or rest else "PT0S"


def parsed_shift(text: str) -> int:
    """A number of offsets with or without a sign.

    Raises:
        UsageError: it is not a number.
    """
    if not re.fullmatch(rf"[+-]?{_NUMBER}", text, re.ASCII):
        raise UsageError(f"{text!r} is not a number of offsets. Write it like -1000 or 1000.")
    return int(text)


def parsed_offsets(texts: Iterable[str]) -> tuple[Offsets, Mapping[str, int]]:
    """Offsets of partitions, ``topic:partition=offset``, and of all others of a topic, ``topic=offset``.

    Raises:
        UsageError: one is malformed, negative, or names what another one named.
    """
    partitions: dict[TopicPartition, int] = {}
    topics: dict[str, int] = {}
    for text in texts:
        match = _OFFSET.fullmatch(text)
        if match is None:
            raise UsageError(
                f"{text!r} names no offset. Write topic:partition=offset, like pos:0=1200, or pos=1200 for all "
                "partitions."
            )
        topic, offset = match["topic"], int(match["offset"])
        if offset < 0:
            raise UsageError(f"{text!r}: offset {offset} is negative, offsets begin at 0.")
        if match["partition"] is None:
            if topic in topics:
                raise UsageError(f"{text!r}: all partitions of {topic!r} were given {topics[topic]} before.")
            topics[topic] = offset
            continue
        at = topic, int(match["partition"])
        if at in partitions:
            raise UsageError(f"{text!r}: {topic}[{at[1]}] was given {partitions[at]} before.")
        partitions[at] = offset
    return Offsets.of(partitions.items()), topics


def offsets_from_csv(text: str, file: str) -> Offsets:
    """Offsets in the export format of Kafka's tools: lines ``TOPIC,PARTITION,OFFSET``, no header; ``file`` is for
    messages.

    Raises:
        UsageError: a line is malformed, negative, or names what another one named; or there is none.
    """
    offsets: dict[TopicPartition, int] = {}
    # Excel begins a file with a byte order mark.
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        if not line.strip():
            continue
        where = f"Line {number} of {file} is {line!r}"
        try:
            rows = list(csv.reader(io.StringIO(line), strict=True, skipinitialspace=True))
            topic, partition, offset = [cell.strip() for cell in rows[0]]
        except (csv.Error, ValueError) as error:
            raise UsageError(f"{where}: write TOPIC,PARTITION,OFFSET, three values.", line=number) from error
        is_number = re.fullmatch(_NUMBER, partition, re.ASCII) and re.fullmatch(rf"-?{_NUMBER}", offset, re.ASCII)
        if not topic or not is_number:
            raise UsageError(f"{where}: write TOPIC,PARTITION,OFFSET, the last two as numbers.", line=number)
        if int(offset) < 0:
            raise UsageError(f"{where}: offset {offset} is negative, offsets begin at 0.", line=number)
        at = topic, int(partition)
        if at in offsets:
            raise UsageError(f"{where}: {topic}[{partition}] was given {offsets[at]} before.", line=number)
        offsets[at] = int(offset)
    if not offsets:
        raise UsageError(f"{file} names no offset: it has no line TOPIC,PARTITION,OFFSET.")
    return Offsets.of(offsets.items())


def offsets_to_csv(offsets: Offsets) -> str:
    """Offsets in the format that :func:`offsets_from_csv` and Kafka's tools read."""
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(
        [topic, partition, offset] for (topic, partition), offset in offsets.items()
    )
    return lines.getvalue()


def parsed_partitions(texts: Iterable[str]) -> dict[str, tuple[int, ...] | None]:
    """Topics in the notation of Kafka's tools, ``pos`` or ``pos:0,2``; ``None`` means all partitions.

    Raises:
        UsageError: one is malformed, or a topic is named twice.
    """
    selection: dict[str, tuple[int, ...] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not topic or (colon and not re.fullmatch(rf"{_NUMBER}(,{_NUMBER})*", numbers, re.ASCII)):
            raise UsageError(f"{text!r} selects no partitions. Write a topic, or a topic with partitions like pos:0,2.")
        if topic in selection:
            raise UsageError(f"Topic {topic!r} is selected twice. Name its partitions in one place, like {topic}:0,2.")
        selection[topic] = tuple(sorted({int(number) for number in numbers.split(",")})) if colon else None
    return selection


def parsed_savepoint(text: str) -> dict[str, Any]:
    """The savepoint that a text names: ``seq``, ``at`` or ``name``, with its value.

    Raises:
        UsageError: it is not one of them.
    """
    if re.fullmatch(_NUMBER, text, re.ASCII):
        return {"seq": int(text)}
    return {"name": text} if _SAVEPOINT.fullmatch(text) else {"at": parsed_time(text)}


def savepoint_name(text: str) -> str:
    """The text, if it can be the name of a savepoint.

    Raises:
        UsageError: it cannot.
    """
    if not _SAVEPOINT.fullmatch(text):
        raise UsageError(
            f"A savepoint cannot be called {text!r}: a name begins with a letter and continues with letters, digits, "
            "dots, dashes and underscores, at most 100 characters; other texts would be read as a slice number or a "
            "time."
        )
    return text
