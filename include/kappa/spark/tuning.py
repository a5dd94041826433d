"""What a Spark session is turned to for the work that comes next: small slices, large ones, the merge of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What a task of a merge gets and writes, about.
MERGED_FILE_BYTES = 64 << 20

_WHOLE_STAGE, _FACTORY = "spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode"
_PARTITIONS = "spark.sql.shuffle.partitions"
#: Setting -> its value for small slices, and for large ones unless the session was built with another. A small slice is
#: over before generated code is compiled, and one task is started sooner than several.
_TUNED = {_WHOLE_STAGE: ("false", "true"), _FACTORY: ("NO_CODEGEN", "FALLBACK")}
#: Where a session keeps for which slices it was tuned last.
_TUNED_FOR = "kappa.tuned"


def tune(session: SparkSession, *, is_small: bool, is_compiled: bool = False) -> None:
    """Make the session quick for small slices, or strong for large ones; cheap when it is that already.

    Args:
        session: the session.
        is_small: whether slices are small.
        is_compiled: whether the state is so large beside them that generated code is worth its compilation.
    """
    partitions = "1" if is_small else str(_partitions(session))
    profile = f"{'small' if is_small else f'large in {partitions}'}{', compiled' if is_compiled else ''}"
    if session.conf.get(_TUNED_FOR, None) == profile:
        return
    built = session.sparkContext._conf
    for key, (small, large) in _TUNED.items():
        session.conf.set(key, small if is_small and not is_compiled else built.get(key, large) or large)
    session.conf.set(_PARTITIONS, partitions)
    session.conf.set(_TUNED_FOR, profile)


def _partitions(session: SparkSession) -> int:
    """Parts of what a large slice moves between tasks: two per core that there is now, or what the session was built
    with.

    Where Spark asks for executors by the tasks that wait, it gets as many as by itself.
    """
    built = session.sparkContext._conf  # getConf() copies every setting, one call of the JVM after another
    if partitions := built.get(_PARTITIONS):
        return int(partitions)
    if built.get("spark.dynamicAllocation.enabled", "false") == "true":
        return 200
    return 2 * session.sparkContext.defaultParallelism


def merging_session(session: SparkSession, size: int) -> SparkSession:
    """A session beside a driver's, for the merge of one table.

    It cuts its work, and so the files that it writes, by what is moved and not by the number of cores. And it keeps the
    changes of a part in a hash, which spares the sort of the rows.

    Args:
        session: the driver's.
        size: bytes of the table's files.
    """
    beside = session.newSession()
    tune(beside, is_small=False)
    parts = max(_partitions(session), 4 * size // MERGED_FILE_BYTES)  # they grow when they are read
    for name, value in {
        "enabled": "true",
        "coalescePartitions.initialPartitionNum": str(parts),
        "coalescePartitions.parallelismFirst": "false",
        "advisoryPartitionSizeInBytes": str(MERGED_FILE_BYTES),
        "maxShuffledHashJoinLocalMapThreshold": str(MERGED_FILE_BYTES),
    }.items():
        beside.conf.set(f"spark.sql.adaptive.{name}", value)
    return beside
