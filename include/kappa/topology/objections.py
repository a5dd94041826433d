"""Why a name, an owner or a number of approvals is not one of a topology.

Schedulers read them from the text of a file, without running it. What its import refuses, they pass over.

An owner is the team or person whom alerts, notices and DAGs name: an owner and a tag of Airflow, a label of Prometheus,
a field of a notice and a word on a page. What one of them reads as more than a name is refused: a comma separates
owners in Airflow, ``<!channel>`` calls everybody in Slack.
"""

from __future__ import annotations

import re

from kappa.topology.members import MEMBER_NAME

#: A tag of Airflow has no more characters; a name is one, and an owner.
MOST = 100
_OWNER = re.compile(r"[\w@#][\w.@#/+-]*(?: [\w.@#/+-]+)*")
#: How the number of an epoch reads in names.
EPOCH = re.compile(r"e\d{4,}")


def name_objection(name: object) -> str:
    """Why a value cannot be the name of a topology; empty if it can.

    Examples:
        >>> [name_objection(text) for text in ("retail.loyalty", "a" * 100)]
        ['', '']
        >>> [bool(name_objection(text)) for text in ("retail spending", "Retail.Orders", "a.e0001", "a" * 101)]
        [True, True, True, True]
    """
    if not isinstance(name, str) or not MEMBER_NAME.fullmatch(name):
        return f"Topology name {name!r} must be lower-case words joined by dots, like 'retail.loyalty'."
    if any(EPOCH.fullmatch(part) for part in name.split(".")[1:]):
        return (
            f"Topology {name!r} has a part that reads as the number of an epoch: names on Kafka, such as "
            "kappa.<topology>.e0001, would have two meanings. Give it another name."
        )
    if len(name) > MOST:
        return (
            f"Topology name {name!r} has {len(name)} characters: it is a tag of Airflow, which has at most {MOST}. "
            "Give it a shorter name."
        )
    return ""


def approvals_objection(name: str, approvals: object) -> str:
    """Why a topology cannot ask for this many approvals; empty if it can."""
    if isinstance(approvals, int) and 0 <= approvals <= 2:
        return ""
    return f"Topology {name!r} asks for {approvals!r} approvals: it can ask for 0, 1 or 2."


def is_owner(text: object) -> bool:
    """Whether a value can name an owner; the empty text names none.

    Examples:
        >>> [is_owner(text) for text in ("team-payments", "ann@example.org", "#payments", "Team Köln", "")]
        [True, True, True, True, True]
        >>> [is_owner(text) for text in ("a, b", "<!channel>", " payments", 7)]
        [False, False, False, False]
    """
    return isinstance(text, str) and len(text) <= MOST and (not text or _OWNER.fullmatch(text) is not None)
