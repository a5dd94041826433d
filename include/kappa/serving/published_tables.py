"""How published tables stand to the ledger of the live epoch: what each shows, and which commits it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import takewhile

from kappa import clock
from kappa.config import Config
from kappa.delta.access import is_table
from kappa.delta.damage import entry_number
from kappa.delta.log_entries import actions_of
from kappa.delta.log_state import LogState, state_of
from kappa.delta.publication import Shown, shown_by
from kappa.errors import UNREADABLE, DamagedTableError, LedgerError
from kappa.names import EpochPaths
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import epochs_of
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState
from kappa.record.merge_on_read import contents_of
from kappa.store.stores import store_of


@dataclass(frozen=True, kw_only=True)
class ServedTable:
    """A published table, and how far it is behind the live epoch.

    Attributes:
        name: of the table or append output.
        kind: ``table`` or ``output``.
        path: the published table: the same whichever epoch is live.
        live: the live epoch.
        epoch: the epoch that it shows; None before its first publication.
        version: its Delta version.
        seq: the last slice that it shows.
        published_at: when it was published last; None where its log no longer has that.
        commits_behind: commits of the live epoch that it lacks; None where it shows another epoch, or nothing.
        seconds_behind: how long the first of them has been waiting, or the move to the live epoch; 0 without any, None
            where that is still to come by this host's clock.
        problem: why it cannot be read, or what keeps it from the live epoch, with what to do; empty if nothing does.
    """

    name: str
    kind: str
    path: str
    live: int
    epoch: int | None = None
    version: int | None = None
    seq: int | None = None
    published_at: datetime | None = None
    commits_behind: int | None = None
    seconds_behind: float | None = None
    problem: str = ""

    @property
    def standing(self) -> str:
        """How far it is behind, in a line for people."""
        if self.problem:
            return self.problem
        if not self.commits_behind:
            return "has every commit"
        commits = "1 commit" if self.commits_behind == 1 else f"{self.commits_behind:,} commits"
        since = "for an unknown time" if self.seconds_behind is None else f"for {self.seconds_behind:,.0f} s"
        return f"{commits} behind, the first {since}"


def published_tables(config: Config, topology: str) -> tuple[ServedTable, ...]:
    """The published tables of a topology, tables before append outputs; none without a live epoch.

    Per table it takes a listing and an entry of its log.
    """
    return of_record(config, epochs_of(config.lake).record(topology))


def of_record(config: Config, record: TopologyRecord) -> tuple[ServedTable, ...]:
    """The same for a topology's record."""
    if record.live is None:
        return ()
    paths = EpochPaths(lake=config.lake, topology=record.topology, epoch=record.live)
    state = Ledger(paths.ledger).state()
    places = sorted(state.served, key=lambda place: (not place.startswith("tables/"), place))
    return tuple(_standing(record, paths, state, place) for place in places)


def waiting_since(
    paths: EpochPaths, state: LedgerState, place: str, shown: Shown | None, moved_at: datetime | None
) -> datetime | None:
    """When what a published table lacks was committed, the oldest of it; None where it lacks nothing.

    Args:
        paths: the live epoch.
        state: its ledger.
        place: the table or output.
        shown: what the published table shows.
        moved_at: when the epoch went live.
    """
    if shown is None or shown.epoch != paths.epoch:
        return moved_at
    rows = list(_unshown(paths, state, place, shown))
    return rows[-1].at if rows else None


def _standing(record: TopologyRecord, paths: EpochPaths, state: LedgerState, place: str) -> ServedTable:
    folder, _, name = place.partition("/")
    path = paths.published(name)
    one = ServedTable(name=name, kind="table" if folder == "tables" else "output", path=path, live=paths.epoch)
    try:
        shown = shown_now(path)
    except UNREADABLE as error:
        return replace(one, problem=str(error))
    moved_at = None if record.last_move is None else record.last_move.at
    since = waiting_since(paths, state, place, shown, moved_at)
    seconds = 0.0 if since is None else clock.age_seconds(since)
    if shown is None and is_table(path):
        problem = "another program has a Delta table there, which stays as it is. Move it to another folder"
        return replace(one, seconds_behind=seconds, problem=problem)
    if shown is None:
        problem = f"not published yet. Its driver does it: kappa start {paths.topology} --execute"
        return replace(one, seconds_behind=seconds, problem=problem)
    is_of_live = shown.epoch == paths.epoch
    return replace(
        one,
        epoch=shown.epoch,
        version=shown.version,
        seq=shown.seq,
        published_at=None if shown.at is None else datetime.fromtimestamp(shown.at / 1000, UTC),
        commits_behind=len(list(_unshown(paths, state, place, shown))) if is_of_live else None,
        seconds_behind=seconds,
        problem=""
        if is_of_live
        else f"shows epoch {shown.epoch}, live is {paths.epoch}: its driver has not published since the move. "
        f"Start it: kappa start {paths.topology} --execute",
    )


def is_foreign(path: str) -> bool:
    """Whether the Delta table at the path of a published table is another program's. Of a damaged one nobody knows."""
    try:
        return is_table(path) and shown_now(path) is None
    except (DamagedTableError, LedgerError):
        return False


def shown_now(path: str) -> Shown | None:
    """What a published table shows, by the newest entry of its log; None where there is none of Kappa's.

    Raises:
        DamagedTableError: files of the log are missing or torn.
        LedgerError: its newest entries are gone.
    """
    files = store_of(path).files(f"{path}/_delta_log")
    numbers = [number for file in files if (number := entry_number(file.name)) is not None]
    if numbers and (actions := actions_of(path, max(numbers))) is not None:
        newest = LogState(version=max(numbers))
        newest.apply(actions)
        if (shown := shown_by(path, newest)) is not None:
            return shown
    state = state_of(path)
    return None if state is None else shown_by(path, state)


def _unshown(paths: EpochPaths, state: LedgerState, place: str, shown: Shown) -> Iterator[LedgerRow]:
    """Commits that a published table of the epoch lacks, the newest first."""
    folder, _, name = place.partition("/")

    def is_missing(row: LedgerRow) -> bool:
        if place not in row.delta_versions or (shown.seq is not None and shown.seq >= row.seq):
            return False
        is_merged = folder != "tables" or contents_of(paths, row, name).is_merged
        return not is_merged or row.delta_versions[place] > shown.source_version

    return takewhile(is_missing, reversed(state.commits))
