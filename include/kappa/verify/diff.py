"""The difference between two epochs at equal offsets, and the topology's own checks."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import orjson

from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets, ranges_end
from kappa.record.ledger_rows import LedgerRow
from kappa.record.merge_on_read import frame_at
from kappa.replay.proof.standing import dead_letter_notes, has_common_topic, topic_notes
from kappa.replay.proof.verdict import DiffReport, Drift, OutputDiff, Sample, TableDiff, judged
from kappa.serving.hidden_columns import hidden_in
from kappa.slices.rows.effects import collect
from kappa.topology import Append, Table, Topology
from kappa.topology.ddl import quote, quoted
from kappa.topology.shapes import Shape
from kappa.topology.thresholds import Limit
from kappa.verify.checks import checked
from kappa.verify.values import comparable, equal, is_number, row_hashes
from kappa.wire.json.json_forms import json_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_SAMPLES = 5
#: The topic and offset that a row came from, where it has them. The order time is not among them: it depends on where
#: a slice began.
ORIGIN = ("_topic", "_partition", "_offset")
_MASK = "***"
#: Columns with the rows of both epochs beside a table's key.
_LIVE, _CANDIDATE = "_old", "_new"


def verify(
    session: SparkSession,
    topology: Topology,
    live: tuple[EpochPaths, LedgerRow],
    candidate: tuple[EpochPaths, LedgerRow],
    *,
    limits: Mapping[str, Limit] | None = None,
    keys: Mapping[str, str] | None = None,
    by_origin: bool = True,
    by_state: bool = False,
    since: Offsets | None = None,
    unjudged: Collection[str] = (),
    outputs_after: int | None = None,
) -> DiffReport:
    """Compare an epoch with the live one at the same offsets, and run the topology's checks on it.

    Changes nothing. Tables and outputs are compared in the columns that both have, by their names; of tables that an
    operator keeps, in the results.

    Args:
        topology: the candidate's code.
        live: paths of the live epoch and its commit.
        candidate: paths of the epoch and its commit, whose slice ended at the same offsets.
        limits: thresholds by the full names of their measures.
        keys: table -> its key in the live epoch, with types; a table whose key has changed is not compared.
        by_origin: whether equal rows of outputs must come from the same offsets; False where both epochs read different
            topics.
        by_state: whether columns that operators keep for themselves are compared too: one epoch is to go on from the
            state of the other.
        unjudged: tables and outputs whose rows depend on cuts that both did not share: a difference is shown, and is
            not part of the verdict.
        since: where the later of both begins to read; earlier dead letters are not compared.
        outputs_after: slice of the live epoch; of its outputs the rows of later slices are compared; None for all.
    """
    paths, row = candidate
    places = [*(f"tables/{t.name}" for t in topology.tables), *(f"outputs/{a.name}" for a in topology.appends)]
    removed = sorted(p for p in live[1].delta_versions.keys() - set(places) if p.startswith(("tables/", "outputs/")))
    before = {place: _frame(session, *live, place) for place in places}
    after = {place: frame_at(session, paths, row, place) for place in places}
    mask = Mask()
    now_keys = {t.name: Shape.of(t).typed_key for t in topology.tables}
    rekeyed = {name: keys[name] for name, key in now_keys.items() if keys and keys.get(name, key) != key}
    tables, hidden = [], {} if by_state else hidden_in(live[0])
    for t in topology.tables:
        theirs = None if t.name in rekeyed else before[f"tables/{t.name}"]
        shown = None if theirs is None else _shown(theirs, hidden.get(t.name, ()))
        results = [column.name for column in (t.columns if by_state else t.results)]
        tables.append(table_diff(t, shown, after[f"tables/{t.name}"], mask, columns=results))
    outputs = [
        output_diff(
            a, _later(before[f"outputs/{a.name}"], outputs_after), after[f"outputs/{a.name}"], by_origin=by_origin
        )
        for a in topology.appends
    ]
    for place in removed:
        kind, _, name = place.partition("/")
        rows = frame_at(session, *live, place).count()
        if kind == "tables":
            tables.append(TableDiff(name=name, rows_live=rows, rows_candidate=None, keys_removed=rows))
        else:
            outputs.append(OutputDiff(name=name, rows_live=rows, rows_candidate=None, rows_removed=rows))
    tables = [replace(diff, is_judged=diff.name not in unjudged) for diff in tables]
    outputs = [replace(diff, is_judged=diff.name not in unjudged) for diff in outputs]
    return DiffReport(
        topology=topology.name,
        live_epoch=live[0].epoch,
        live_seq=live[1].seq,
        candidate_epoch=paths.epoch,
        candidate_seq=row.seq,
        at=row.standing,
        tables=tuple(tables),
        outputs=tuple(outputs),
        checks=tuple(checked(session, topology, {p.partition("/")[2]: frame for p, frame in after.items()})),
        thresholds=judged(limits or {}, tables, outputs),
        is_level=has_common_topic(live[1].standing, row.standing),
        notes=(
            *topic_notes(live[1].standing, row.standing),
            *dead_letter_notes(*_dead_alone(session, live, candidate, since)),
            *_notes(tables, outputs),
            *_unjudged_notes(topology.name, tables, outputs),
            *(
                ()
                if by_origin
                else ("Both epochs read different topics: rows of outputs are compared without their offsets.",)
            ),
            *(f"The key of {name} was {key}: its rows are not compared." for name, key in rekeyed.items()),
        ),
    )


class Mask:
    """Stands in for values that must not be seen: equal values of one report get equal hashes.

    The key of the hashes is forgotten with the mask: they tell rows of one report apart, and reveal no value.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def key(self, value: Any) -> str:
        """A hash that tells this value from others."""
        return f"*{hmac.new(self._secret, str(value).encode(), hashlib.sha256).hexdigest()[:8]}"


