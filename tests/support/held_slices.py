"""A topology run slice by slice by the slice protocol itself, in a lake on disk and without a broker.

Nothing is sent: the slices are held, as a candidate's are. ``small_slice=0`` forces what large slices do: Spark parses
and finds event times. ``arrow_rows=0`` forces what those do whose rows are too large for the driver: Spark writes the
effects. Every other slice merges the changes into the tables, so that steps read both a merged table and changes over
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kappa import clock
from kappa.delta import queries
from kappa.names import EpochPaths
from kappa.offsets.vector import OffsetRange
from kappa.record import merge_on_read
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.slices.abandoning import abandon_slice
from kappa.slices.places import create_tables
from kappa.slices.protocol import run_slice
from kappa.slices.run import Engines, EpochRun
from kappa.testing import Input
from kappa.topology import ORDER, Topology
from kappa.wire.inputs import input_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NEVER_SECONDS = 1e9
_COLUMNS = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, time BIGINT"
_HEADERS = "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers"


class _NoBroker:
    """Of a broker the protocol asks only whether topics are still the same; these slices come from none."""

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        assert not list(topics)
        return {}


class HeldSlices:
    """An epoch in a folder. Has the reading methods of :class:`kappa.testing.TopologyDriver`."""

    def __init__(
        self,
        topology: Topology,
        session: SparkSession,
        base: Path,
        *,
        partitions: int,
        small_slice: int,
        arrow_rows: int = 500_000,
    ) -> None:
        self.topology = topology
        self._session = session
        self._offsets = Counter({(t, p): 0 for t in topology.source_topics for p in range(partitions)})
        self._paths = EpochPaths(lake=str(base), topology=topology.name, epoch=1)
        ledger = Ledger(self._paths.ledger)
        ledger.create()
        ledger.claim("test", "code", ledger.state())
        create_tables(topology, self._paths)
        places = [
            "dead_letters",
            *(f"outputs/{append.name}" for append in topology.appends),
            *(f"{kind}/{table.name}" for table in topology.tables for kind in ("changes", "tables")),
        ]
        self._committed = ledger.append(
            LedgerRow(
                kind="commit",
                seq=0,
                writer="test",
                at=clock.now(),
                ranges=self._ranges({}),
                delta_versions=dict.fromkeys(places, 0),
            )
        )
        engines = Engines(
            session=session,
            broker=_NoBroker(),  # type: ignore[arg-type]
            bootstrap_servers="",
            small_slice=small_slice,
            arrow_rows=arrow_rows,
            savepoint_grain=timedelta(days=365_000),
        )
        self._run = EpochRun(
            topology=topology,
            paths=self._paths,
            writer="test",
            code="code",
            ledger=ledger,
            topic_ids={},
            engines=engines,
        )

    def pipe(self, inputs: Iterable[Input]) -> None:
        """Run one slice of exactly these records; every second one merges."""
        records = list(inputs)
        raw = self._raw(records)
        ranges = self._ranges(Counter((one.topic, one.partition) for one in records))
        self._offsets = Counter({(r.topic, r.partition): r.end for r in ranges})
        seconds = 0.0 if self._committed.seq % 2 else _NEVER_SECONDS
        self._run.engines = replace(self._run.engines, merge_seconds=seconds)
        self._committed = run_slice(self._run, ranges, sends="held", logged=False, raw=raw)

    def abandon(self) -> None:
        """Give up the slice that was planned and not done; the next one has its offsets."""
        plan = self._run.ledger.state().open_plan
        assert plan is not None
        abandon_slice(self._run, plan)
        self._offsets = Counter({(r.topic, r.partition): r.start for r in plan.ranges})

    def state(self, name: str) -> list[dict[str, Any]]:
        """Rows of a table as of the last commit, with what its operator keeps for itself."""
        columns = [column.name for column in self.topology.table(name).columns]
        contents = merge_on_read.query(merge_on_read.contents_of(self._paths, self._committed, name))
        rows: list[dict[str, Any]] = contents.select(columns).to_pylist()
        return rows

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Rows of a table as of the last commit, as its readers get them."""
        hidden = self.topology.table(name).hidden
        return [{column: row[column] for column in row if column not in hidden} for row in self.state(name)]

    def rows_in_order(self, name: str) -> list[dict[str, Any]]:
        """Rows of an append output with the place of the record they come from."""
        [append] = [append for append in self.topology.appends if append.name == name]
        table = queries.query(self._paths.output(name), self._committed.delta_versions[f"outputs/{name}"])
        columns = [*ORDER, *(column.name for column in append.columns)]
        rows: list[dict[str, Any]] = table.select(columns).to_pylist()
        return rows

    @property
    def dead_letters(self) -> list[dict[str, Any]]:
        letters = queries.query(self._paths.dead_letters, self._committed.delta_versions["dead_letters"])
        return [{f"_{name}": row[name] for name in ("topic", "partition", "offset")} for row in letters.to_pylist()]

    def _ranges(self, counts: Mapping[tuple[str, int], int]) -> tuple[OffsetRange, ...]:
        return tuple(
            OffsetRange(topic=topic, partition=partition, start=start, end=start + counts.get((topic, partition), 0))
            for (topic, partition), start in sorted(self._offsets.items())
        )

    def _raw(self, inputs: Iterable[Input]) -> DataFrame:
        sources = {source.topic: source for source in self.topology.sources}
        offsets = self._offsets.copy()
        rows = []
        for one in inputs:
            at = (one.topic, one.partition)
            value = input_value(sources[one.topic], one.value)
            rows.append((one.key, value, one.topic, one.partition, offsets[at], one.timestamp_ms))
            offsets[at] += 1
        # A partition of a topic is one task's, as Kafka gives it: the running maximum of its timestamps is the task's.
        frame = self._session.createDataFrame(rows, _COLUMNS).coalesce(1)
        timed = "timestamp_millis(time) AS timestamp"
        return frame.selectExpr("* EXCEPT (time)", timed, "0 AS timestampType", _HEADERS)
