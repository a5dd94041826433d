"""Lengths of time in the form that authors write: ``10 seconds``, ``1 hour 30 minutes``."""

from __future__ import annotations

import re

from kappa.errors import TopologyError
from kappa.topology.earlier_code import refuse

_UNITS = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
}
#: Ten thousand years.
_LONGEST_DAYS = 3_650_000
_LONGEST_MS = _LONGEST_DAYS * _UNITS["day"]
_PART = re.compile(r"\s*(\d{1,19})\s+([a-z]+?)s?(?=\s|,|$),?", re.IGNORECASE)


def milliseconds(text: str, what: str = "The duration") -> int:
    """A length of time in milliseconds.

    Args:
        text: numbers and units from milliseconds to weeks, for example ``10 seconds``.
        what: name of the duration, for the message.

    Raises:
        TopologyError: the text is not a length of time.
    """
    if not isinstance(text, str):
        raise TopologyError(f"{what} {text!r} is not a length of time. Write it as '10 seconds'.", duration=repr(text))
    total, at = 0, 0
    while at < len(text.rstrip()):
        part = _PART.match(text, at)
        if part is None or part[2].lower() not in _UNITS:
            raise TopologyError(
                f"{what} {text!r} is not a length of time. Write it as '10 seconds' or '1 hour 30 minutes' "
                f"({', '.join(_UNITS)}).",
                duration=text,
            )
        total, at = total + int(part[1]) * _UNITS[part[2].lower()], part.end()
    if not at:
        raise TopologyError(f"{what} is empty. Write it as '10 seconds'.", duration=text)
    if total > _LONGEST_MS:
        refuse(
            f"{what} {text!r} is longer than {_LONGEST_DAYS:,} days: sums of times would leave the range of TIMESTAMP. "
            "Use a shorter one.",
            duration=text,
        )
    return total


def shown(millis: int) -> str:
    """A length of time as text, in the largest units without a remainder: one text for one length."""
    parts = []
    for unit, size in sorted(_UNITS.items(), key=lambda item: -item[1]):
        count, millis = divmod(millis, size)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return " ".join(parts) or "0 seconds"