def _frame(session: SparkSession, paths: EpochPaths, row: LedgerRow, place: str) -> DataFrame | None:
    return frame_at(session, paths, row, place) if place in row.delta_versions else None


def _later(rows: DataFrame | None, seq: int | None) -> DataFrame | None:
    """Rows of an output that later slices wrote."""
    return rows if rows is None or seq is None else rows.where(f"_seq > {seq}")


def _shown(live: DataFrame, hidden: Sequence[str]) -> DataFrame:
    """Rows of the live epoch without the columns that its operator keeps for itself: another one keeps others."""
    return live.select(*quoted(name for name in live.columns if name not in hidden)) if hidden else live


def table_diff(
    table: Table,
    live: DataFrame | None,
    candidate: DataFrame,
    mask: Mask | None = None,
    *,
    columns: Sequence[str] | None = None,
) -> TableDiff:
    """How a table differs, in one pass over both, and a second one for samples where rows differ.

    Args:
        table: the table.
        live: rows of the live epoch; None where there are none.
        candidate: rows of the epoch.
        mask: stands in for masked values.
        columns: those in which it is compared; None for all. The others are not in the result.
    """
    from pyspark.sql import functions as F

    key, masked = list(table.key), tuple(table.masked)
    if live is None or not set(key) <= set(live.columns):
        rows = candidate.count()
        return TableDiff(name=table.name, rows_live=None, rows_candidate=rows, keys_added=rows, masked=masked)
    declared = [column.name for column in table.columns]
    names = [name for name in (declared if columns is None else columns) if name not in key]
    left_out = set(declared) - {*key, *names}
    compared = [name for name in names if name in live.columns]
    types = {name: (live.schema[name].dataType, candidate.schema[name].dataType) for name in compared}

    def side(frame: DataFrame, name: str) -> DataFrame:
        row = F.struct(*quoted(compared)) if compared else F.struct(F.lit(True).alias("here"))
        return frame.select(*quoted(key), F.struct(row.alias("row")).alias(name))

    both = side(live, _LIVE).join(side(candidate, _CANDIDATE), on=key, how="full_outer")
    in_both = F.col(_LIVE).isNotNull() & F.col(_CANDIDATE).isNotNull()
    sides = {name: (F.col(f"{_LIVE}.row.{quote(name)}"), F.col(f"{_CANDIDATE}.row.{quote(name)}")) for name in compared}
    changed = {name: in_both & ~equal(*sides[name], *types[name]) for name in compared}
    any_changed = reduce(lambda one, other: one | other, changed.values(), F.lit(False))
    drifting = [name for name in compared if all(map(is_number, types[name])) and name not in masked]
    # One pass: numbered aliases, since a column of the table may have any name.
    totals = both.agg(
        F.count(_LIVE).alias("rows_live"),
        F.count(_CANDIDATE).alias("rows_candidate"),
        F.count_if(F.col(_LIVE).isNull()).alias("added"),
        F.count_if(F.col(_CANDIDATE).isNull()).alias("removed"),
        F.count_if(any_changed).alias("changed"),
        *(F.count_if(changed[name]).alias(f"changed_{i}") for i, name in enumerate(compared)),
        *(
            part
            for i, name in enumerate(drifting)
            for part in _drift_columns(i, sides[name], types[name], changed[name], in_both)
        ),
    ).first()
    assert totals is not None
    samples: tuple[Sample, ...] = ()
    if totals["added"] or totals["removed"] or totals["changed"]:
        differs = any_changed | F.col(_LIVE).isNull() | F.col(_CANDIDATE).isNull()
        # From Arrow: Python has no dates and times beyond the years 1 to 9999.
        rows = collect({"": both.where(differs).orderBy(*quoted(key)).limit(_SAMPLES)})[""]
        shown = json_rows(rows, rows.column_names)
        samples = tuple(_sample(row, key, compared, masked, mask or Mask()) for row in shown)
    counts = {name: totals[f"changed_{i}"] for i, name in enumerate(compared)}
    return TableDiff(
        name=table.name,
        rows_live=totals["rows_live"],
        rows_candidate=totals["rows_candidate"],
        keys_added=totals["added"],
        keys_removed=totals["removed"],
        keys_changed=totals["changed"],
        changed_columns={name: count for name, count in counts.items() if count},
        samples=samples,
        drift={name: _drift(totals, i, counts[name]) for i, name in enumerate(drifting) if counts[name]},
        columns_added=tuple(name for name in names if name not in compared),
        columns_removed=tuple(name for name in live.columns if name not in (*key, *compared, *left_out)),
        columns_retyped=tuple(name for name, (was, now) in types.items() if was != now),
        masked=masked,
    )


