"""The one check of a step's rows: what a topology declares of them, checked before a byte is written.

Columns and types are compared when effects are made (:mod:`kappa.slices.rows.effects`). The rest depends on rows:
nulls, keys, text that is not UTF-8, and values that a partition cannot have. Rows in memory are counted by Arrow. Rows
that Spark writes are counted in one pass, and in none where Spark knows that nothing can be wrong. Only a slice that is
refused looks for the record that a row comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.operators.origin import ORIGIN
from kappa.operators.records import is_deleted
from kappa.slices.rows import nested_nulls, odd_values, partition_values
from kappa.slices.rows.final_times import Promise
from kappa.topology import Append, Table, Topology
from kappa.topology.ddl import Column, quote, quoted
from kappa.topology.times.event_time import shown

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_PLACE = ("_topic", "_partition", "_offset")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule for the rows of an effect.

    Attributes:
        column: the column that it is about.
        condition: SQL, true of a row that breaks the rule.
        violations: mask of the rows of an Arrow table that break the rule; None for none.
        spares_deleted: whether a row that removes its key may break it.
        problem: what is wrong with such rows, for people.
        remedy: what to do, for people.
        is_about_null: whether a frame's schema can say that no row is like that.
    """

    column: str
    condition: str
    violations: Callable[[pa.Table], pa.ChunkedArray | None]
    spares_deleted: bool
    problem: str
    remedy: str
    is_about_null: bool = False

    def refused(self, deleted: str) -> str:
        """SQL for the rows that break the rule, from SQL for those that remove their key."""
        return f"({self.condition}) AND NOT {deleted}" if self.spares_deleted else self.condition

    def count(self, rows: pa.Table) -> int:
        """The number of rows that break the rule."""
        import pyarrow.compute as pc

        violations = self.violations(rows)
        if violations is None:
            return 0
        return pc.sum(pc.and_not(violations, rows["_deleted"]) if self.spares_deleted else violations).as_py() or 0


@dataclass(frozen=True, kw_only=True)
class EffectTally:
    """Counts of an effect's rows.

    Attributes:
        rows: its rows.
        keys: different keys among them; 0 for an output.
        refused: per rule, the number of rows that break it.
    """

    rows: int
    keys: int
    refused: Sequence[int]


def check_rows(
    topology: Topology,
    effects: Mapping[str, DataFrame],
    frames: Mapping[str, DataFrame],
    rows: Mapping[str, pa.Table] | None,
    promises: Mapping[str, Sequence[Promise]] | None = None,
) -> None:
    """Raise where rows of an effect are not what the topology declares. Writes nothing.

    Args:
        topology: declares them.
        effects: as the step returned them, by name: these know the records that rows come from.
        frames: the same in declared columns.
        rows: the rows of all frames; None where they are too large for the driver's memory.
        promises: output -> the promise to the readers of its topics.

    Raises:
        TopologyError: a column that is NOT NULL lacks a value in a row that removes nothing, a table has two rows of a
            key, a text is not UTF-8, a partition cannot have a value, or a row is earlier than what its readers were
            told. Names effect, column, count, and the place of one record.
    """
    members: list[Append | Table] = [*topology.appends, *topology.tables]
    for member in members:
        name = member.name
        rules = (*rules_of(member), *(_promise_rule(one, member) for one in (promises or {}).get(name, ())))
        key = member.key if isinstance(member, Table) else ()
        tally = _counted(frames[name], rules, key) if rows is None else _counted_in_memory(rows[name], rules, key)
        what = f"Effect {name!r} of {topology.name!r}"
        for rule, count in zip(rules, tally.refused, strict=True):
            if count:
                odd = effects[name].where(rule.refused(is_deleted(effects[name])))
                problem = f"{what}: {count} of {tally.rows} rows {rule.problem}."
                raise _refusal(problem, rule.remedy, odd, effect=name, column=rule.column, rows=count)
        if key and tally.rows != tally.keys:
            of_key = f"COUNT(1) OVER (PARTITION BY {', '.join(quoted(key))}) AS _rows_of_key"
            odd = effects[name].selectExpr("*", of_key).where("_rows_of_key > 1")
            problem = f"{what}: {tally.rows} rows for {tally.keys} keys ({', '.join(key)})."
            remedy = "Reduce them to one row per key in the step, for example with operators.newest."
            raise _refusal(problem, remedy, odd, effect=name, column=key[0], rows=tally.rows - tally.keys)


@lru_cache(maxsize=256)
def rules_of(member: Append | Table) -> tuple[Rule, ...]:
    """The rules for rows of a table or output, beside that of one row per key."""
    return tuple(rule for column in member.columns for rule in _rules(member, column))


