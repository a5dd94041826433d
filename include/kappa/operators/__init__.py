"""Transforms that a step is made of: DataFrame in, DataFrame out, nothing else touched."""

from kappa.operators.deduplication import deduplicate
from kappa.operators.latest import newest_by
from kappa.operators.masks import masked
from kappa.operators.partitioner import rekey
from kappa.operators.records import newest, running_total, threshold_crossings, tombstones

__all__ = [
    "deduplicate",
    "masked",
    "newest",
    "newest_by",
    "rekey",
    "running_total",
    "threshold_crossings",
    "tombstones",
]
