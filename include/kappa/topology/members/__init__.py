"""The members of a topology: sources, tables, outputs, checks."""

from kappa.topology.members.check import Check
from kappa.topology.members.delta_tables import Append, Table
from kappa.topology.members.source import MEMBER_NAME, ORDER, RECORD_COLUMNS, Source
from kappa.topology.members.topic import Topic

__all__ = ["MEMBER_NAME", "ORDER", "RECORD_COLUMNS", "Append", "Check", "Source", "Table", "Topic"]
