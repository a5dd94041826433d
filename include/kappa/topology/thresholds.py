"""The largest permitted difference of a candidate from the live epoch; beyond it the verdict is ``failed``."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kappa.errors import TopologyError, UsageError

#: A float is a share (0..1), an int an absolute count.
Limit = int | float

TABLE_MEASURES = ("keys_added", "keys_removed", "keys_changed", "rows")
OUTPUT_MEASURES = ("rows", "rows_added", "rows_removed")
_MEASURES = (*TABLE_MEASURES, *OUTPUT_MEASURES[1:])


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Largest permitted differences of one table or append output. Measures that are not named are not limited.

    A limit is a share of the live epoch's rows when it is a float (``0.05``), and a number when it is an int (``0``).

    Attributes:
        table: name of a table or of an append output.
        keys_added: keys that only the candidate has; for a table.
        keys_removed: keys that only the live epoch has; for a table.
        keys_changed: keys of both whose rows differ; for a table.
        rows: difference of the numbers of rows.
        rows_added: rows that only the candidate has; for an append output.
        rows_removed: rows that only the live epoch has; for an append output.
        drift: numeric column -> limit; for a table. A share is the sum of absolute differences divided by the sum of
            the live epoch's absolute values, over all keys of both; an int is the greatest absolute difference of one
            key.

    Raises:
        TopologyError: a limit is neither a share nor a count, or there is none.

    Examples:
        >>> from kappa import Threshold
        >>> Threshold(table="spending", keys_removed=0, drift={"spent": 0.05}).limits
        {'spending.keys_removed': 0, 'spending.drift.spent': 0.05}
    """

    table: str
    keys_added: Limit | None = None
    keys_removed: Limit | None = None
    keys_changed: Limit | None = None
    rows: Limit | None = None
    rows_added: Limit | None = None
    rows_removed: Limit | None = None
    drift: Mapping[str, Limit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.limits:
            raise TopologyError(f"The threshold of {self.table!r} limits nothing. Name a measure: keys_removed=0.")
        for name, limit in self.limits.items():
            _check_limit(name, limit)

    def __hash__(self) -> int:
        return hash((self.table, tuple(sorted(self.limits.items()))))

    @property
    def limits(self) -> dict[str, Limit]:
        """Full name of each measure, ``rewards.keys_removed`` or ``rewards.drift.Points``, and its limit."""
        counts = {f"{self.table}.{name}": getattr(self, name) for name in _MEASURES}
        drift = {f"{self.table}.drift.{column}": limit for column, limit in self.drift.items()}
        return {name: limit for name, limit in {**counts, **drift}.items() if limit is not None}

    def as_dict(self) -> dict[str, Any]:
        """The threshold as JSON values."""
        limits = {name: getattr(self, name) for name in ("table", *_MEASURES)}
        return {name: value for name, value in {**limits, "drift": dict(self.drift)}.items() if value not in (None, {})}


def limits_of(thresholds: Iterable[Threshold]) -> dict[str, Limit]:
    """Full name of each measure and its limit.

    Raises:
        TopologyError: a measure is limited twice.
    """
    limits: dict[str, Limit] = {}
    for threshold in thresholds:
        twice = sorted(threshold.limits.keys() & limits.keys())
        if twice:
            raise TopologyError(f"Threshold {twice[0]!r} is given more than once.")
        limits |= threshold.limits
    return limits


def parsed(texts: Iterable[str]) -> tuple[Threshold, ...]:
    """Thresholds in the form that people write: ``rewards.keys_removed=0``, ``rewards.drift.Points=0.1``.

    Raises:
        UsageError: one is malformed or given twice.
    """
    thresholds = []
    for text in texts:
        match = re.fullmatch(r"\s*([^.=\s]+)\.(?:(drift)\.)?(.*\S)\s*=\s*([0-9.eE+-]+)\s*", text)
        if match is None:
            raise UsageError(f"{text!r} is not a threshold. Write it like rewards.keys_removed=0 or rewards.rows=0.01.")
        table, is_drift, measure, number = match.groups()
        if not is_drift and measure not in _MEASURES:
            raise UsageError(f"Threshold {text!r} limits {measure!r}.{_nearest(measure, [*_MEASURES, 'drift'])}")
        try:
            limit: Limit = int(number) if re.fullmatch(r"[+-]?\d+", number) else float(number)
            limits = {"drift": {measure: limit}} if is_drift else {measure: limit}
            thresholds.append(Threshold(table=table, **limits))
        except (ValueError, TopologyError) as error:
            raise UsageError(f"{text!r} is not a threshold: {error}") from error
    try:
        limits_of(thresholds)
    except TopologyError as error:
        raise UsageError(str(error)) from error
    return tuple(thresholds)


def unknown(names: Iterable[str], choices: Iterable[str]) -> dict[str, str]:
    """Names that are not among the choices -> a sentence with the nearest choice, or all of them."""
    measures = sorted(choices)
    return {name: _nearest(name, measures).strip() for name in sorted(names) if name not in measures}


def _nearest(name: str, names: Iterable[str]) -> str:
    choices = list(names)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else f" Possible: {choices}."


def _check_limit(name: str, limit: Limit) -> None:
    is_share = isinstance(limit, float) and math.isfinite(limit) and 0 <= limit <= 1
    is_count = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0
    if not is_share and not is_count:
        raise TopologyError(
            f"Threshold {name!r} is {limit!r}: give a share from 0.0 to 1.0 as a float, or a count from 0 as an int."
        )
