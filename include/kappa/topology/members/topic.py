"""A topic output of a topology, derived from its rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from kappa.errors import TopologyError
from kappa.topology.ddl import names_of
from kappa.topology.schemas.wire_schemas import TOPIC_FORMATS, TopicFormat

#: Kafka allows 249 characters; an epoch's number, with ``.e``, takes six and some day more.
_LONGEST_VERSIONED = 240
#: What a replay means to the readers of a topic output.
OnReplay = Literal["hold", "versioned", "reconcile"]


@dataclass(frozen=True, kw_only=True)
class Topic:
    """Records sent to a Kafka topic, derived from the written rows of an :class:`Append` or the changes of a
    :class:`Table`.

    Attributes:
        name: the topic's name.
        of: name of the append output or table whose rows are sent; a deleted key sends a null value.
        columns: what a value holds. Empty for all columns; of an operator's table those of its result, without what it
            keeps to compute that.
        key: column whose value, as text, is the record's key; several are joined as a JSON array.
        on_replay: what a replay means to readers. ``hold``: nothing is sent for history. ``versioned``: each epoch
            sends all that it computes, history too, to a topic of its own, ``<name>.e0007``, which readers follow by
            pointer.
            ``reconcile``: at a cutover the keys whose rows differ are sent, with a null value for those that are gone;
            only of a table, by its key.
        time: column that becomes the record's timestamp, TIMESTAMP or BIGINT in epoch milliseconds: what reads the
            topic then has the row's event time. None, and a null, for the time of sending.
        format: ``json``; ``avro`` or ``json_schema`` with a schema that is made from the columns and registered under
            ``<topic>-value`` before anything is sent. Keys are the same in all.

    Examples:
        >>> from kappa import Topic
        >>> Topic(name="spending", of="spending", key="customer", on_replay="versioned").is_versioned
        True
    """

    name: str
    of: str
    key: str | tuple[str, ...] | list[str]
    on_replay: OnReplay = "hold"
    time: str | None = None
    format: TopicFormat = "json"
    columns: tuple[str, ...] | list[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", names_of(self.key))
        object.__setattr__(self, "columns", names_of(self.columns))
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", self.name):
            raise TopologyError(
                f"Topic {self.name!r} is not a name that Kafka allows (letters, digits, '.', '_', '-')."
            )
        if self.format not in TOPIC_FORMATS:
            raise TopologyError(
                f"Topic {self.name!r}: format {self.format!r} is not one of {', '.join(TOPIC_FORMATS)}."
            )
        if self.on_replay not in get_args(OnReplay):
            raise TopologyError(
                f"Topic {self.name!r}: on_replay {self.on_replay!r} is not one of {', '.join(get_args(OnReplay))}."
            )
        if self.is_versioned and len(self.name) > _LONGEST_VERSIONED:
            raise TopologyError(
                f"Topic {self.name!r} has {len(self.name)} characters and is versioned: with the epoch's number its "
                f"name would be longer than Kafka allows. Use at most {_LONGEST_VERSIONED}."
            )

    @property
    def is_versioned(self) -> bool:
        """Whether each epoch sends to a topic of its own."""
        return self.on_replay == "versioned"
