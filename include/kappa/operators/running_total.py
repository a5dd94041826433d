"""A total at each row of a key, and the rows that take it past a threshold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.operators.aggregates import keys_of
from kappa.operators.bound import TableOperator, cuts_along, declared_as, emission
from kappa.operators.frames import check_rows
from kappa.operators.keys import Key, is_present, key_ddl, of_keys
from kappa.operators.records import last_of_each
from kappa.operators.sequence import along, in_order
from kappa.operators.sums import split, type_of_sum, whole
from kappa.topology import Slice, Table
from kappa.topology.ddl import Column, columns_of, ddl_of, literal, quote, quoted
from kappa.topology.emission import Cuts, Emission
from kappa.topology.operator import Outcome, label
from kappa.topology.operator_inputs import Reads, rows_input
from kappa.topology.reserved import is_reserved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Number = int | Decimal
_NAME = "running_total"
_INTEGERS = ("byte", "short", "integer", "long")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
#: The most digits of a DECIMAL; a sum of two keeps at least this many of them after the point.
_DIGITS, _LEAST_SCALE = 38, 6
#: By how many digits the product of a BIGINT and a decimal is longer than the decimal.
_DIGITS_OF_PRODUCTS = 21
#: Most multiples of ``every`` that one row may cross.
_MOST_CROSSINGS = 100_000
#: Intermediate columns.
_OWN = ("_before", "_was", "_so_far", "_start", "_is_new")


@dataclass(frozen=True, kw_only=True)
class Totals:
    """The result of :func:`running_total` for a slice.

    Attributes:
        rows: the rows, each with the total of its key so far.
        changes: rows of the table, one per key.
        crossings: the rows that cross a threshold, once per threshold; None without thresholds.
    """

    rows: DataFrame
    changes: DataFrame
    crossings: DataFrame | None


@dataclass(frozen=True, kw_only=True, eq=False)
class RunningTotalOperator(TableOperator[Totals]):
    """An operator whose result is a table of totals, with the rows that they come from."""

    emits: Emission = field()

    @property
    def rows(self) -> Emission:
        """The rows, each with its total, for an output or another operator."""
        return self.emits

    @property
    def crossings(self) -> Emission:
        """The rows that cross a threshold, for an output or another operator.

        Raises:
            TopologyError: the operator has no thresholds.
        """
        if "crossings" not in self.more:
            raise TopologyError(
                f"{self.what} has no thresholds to cross. Declare them: thresholds=[1000], or every=100."
            )
        return self.more["crossings"]


@declared_as("running_total(orders, key='customer', amount='price', total='spent', table='spending')")
def running_total(
    of: Reads,
    *,
    key: Key,
    total: str,
    table: str,
    amount: str | None = None,
    since: str | None = None,
    thresholds: Sequence[Number] = (),
    every: Number | None = None,
    rows: str = "",
) -> RunningTotalOperator:
    """The rows, each with the total of its key so far (what ``aggregate`` forwards in Kafka Streams).

    Rows of a key are added up in the total order; several rows of one record are added in the order of their content,
    by their columns from the first to the last. A null amount adds nothing. A null key has no history: the total at
    each of its rows is its amount.

    With thresholds it also emits ``crossings``: a row for each threshold that a total reaches or passes, at the record
    that takes it there, with a column ``threshold`` of the total's type. This is the purpose of ``filter((key, count)
    -> count == 1000)`` after a ``count`` in Kafka Streams, but it does not miss counts that a cache skipped. A total
    that goes from 998 to 1004 within one record crosses each of 999 to 1004 once. A total that falls and rises again
    crosses again; a total that only grows crosses each threshold once, whatever the slices. A row with a null key
    crosses nothing.

    With ``since`` a total restarts at each row whose value in that column differs from that of the key's previous row:
    for example views since the last login, if each row has the number of logins. Thresholds can then be crossed again
    too.

    Columns: those of the rows, and the total, never null: BIGINT of integers, DECIMAL(min(38, p + 10), s) of DECIMAL(p,
    s). State: the total of each key, and the last value of ``since``, for ever. Class: any cut for the table, and for
    threshold and key of a total that only grows; totals at rows, and with ``since`` the table too, any cut if each key
    stays in one partition, otherwise time cut. They are cut-bound along rows of ``interval_join``, or of several inputs
    of which another operator emits one when a frontier has passed.

    Args:
        of: the source, or another operator's emission.
        key: column or columns that a total belongs to.
        amount: column of integers or DECIMAL to add up; may be null. None counts the rows.
        total: name of the new column.
        table: the name of its table, with the columns of ``key``, ``total`` and ``since``.
        since: column with whose value the total restarts; None if it never does.
        thresholds: values of the total that are crossed.
        every: instead of ``thresholds``, all positive multiples of this number. A row that crosses more than 100,000 of
            them fails its slice.
        rows: Spark DDL of the rows, with what the step adds to them; empty for all columns of the input.

    Raises:
        TopologyError: a column or a threshold does not fit; the amount is DOUBLE, FLOAT or not a number, or a DECIMAL
            whose sums have too many digits for any DECIMAL.

    Examples:
        >>> from kappa import Slice, Source
        >>> from kappa.operators import running_total
        >>> orders = Source(topic="orders", schema="id STRING, n INT")
        >>> sums = running_total(orders, key="id", amount="n", total="so_far", table="sums", thresholds=[7])
        >>> sums.rows.schema, sums.schema
        ('`id` STRING, `n` INT, `so_far` BIGINT NOT NULL', '`id` STRING NOT NULL, `so_far` BIGINT NOT NULL')
        >>> order = "'orders' AS _topic, 0 AS _partition, n AS _offset, TIMESTAMP'2026-01-01' AS _order_timestamp"
        >>> records = spark.sql(f"SELECT 'a' AS id, n, {order} FROM VALUES (1), (2) AS t(n)")
        >>> before = spark.sql("SELECT 'a' AS id, 5L AS so_far")
        >>> totals = sums(Slice(seq=1, records={"orders": records}, tables={"sums": before}))
        >>> totals.rows.select("n", "so_far").orderBy("n").collect()
        [Row(n=1, so_far=6), Row(n=2, so_far=8)]
        >>> totals.crossings.select("n", "so_far", "threshold").collect()
        [Row(n=2, so_far=8, threshold=7)]
    """
    what = label(_NAME, table)
    read_rows = rows_input(of, what, rows=rows, is_timed=False)
    totals = RunningTotal(
        columns=columns_of(read_rows.rows, f"the rows of {_NAME}"),
        keys=keys_of(read_rows.rows, key, _NAME),
        amount=amount,
        total=total,
        since=since,
        thresholds=tuple(sorted(set(thresholds))),
        every=every,
    )
    _check(totals)

    def compute(slice: Slice, frames: tuple[DataFrame, ...]) -> Outcome[Totals]:
        result = totals(frames[0], before=slice.table(table), seeks=slice.seeks(table))
        return Outcome(result=result, changes=(result.changes,), emitted="rows")

    cuts = cuts_along(read_rows)

    def emitted(*more: str) -> Emission:
        schema = ", ".join([totals.schema, *more])
        return emission(what, schema, read_rows, is_timed=read_rows.is_timed, cuts=cuts)

    crossed = {"crossings": emitted(f"threshold {totals.kind} NOT NULL")} if totals.has_thresholds else {}
    tables = (totals.table(table, cuts="any" if since is None else cuts),)
    return RunningTotalOperator(
        name=_NAME,
        inputs=(read_rows,),
        tables=tables,
        compute=compute,
        emits=emitted(),
        more=crossed,
        # Revision 1 took each threshold for crossed by a total of this name, and rounded long ones.
        revision=2 if (thresholds and total.lower() == "t") or totals.has_rounded else 1,
    )


@dataclass(frozen=True, kw_only=True)
class RunningTotal:
    """The computation of :func:`running_total`, before it is bound.

    Attributes:
        columns: columns of the input rows.
        keys: key columns.
        amount: the column that is added up; None to count rows.
        total: the column of the sum.
        since: the column with whose value it restarts; None if it never does.
        thresholds: values that are crossed, in order.
        every: instead of ``thresholds``, the number whose multiples are crossed.
    """

    columns: tuple[Column, ...]
    keys: tuple[Column, ...]
    amount: str | None
    total: str
    since: str | None = None
    thresholds: tuple[Number, ...] = ()
    every: Number | None = None

    @cached_property
    def kind(self) -> str:
        """The type of the total."""
        added = [column for column in self.columns if column.name == self.amount]
        return type_of_sum(added[0]) if added else "BIGINT"

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the key columns."""
        return tuple(column.name for column in self.keys)

    @property
    def schema(self) -> str:
        """Spark DDL of the rows with their totals."""
        return f"{ddl_of(self.columns)}, {self._total_ddl}"

    @property
    def has_thresholds(self) -> bool:
        """Whether there is something to cross."""
        return bool(self.thresholds) or self.every is not None

    def table(self, name: str, cuts: Cuts = "any") -> Table:
        """The total of each key."""
        added = "count()" if self.amount is None else f"sum({self.amount})"
        anew = "" if self.since is None else f", since={self.since}"
        made_by = f"{_NAME}(key={list(self.key)}, {self.total}={added}{anew})"
        since_columns = [replace(column, nullable=True) for column in self.columns if column.name == self.since]
        schema = ", ".join([key_ddl(self.keys), *(ddl_of([column]) for column in since_columns), self._total_ddl])
        return Table(name=name, key=self.key, schema=schema, made_by=made_by, cuts=cuts)

    def __call__(self, rows: DataFrame, *, before: DataFrame, seeks: bool = False) -> Totals:
        """The totals at the rows of a slice.

        Args:
            rows: the rows with the order columns.
            before: ``slice.table`` of :meth:`table`.

        Raises:
            TopologyError: a column of the rows is missing or of another type.
        """
        from pyspark.sql import functions as F

        check_rows(rows, self.columns, _NAME)
        order = in_order(rows, self.key)
        window, is_keyed = f"{order} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", is_present(self.key)
        own = "1L" if self.amount is None else f"COALESCE({quote(self.amount)}, 0)"
        columns_before = [
            f"{quote(self.total)} AS _before",
            *([] if self.since is None else [f"{quote(self.since)} AS _was"]),
        ]
        totals_before = of_keys(before.selectExpr(*quoted(self.key), *columns_before), rows, self.key, seeks=seeks)
        with_before = rows.join(totals_before, on=list(self.key), how="left")
        parts = {f"part_{number}": part for number, part in enumerate(split(own, self.kind))}
        so_far = ", ".join(
            f"CAST({was} + IF({is_keyed}, SUM({part}) OVER ({window}), {part}) AS {self.kind}) AS {name}"
            for was, (name, part) in zip(split("COALESCE(_before, 0)", self.kind), parts.items(), strict=True)
        )
        summed, sums = with_before.selectExpr("*", f"STRUCT({so_far}) AS _so_far"), [f"_so_far.{one}" for one in parts]
        if self.since is not None:
            here = quote(self.since)
            is_first, earlier = f"LAG(TRUE) OVER ({order}) IS NULL", f"LAG({here}) OVER ({order})"
            is_new = f"IF({is_first}, _before IS NOT NULL AND NOT (_was <=> {here}), NOT ({earlier} <=> {here}))"
            start = ", ".join(f"CAST(_so_far.{n} - {part} AS {self.kind}) AS {n}" for n, part in parts.items())
            summed = summed.selectExpr("*", f"{is_keyed} AND {is_new} AS _is_new").selectExpr(
                "*", f"IF({is_keyed}, LAST(IF(_is_new, STRUCT({start}), NULL), TRUE) OVER ({window}), NULL) AS _start"
            )
            sums = [f"(_so_far.{one} - COALESCE(_start.{one}, 0))" for one in parts]
        with_total = summed.withColumn(self.total, F.expr(f"CAST({whole(sums)} AS {self.kind})"))
        counted = along(with_total, self.key, self.total, rows)
        last = last_of_each(counted, key=self.key)
        columns = [column.name for column in self.table("t").columns]
        return Totals(
            rows=counted.drop(*_OWN),
            changes=last.selectExpr(*quoted(columns), "FALSE AS _deleted"),
            crossings=self._crossings(counted) if self.has_thresholds else None,
        )

    def _crossings(self, rows: DataFrame) -> DataFrame:
        """The rows that cross a threshold, from rows with ``_before``, the value of their key in the table."""
        earlier = f"COALESCE(LAG({quote(self.total)}) OVER ({in_order(rows, self.key)}), _before)"
        anew = earlier if self.since is None else f"IF(_is_new, NULL, {earlier})"
        present = rows.where(is_present(self.key)).selectExpr("*", f"{anew} AS _earlier")
        return present.selectExpr("*", f"EXPLODE({self._crossed}) AS threshold").drop("_earlier", *_OWN)

    @property
    def _crossed(self) -> str:
        """SQL of an array: the thresholds that a row crosses from ``_earlier`` on."""
        value = quote(self.total)
        if self.every is None:
            listed = ", ".join(map(self._literal, self.thresholds))
            return f"FILTER(ARRAY({listed}), _one -> _one <= {value} AND (_earlier IS NULL OR _earlier < _one))"
        one, n = self._literal(self.every), "_n"
        if self.kind != "BIGINT":  # a product of longer decimals is rounded
            scale = self.size[1]
            digits = max(scale, len(str(int(Fraction(self.every) * 10**scale))))
            one, n = f"CAST('{self.every}' AS DECIMAL({digits}, {scale}))", "CAST(_n AS DECIMAL(6, 0))"
        earlier = "GREATEST(COALESCE(_earlier, 0), 0)"
        first, last = (f"CAST({at} - {at} % {one} AS {self.kind})" for at in (earlier, value))
        nth = f"CAST({first} + CAST({n} * {one} AS {self.kind}) AS {self.kind})"
        # A quotient of decimals is a BIGINT, which that of a long total may not fit: that of what it grew by does.
        multiples = f"TRANSFORM(SEQUENCE(1L, ({last} - {first}) DIV {one}), _n -> {nth})"
        crossed = f"IF({value} > {earlier} AND {last} > {first}, {multiples}, CAST(ARRAY() AS ARRAY<{self.kind}>))"
        most = self.every * _MOST_CROSSINGS
        if not self.can_be(most):  # no total gets that far
            return crossed
        problem = literal(
            f"{_NAME}: one row takes {self.total!r} past more than {_MOST_CROSSINGS:,} multiples of every="
            f"{self.every}, and each would be a row of crossings. Use a larger every, or thresholds=[...]; or leave "
            "the row out in the step."
        )
        gain = f"IF({value} > 0, {value} - {earlier}, 0)"
        return f"IF({gain} > {self._literal(most)}, RAISE_ERROR({problem}), {crossed})"

    def _literal(self, number: Number) -> str:
        """SQL of a number that a total can be. Spark makes no BIGINT of a text such as 7.0 or 1E+3."""
        return f"CAST('{int(number) if self.kind == 'BIGINT' else number}' AS {self.kind})"

    @property
    def size(self) -> tuple[int, int]:
        """Digits of the total, and how many of them are after the point."""
        size = re.fullmatch(r"DECIMAL\((\d+), (\d+)\)", self.kind)
        return (19, 0) if size is None else (int(size[1]), int(size[2]))

    def can_be(self, number: Number) -> bool:
        """Whether a total can be exactly that number."""
        digits, scale = self.size
        units = Fraction(number) * 10**scale
        least, most = (-(2**63), 2**63 - 1) if self.kind == "BIGINT" else (1 - 10**digits, 10**digits - 1)
        return bool(units.denominator == 1 and least <= units <= most)

    @property
    def has_rounded(self) -> bool:
        """Whether revision 1 rounded the multiples of ``every``: as products of it and a BIGINT."""
        digits, scale = self.size
        longest = max(_DIGITS - _DIGITS_OF_PRODUCTS - digits + scale, _LEAST_SCALE)
        return self.every is not None and (Fraction(self.every) * 10 ** min(scale, longest)).denominator != 1

    @property
    def _total_ddl(self) -> str:
        return f"{quote(self.total)} {self.kind} NOT NULL"


