"""The record that a step refuses, found by slices that are computed and written nowhere.

A slice fails as a whole. The record is sought by halves, confirmed alone, and then once more with empty tables: so it
can be told whether the code refuses it, or only the tables as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Self

from kappa.errors import Transient
from kappa.offsets.vector import OffsetRange, ranges_end
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState
from kappa.record.merge_on_read import contents_of
from kappa.slices.input.reading import Reading
from kappa.slices.rows.contract import check_rows
from kappa.slices.rows.effects import collect, conformed
from kappa.slices.rows.final_times import promises
from kappa.slices.run import EpochRun
from kappa.slices.step import call_step
from kappa.slices.writing import archives_of, large_tables
from kappa.spark.error_classes import error_class
from kappa.topology import Slice

#: ``code``: it fails with empty tables too. ``state``: only with the tables as they are.
Cause = Literal["code", "state"]
#: Fails with an error class, or does not, on some offsets.
Fails = Callable[[Sequence[OffsetRange]], str | None]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """One record that cannot be computed or sent.

    Attributes:
        topic: its topic, as Kafka has it.
        partition: its partition.
        offset: its offset.
        error: class of the error, as a listing takes it.
        cause: what fails; None where that was not tried.
    """

    topic: str
    partition: int
    offset: int
    error: str
    cause: Cause | None = None

    @property
    def range(self) -> OffsetRange:
        """Its one offset."""
        return OffsetRange(topic=self.topic, partition=self.partition, start=self.offset, end=self.offset + 1)

    def as_dict(self) -> dict[str, Any]:
        """For the detail of an event."""
        return dict(vars(self))

    def described(self, topology: str, epoch: str = "") -> str:
        """What is refused, what fails, and the command that sets it aside."""
        causes = {
            "code": ", with empty tables too: the code alone refuses it",
            "state": ", and not with empty tables: it is refused as the tables are",
            None: "",
        }
        how = "is refused with" if self.cause is None else "alone fails with"
        where = f"--topic {self.topic} --partition {self.partition} --offset {self.offset}"
        return (
            f"The record is {self.topic}[{self.partition}] at offset {self.offset}, which {how} {self.error}"
            f"{causes[self.cause]}. Mend the code: kappa upgrade {topology}. Or go on without the record: "
            f"kappa set-aside {topology}{epoch} {where} --reason '...' --execute"
        )


class Probe:
    """The records of some offsets, read once, of which any part can be computed on the tables after the last commit.

    Nothing is written. Only for few records: they are taken into memory.

    Args:
        run: the epoch.
        plan: says which offsets are read, and what is set aside of them.
        state: its ledger.
    """

    def __init__(self, run: EpochRun, plan: LedgerRow, state: BegunState) -> None:
        committed = state.committed
        self._run = run
        self._plan = plan
        self._tables = {
            table.name: run.state(table).frame(contents_of(run.paths, committed, table.name))
            for table in run.topology.tables
        }
        self._large = large_tables(run, plan)
        engines = run.engines
        self._reading = Reading(
            engines.session,
            engines.bootstrap_servers,
            run.topology.sources,
            plan,
            committed,
            archives=archives_of(run, plan),
            epoch_start=ranges_end(state.commits[0].ranges),
            bound=run.bound,
            small_slice=engines.small_slice,
            mask_key=engines.mask_key,
            schemas=engines.schemas,
            released=state.effective_releases,
            floored=state.floored,
        )
        self._promises = promises(run, committed)

    def __enter__(self) -> Self:
        self._reading.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._reading.__exit__(kind, error, traceback)

    def fails(self, ranges: Sequence[OffsetRange], *, is_empty: bool = False) -> str | None:
        """Class of the error with which a part of the records fails; None where it does not.

        Args:
            ranges: the part.
            is_empty: compute it on empty tables.

        Raises:
            Transient: an engine does not answer.
        """
        run, bound = self._run, self._run.bound
        records = {
            name: frame.where(_within([item for item in ranges if item.topic == bound.get(name, name)]))
            for name, frame in self._reading.records.items()
        }
        slice = Slice(
            seq=self._plan.seq,
            records=records,
            tables={name: frame.limit(0) if is_empty else frame for name, frame in self._tables.items()},
            frontiers=self._reading.frontiers,
            operators=run.topology.operators,
            large_tables=self._large,
            secret=run.engines.mask_key,
        )
        try:
            effects = call_step(run.topology, slice)
            frames = conformed(run.topology, effects)
            check_rows(run.topology, effects, frames, collect(frames), self._promises)
        except Transient:
            raise
        except Exception as error:  # whatever a step or an engine raises
            return error_class(error)
        return None


def refused(probe: Probe, ranges: Sequence[OffsetRange], hint: OffsetRange | None = None) -> Refusal | None:
    """The record of these offsets that fails alone; None where all records pass alone: they fail together only.

    Args:
        probe: has read the records.
        ranges: their offsets.
        hint: the record that the error of the slice names, if it names one: it is tried first.

    Raises:
        Transient: an engine does not answer.
    """
    one = failing_alone(probe.fails, [hint]) if hint is not None else None
    one = one or failing_alone(probe.fails, ranges)
    if one is None:
        return None
    item, error = one
    cause: Cause = "state" if probe.fails([item], is_empty=True) is None else "code"
    return Refusal(topic=item.topic, partition=item.partition, offset=item.start, error=error, cause=cause)


def named_by(error: BaseException | None, ranges: Sequence[OffsetRange]) -> Refusal | None:
    """The record that an error names, where it is one of these offsets; what fails with it was not tried."""
    data = getattr(error, "data", {})
    place = data.get("place") or data.get("origin")
    if error is None or not place:
        return None
    topic, partition, offset = place.values() if isinstance(place, dict) else place
    if not any(item.at == (topic, partition) and item.start <= offset < item.end for item in ranges):
        return None
    return Refusal(topic=topic, partition=partition, offset=offset, error=error_class(error))


def failing_alone(fails: Fails, ranges: Sequence[OffsetRange]) -> tuple[OffsetRange, str] | None:
    """The first offset found that fails alone, with its error class, by halves; None where no half fails."""
    suspects = [item for item in ranges if item.count]
    while suspects:
        if sum(item.count for item in suspects) == 1:
            error = fails(suspects)
            return None if error is None else (suspects[0], error)
        halves = _halves(suspects)
        suspects = next((half for half in halves if fails(half) is not None), [])
    return None


def failing(fails: Fails, span: OffsetRange, target_error: str) -> Iterator[int]:
    """Offsets of a span whose records fail alone with an error class, in order.

    Where records fail one after the other, each is tried alone. Where none do, twice as many are tried together each
    time, until some fail: the first of those is sought by halves.
    """
    at, size, fails_upto = span.start, 1, span.start
    while at < span.end:
        part = replace(span, start=at, end=min(span.end, at + size))
        error = fails([part])
        if error is None:
            at = part.end
            size = max(1, (fails_upto - at) // 2) if at < fails_upto else size * 2
        elif part.count > 1:
            size, fails_upto = part.count // 2, part.end
        else:
            if error == target_error:
                yield at
            at, size = at + 1, 1
            fails_upto = at


def _halves(ranges: Sequence[OffsetRange]) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Ranges in two parts of about as many offsets."""
    rest = sum(item.count for item in ranges) // 2
    first, second = [], []
    for item in ranges:
        cut = item.start + min(item.count, rest)
        rest -= cut - item.start
        first.append(replace(item, end=cut))
        second.append(replace(item, start=cut))
    return [item for item in first if item.count], [item for item in second if item.count]


def _within(ranges: Sequence[OffsetRange]) -> str:
    parts = [f"(_partition = {r.partition} AND _offset >= {r.start} AND _offset < {r.end})" for r in ranges]
    return " OR ".join(parts) or "FALSE"
