"""The marks of a target: which lake fills it, and which attempt was the last to begin.

Each attempt creates the next one, which no other can create as well.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass

from kappa.control.lakes import inventory
from kappa.store.address import one_spelling
from kappa.store.stores import store_of


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt to fill a target, or to keep all others from that.

    Attributes:
        number: 1 for the first one; 0 where there was none.
        lake: id of the lake.
        source: its address.
        token: tells it from others of this number, after all marks were removed.
        is_way_back: whether no copy is to come to its end.
    """

    number: int = 0
    lake: str = ""
    source: str = ""
    token: str = ""
    is_way_back: bool = False


class Marks:
    """The marks of a target, as one attempt sees them.

    Args:
        target: address of the target.
        lake: id of the lake that fills it.
        source: its address.
    """

    def __init__(self, target: str, lake: str, source: str) -> None:
        self.folder = f"{target}/{inventory.MARKS.rstrip('/')}"
        self._lake = lake
        self._source = source
        self._token = secrets.token_hex(8)

    def last(self) -> Attempt:
        """The last attempt, of whichever lake."""
        names = sorted(file.name for file in store_of(self.folder).files(self.folder) if file.name.endswith(".json"))
        content = store_of(self.folder).get(f"{self.folder}/{names[-1]}") if names else None
        return Attempt() if content is None else Attempt(**json.loads(content))

    def is_of_lake(self, attempt: Attempt) -> bool:
        """Whether an attempt is one of this lake, from this address."""
        return (attempt.lake, one_spelling(attempt.source)) == (self._lake, self._source)

    def is_own(self) -> bool:
        """Whether no other attempt has begun since."""
        return self.last().token == self._token

    def take(self, before: Attempt, *, is_way_back: bool = False) -> bool:
        """Begin an attempt; idempotent. What the target holds besides is not looked at.

        Args:
            before: the last one, to which the caller has no objection.
            is_way_back: whether no copy is to come to its end from now on.

        Returns:
            Whether it is the last one now: another may have been first.
        """
        if before.token == self._token:
            return True
        attempt = Attempt(
            number=before.number + 1, lake=self._lake, source=self._source, token=self._token, is_way_back=is_way_back
        )
        store_of(self.folder).make_folder(self.folder)
        path = f"{self.folder}/{attempt.number:06d}.json"
        return store_of(path).create(path, json.dumps(asdict(attempt)).encode())

    def remove(self) -> None:
        """Remove them: the target is a lake. The last one goes last."""
        for path in sorted(file.path for file in store_of(self.folder).files(self.folder)):
            store_of(path).delete(path)
