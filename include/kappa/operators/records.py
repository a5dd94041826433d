"""Transforms that a step is made of: DataFrame in, DataFrame out, nothing else touched.

Each needs the columns of :data:`kappa.topology.ORDER` and keeps every column that it is given. Where one of them
follows another on the same key, Spark shuffles and sorts once.

Where Spark has a word, there is no operator. What Kafka Streams calls

- ``filter``, ``filterNot``: ``rows.where("amount > 0")``
- ``map``, ``mapValues``, ``selectKey``: ``rows.selectExpr("*", "upper(word) AS word_up")``; every operator takes the
  key as an argument, so that a new key needs no repartition topic (:func:`kappa.operators.rekey` says more)
- ``flatMap``: ``rows.selectExpr("*", "explode(split(line, ' ')) AS word")``
- ``split``, ``branch``: a ``where`` for each branch; what comes first excludes the others in their conditions
- ``merge``: ``left.unionByName(right, allowMissingColumns=True)``; the total order covers several topics
- ``peek``: none, a step has no effects but its rows; ``foreach``: an append output or a topic
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.operators.frames import check_rows_of_tables, check_stream
from kappa.operators.keys import Key, columns_named, in_sql, is_present, of_keys
from kappa.operators.origin import order_of
from kappa.operators.sequence import along, in_order
from kappa.topology.ddl import names_of, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Key", "newest", "running_total", "threshold_crossings", "tombstones"]

Number = int | Decimal


def running_total(df: DataFrame, *, key: Key, amount: str, total: str, before: DataFrame | None = None) -> DataFrame:
    """The rows of ``df`` with, at each, the total of its key so far (what ``aggregate`` forwards in Kafka Streams).

    Rows of a key are added up in the total order, several rows of one record by their content: their columns, from the
    first to the last. :func:`newest` and :func:`threshold_crossings` of the same key follow that sequence. A null
    amount adds nothing. A key that is null has no history: the total at each of its rows is its amount.

    Args:
        df: rows with the key, the amount and the order columns.
        key: column or columns that a total belongs to, named alike in ``before``.
        amount: column of integers or of DECIMAL to add up; may be null.
        total: name of the new column, never null. It has the type of ``before``'s, else that of Spark's ``sum``.
        before: the totals so far, at most one row a key: usually ``slice.table(...)``, with columns ``key`` and
            ``total``. None means that there are none.

    Raises:
        TopologyError: the amount or the total is DOUBLE, FLOAT or not a number; the total has fewer digits behind the
            point than the amount; the rows are changes of a table.

    Examples:
        >>> from kappa.operators import running_total
        >>> order = "'orders' AS _topic, 0 AS _partition, n AS _offset, TIMESTAMP'2026-01-01' AS _order_timestamp"
        >>> rows = spark.sql(f"SELECT 'a' AS id, n, {order} FROM VALUES (1), (2) AS t(n)")
        >>> running_total(rows, key="id", amount="n", total="so_far").select("n", "so_far").orderBy("n").collect()
        [Row(n=1, so_far=1), Row(n=2, so_far=3)]
    """
    from pyspark.sql import functions as F

    check_stream(df, "running_total")
    kinds = {amount: _kind(df, amount)}
    if before is not None:
        kinds[total] = _kind(before, total)
    _check_addable(kinds, amount=amount)
    window = f"{in_order(df, key)} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    own = f"COALESCE({in_sql(amount, df.columns)}, 0)"
    so_far = f"IF({is_present(key, df)}, SUM({own}) OVER ({window}), {own})"
    if before is None:
        return along(df.withColumn(total, F.expr(so_far)), key, total, df)
    joined = df.join(_carried(before, df, key, total), on=columns_named(key, df.columns), how="left")
    whole = F.expr(f"CAST(COALESCE(_before, 0) + {so_far} AS {kinds[total]})")
    return along(joined.withColumn(total, whole).drop("_before"), key, total, df)


def threshold_crossings(
    df: DataFrame,
    *,
    key: Key,
    total: str,
    thresholds: Sequence[Number] = (),
    step: Number | None = None,
    before: DataFrame | None = None,
) -> DataFrame:
    """A row for each threshold that a key's running value reaches or passes, at the record that takes it there.

    What ``filter((key, count) -> count == 1000)`` behind a ``count`` is meant to do in Kafka Streams, without losing
    a count that its cache jumped over. A value that goes from 998 to 1004 within one record crosses 999 to 1004 once
    each. A value that falls and rises again crosses again; one that only grows crosses each threshold once, whatever
    the slices. A row with a null key or a null value crosses nothing.

    No state of its own; a table of the values, which is there anyway. Class: of values that only grow, key and
    threshold are the same for any cut; the record is as the value, see :func:`running_total`.

    Args:
        df: rows with the key, the running value and the order columns, as :func:`running_total` gives them.
        key: column or columns that a value belongs to, named alike in ``before``.
        total: the running value, numeric.
        thresholds: the thresholds.
        step: instead of them, all positive multiples of this number; the value is then no DOUBLE or FLOAT.
        before: the values so far, at most one row a key, with columns ``key`` and ``total``: the same table that
            ``df`` was made with. None means that there are none.

    Returns:
        The rows of ``df`` that cross, one for each threshold, with a column ``threshold`` of the value's type.

    Raises:
        TopologyError: neither thresholds nor a step, or both; a step that is not positive or meets a DOUBLE.

    Examples:
        >>> from kappa.operators import threshold_crossings
        >>> order = "'orders' AS _topic, 0 AS _partition, n AS _offset, TIMESTAMP'2026-01-01' AS _order_timestamp"
        >>> rows = spark.sql(f"SELECT 'a' AS id, n, {order} FROM VALUES (1), (2) AS t(n)")
        >>> threshold_crossings(rows, key="id", total="n", step=2).select("n", "threshold").collect()
        [Row(n=2, threshold=2)]
    """
    value, kind = in_sql(total, df.columns), df.schema[total].dataType.simpleString()
    crossed = _crossed(value, kind, thresholds, step)
    check_stream(df, "threshold_crossings")
    earlier = f"LAG({value}) IGNORE NULLS OVER ({in_order(df, key)}) AS _earlier"
    rows = df.where(is_present(key, df)).selectExpr("*", earlier)
    if before is not None:
        rows = rows.join(_carried(before, rows, key, total), on=columns_named(key, rows.columns), how="left")
        rows = rows.selectExpr("* EXCEPT (_earlier, _before)", "COALESCE(_earlier, _before) AS _earlier")
    return rows.selectExpr("*", f"EXPLODE({crossed}) AS threshold").drop("_earlier")


def newest(df: DataFrame, *, key: Key) -> DataFrame:
    """The last row of each key in the total order (what a KTable keeps of a stream).

    Of several rows of one record the last by content is taken: by their columns, from the first to the last; of rows of
    :func:`running_total` the one that was added last. A row with a null key has no history and is left out.

    As a table it is right where records of a key share a partition, as they do in a topic with that key. Where they do
    not, :func:`kappa.operators.newest_by` remembers the order that a row had.

    Args:
        df: rows with the key and the order columns.
        key: column or columns of which each value keeps one row.

    Raises:
        TopologyError: the rows are pairs of a join: in which order a key gets those depends on where slices end.

    Examples:
        >>> from kappa.operators import newest
        >>> order = "'orders' AS _topic, 0 AS _partition, n AS _offset, TIMESTAMP'2026-01-01' AS _order_timestamp"
        >>> rows = spark.sql(f"SELECT 'a' AS id, n, {order} FROM VALUES (1), (2) AS t(n)")
        >>> newest(rows, key="id").select("id", "n").collect()
        [Row(id='a', n=2)]
    """
    if order_of(df) in ("contributor", "none"):
        raise TopologyError(
            "newest: the rows are pairs of a join. Which pair of a key comes last depends on where slices end. Use "
            "newest_by, which compares the places of pairs, and their content where these are equal."
        )
    return last_of_each(df, key=key)


def last_of_each(df: DataFrame, *, key: Key) -> DataFrame:
    """What :func:`newest` keeps, of rows in any order."""
    from pyspark.sql import functions as F

    # "Has no next row" rather than "is first when sorted backwards": the sort of running_total serves it too.
    has_next = F.expr(f"LEAD(TRUE) OVER ({in_order(df, key)})")
    return df.where(is_present(key, df)).withColumn("_has_next", has_next).where("_has_next IS NULL").drop("_has_next")


def tombstones(df: DataFrame, *, key: Key) -> DataFrame:
    """The records of a compacted topic with ``_deleted BOOLEAN``: true for a null value, which deletes its key.

    How ``builder.table`` reads a topic in Kafka Streams. The source says ``tombstones=True`` and what its keys hold,
    ``key_schema``: a null value then is a row with the columns of the key. One whose key cannot be read is a dead
    letter.

    No state. Class: any cut.

    Args:
        df: records as a slice has them.
        key: column or columns of the key, named in the source's ``key_schema``.

    Returns:
        The rows and ``_deleted``.

    Raises:
        TopologyError: the rows lack a column of the key, or their source does not ask for null values.

    Examples:
        >>> from kappa.operators import tombstones
        >>> tombstones(spark.sql("SELECT 'a' AS id, TRUE AS _tombstone"), key="id").collect()
        [Row(id='a', _tombstone=True, _deleted=True)]
    """
    from pyspark.sql import functions as F

    lacking = [name for name in names_of(key) if name not in df.columns]
    if "_tombstone" not in df.columns or lacking:
        cause = f"lack {lacking}" if lacking else "have no column _tombstone"
        raise TopologyError(
            f"tombstones: the rows {cause}. Give it records of a source with tombstones=True that names the columns of "
            f"its keys: key_schema={', '.join(f'{name} STRING' for name in names_of(key))!r}."
        )
    return df.withColumn("_deleted", F.col("_tombstone"))


def is_deleted(df: DataFrame) -> str:
    """SQL: whether a row deletes its key: by ``_deleted``, else by ``_tombstone``, which rows of null values have."""
    if "_deleted" not in df.columns:
        check_rows_of_tables(df, "newest_by, lookup and joins with tables")
    mark = next((name for name in ("_deleted", "_tombstone") if name in df.columns), None)
    return "FALSE" if mark is None else f"COALESCE({mark}, FALSE)"


def _kind(df: DataFrame, name: str) -> str:
    """The type of a column, or of a field of one."""
    return df.selectExpr(in_sql(name, df.columns)).schema[0].dataType.simpleString()


def _check_addable(kinds: Mapping[str, str], *, amount: str) -> None:
    """Sums of these types are the same in whatever portions they are made.

    Raises:
        TopologyError: they are not.
    """
    scales = {name: _scale(kind) for name, kind in kinds.items()}
    odd = {name: kinds[name].upper() for name, scale in scales.items() if scale is None}
    if odd:
        shown = ", ".join(f"{name!r} is {kind}" for name, kind in odd.items())
        raise TopologyError(
            f"running_total: {shown}; what is added up has to be an integer or a DECIMAL, since sums of others depend "
            "on the order of adding. Cast it before, and declare the table so.",
            columns=odd,
        )
    for total, scale in scales.items():
        if (scale or 0) < (scales[amount] or 0):
            raise TopologyError(
                f"running_total: the total {total!r} is {kinds[total].upper()}, the amount {amount!r} "
                f"{kinds[amount].upper()}: each slice would round it. Give the total as many digits behind the point, "
                "or cast the amount before.",
                total=kinds[total],
                amount=kinds[amount],
            )


def _scale(kind: str) -> int | None:
    """Digits behind the point; None of what is no exact number."""
    if kind in ("tinyint", "smallint", "int", "bigint"):
        return 0
    return int(kind.rstrip(")").rpartition(",")[2]) if kind.startswith("decimal(") else None


def _carried(before: DataFrame, rows: DataFrame, key: Key, total: str) -> DataFrame:
    names = columns_named(key, rows.columns)
    known = before.selectExpr(*quoted(names), f"{in_sql(total, before.columns)} AS _before")
    return of_keys(known, rows, names)


def _crossed(value: str, kind: str, thresholds: Sequence[Number], step: Number | None) -> str:
    """SQL of an array: what a row crosses on its way from ``_earlier``."""
    if bool(thresholds) == (step is not None):
        raise TopologyError("threshold_crossings needs thresholds=[...] or step=..., and not both.")
    if step is None:
        listed = ", ".join(f"CAST('{threshold}' AS {kind})" for threshold in sorted(set(thresholds)))
        return f"FILTER(ARRAY({listed}), t -> t <= {value} AND (_earlier IS NULL OR _earlier < t))"
    if step <= 0 or kind in ("double", "float"):
        raise TopologyError(
            f"threshold_crossings: step={step} of a value of type {kind.upper()}. Use a positive step, and a DECIMAL "
            "or an integer type."
        )
    one = f"CAST('{step}' AS {kind})"
    first = f"GREATEST(COALESCE(_earlier, 0), 0) DIV {one} + 1"
    last = f"{value} DIV {one}"
    multiples = f"TRANSFORM(SEQUENCE({first}, {last}), n -> CAST(n * {one} AS {kind}))"
    return f"IF({last} >= {first}, {multiples}, CAST(ARRAY() AS ARRAY<{kind}>))"
