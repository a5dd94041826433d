"""Files of a lake that are damaged; each returns what an error then says of the file."""

from __future__ import annotations

from pathlib import Path

from kappa.store.stores import store_of


def lose(file: str | Path) -> str:
    """Remove it."""
    store_of(str(file)).delete(str(file))
    return f"{Path(file).name} is missing"


def halve(file: str | Path) -> str:
    """Leave its first half."""
    content = store_of(str(file)).get(str(file)) or b""
    store_of(str(file)).put(str(file), content[: len(content) // 2])
    return f"{Path(file).name} is torn"


def drain(file: str | Path) -> str:
    """Leave none of its bytes, as a disk may after a power cut."""
    store_of(str(file)).put(str(file), b"")
    return f"{Path(file).name} is torn"
