"""The entries of a topology's lists: each list has entries of its own kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kappa.errors import TopologyError
from kappa.topology.earlier_code import refuse
from kappa.topology.emission import Emission
from kappa.topology.members import Append, Check, Source, Table, Topic
from kappa.topology.members.descriptions import described
from kappa.topology.operator import Operator
from kappa.topology.thresholds import Threshold

#: List -> the types of its entries.
_TYPES: dict[str, tuple[type, ...]] = {
    "sources": (Source,),
    "operators": (Operator,),
    "tables": (Table,),
    "outputs": (Append, Topic),
    "checks": (Check,),
    "thresholds": (Threshold,),
}
LISTS = tuple(_TYPES)
#: List -> an entry.
_EXAMPLES = {
    "sources": "Source(topic='orders', schema='id STRING NOT NULL')",
    "operators": "the result of a function of kappa.operators",
    "tables": "Table(name='state', key='id', schema='id STRING NOT NULL, n BIGINT')",
    "outputs": "Append(name='rows', schema='id STRING NOT NULL'), or Topic(name='rows', of='rows', key='id')",
    "checks": "Check(name='no total is negative', sql='SELECT * FROM spending WHERE spent < 0')",
    "thresholds": "Threshold(table='spending', keys_removed=0)",
}
_AS_OUTPUT = "Append(name='rows', of=hours.final), or of=joined.rows"


def entries(topology: str, name: str, values: object) -> tuple[Any, ...]:
    """The entries of one list of a topology.

    Args:
        topology: the topology, for messages.
        name: the list.
        values: the entries as its author wrote them.

    Raises:
        TopologyError: they are not in a list, or one belongs to another list or to none.
    """
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise TopologyError(
            f"Topology {topology!r} has {name}={described(values)}, which is not a list. Write {name}=[...], with "
            f"{_EXAMPLES[name]}."
        )
    each = tuple(values)
    for entry in each:
        if not isinstance(entry, _TYPES[name]):
            refuse(f"Topology {topology!r} lists {described(entry)} among its {name}. {_remedy(name, entry)}")
    return each


def _remedy(name: str, entry: object) -> str:
    rows = entry.emits if isinstance(entry, Operator) else entry
    if name == "outputs" and isinstance(rows, Emission):
        return f"Give its rows a name: outputs=[{_AS_OUTPUT}]."
    if name == "outputs" and isinstance(entry, Operator):
        table = entry.tables[0].name
        return f"Its table {table!r} needs none. Send its changes: Topic(name='changes', of={table!r}, key='id')."
    others = [other for other, types in _TYPES.items() if isinstance(entry, types)]
    if others:
        return f"List it there: {others[0]}=[...]."
    return f"List {_EXAMPLES[name]}."
