"""The state of an epoch, out of the rows of its ledger."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

from kappa.errors import LedgerError
from kappa.names import SERVED
from kappa.offsets import set_asides
from kappa.offsets.floors import Floors
from kappa.offsets.releases import Releases, merged, that_may_hold
from kappa.offsets.set_asides import SetAside, SetAsides
from kappa.offsets.vector import Offsets, ranges_end
from kappa.record.ledger_rows import LedgerRow
from kappa.topology.shapes import Shape, Timing, shapes_from_dict, timings_from_dict

#: Claims, and rows about a slice's way to its commit and about files: auditors read them among the rolled-up rows.
_PASSING = ("claim", "plan", "effects", "seal", "abandon", "files")


class Commits(Sequence[LedgerRow]):
    """The first N rows of a list that only grows: a copy per slice would cost more the longer a stream runs."""

    def __init__(self, rows: list[LedgerRow], length: int) -> None:
        self._rows = rows
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> LedgerRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[LedgerRow]: ...
    def __getitem__(self, index: int | slice) -> LedgerRow | list[LedgerRow]:
        if isinstance(index, slice):
            return [self._rows[i] for i in range(*index.indices(self._length))]
        return self._rows[range(self._length)[index]]


@dataclass(frozen=True, kw_only=True)
class LedgerState:
    """The state that the rows of a ledger give.

    Attributes:
        claim: the row of the driver that has the epoch.
        commits: the commits that are rows, oldest first: the seed, and all but those that are rolled up and unreadable.
        open_plan: a plan without commit or abandon.
        open_effects: the effects row of that plan.
        open_seal: the row by which it is given up: some of what it wrote may be gone, so that it cannot be finished.
        tries: drivers that claimed the epoch since that plan: each found it open.
        shrunk: the last abandon row that bounds the slices after it.
        miscounted: the abandon row of a slice after the last commit whose records did not add up.
        seq: number of the last slice that was planned.
        is_yielded: whether the epoch may not send.
        yielded_for: number of the handover event that it yielded for.
        has_sent: whether the epoch was ever allowed to send.
        resumed_for: the handover by which it had gone live when it last began to send; 0 for a first epoch, None in
            rows of earlier code.
        baseline_seq: slice up to which the whole state was written to the changelog.
        baseline: that row.
        readable_from: slice from which on every commit is readable.
        savepoints: earlier slices whose commits are readable too.
        maintained: the last maintain row.
        looks: maintain rows, oldest first: those that commits which are rows refer to.
        upgrades: upgrade rows, oldest first: the code of each runs the epoch from there on.
        rolled: the roll-up of the rows that have gone.
        resumes: numbers of the rows after which the epoch may send.
        yields: handover -> where the epoch stood when it yielded for it.
        last: number of the last row.
        set_aside: all records that it has set aside, and those of the epochs that it began with.
        recorded: place -> Delta version up to which rows list its files: those are on the disk.
        effective_releases: of :attr:`released` those that later slices may feel.
    """

    claim: LedgerRow | None = None
    commits: Sequence[LedgerRow] = ()
    open_plan: LedgerRow | None = None
    open_effects: LedgerRow | None = None
    open_seal: LedgerRow | None = None
    tries: int = 0
    shrunk: LedgerRow | None = None
    miscounted: LedgerRow | None = None
    seq: int = -1
    is_yielded: bool = True
    yielded_for: int | None = None
    has_sent: bool = False
    resumed_for: int | None = None
    baseline_seq: int | None = None
    baseline: LedgerRow | None = None
    readable_from: int = 0
    savepoints: frozenset[int] = frozenset()
    maintained: LedgerRow | None = None
    looks: Sequence[LedgerRow] = ()
    upgrades: tuple[LedgerRow, ...] = ()
    rolled: LedgerRow | None = None
    resumes: tuple[int, ...] = ()
    yields: Mapping[int, Offsets] = field(default_factory=dict)
    last: int = 0
    set_aside: SetAsides = ()
    recorded: Mapping[str, int] = field(default_factory=dict)
    effective_releases: Releases = field(default_factory=dict)

    @property
    def rolled_commits(self) -> int:
        """How many of :attr:`commits` are in the roll-up as well."""
        if self.rolled is None:
            return 0
        return bisect_right(self.commits, self.rolled.detail["upto"], key=lambda row: row.n)

    @property
    def recent(self) -> list[LedgerRow]:
        """The commits that are in no roll-up, oldest first."""
        return list(self.commits[self.rolled_commits :])

    @property
    def slices(self) -> int:
        """How many slices were committed, without the seed."""
        past = 0 if self.rolled is None else int(self.rolled.detail["commits"])
        return past + len(self.commits) - self.rolled_commits - 1

    @property
    def served(self) -> list[str]:
        """Places of tables and append outputs: readers get a published table of each."""
        return [place for place in self.recorded if place.startswith(SERVED)]

    @property
    def upgrade(self) -> LedgerRow | None:
        """The last upgrade row."""
        return self.upgrades[-1] if self.upgrades else None

    @property
    def shapes(self) -> dict[str, Shape]:
        """Keys and columns of its tables and append outputs, by place."""
        return self.shapes_at(self.seq + 1)

    @property
    def timings(self) -> dict[str, Timing]:
        """Time and grace of sources by which rows of its tables come and go; empty in rows of earlier code."""
        if self.upgrade is not None and "times" in self.upgrade.detail:
            return timings_from_dict(self.upgrade.detail["times"])
        return {topic: one for shape in self.shapes.values() for topic, one in (shape.times or {}).items()}

    def shapes_at(self, seq: int) -> dict[str, Shape]:
        """The same at a commit: those of the seed, with the times and graces of the code that made the commit.

        Args:
            seq: its slice.
        """
        shapes = shapes_from_dict(self.commits[0].detail["shapes"])
        changes = [row.detail["times"] for row in self.upgrades if row.seq < seq and "times" in row.detail]
        if not changes:
            return shapes
        times = timings_from_dict(changes[-1])
        return {place: shape if shape.times == {} else replace(shape, times=times) for place, shape in shapes.items()}

    @property
    def masked(self) -> dict[str, tuple[str, ...]]:
        """Columns whose values no reader gets without a right of its own, by place, as its code declares them now."""
        row = self.upgrade if self.upgrade is not None else self.commits[0]
        return {place: tuple(columns) for place, columns in row.detail.get("masked", {}).items()}

    @property
    def releases(self) -> tuple[tuple[Offsets, Releases], ...]:
        """Where the epoch stood, with the releases of the way there, oldest first; slices without any are left out."""
        rolled = [] if self.rolled is None else [self.rolled]
        entries = [(Offsets.from_json(row.detail["standing"]), row.releases) for row in rolled]
        entries += [(row.standing, row.releases) for row in self.commits if "releases" in row.detail]
        return tuple((standing, releases) for standing, releases in entries if releases)

    @property
    def released(self) -> Releases:
        """All of them."""
        return merged(releases for _, releases in self.releases)

    @property
    def floors(self) -> tuple[tuple[Offsets, Floors], ...]:
        """Where the epoch stood, with the floors that a change of code made there, or that a slice took over."""
        entries = (
            [] if self.rolled is None else [(Offsets.from_json(self.rolled.detail["standing"]), self.rolled.floors)]
        )
        entries += [(Offsets.from_json(row.detail["at"]), row.floors) for row in self.upgrades]
        entries += [(row.standing, row.floors) for row in self.commits if "floors" in row.detail]
        return tuple((standing, floors) for standing, floors in entries if floors)

    @property
    def floored(self) -> Floors:
        """All of them."""
        return merged(floors for _, floors in self.floors)

    def commit(self, seq: int) -> LedgerRow | None:
        """The commit of a slice, if it is a row; quick for one of the last."""
        return next((row for row in reversed(self.commits) if row.seq == seq), None)

    def is_readable(self, seq: int) -> bool:
        """Whether the files of a commit are still there; those of old ones go (see :mod:`kappa.driver.maintenance`)."""
        return seq >= self.readable_from or seq in self.savepoints

    @property
    def readable(self) -> list[LedgerRow]:
        """The commits whose files are still there, oldest first."""
        return [row for row in self.commits if self.is_readable(row.seq)]

    def serves(self, pair: Sequence[int], row: LedgerRow, name: str, own: int) -> bool:
        """Whether a commit's table can be read from a version: its own, or an earlier one with all changes since.

        Args:
            pair: Delta version, and the slice up to which it is merged.
            row: the commit.
            name: the table.
            own: the Delta version that the commit names.
        """
        version, merged = pair
        return version == own or (version < own and merged >= self.forgotten(name, row.n))

    def forgotten(self, name: str, n: int | None = None) -> int:
        """The last slice whose changes were gone from a table when row ``n`` was written; None means now."""
        before = len(self.looks) if n is None else bisect_left(self.looks, n, key=lambda look: look.n)
        if before == 0:
            return 0
        look = self.looks[before - 1]
        # Earlier code removed all changes but those of the last slice.
        return int(look.detail.get("forgotten", {}).get(name, look.seq - 1))

    def resolved(self, row: LedgerRow) -> LedgerRow:
        """A commit by the versions that are still there: where its own went, by the newest kept before it.

        The rows of its tables are the same either way: an older version, and more changes over it.
        """
        if self.maintained is None or row.n > self.maintained.n:
            return row
        versions, entries = dict(row.delta_versions), dict(row.detail.get("merged", {}))
        for name, merge in self.maintained.detail.get("merges", {}).items():
            own = versions.get(f"tables/{name}")
            serving = [] if own is None else [pair for pair in merge["kept"] if self.serves(pair, row, name, own)]
            if not serving or max(serving)[0] == own:
                continue
            versions[f"tables/{name}"], merged = max(serving)
            entries[name] = {"seq": merged, "key": merge["key"]}
        return replace(
            row, delta_versions=versions, detail={**row.detail, "merged": entries} if entries else row.detail
        )

    @property
    def committed(self) -> LedgerRow | None:
        """The last commit, where there is one."""
        return self.commits[-1] if self.commits else None

    @property
    def since_shrunk(self) -> int:
        """Slices up to the last commit since :attr:`shrunk`."""
        if self.shrunk is None or self.committed is None:
            return 0
        return max(0, self.committed.seq - self.shrunk.seq)


@dataclass(frozen=True, kw_only=True)
class BegunState(LedgerState):
    """The state of a ledger that has a commit: what slices, handovers and comparisons work with."""

    @property
    def committed(self) -> LedgerRow:
        """The last commit."""
        return self.commits[-1]

    @property
    def position(self) -> Offsets:
        """Offsets from which the next slice is read."""
        return ranges_end(self.committed.ranges)

    @property
    def standing(self) -> Offsets:
        """The same in offsets of root topics, in which epochs that read different versioned topics can be compared."""
        return self.committed.standing


def begun(state: LedgerState) -> BegunState:
    """The state, as that of an epoch that was seeded.

    Raises:
        LedgerError: it has no commit.
    """
    if isinstance(state, BegunState):
        return state
    raise LedgerError(
        f"The ledger has no commit in its {state.last} rows: the epoch was not seeded yet. Wait for its driver: see "
        "kappa status",
        rows=state.last,
    )


class StateBuilder:
    """Ledger rows, one after the other, into a state."""

    def __init__(self) -> None:
        self._commits: list[LedgerRow] = []
        self._looks: list[LedgerRow] = []
        self._asides: list[SetAside] = []
        self._values: dict[str, Any] = {}

    def add(self, row: LedgerRow) -> None:
        values = self._values
        values["last"] = row.n
        if row.kind in ("commit", "rollup"):
            last = self._commits[-1] if row.kind == "rollup" else row
            values["effective_releases"] = that_may_hold(
                [values.get("effective_releases", {}), row.releases], last.stream_times
            )
            self._asides += row.set_aside
        if row.kind == "claim":
            values["claim"] = row
            is_try = values.get("open_plan") is not None and not row.is_taken
            values["tries"] = values.get("tries", 0) + is_try
        elif row.kind == "plan":
            values.update(open_plan=row, open_effects=None, seq=row.seq, tries=0)
        elif row.kind in ("effects", "seal"):
            values[f"open_{row.kind}"] = row
        elif row.kind == "commit":
            self._commits.append(row)
            values.update(open_plan=None, open_effects=None, open_seal=None, seq=row.seq, tries=0, miscounted=None)
            values["recorded"] = row.delta_versions
        elif row.kind == "abandon":
            values.update(open_plan=None, open_effects=None, open_seal=None, tries=0)
            if "most" in row.detail:
                values["shrunk"] = row
            if row.detail.get("decided"):
                values["shrunk"] = None
            if "miscounted" in row.detail:
                values["miscounted"] = row
        elif row.kind == "maintain":
            values["maintained"] = row
            self._looks.append(row)
            values.update(readable_from=row.detail["readable_from"], savepoints=frozenset(row.detail["savepoints"]))
        elif row.kind == "files":
            values["recorded"] = {**values.get("recorded", {}), **row.delta_versions}
        elif row.kind == "upgrade":
            values["upgrades"] = (*values.get("upgrades", ()), row)
        elif row.kind == "baseline":
            values.update(baseline_seq=row.seq, baseline=row)
        elif row.kind == "yield":
            values.update(is_yielded=True, yielded_for=row.detail.get("handover"))
            if {"handover", "at"} <= row.detail.keys():
                at = Offsets.from_json(row.detail["at"])
                values["yields"] = {**values.get("yields", {}), row.detail["handover"]: at}
        elif row.kind == "resume":
            values.update(is_yielded=False, has_sent=True, yielded_for=None, resumed_for=row.detail.get("handover"))
            values["resumes"] = (*values.get("resumes", ()), row.n)
        elif row.kind == "rollup":
            is_kept = stays(self.state(), row.detail["upto"])
            # New lists: an earlier state keeps the old ones.
            self._commits = [commit for commit in self._commits if is_kept(commit.n, commit.kind, commit.seq)]
            self._looks = [look for look in self._looks if is_kept(look.n, look.kind, look.seq)]
            values["rolled"] = row

    def state(self) -> LedgerState:
        if self._asides:  # once for all rows that are new
            self._values["set_aside"] = set_asides.merged((*self._values.get("set_aside", ()), *self._asides))
            self._asides = []
        kind = BegunState if self._commits else LedgerState
        looks = Commits(self._looks, len(self._looks))
        return kind(**self._values, commits=Commits(self._commits, len(self._commits)), looks=looks)


def stays(state: LedgerState, upto: int) -> Callable[[int, str, int], bool]:
    """Whether a row stays when those up to number ``upto`` are rolled up, by its number, kind and slice.

    The writer of a roll-up and all readers of the ledger call this one function, on the rows before the roll-up.
    """
    first = state.commits[0].n
    lasting = {row.n for row in (state.claim, state.shrunk) if row is not None}
    numbers = [row.n for row in state.commits if row.n > upto or row.n == first or state.is_readable(row.seq)]
    before = (bisect_left(state.looks, n, key=lambda look: look.n) for n in numbers)
    looks = {state.looks[index - 1].n for index in before if index} | {look.n for look in state.looks[-1:]}

    def is_kept(n: int, kind: str, seq: int) -> bool:
        if kind == "rollup":
            return False
        if n > upto:
            return True
        if kind == "commit":
            return n == first or state.is_readable(seq)
        if kind == "maintain":
            return n in looks
        return n in lasting or kind not in _PASSING

    return is_kept
