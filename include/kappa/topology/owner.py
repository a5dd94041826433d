"""The owner of a topology: the team or person whom its alerts, notices and DAGs name.

The name becomes an owner and a tag of Airflow, a label of Prometheus, a field of a notice and a word on a page. What
one of them reads as more than a name is refused: a comma separates owners in Airflow, ``<!channel>`` calls everybody in
Slack.
"""

from __future__ import annotations

import re

#: A tag of Airflow has no more.
MOST = 100
_OWNER = re.compile(r"[\w@#][\w.@#/+-]*(?: [\w.@#/+-]+)*")


def is_owner(text: object) -> bool:
    """Whether a value can name an owner; the empty text names none.

    Examples:
        >>> [is_owner(text) for text in ("team-payments", "ann@example.org", "#payments", "Team Köln", "")]
        [True, True, True, True, True]
        >>> [is_owner(text) for text in ("a, b", "<!channel>", " payments", 7)]
        [False, False, False, False]
    """
    return isinstance(text, str) and len(text) <= MOST and (not text or _OWNER.fullmatch(text) is not None)
