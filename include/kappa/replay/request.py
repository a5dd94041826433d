"""The request of a caller: replay this topology from that start, with that seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from kappa.errors import LedgerError, TopologyError, UsageError
from kappa.offsets import set_asides
from kappa.offsets.vector import Offsets
from kappa.replay import stored
from kappa.replay.adoption import Adoption
from kappa.replay.catalogue import ALLOWABLE
from kappa.replay.starts import (
    FromMarker,
    FromSavepoint,
    Start,
    ToEarliest,
    ToOffset,
    start_as_dict,
    start_from_dict,
    start_kind,
)
from kappa.topology.thresholds import Threshold, limits_of


class Seed(StrEnum):
    """What the tables hold before the first slice."""

    EMPTY = "empty"
    FROM_SAVEPOINT = "from-savepoint"
    FROM_CHANGELOG = "from-changelog"
    FROM_TABLES = "from-tables"


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """A request, before the check that it can be met.

    Attributes:
        start: where the replay begins.
        reason: why, for the record.
        actor: the person or program that asks, for the record.
        seed: what the tables hold at the start; ``None`` means the seed that goes with the start, see
            :attr:`resolved_seed`.
        end: where bulk work ends and catching up begins; ``None`` means at the live epoch's last commit, and
            at the present end of topics that it does not read.
        allow: codes of findings that warn instead of refusing; each is in :data:`ALLOWABLE`.
        slice_records: most offsets that one slice spans.
        thresholds: how much the candidate may differ; each wins over the topology's own for the same measure.
        archive: whether records are taken from archives, as far as those go; otherwise all are read from Kafka.
        determinism: whether the range is computed again in slices of another size, so that a difference fails the
            verdict.
        cuts: where slices end: ``time`` cuts by time; ``live`` ends them where those of the live epoch ended, so that
            results that depend on slices can be compared.
        upstream: topology -> its epoch whose versioned topics are read; the live one for topologies that are not named.
        bring_in: records that the live epoch set aside and that the replay computes: ``all``, the number of a decision,
            or ``topic:partition=offsets``.
        adoption: the tables of another job that a first epoch begins with; None where it is no such epoch.

    Raises:
        UsageError: the parts contradict each other, or one is malformed.
    """

    topology: str
    start: Start
    reason: str
    actor: str
    seed: Seed | None = None
    end: Offsets | None = None
    allow: frozenset[str] = field(default_factory=frozenset)
    slice_records: int = 500_000
    thresholds: tuple[Threshold, ...] = ()
    archive: bool = True
    determinism: bool = False
    cuts: Literal["time", "live"] = "time"
    upstream: Mapping[str, int] = field(default_factory=dict)
    bring_in: tuple[str, ...] = ()
    adoption: Adoption | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "allow", frozenset(self.allow))
        object.__setattr__(self, "thresholds", tuple(self.thresholds))
        object.__setattr__(self, "bring_in", tuple(self.bring_in))
        for text in self.bring_in:
            set_asides.check_choice(text)
        try:
            limits_of(self.thresholds)
        except TopologyError as error:
            raise UsageError(str(error)) from error
        unknown = sorted(self.allow - ALLOWABLE)
        if unknown:
            raise UsageError(f"A request cannot allow {unknown}; it can allow {sorted(ALLOWABLE)}.", allow=unknown)
        if not 1 <= self.slice_records < 1 << 63:
            raise UsageError(f"slice_records is {self.slice_records}: a slice spans 1 to {(1 << 63) - 1} offsets.")
        # Tables of one moment, continued from another, would count records twice or not at all.
        for seed, kind in ((Seed.FROM_SAVEPOINT, FromSavepoint), (Seed.FROM_CHANGELOG, FromMarker)):
            if self.resolved_seed is seed and not isinstance(self.start, kind):
                raise UsageError(
                    f"Seed {seed} cannot go with start {start_kind(self.start)}: it fixes the start itself."
                )
        if isinstance(self.start, FromMarker) and self.resolved_seed is not Seed.FROM_CHANGELOG:
            raise UsageError(f"Start from_marker continues a changelog: its seed is {Seed.FROM_CHANGELOG}.")
        self._check_adoption()
        if self.cuts not in ("time", "live"):
            raise UsageError(f"cuts {self.cuts!r} is not one of time, live.")
        if self.cuts == "live" and self.determinism:
            raise UsageError(
                "--determinism needs slices of another size, and --cuts live those of the live epoch: use one of the "
                "two."
            )
        if isinstance(self.start, FromMarker) and self.determinism:
            raise UsageError(
                "A rebuild folds a changelog and runs no step over a range: there is nothing to compute twice."
            )

    def _check_adoption(self) -> None:
        fitting = ToEarliest if self.adoption is None else ToOffset
        if self.resolved_seed is Seed.FROM_TABLES and not isinstance(self.start, fitting):
            raise UsageError(
                f"Seed {Seed.FROM_TABLES} cannot go with start {start_kind(self.start)}: it begins where the adopted "
                "job stood. Omit the start."
            )
        if self.adoption is not None and self.resolved_seed is not Seed.FROM_TABLES:
            raise UsageError(
                f"An adoption begins with tables: its seed is {Seed.FROM_TABLES}, not {self.resolved_seed}."
            )

    @property
    def resolved_seed(self) -> Seed:
        """The requested seed, or the one that goes with the start."""
        if self.seed is None and self.adoption is not None:
            return Seed.FROM_TABLES
        return default_seed(self.start) if self.seed is None else self.seed

    def as_dict(self) -> dict[str, Any]:
        """The request as JSON values."""
        # Left out where there are none: a plan's id is a hash of this.
        thresholds = {"thresholds": [threshold.as_dict() for threshold in self.thresholds]} if self.thresholds else {}
        without = {} if self.archive else {"archive": False}
        determinism = {"determinism": True} if self.determinism else {}
        cuts = {} if self.cuts == "time" else {"cuts": self.cuts}
        upstream = {"upstream": dict(self.upstream)} if self.upstream else {}
        bring_in = {"bring_in": list(self.bring_in)} if self.bring_in else {}
        adoption = {"adoption": self.adoption.as_dict()} if self.adoption is not None else {}
        return {
            "topology": self.topology,
            "start": start_as_dict(self.start),
            "seed": self.seed,
            "end": None if self.end is None else self.end.as_dict(),
            "reason": self.reason,
            "actor": self.actor,
            "allow": sorted(self.allow),
            "slice_records": self.slice_records,
            **thresholds,
            **without,
            **determinism,
            **cuts,
            **upstream,
            **bring_in,
            **adoption,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ReplayRequest:
        """Read what :meth:`as_dict` gave.

        Raises:
            UsageError: the values are not a request.
        """
        parts = dict(values)
        try:
            start = start_from_dict(parts.pop("start"))
            seed, end, adoption = parts.pop("seed", None), parts.pop("end", None), parts.pop("adoption", None)
            field_values = {
                **parts,
                "start": start,
                "seed": None if seed is None else Seed(seed),
                "end": None if end is None else Offsets.from_json(end),
                "adoption": None if adoption is None else Adoption.from_dict(adoption),
                "thresholds": tuple(stored.read(Threshold, values) for values in parts.pop("thresholds", ())),
            }
            return stored.read(cls, field_values)
        except (KeyError, TypeError, ValueError, LedgerError, TopologyError) as error:
            raise UsageError(f"This is not a replay request: {dict(values)!r}: {error}.") from error


def default_seed(start: Start) -> Seed:
    """The seed that goes with a start."""
    if isinstance(start, FromSavepoint):
        return Seed.FROM_SAVEPOINT
    return Seed.FROM_CHANGELOG if isinstance(start, FromMarker) else Seed.EMPTY