def output_diff(append: Append, live: DataFrame | None, candidate: DataFrame, *, by_origin: bool = True) -> OutputDiff:
    """How the rows of an append output differ as multisets, in one pass over both."""
    from pyspark.sql import functions as F

    if live is None:
        return OutputDiff(name=append.name, rows_live=None, rows_candidate=candidate.count())
    declared = [column.name for column in append.columns]
    before = [name for name in live.columns if name not in (*ORIGIN, "_order_timestamp", "_seq")]
    compared = [*(name for name in declared if name in before), *(ORIGIN if by_origin else ())] or [*ORIGIN]
    types = {name: (live.schema[name].dataType, candidate.schema[name].dataType) for name in compared}

    def side(frame: DataFrame, sign: int) -> DataFrame:
        parts: list[Column] = []
        for name in compared:
            own, other = types[name] if sign < 0 else reversed(types[name])
            parts.append(comparable(F.col(quote(name)), own, other).alias(f"c{len(parts)}"))
        return frame.select(*parts, F.lit(sign).alias("sign"))

    rows = side(live, -1).unionByName(side(candidate, 1))
    # Sixteen bytes per row go through the shuffle, not the row.
    grouped = (
        rows.select(*row_hashes(rows, [f"c{i}" for i in range(len(compared))]), "sign")
        .groupBy("_hash_0", "_hash_1")
        .agg(F.count_if(F.col("sign") < 0).alias("live"), F.count_if(F.col("sign") > 0).alias("candidate"))
    )
    more = F.col("candidate") - F.col("live")
    totals = grouped.agg(
        F.sum("live").alias("live"),
        F.sum("candidate").alias("candidate"),
        F.sum(F.greatest(more, F.lit(0))).alias("added"),
        F.sum(F.greatest(-more, F.lit(0))).alias("removed"),
    ).first()
    assert totals is not None
    return OutputDiff(
        name=append.name,
        rows_live=totals["live"] or 0,
        rows_candidate=totals["candidate"] or 0,
        rows_added=totals["added"] or 0,
        rows_removed=totals["removed"] or 0,
        columns_added=tuple(name for name in declared if name not in before),
        columns_removed=tuple(name for name in before if name not in declared),
    )


