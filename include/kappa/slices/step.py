"""The step of a topology is called: its own effects, and those of its operators."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.operators.timed.late import late_records, no_late_records
from kappa.slices.rows.effects import conformed
from kappa.spark.pickling import send_by_value
from kappa.topology import Slice, Topology
from kappa.topology.slice import in_own_case
from kappa.topology.times.event_time import LATE_RECORDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def step_effects(topology: Topology, slice: Slice) -> dict[str, DataFrame]:
    """Call the step and compare its effects with what the topology declares; see :func:`conformed`."""
    return conformed(topology, call_step(topology, slice))


def call_step(topology: Topology, slice: Slice) -> dict[str, DataFrame]:
    """The effects of a slice, one for each table and append output: those of operators, then what the step returns.

    Raises:
        TopologyError: an operator is not called, an effect is missing or undeclared, or the step would end the process.
    """
    assert topology.step is not None
    send_by_value(topology.step)
    try:
        with redirect_stdout(sys.stderr):  # as of its import
            returned = topology.step(slice)
    except SystemExit as error:  # else the driver would end, and be started again for ever
        raise TopologyError(
            f"The step of {topology.name!r} called for the end of the process (exit code {error.code!r}); it may only "
            "return or raise an error.",
            code=str(error.code),
        ) from error
    own = {name: in_own_case(rows) if hasattr(rows, "schema") else rows for name, rows in (returned or {}).items()}
    effects = _with_operators(topology, slice, own)
    declared = {member.name for member in (*topology.appends, *topology.tables)}
    if set(effects) != declared:
        raise TopologyError(
            f"The step of {topology.name!r} returned {sorted(effects)}, the topology declares {sorted(declared)}.",
            returned=sorted(effects),
            declared=sorted(declared),
        )
    return effects


def _with_operators(topology: Topology, slice: Slice, returned: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """What a step returned, with the changes, the late records and the emitted rows of its operators."""
    calls, effects = slice.calls, dict(returned)
    for operator in topology.operators:
        if operator not in calls.results:
            raise TopologyError(
                f"The step of {topology.name!r} did not call {operator.what}, and its table would stay behind. Call it "
                f"in each slice: {operator.name}(slice). Or take it off the topology's operators."
            )
    for operator in calls.results:
        if operator not in topology.operators:
            raise TopologyError(
                f"The step of {topology.name!r} called {operator.what}, which is not among the topology's operators. "
                "List it: operators=[...]."
            )
    for name, changes in calls.changes.items():
        if effects.setdefault(name, changes) is not changes:
            raise TopologyError(
                f"The step of {topology.name!r} returned rows for table {name!r}, which is an operator's own. Leave it "
                "out of what the step returns.",
                table=name,
            )
    for append in topology.appends:
        if append.of is not None:
            effects.setdefault(append.name, calls.emitted[append.of])
    if topology.has_event_time and topology.operators:
        if LATE_RECORDS in effects:
            raise TopologyError(
                f"The step of {topology.name!r} returned late records, which its operators bring along. Leave them out "
                "of what the step returns."
            )
        late = calls.late or [no_late_records(next(iter(slice.records.values())))]
        effects[LATE_RECORDS] = late[0] if len(late) == 1 else late_records(*late)
    return effects
