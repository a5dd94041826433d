"""Hashes of the content of a table or output, and the differences between two that should be equal."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kappa.replay.proof.determinism import Twice
from kappa.topology import Append, Table
from kappa.verify.diff import ORIGIN, Mask, table_diff
from kappa.verify.values import row_hashes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SAMPLES = 5


def twice(member: Table | Append, first: DataFrame, again: DataFrame, mask: Mask) -> Twice:
    """Whether two runs gave a table or append output the same rows; if not, the columns that differ, with sample keys.

    Rows of outputs are compared with their topic, partition and offset of origin; the order time, which depends
    on where a slice began, is left out. One pass over each when they are equal.

    Args:
        member: the table or output.
        first: rows of the first run.
        again: rows of the second one.
        mask: stands in for masked keys.
    """
    names = [column.name for column in member.columns]
    is_table = isinstance(member, Table)
    compared = names if is_table else [*names, *ORIGIN]
    (rows, was), (rows_again, now) = (_hashes(frame, {"": compared}) for frame in (first, again))
    columns: Sequence[str] = ()
    samples: Sequence[Mapping[str, str]] = ()
    if (rows, was) != (rows_again, now):
        if isinstance(member, Table):
            diff = table_diff(member, first, again, mask)
            columns, samples = sorted(diff.changed_columns), [sample.key for sample in diff.samples]
        else:
            columns, samples = _output(names, first, again)
    return Twice(
        name=member.name,
        kind="table" if is_table else "output",
        rows=rows,
        rows_again=rows_again,
        hash=was[""],
        hash_again=now[""],
        columns=tuple(columns),
        samples=tuple(samples),
    )


def _output(names: Sequence[str], first: DataFrame, again: DataFrame) -> tuple[list[str], list[dict[str, str]]]:
    """Columns that differ, and the origins of some rows that only one run has."""
    from pyspark.sql import functions as F

    groups = {name: [name, *ORIGIN] for name in names}
    (_, was), (_, now) = (_hashes(frame, groups) for frame in (first, again))
    compared = [*names, *ORIGIN]
    sides = [frame.select(*ORIGIN, *row_hashes(frame, compared)) for frame in (first, again)]
    odd = sides[0].exceptAll(sides[1]).unionByName(sides[1].exceptAll(sides[0]))
    origins = odd.select(*ORIGIN).where(F.col("_offset").isNotNull()).distinct().orderBy(*ORIGIN).limit(_SAMPLES)
    samples = [{"record": f"{row[0]}[{row[1]}] at {row[2]}"} for row in origins.collect()]
    return [name for name in names if was[name] != now[name]], samples


def _hashes(frame: DataFrame, groups: Mapping[str, Sequence[str]]) -> tuple[int, dict[str, str]]:
    """Number of rows, and a hash per group of columns that does not depend on the order of rows."""
    from pyspark.sql import functions as F

    sums = [F.sum(part.cast("decimal(38,0)")) for names in groups.values() for part in row_hashes(frame, names)]
    row = frame.agg(F.count(F.lit(1)), *sums).first()
    assert row is not None
    pairs = [row[1 + 2 * index : 3 + 2 * index] for index in range(len(groups))]
    return row[0], {name: _digest(row[0], pair) for name, pair in zip(groups, pairs, strict=True)}


def _digest(rows: int, sums: Any) -> str:
    return hashlib.sha256(f"{rows}:{sums[0]}:{sums[1]}".encode()).hexdigest()[:16]
