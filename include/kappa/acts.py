"""Acts: what changes something is a list of effects first, which a dry run shows and an execution makes.

A function under :func:`act` looks, refuses, and returns the list; it changes nothing. There is one list and there are
two walks over it: :meth:`Act.make`, and that of the command line, which prints every effect.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

Given = ParamSpec("Given")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One change.

    Attributes:
        what: the change as an infinitive without "to", for example ``start the driver of epoch 2 of retail.loyalty``;
            where it depends on what comes of an earlier one, it says so.
        values: what it names, for programs.
        make: makes it. It looks again where others may have acted since the list was made.
    """

    what: str
    values: Mapping[str, Any] = field(default_factory=dict)
    make: Callable[[], object] = field(repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Act(Generic[Outcome]):
    """Effects in their order, and what is said after they were made.

    Attributes:
        effects: the changes; none where there is nothing to do.
        outcome: the answer, once they were made; before, where it can be foreseen, that which they would have.
    """

    effects: tuple[Effect, ...]
    outcome: Callable[[], Outcome]

    def make(self) -> Outcome:
        """Make the effects, one after the other, and answer. A crash leaves those that come after it unmade."""
        for effect in self.effects:
            effect.make()
        return self.outcome()


class Acting(Generic[Given, Outcome]):
    """A function that acts when it is called, and whose effects can be looked at before.

    Args:
        planned: looks, refuses, and returns the act; changes nothing.
    """

    def __init__(self, planned: Callable[Given, Act[Outcome]]) -> None:
        functools.update_wrapper(self, planned)
        self.planned = planned

    def __call__(self, *args: Given.args, **kwargs: Given.kwargs) -> Outcome:
        """Make the effects."""
        return self.planned(*args, **kwargs).make()


def act(planned: Callable[Given, Act[Outcome]]) -> Acting[Given, Outcome]:
    """Let a function that returns an act be called for its outcome: ``stop(…)`` stops, ``stop.planned(…)`` shows.

    Args:
        planned: looks, refuses, and returns the act; changes nothing.
    """
    return Acting(planned)
