"""The environments of an epoch in its folder, each a file by its id."""

from __future__ import annotations

from functools import lru_cache

from kappa.environments.environment import Difference, Environment, altered, differences
from kappa.errors import KappaError, LedgerError, NewerFormatError
from kappa.names import EpochPaths
from kappa.store.stores import store_of

#: Most differences in a text.
MOST = 12


def store(paths: EpochPaths, environment: Environment) -> None:
    """Store an environment, unless it is there; what else is under its name is replaced.

    Idempotent; a crash leaves a file that no claim names.
    """
    path = paths.environment(environment.id)
    files = store_of(path)
    try:
        _stored(paths, environment.id)
    except NewerFormatError:
        return
    except LedgerError:
        files.make_folder(path.rpartition("/")[0])
        files.put(path, environment.to_json().encode(), is_durable=True)


@lru_cache(maxsize=256)  # what an id names never changes
def load(paths: EpochPaths, id: str) -> Environment:
    """A stored environment.

    Raises:
        LedgerError: it is not there, or was altered.
        NewerFormatError: newer code wrote it in a format that this code does not read.
    """
    return _stored(paths, id)


def _stored(paths: EpochPaths, id: str) -> Environment:
    path = paths.environment(id)
    data = store_of(path).get(path)
    if data is None:
        raise LedgerError(
            f"The lake does not hold environment {id[:12]}, which a claim names: {path}. The next driver that starts "
            "there writes it again: kappa start <topology>",
            path=path,
        )
    environment = Environment.from_json(data, path)
    if environment.id != id:
        raise altered(path)
    return environment


def read(paths: EpochPaths, id: str) -> Environment | None:
    """A stored environment; None where it is not there, or cannot be read at the moment: it only describes."""
    try:
        return load(paths, id)
    except (OSError, KappaError):
        return None


def described(paths: EpochPaths, environment: str, instead_of: str = "") -> str:
    """The environment of a driver, and how it differs from the epoch's own where it is another one; for people.

    Args:
        paths: where the epoch is.
        environment: id of the one in which it runs.
        instead_of: id of the epoch's own; empty where it runs there.
    """
    now, then = read(paths, environment), read(paths, instead_of) if instead_of else None
    text = f"environment {environment[:12] if now is None else now.label}"
    if not instead_of:
        return text
    own = instead_of[:12] if then is None else then.label
    return f"{text} instead of its own, {own}{listed(compared(then, now))}"


def compared(then: Environment | None, now: Environment | None) -> tuple[Difference, ...] | None:
    """How an environment differs from an earlier one; None where the lake does not say what one of them was."""
    return None if then is None or now is None else differences(then, now)


def listed(changes: tuple[Difference, ...] | None) -> str:
    """Differences after a colon, for people: the first of many.

    Args:
        changes: None where the lake does not say what was installed.
    """
    if changes is None:
        return ", of which the lake does not say what was installed"
    more = f"; and {len(changes) - MOST} more" if len(changes) > MOST else ""
    return f": {'; '.join(map(str, changes[:MOST]))}{more}"