def _rules(member: Append | Table, column: Column) -> list[Rule]:
    name, sql, rules = column.name, quote(column.name), []
    spares = isinstance(member, Table) and name not in member.key
    is_part = isinstance(member, Append) and name in member.partition_by
    is_text = is_part and column.delta == "string"
    if not column.nullable:
        rules.append(
            Rule(
                column=name,
                condition=partition_values.is_null(sql) if is_text else f"{sql} IS NULL",
                violations=partial(_nulls, name),
                spares_deleted=spares,
                problem=f"have {'no text' if is_text else 'null'} in column {name!r}, which is NOT NULL",
                remedy="Leave them out in the step, give them a value, or declare the column without NOT NULL.",
                is_about_null=not is_text,
            )
        )
    rules.extend(
        Rule(
            column=name,
            condition=nested_nulls.condition(sql, column.delta, path),
            violations=partial(_nested_nulls, name, path),
            spares_deleted=spares,
            problem=f"have null in {nested_nulls.shown(name, path)}, which is NOT NULL",
            remedy="Give it a value in the step, or declare the field without NOT NULL.",
        )
        for path in column.required
    )
    rules.extend(
        Rule(
            column=name,
            condition=condition,
            violations=partial(odd_values.odd_rows, odd, name),
            spares_deleted=False,
            problem=f"have {odd.problem.format(name)}",
            remedy=f"Leave them out in the step, or {odd.remedy}.",
        )
        for odd in (odd_values.FAR_DATES, odd_values.BROKEN_TEXTS)
        if (condition := odd_values.condition(odd, sql, column.delta))
    )
    if is_part and partition_values.has_limits(column):
        limits = partition_values.limits(column)
        rules.append(
            Rule(
                column=name,
                condition=partition_values.is_refused(column),
                violations=partial(partition_values.refused, column),
                spares_deleted=False,
                problem=f"have a value in column {name!r} that no partition can have: {limits}",
                remedy="Leave them out in the step, or partition by another column.",
            )
        )
    return rules


def _promise_rule(promise: Promise, member: Append | Table) -> Rule:
    """No row is earlier than what readers of a topic were told to be final; a BIGINT is epoch milliseconds."""
    kind = next(column.type for column in member.columns if column.name == promise.time)
    at, until = quote(promise.time), shown(promise.ms)
    limit = f"{promise.ms}L" if kind == "BIGINT" else f"timestamp_millis({promise.ms}L)"
    return Rule(
        column=promise.time,
        condition=f"COALESCE({at} < {limit}, FALSE)",
        violations=partial(_earlier, promise.time, promise.ms),
        spares_deleted=False,
        problem=f"have a {promise.time!r} before {until}, up to which readers of topic {promise.topic!r} have closed "
        "their windows",
        remedy="Leave the column as the operator emitted it, or declare the topic with another time.",
    )


def _earlier(name: str, ms: int, rows: pa.Table) -> pa.ChunkedArray | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = rows[name].type
    is_millis = pa.types.is_integer(kind)
    limit = pa.scalar(ms, kind) if is_millis else pa.scalar(ms * 1000, pa.timestamp("us", "UTC")).cast(kind)
    return pc.fill_null(pc.less(rows[name], limit), False)


def _counted_in_memory(rows: pa.Table, rules: Sequence[Rule], key: Sequence[str]) -> EffectTally:
    # Arrow takes a text that begins with a dot for a path.
    keys = rows.group_by([(name,) for name in key]).aggregate([]).num_rows if key else 0
    return EffectTally(rows=rows.num_rows, keys=keys, refused=[rule.count(rows) for rule in rules])


def _counted(frame: DataFrame, rules: Sequence[Rule], key: Sequence[str]) -> EffectTally:
    """The same for rows in Spark, in one pass; in none where there is nothing to check."""
    from pyspark.sql import functions as F

    checks = [rule for rule in rules if not (rule.is_about_null and not frame.schema[rule.column].nullable)]
    if not checks and not key:
        return EffectTally(rows=0, keys=0, refused=[0] * len(rules))
    counts = [F.expr(f"COUNT_IF({rule.refused('_deleted')}) AS _refused_{n}") for n, rule in enumerate(checks)]
    of_keys = frame.groupBy(*quoted(key)).agg(F.expr("COUNT(1) AS _rows"), *counts)
    sums = [F.expr(f"SUM(_refused_{n})") for n in range(len(checks))]
    (row,) = of_keys.agg(F.expr("SUM(_rows)"), F.expr("COUNT(1)"), *sums).collect()
    rows, keys, *refused = [int(value or 0) for value in row]
    counted = dict(zip(map(id, checks), refused, strict=True))
    return EffectTally(rows=rows, keys=keys, refused=[counted.get(id(rule), 0) for rule in rules])


def _refusal(problem: str, remedy: str, odd: DataFrame, *, effect: str, column: str, rows: int) -> TopologyError:
    place = _first_place(odd)
    at = f" The first one comes from record {place[0]}[{place[1]}] at offset {place[2]}." if place else ""
    return TopologyError(f"{problem}{at} {remedy}", effect=effect, column=column, rows=rows, place=place)


def _first_place(rows: DataFrame) -> tuple[str, int, int] | None:
    """Topic, partition and offset of the first record that one of these rows comes from; None where none says so."""
    place = list(_PLACE)
    if not set(_PLACE) <= set(rows.columns):
        if ORIGIN not in rows.columns or not set(_PLACE) <= set(getattr(rows.schema[ORIGIN].dataType, "names", ())):
            return None
        place = [f"{ORIGIN}.{name} AS {name}" for name in _PLACE]
    first = rows.selectExpr(*place).where("_offset IS NOT NULL").orderBy(*_PLACE).limit(1).collect()
    return (first[0][0], first[0][1], first[0][2]) if first else None


def _nulls(name: str, rows: pa.Table) -> pa.ChunkedArray | None:
    return rows[name].is_null() if rows[name].null_count else None


def _nested_nulls(name: str, path: nested_nulls.Path, rows: pa.Table) -> pa.ChunkedArray:
    return nested_nulls.nulls_at(rows[name], path)
