"""Collects what is old in a driver's JVM when it has grown, so that a long replay needs the memory of a short one.

The serial collector looks at old objects only when there is no room for another one: what every slice leaves behind
piles up to the limit of the heap. Between two slices it is known that most of it is garbage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Old objects are collected when they are this many times those alive at the last look.
GROWTH = 1.5
#: And not below this many bytes: a look costs a moment for everything that is alive.
LEAST = 192 << 20
#: The same while the epoch is live, where the next slice is waited for: the JVM would look at about this many by
#: itself, in the middle of one.
LEAST_LIVE = 384 << 20
#: What the serial collector calls the pool of its old objects.
_POOL = "Tenured Gen"


class OldObjects:
    """The old objects of a session's JVM.

    Args:
        session: Spark, running in this process's own JVM.
    """

    def __init__(self, session: SparkSession) -> None:
        jvm: Any = session.sparkContext._jvm
        self._system = jvm.java.lang.System
        pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
        self._pool = next((pool for pool in pools if pool.getName() == _POOL), None)
        self._alive = 0

    def collect_if_grown(self, least: int = LEAST) -> bool:
        """Collect them when they are :data:`GROWTH` times what was alive; to be called between two slices.

        Args:
            least: fewest bytes at which to collect.

        Returns:
            Whether they were collected; never where the JVM has another collector, which does so by itself.
        """
        if self._pool is None or self._pool.getUsage().getUsed() < max(least, GROWTH * self._alive):
            return False
        self._system.gc()
        self._alive = self._pool.getUsage().getUsed()
        return True
