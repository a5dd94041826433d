"""An environment as a value: Python's version, installed distributions, the name of an image. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kappa.errors import LedgerError
from kappa.replay import stored

#: The format that this code writes, and the newest one that it reads.
FORMAT = 1
#: Kappa's own distribution: the platform that runs an epoch is stored with its code.
PLATFORM = "kappa-replay"
#: Distributions that do not count: the platform, and what installs others, which changes when something is installed.
_NOT_COUNTED = frozenset({PLATFORM, "pip", "setuptools", "wheel"})


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What the code of an epoch may import besides what is stored with it.

    Attributes:
        python: version of the interpreter.
        distributions: name of an installed distribution -> its version.
        image: name of the image that it is in; empty where no setting names one.
    """

    python: str
    distributions: Mapping[str, str] = field(default_factory=dict)
    image: str = ""

    @cached_property
    def id(self) -> str:
        """Its content hash. The versions of Kappa, pip, setuptools and wheel are not part of it."""
        others = {name: version for name, version in self.distributions.items() if name not in _NOT_COUNTED}
        content = json.dumps([self.python, others, self.image], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def label(self) -> str:
        """The beginning of its id, with Python's version, Kappa's, and the image: for people."""
        parts = [f"Python {self.python}"]
        if PLATFORM in self.distributions:
            parts.append(f"{PLATFORM} {self.distributions[PLATFORM]}")
        if self.image:
            parts.append(f"image {self.image}")
        return f"{self.id[:12]} ({', '.join(parts)})"

    def to_json(self) -> str:
        """Its stored form."""
        distributions = dict(sorted(self.distributions.items()))
        values = {"format": FORMAT, "python": self.python, "distributions": distributions, "image": self.image}
        return json.dumps(values, indent=1)

    @staticmethod
    def from_json(text: str | bytes, where: str) -> Environment:
        """The environment that was stored.

        Args:
            text: what :meth:`to_json` gave.
            where: the file, for messages.

        Raises:
            NewerFormatError: newer code wrote it in a format that this code does not read.
            LedgerError: it was cut short or altered.
        """
        try:
            values: dict[str, Any] = json.loads(text)
            stored.check_format(values.get("format"), FORMAT, what="environment", where=where)
            return stored.read(Environment, values)
        except (ValueError, AttributeError) as error:
            raise altered(where) from error


def altered(where: str) -> LedgerError:
    """The error of a stored environment that is not what its name says.

    Args:
        where: the file.
    """
    return LedgerError(
        f"The stored environment {where} was cut short or altered. The next driver that starts there writes it again: "
        "kappa start <topology>",
        path=where,
    )


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One difference between two environments.

    Attributes:
        name: the distribution, ``Python`` or ``image``.
        then: its version in the earlier one; empty where it was not there.
        now: its version in the later one; empty where it is missing.
    """

    name: str
    then: str
    now: str

    def __str__(self) -> str:
        if not self.then:
            return f"{self.name} was not there, and is {self.now} now"
        return f"{self.name} was {self.then}, and is {self.now or 'missing'} now"


def differences(then: Environment, now: Environment) -> tuple[Difference, ...]:
    """How a later environment differs from an earlier one, by what is part of their ids.

    First what was there and is missing or another, since that is what the code may need; then what came to it.
    """
    pairs = [("Python", then.python, now.python), ("image", then.image, now.image)]
    for name in sorted({*then.distributions, *now.distributions} - _NOT_COUNTED):
        pairs.append((name, then.distributions.get(name, ""), now.distributions.get(name, "")))
    all_of_them = [Difference(name=name, then=old, now=new) for name, old, new in pairs if old != new]
    return tuple(sorted(all_of_them, key=lambda one: not one.then))
