"""The columns by which an output is partitioned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa.errors import TopologyError

if TYPE_CHECKING:
    from kappa.topology.members import Append

#: Types of Delta columns for partitions: docs/decisions/partition-columns-hold-what-both-writers-keep.md.
TYPES = ("string", "long", "integer", "short", "byte", "boolean", "date", "timestamp")


def check_partitions(output: Append) -> None:
    """Check that an output can be partitioned as declared.

    Raises:
        TopologyError: it cannot.
    """
    columns, parts = {column.name: column for column in output.columns}, output.partition_by
    unknown = sorted(set(parts) - set(columns))
    if unknown:
        raise TopologyError(
            f"Output {output.name!r}: partition_by {unknown} is not in its schema, which has {list(columns)}; case "
            "counts."
        )
    for name in parts:
        if columns[name].delta not in TYPES:
            raise TopologyError(
                f"Output {output.name!r}: partition_by names {name!r}, which is {columns[name].type}. Partition by "
                "text, integers, BOOLEAN, DATE or TIMESTAMP."
            )
        if ":" in name:
            raise TopologyError(
                f"Output {output.name!r}: partition_by names {name!r}, but Spark cannot read a folder with ':' in its "
                "name. Rename the column."
            )
    if len(set(parts)) < len(parts) or len(parts) == len(columns):
        raise TopologyError(
            f"Output {output.name!r}: partition_by {list(parts)} names a column twice, or leaves no column for the "
            "files of a partition. Name each column once, and not all of them."
        )
