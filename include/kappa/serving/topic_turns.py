"""The topics that hold a topic output in turn, each for a part of history: readers of a versioned topic follow them."""

from __future__ import annotations

from dataclasses import dataclass

from kappa.config import Config
from kappa.errors import UnknownTopologyError
from kappa.offsets.vector import Offsets
from kappa.record.epochs import epochs_of


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A time in which an epoch was live, as readers of one topic output see it.

    They read ``topic`` from ``start`` to ``end`` and go on with the next turn. Turns joined hold the output for each
    input record once, made by the epoch that was live at its offset.

    Attributes:
        topic: the topic that it sends to; None when it has none of that name.
        start: next offset to read of each partition, empty for the beginning; None where the turn goes on in the topic
            of the turn before.
        end: offset before which to stop; None where the next turn goes on in the same topic, or there is none yet.

    Examples:
        >>> from kappa.offsets.vector import Offsets
        >>> first = Turn(epoch=1, topic="scores.e0001", start=Offsets(), end=Offsets({"scores.e0001": {0: 40}}))
        >>> first.end.get("scores.e0001", 0)
        40
    """

    epoch: int
    topic: str | None
    start: Offsets | None
    end: Offsets | None


def topic(config: Config, topology: str, name: str) -> str:
    """The topic to which the live epoch sends a topic output; of a versioned one, the epoch's own.

    Raises:
        UnknownTopologyError: the topology has no live epoch, or that epoch no such topic output.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> serving.topic(Config.from_env(), "retail.loyalty", "loyalty")
        'loyalty'
    """
    record = epochs_of(config.lake).record(topology)
    epoch = record.epoch(record.live_epoch())
    place = epoch.topic(name)
    if place is None:
        raise UnknownTopologyError(
            f"Epoch {epoch.epoch} of {topology!r} has no topic {name!r}; it sends to {list(epoch.sends_to)}.", name=name
        )
    return place


def turns(config: Config, topology: str, name: str) -> tuple[Turn, ...]:
    """The topics that hold a topic output in turn, oldest turn first; the last one goes on.

    Raises:
        UnknownTopologyError: as :func:`topic`.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> [(turn.epoch, turn.topic) for turn in serving.turns(Config.from_env(), "retail.loyalty", "loyalty")]
        [(1, 'loyalty')]
    """
    topic(config, topology, name)
    record = epochs_of(config.lake).record(topology)
    places = [move.detail.get("topics", {}).get(name) for move in record.moves]
    return tuple(
        Turn(
            epoch=move.epoch,
            topic=record.epoch(move.epoch).topic(name),
            start=Offsets.from_json(place["to"]) if place else None,
            end=Offsets.from_json(after["from"]) if after else None,
        )
        for move, place, after in zip(record.moves, places, [*places[1:], None], strict=True)
    )
