"""The way back: a lake that was closed by a copy goes on where it was."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from kappa.acts import Act, Effect, act
from kappa.config import Config
from kappa.control.lakes import inventory
from kappa.control.lakes.marks import Marks
from kappa.control.lakes.relocations import is_complete, last_move, record_of_lake, relocated
from kappa.control.lakes.transfer import Progress, Transfer
from kappa.control.lakes.writers import Writers
from kappa.errors import ConflictError, KappaError, RefusedError, first_line
from kappa.faults import crash_point
from kappa.record.epochs import Epochs, Now
from kappa.record.events import Event
from kappa.record.topology_records import TopologyRecords
from kappa.store import options
from kappa.store.address import one_spelling
from kappa.store.stores import store_of

#: What the way back puts where the record of the other lake would open: no log begins with it.
_FENCE = b"no copy of this lake opens here: it goes on where it was\n"


@act
def reopen(
    config: Config, *, actor: str, reason: str = "", gives_up: bool = False, progress: Progress = lambda _: None
) -> Act[None]:
    """Let a lake go on at this address after it was closed; idempotent.

    The lake at the other address is closed first, or a copy that was begun there is kept from its end. A crash leaves
    both closed: call it again.

    Args:
        gives_up: go on also where nobody can see whether the lake at the other address goes on: it never will.

    Raises:
        RefusedError: there is no lake here, the one at the other address has gone on since, or cannot be read.
        ConflictError: a copy came to its end meanwhile, or another one has begun.
    """
    epochs = record_of_lake(config.lake, "opened")
    if epochs.place() in ("", config.lake):
        return Act(effects=(), outcome=lambda: None)
    way = _WayBack(config, epochs, actor=actor, reason=reason, progress=progress)
    return Act(effects=tuple(way.effects(gives_up=gives_up)), outcome=lambda: None)


class _WayBack:
    """A way back, as far as it is known before it begins."""

    def __init__(self, config: Config, epochs: Epochs, *, actor: str, reason: str, progress: Progress) -> None:
        self._lake = config.lake
        self._config = config
        self._epochs = epochs
        self._place = place = epochs.place()
        self._move = last_move(epochs.events())
        self._rows = relocated(epochs.now(""), place, config.lake, actor, reason)
        self._progress = progress
        self._other = Epochs(place, is_anywhere=True)
        self._writers = Writers(place, self._other, config.stale_seconds)
        self._transfer = Transfer(config.lake, place, progress)
        self._marks = Marks(place, epochs.lake_id(), config.lake)

    def effects(self, *, gives_up: bool) -> Iterator[Effect]:
        """What is to be done yet."""
        how = ""
        try:
            options.declare(self._place, self._config.lake_client_file, cache=self._config.cache)
            is_lake = self._is_lake()
        except RefusedError:
            raise
        except (KappaError, OSError) as error:
            if not gives_up:
                raise RefusedError(
                    f"Nobody can see whether the lake at {self._place} has gone on: {first_line(error)}. Where it can "
                    "be read, try again; if nothing goes on there ever again: kappa lake open --give-up --execute",
                    findings=(),
                    lake=self._place,
                ) from error
            how = f". The lake at {self._place} is given up: nothing is changed there, and it may still be open"
        else:
            yield from self._closing() if is_lake else self._fencing()
        yield Effect(
            what=f"put on record that the lake is at {self._lake}, and not at {self._place} any more{how}",
            values={"lake": self._lake, "given_up": bool(how)},
            make=lambda: self._epochs.change("", self._opened),
        )

    def _closing(self) -> Iterator[Effect]:
        """For a lake at the other address: it is closed, as a copy closes its source."""
        later = self._later(self._other.records())
        if later:  # an earlier way back was killed: the same rows go on record here
            self._rows = later
        else:
            yield Effect(what=f"close the lake at {self._place}", values={"lake": self._place}, make=self._close)
        yield Effect(
            what=f"take the ledgers at {self._place}, and wait until none of its drivers and archivers runs",
            values={"lake": self._place},
            make=self._take_ledgers,
        )

    def _fencing(self) -> Iterator[Effect]:
        """For half a copy: a process that makes it may sleep, and wake up later."""
        yield Effect(
            what=f"keep the copy that was begun at {self._place} from coming to its end",
            values={"lake": self._place},
            make=self._fence,
        )

    # Looks

    def _is_lake(self) -> bool:
        """Whether the copy at the other address came to its end; otherwise a part of it is there.

        Raises:
            RefusedError: it has gone on.
            FileNotFoundError: there is neither.
        """
        if is_complete(self._epochs, self._transfer):
            self._check_same(self._other.records())
            return True
        if not self._marks.is_of_lake(self._marks.last()):
            if self._other.exists() and self._other.events():
                raise self._gone_on()
            raise FileNotFoundError(f"there is neither a lake nor a copy that was begun at {self._place}")
        return False

    def _later(self, others: TopologyRecords) -> list[Event]:
        """Events at the other address that came since the copy."""
        last = self._epochs.records().last
        return [event for event in others.events() if event.n > last]

    def _check_same(self, others: TopologyRecords) -> None:
        is_same = others.continues(self._epochs.records())
        is_back = all(
            one.event == "relocated" and one_spelling(one.detail["to"]) == self._lake for one in self._later(others)
        )
        if not is_same or not is_back or self._writers.has_gone_on(self._lake):
            raise self._gone_on()

    def _gone_on(self) -> RefusedError:
        return RefusedError(
            f"The lake at {self._place} has gone on: it has events, slices or archived records that {self._lake} does "
            f"not have. Copy it back: KAPPA_LAKE={quote(self._place)} kappa lake copy {quote(self._lake)} "
            "--execute",
            findings=(),
            lake=self._place,
        )

    # Effects

    def _close(self) -> None:
        def decide(now: Now) -> list[Event]:
            self._check_same(now.records)
            return [] if self._later(now.records) else self._rows

        self._other.change("", decide)
        crash_point("lake.back.closed")

    def _take_ledgers(self) -> None:
        self._writers.take(self._lake)
        self._writers.await_end(self._progress, f"KAPPA_LAKE={quote(self._lake)} kappa lake open --execute")
        self._check_same(self._other.records())  # what a driver did between the first look and the end of its ledger
        crash_point("lake.back.ledgers")

    def _fence(self) -> None:
        opener = inventory.opener(inventory.of_record(inventory.sizes(self._lake)))
        path = f"{self._place}/{opener}"
        last = self._marks.last()
        is_taken = self._marks.is_of_lake(last) and self._marks.take(last, is_way_back=True)
        if not is_taken or is_complete(self._epochs, self._transfer):
            raise self._overtaken()
        if store_of(path).get(path) != _FENCE and self._marks.is_own():
            # An older state of this lake may be there, closed: the oldest goes first, and what is left does not open.
            self._transfer.remove(reversed(inventory.of_record(inventory.sizes(self._place))))
            store_of(path).make_folder(path.rpartition("/")[0])
        if not store_of(path).create(path, _FENCE) or not self._marks.is_own():
            raise self._overtaken()
        crash_point("lake.back.fenced")

    def _overtaken(self) -> ConflictError:
        return ConflictError(
            f"A copy to {self._place} came to its end meanwhile, or another one has begun. Look again: "
            f"KAPPA_LAKE={quote(self._lake)} kappa lake open",
            lake=self._place,
        )

    def _opened(self, now: Now) -> list[Event]:
        move = last_move(now.records.events())
        if move is not None and move.detail == self._rows[0].detail:
            return []
        if move != self._move:
            raise self._overtaken()
        return self._rows
