"""The schedule on which a topology's history is recomputed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kappa import zones
from kappa.errors import TopologyError
from kappa.topology.earlier_code import refuse

#: What croniter draws at random or by a hash, in each process anew: "r", "R(0-5)", "h/15".
_DRAWN = re.compile(r"[rh](?![a-z])", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Scheduled reprocessing: recompute, compare with the live epoch, and report. It never moves readers.

    Write it as a literal in the topology's file: schedulers read the file and do not import it.

    Attributes:
        cron: the times, as five fields or ``@daily`` and the like.
        savepoint: name of the savepoint of the live epoch that it starts from; empty for the beginning.
        zone: name of the time zone of ``cron``.

    Examples:
        >>> from kappa import Schedule
        >>> Schedule(cron="0 3 * * 0").cron
        '0 3 * * 0'
        >>> Schedule(cron="0 3 * * 0", zone="Europe/Berlin").zone
        'Europe/Berlin'

    Raises:
        TopologyError: ``cron`` or ``zone`` is not valid.
    """

    cron: str
    savepoint: str = ""
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if not is_cron(self.cron):
            raise TopologyError(
                f"Schedule {self.cron!r} is not a cron expression: write five fields, like '0 3 * * *', or @daily."
            )
        wrong = zones.objection(self.zone)
        if wrong:
            refuse(f"Schedule {self.cron!r}: zone {wrong}")


def is_cron(text: object) -> bool:
    """Whether schedulers accept it: five fields, or a word like ``@daily``, with at least one matching time."""
    if not isinstance(text, str) or len(text.split()) != (1 if text.startswith("@") else 5):
        return False  # croniter also accepts six and seven fields, with seconds and years
    from croniter import CroniterBadDateError, croniter  # type: ignore[import-untyped]

    if not croniter.is_valid(text) or any(_DRAWN.match(part) for part in re.split(r"[\s,]", text)):
        return False
    try:
        croniter(text, 0).get_next()
    except CroniterBadDateError:  # "0 3 30 2 *"
        return False
    return True
