"""The wall clock, in one place."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The present, aware, UTC."""
    return datetime.now(UTC)
