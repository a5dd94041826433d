"""The wall clock, in one place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def now() -> datetime:
    """The present, aware, UTC."""
    return datetime.now(UTC)


def is_due(since: datetime, pause: timedelta, at: datetime) -> bool:
    """Whether a pause is over. A clock that was set back must not put it off until it has caught up with itself."""
    return abs(at - since) >= pause


def age_seconds(since: datetime) -> float | None:
    """The age of something in seconds; None where that is negative: by this clock it is still to come."""
    age = (now() - since).total_seconds()
    return age if age >= 0 else None
