"""Transforms that a step is made of: DataFrame in, DataFrame out, nothing else touched."""

from kappa.operators.at_most_every import at_most_every
from kappa.operators.deduplication import deduplicate
from kappa.operators.latest import newest_by
from kappa.operators.masks import masked
from kappa.operators.partitioner import rekey
from kappa.operators.records import newest, running_total, threshold_crossings, tombstones
from kappa.operators.session import session_window
from kappa.operators.sliding import sliding_window
from kappa.operators.windows import hopping_window, tumbling_window

__all__ = [
    "at_most_every",
    "deduplicate",
    "hopping_window",
    "masked",
    "newest",
    "newest_by",
    "rekey",
    "running_total",
    "session_window",
    "sliding_window",
    "threshold_crossings",
    "tombstones",
    "tumbling_window",
]
