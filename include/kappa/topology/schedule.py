"""When a topology's history is recomputed by itself."""

from __future__ import annotations

from dataclasses import dataclass

from kappa.errors import TopologyError


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Scheduled reprocessing: recompute, compare with what is live, and report. Readers are never moved by it.

    Write it as a literal in the topology's file: schedulers read the file and do not import it.

    Attributes:
        cron: when, as five fields or ``@daily`` and the like, in UTC.
        savepoint: name of the savepoint of the live epoch that it starts from; empty for the beginning.

    Examples:
        >>> from kappa import Schedule
        >>> Schedule(cron="0 3 * * 0").cron
        '0 3 * * 0'
    """

    cron: str
    savepoint: str = ""

    def __post_init__(self) -> None:
        if not is_cron(self.cron):
            raise TopologyError(
                f"Schedule {self.cron!r} is no cron expression: write five fields, like '0 3 * * *', or @daily."
            )


def is_cron(text: object) -> bool:
    """Whether schedulers understand it."""
    if not isinstance(text, str):
        return False
    from croniter import croniter  # type: ignore[import-untyped]

    return bool(croniter.is_valid(text))
