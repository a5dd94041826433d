"""The declarations of a user: a topology, its sources, tables, outputs, checks and step. Pure."""

from kappa.topology.declaration import Effects, Schedule, Slice, Threshold, Topology
from kappa.topology.members import ORDER, RECORD_COLUMNS, Append, Check, Source, Table, Topic

__all__ = [
    "ORDER",
    "RECORD_COLUMNS",
    "Append",
    "Check",
    "Effects",
    "Schedule",
    "Slice",
    "Source",
    "Table",
    "Threshold",
    "Topic",
    "Topology",
]
