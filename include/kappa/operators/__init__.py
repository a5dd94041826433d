"""Transforms for steps: DataFrame in, DataFrame out, without other effects."""

from typing import Any

from kappa.errors import TopologyError
from kappa.operators import agg
from kappa.operators.aggregates import aggregate, cogroup
from kappa.operators.changes.cdc import cdc_table
from kappa.operators.joins.foreign_key_join import foreign_key_join
from kappa.operators.joins.interval_join import interval_join
from kappa.operators.joins.lookup import lookup
from kappa.operators.joins.newest_table_join import newest_table_join
from kappa.operators.joins.table_join import table_join
from kappa.operators.joins.table_table_join import table_table_join
from kappa.operators.joins.versions import versions_by
from kappa.operators.latest import newest_by
from kappa.operators.masks import masked
from kappa.operators.partitioner import rekey
from kappa.operators.phases import two_phase
from kappa.operators.records import newest
from kappa.operators.running_total import running_total
from kappa.operators.table_aggregates import aggregate_table
from kappa.operators.timed.at_most_every import at_most_every
from kappa.operators.timed.deduplication import deduplicate
from kappa.operators.timed.sessions import session_window
from kappa.operators.timed.sliding import sliding_window
from kappa.operators.timed.windows import hopping_window, tumbling_window

__all__ = [
    "agg",
    "aggregate",
    "aggregate_table",
    "at_most_every",
    "cdc_table",
    "cogroup",
    "deduplicate",
    "foreign_key_join",
    "hopping_window",
    "interval_join",
    "lookup",
    "masked",
    "newest",
    "newest_by",
    "newest_table_join",
    "rekey",
    "running_total",
    "session_window",
    "sliding_window",
    "table_join",
    "table_table_join",
    "tumbling_window",
    "two_phase",
    "versions_by",
]

#: Removed operators -> their replacement.
_INSTEAD = {
    "late_records": "A topology's operators return their late records themselves: omit them from what the step "
    "returns.",
    "threshold_crossings": "A running total returns them: running_total(views, key='page', total='views', "
    "table='counts', thresholds=[1000]).crossings.",
    "tombstones": "Tables, and operators that keep a table by key, accept the rows of a source with tombstones=True as "
    "they are: a null value deletes its key.",
}


def __getattr__(name: str) -> Any:
    """Name the replacement of a removed operator."""
    if name in _INSTEAD:
        raise TopologyError(f"kappa.operators has no {name}. {_INSTEAD[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