def _check(totals: RunningTotal) -> None:
    """Check names, types and thresholds.

    Raises:
        TopologyError: one does not.
    """
    columns = {column.name: column for column in totals.columns}
    row_names = {name.lower() for name in columns}
    if totals.amount is not None:
        if totals.amount not in columns:
            raise TopologyError(
                f"{_NAME}: amount {totals.amount!r} is not among its rows, which have {sorted(columns)}. Correct "
                "amount= or rows=; without amount= rows are counted."
            )
        _check_amount(columns[totals.amount])
    others = [name for name in columns if name not in totals.key]
    if totals.since is not None and totals.since not in others:
        raise TopologyError(
            f"{_NAME}: since={totals.since!r} is not among the columns besides its key, which are {others}. Name the "
            "column with whose value a total restarts, and declare it in rows=."
        )
    if any(column.has_map for column in totals.columns if column.name == totals.since):
        raise TopologyError(
            f"{_NAME}: since={totals.since!r} contains a MAP, and maps cannot be compared. Name another."
        )
    new = [totals.total, *(["threshold"] if totals.has_thresholds else [])]
    odd = [name for name in new if name.lower() in row_names or is_reserved(name)]
    if odd or (totals.has_thresholds and totals.total.lower() == "threshold"):
        raise TopologyError(
            f"{_NAME}: total {totals.total!r} adds columns {new} to {sorted(columns)}; no name may appear twice or be "
            "one that the platform uses. Give the total another name, or rename a column in the step."
        )
    if not totals.has_thresholds:
        return
    if totals.thresholds and totals.every is not None:
        raise TopologyError(f"{_NAME} has thresholds=[...] and every=...: give one of them.")
    every = [] if totals.every is None else [totals.every]
    if any(number <= 0 for number in every):
        raise TopologyError(f"{_NAME}: every={totals.every} has no multiples to cross. Use a positive number.")
    digits, scale = totals.size
    odd_ones = [number for number in (*totals.thresholds, *every) if not totals.can_be(number)]
    if odd_ones:
        raise TopologyError(
            f"{_NAME}: a total of type {totals.kind} is never {', '.join(map(str, odd_ones))}. Give thresholds with at "
            f"most {scale} digits after the point and {digits - scale} before it, as int or Decimal."
        )


def _check_amount(column: Column) -> None:
    """Check that sums of the amount do not depend on how they are split."""
    size = _DECIMAL.fullmatch(str(column.delta))
    if size is None and column.delta not in _INTEGERS:
        raise TopologyError(
            f"{_NAME}: {column.name!r} is {column.type}; the amount must be an integer or a DECIMAL, since sums of "
            "other types depend on the order of addition. Cast it in the step, and declare it in rows=.",
            column=column.name,
        )
    if size is not None and int(size[1]) + 10 >= _DIGITS and int(size[2]) > _LEAST_SCALE:
        raise TopologyError(
            f"{_NAME}: {column.name!r} is {column.type}, and totals of it would need more than {_DIGITS} digits: each "
            f"slice would round them. Cast it in the step to DECIMAL({_DIGITS - 11}, {size[2]}), or to fewer digits "
            "after the point.",
            column=column.name,
        )
