"""What an author wrote in a declaration, in a few words for a message."""

from __future__ import annotations

from kappa.topology.emission import Emission
from kappa.topology.members.check import Check
from kappa.topology.members.delta_tables import Append, Table
from kappa.topology.members.source import Source
from kappa.topology.members.topic import Topic
from kappa.topology.thresholds import Threshold

_LONGEST = 60


def described(value: object) -> str:
    """What an author wrote, in a few words.

    Examples:
        >>> described("ticks"), described(Source)
        ("'ticks'", 'class Source')
    """
    match value:
        case Emission():
            text = f"the rows of {value.operator}"
        case Source():
            text = f"source {value.topic!r}"
        case Table() | Append() | Topic() | Check():
            text = f"{type(value).__name__} {value.name!r}"
        case Threshold():
            text = f"the threshold of {value.table!r}"
        case type():
            text = f"class {value.__name__}"
        case _ if callable(value):  # an operator, or a function that would make one
            text = getattr(value, "what", None) or f"function {getattr(value, '__name__', type(value).__name__)}"
        case _:
            text = repr(value)
            text = text if len(text) <= _LONGEST else f"{type(value).__name__} {text[:50]}..."
    return text