def _dead_alone(
    session: SparkSession,
    live: tuple[EpochPaths, LedgerRow],
    candidate: tuple[EpochPaths, LedgerRow],
    since: Offsets | None,
) -> tuple[dict[str, int], dict[str, int]]:
    """Reason -> dead letters in the live epoch alone, and in the other one alone, of topics that both read."""
    from pyspark.sql import functions as F

    both = sorted(set(ranges_end(live[1].ranges).topics) & set(ranges_end(candidate[1].ranges).topics))
    place = ["topic", "partition", "offset"]

    def dead_letters(paths: EpochPaths, row: LedgerRow) -> DataFrame | None:
        if "dead_letters" not in row.delta_versions or not both:
            return None
        letters = frame_at(session, paths, row, "dead_letters").where(F.col("topic").isin(*both))
        for (topic, partition), offset in since.items() if since else ():
            is_there = (F.col("topic") == topic) & (F.col("partition") == partition)
            letters = letters.where(~is_there | (F.col("offset") >= offset))
        return letters.select(*place, "reason")

    theirs, ours = dead_letters(*live), dead_letters(*candidate)
    if theirs is None or ours is None:
        return {}, {}

    def alone(own: DataFrame, other: DataFrame) -> dict[str, int]:
        rows = own.join(other.select(*place), on=place, how="left_anti").groupBy("reason").count().collect()
        return {row["reason"]: row["count"] for row in rows}

    return alone(theirs, ours), alone(ours, theirs)


def _notes(tables: Sequence[TableDiff], outputs: Sequence[OutputDiff]) -> list[str]:
    notes = [
        f"Rows of {output.name} were both added and removed. What depends on the order of records across partitions is "
        "the same only along the same cuts."
        for output in outputs
        if output.rows_live is not None
        and output.rows_candidate is not None
        and output.rows_added
        and output.rows_removed
    ]
    return notes + [
        f"Column {name} of {table.name} has another type in the live epoch."
        for table in tables
        for name in table.columns_retyped
    ]


def _unjudged_notes(topology: str, tables: Sequence[TableDiff], outputs: Sequence[OutputDiff]) -> list[str]:
    members: list[TableDiff | OutputDiff] = [*tables, *outputs]
    names = [f"{diff.name}{'' if diff.is_same else ' (differs)'}" for diff in members if not diff.is_judged]
    if not names:
        return []
    return [
        f"{', '.join(names)}: rows depend on where slices end, and both epochs were cut differently. The verdict "
        f"leaves them out. `kappa replay {topology} --cuts live` computes along the slices of the live epoch."
    ]


def _sample(
    row: Mapping[str, Any], key: Sequence[str], compared: Sequence[str], masked: Sequence[str], mask: Mask
) -> Sample:
    def side(name: str) -> dict[str, str | None] | None:
        if row[name] is None:
            return None
        values = {k: v for k, v in row[name]["row"].items() if k in compared}
        return {k: _MASK if k in masked else None if v is None else _text(v) for k, v in values.items()}

    keys = {name: mask.key(_text(row[name])) if name in masked else _text(row[name]) for name in key}
    return Sample(key=keys, live=side(_LIVE), candidate=side(_CANDIDATE))


def _text(form: Any) -> str:
    """A value as text, from its JSON form."""
    return form if isinstance(form, str) else orjson.dumps(form).decode()


def _drift_columns(
    i: int, sides: tuple[Column, Column], types: tuple[DataType, DataType], changed: Column, in_both: Column
) -> list[Column]:
    from pyspark.sql import functions as F

    before, after = (F.coalesce(side.cast("double"), F.lit(0.0)) for side in sides)
    # Two long numbers may be the same as doubles: they are subtracted as they are, unless that overflows.
    was, now = (F.coalesce(side, F.lit(0).cast(kind)) for side, kind in zip(sides, types, strict=True))
    exact = F.try_subtract(now, was).cast("double")
    difference = F.when(changed, F.abs(F.coalesce(exact, after - before)))
    return [
        F.sum(F.when(changed, before)).alias(f"live_{i}"),
        F.sum(F.when(changed, after)).alias(f"candidate_{i}"),
        F.sum(difference).alias(f"difference_{i}"),
        F.max(difference).alias(f"most_{i}"),
        F.sum(F.when(in_both, F.abs(before))).alias(f"total_{i}"),
    ]


def _drift(totals: Any, i: int, keys: int) -> Drift:
    def finite(name: str) -> float | None:
        value = totals[f"{name}_{i}"]
        return value if value is not None and math.isfinite(value) else None

    difference, total = finite("difference"), finite("total")
    return Drift(
        keys=keys,
        sum_live=finite("live"),
        sum_candidate=finite("candidate"),
        max_difference=finite("most"),
        mean_difference=None if difference is None else difference / keys,
        share=difference / total if difference is not None and total else None,
    )
