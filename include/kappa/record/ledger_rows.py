"""A row of a ledger."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from kappa.offsets import releases, set_asides
from kappa.offsets.floors import Floors, least_frontiers
from kappa.offsets.releases import Releases
from kappa.offsets.set_asides import SetAsides
from kappa.offsets.vector import OffsetRange, Offsets, TopicPartition, ranges_end, ranges_to_json
from kappa.replay.chains import Final, final_from_dict
from kappa.replay.proof.certificate import Sends
from kappa.topology.times.event_time import Frontier, frontier_of, least

#: The newest that this code reads and writes.
FORMAT = 3

#: Fields of a detail under their names before format 3: a row with one of them would be read as if it were empty.
FORMER_FIELDS = frozenset({"folded", "folds"})

#: Fields of a claim that say in which environment its driver runs.
ENVIRONMENT_FIELDS = ("environment", "instead_of")

Kind = Literal[
    "claim",
    "plan",
    "effects",
    "commit",
    "seal",
    "abandon",
    "baseline",
    "yield",
    "resume",
    "upgrade",
    "maintain",
    "files",
    "rollup",
]


@dataclass(frozen=True, kw_only=True)
class LedgerRow:
    """One row of a ledger.

    Attributes:
        n: position in the ledger, from 1.
        kind: ``claim``: a driver took the epoch. ``plan``: the ranges of slice ``seq`` and whether it sends.
            ``effects``: all rows of the slice are written. ``commit``: the slice is done; seq 0 is the seed.
            ``seal``: the planned slice is given up, and what it wrote is removed from here on. ``abandon``: that is
            done, and the slice will never be. ``baseline``: the whole state is in the changelog.
            ``yield`` / ``resume``: from here on the epoch does not send / sends. ``upgrade``: from here on other code
            runs.
            ``maintain``: small files were merged, and files that no held commit needs were removed; ``merges`` in its
            detail says which Delta versions of each table are kept, ``forgotten`` up to which slice its changes are
            gone.
            ``files``: data files came to tables between two slices: changes were merged, or small files.
            ``rollup``: a summary of former rows up to number ``upto`` in its detail.
        seq: the slice; for other rows the last committed one.
        writer: the driver that wrote it.
        ranges: offset ranges of a plan or commit, every partition named.
        sends: which topic outputs a slice sends: ``live`` all, ``held`` none, ``versioned`` only those to the epoch's
            versioned topics.
        logged: whether a slice writes the changelog and its marker.
        code: content hash of the code.
        rows_read: records read from Kafka, counted before parsing.
        rows_parsed: records that parsed.
        rows_dead: dead letters.
        rows_set_aside: records that a decision set aside; each is in ``dead_letters`` as well.
        rows_late: records that an operator refused because they came too late; each is in ``late_records``.
        max_timestamps: topic -> partition -> running maximum of record timestamps, epoch milliseconds.
        stream_times: topic -> partition -> stream time, the running maximum of event times, epoch milliseconds; of
            sources with event time.
        delta_versions: table path within the epoch -> Delta version.
        detail: fields of the kind, as :data:`kappa.record.detail_schema.ROWS` declares them.
    """

    n: int = 0
    kind: Kind
    seq: int
    writer: str
    at: datetime
    ranges: tuple[OffsetRange, ...] = ()
    sends: Sends = "held"
    logged: bool = False
    code: str = ""
    rows_read: int = 0
    rows_parsed: int = 0
    rows_dead: int = 0
    rows_set_aside: int = 0
    rows_late: int = 0
    max_timestamps: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    stream_times: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    delta_versions: Mapping[str, int] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reached_ms(self) -> dict[TopicPartition, int]:
        """``max_timestamps`` by partition, as cuts ask for them."""
        return {(topic, p): ms for topic, parts in self.max_timestamps.items() for p, ms in parts.items()}

    def frontier(self, graces: Mapping[str, int], floors: Floors | None = None) -> Frontier:
        """The time that every partition of some topics has passed after a commit.

        Args:
            graces: topic -> how late its records may be, milliseconds.
            floors: least frontiers of its epoch up to there.
        """
        return least(
            frontier_of(
                self.stream_times.get(topic, {}),
                (r.partition for r in self.ranges if r.topic == topic),
                grace,
                least_frontiers((floors or {}).get(topic, {})),
            )
            for topic, grace in graces.items()
        )

    @property
    def is_taken(self) -> bool:
        """Whether it is a claim that no driver made: it does not count as an attempt at a slice.

        Of a lake that is copied, and of an epoch that is removed, or whose tables are restored.
        """
        return bool(self.detail.get("taken"))

    @property
    def environment(self) -> str:
        """Id of the environment in which the driver of a claim runs; empty in rows of earlier code."""
        return str(self.detail.get("environment", ""))

    @property
    def own_environment(self) -> str:
        """Id of the environment in which the epoch of a claim is to run; empty in rows of earlier code."""
        return str(self.detail.get("instead_of", self.environment))

    @property
    def is_replacement(self) -> bool:
        """Whether it is of a slice that replaces rows instead of reading records."""
        return "backfill" in self.detail

    @property
    def releases(self) -> Releases:
        """Releases that its slice made or took over; of a seed and a roll-up all before it."""
        return releases.from_dict(self.detail.get("releases", {}))

    @property
    def frontiers(self) -> dict[str, int]:
        """Versioned topic that is read and followed -> the time up to which its rows are final after the slice."""
        return dict(self.detail.get("frontiers", {}))

    @property
    def final(self) -> dict[str, Final]:
        """Versioned topic of the epoch -> the time up to which its rows are final after the slice."""
        return final_from_dict(self.detail.get("final", {}))

    @property
    def set_aside(self) -> SetAsides:
        """Records that its slice sets aside; of a seed and a roll-up all before it."""
        return set_asides.from_list(self.detail.get("set_aside", ()))

    @property
    def format(self) -> int:
        """The lowest format that covers the content of the row.

        Code from before format 3 would read a table without its unmerged changes. Code from before format 2 would
        compute records that are set aside, and open windows that a floor keeps closed.
        """
        if {"merged", "merges"} & self.detail.keys():
            return 3
        return 2 if {"set_aside", "floors"} & self.detail.keys() else 1

    @property
    def floors(self) -> Floors:
        """Floors that a change of code made, or that its slice took over; of a seed and a roll-up all before it."""
        return releases.from_dict(self.detail.get("floors", {}))

    @property
    def standing(self) -> Offsets:
        """The end in offsets of root topics after this plan or commit: the end of its ranges, unless the epoch reads
        versioned topics.
        """
        roots = self.detail.get("roots")
        return ranges_end(self.ranges) if roots is None else Offsets.from_json(roots)


def plan_hash(row: LedgerRow) -> str:
    """A hash of the plan of a slice: the same for its plan row and its commit row, without who and when.

    A slice's number says which one it is in one ledger; where a ledger loses rows, the next slice of that number is
    another.
    """
    detail = {name: row.detail.get(name) for name in ("roots", "archived")}
    if row.is_replacement:
        detail["backfill"] = row.detail["backfill"]
    if "frontiers" in row.detail:
        detail["frontiers"] = row.detail["frontiers"]
    if row.releases:
        detail["releases"] = row.detail["releases"]
    if "set_aside" in row.detail:
        detail["set_aside"] = row.detail["set_aside"]
    if row.floors:
        detail["floors"] = row.detail["floors"]
    content = [row.seq, ranges_to_json(row.ranges), row.sends, row.logged, json.loads(json.dumps(detail))]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
