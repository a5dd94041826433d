"""Spark's analysed plans: what in them may give another result when they are computed again.

The analysed plan is looked at, not the step's text: a name that is aliased, hidden in SQL or behind a function of the
author's own is found all the same, and a column that is computed and then dropped is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kappa.replay.rules.step import Cause, Suspect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Names of Catalyst's expression classes.
_CAUSES = {
    **dict.fromkeys(
        ("CurrentTimestamp", "CurrentTimestampLike", "Now", "CurrentDate", "LocalTimestamp", "CurrentTime"), Cause.CLOCK
    ),
    **dict.fromkeys(("Rand", "Randn", "Shuffle", "Uuid", "Uniform", "RandStr"), Cause.RANDOM),
    **dict.fromkeys(
        (
            "MonotonicallyIncreasingID",
            "SparkPartitionID",
            "InputFileName",
            "InputFileBlockStart",
            "InputFileBlockLength",
        ),
        Cause.PARTITIONS,
    ),
}
_COLLECTING = ("CollectList", "CollectSet")
_FIRST = ("First", "Last", "AnyValue", "ListAgg", *_COLLECTING)
#: Plans whose result depends on more than their rows, by themselves or where these have no order; and the one whose
#: expressions are not in its JSON.
_SUSPECT_PLANS = ("Sample", "GlobalLimit", "Tail", "Offset", "Deduplicate", "Expand")
#: Where the JSON of a plan names the class of a plan or an expression. A quote within a text has a backslash.
_CLASS = re.compile(r'"class":"[^"]*?(\w+)"')
#: Plans that hand on the rows of their only child, in its order.
_IN_ORDER = ("Project", "Filter", "SubqueryAlias", "GlobalLimit", "LocalLimit", "Offset")
#: Plans that hand on the columns of their children by identity and may use some themselves.
_HANDING_ON = (
    "Filter",
    "Sort",
    "Join",
    "SubqueryAlias",
    "GlobalLimit",
    "LocalLimit",
    "Offset",
    "Deduplicate",
    "View",
    "Window",
)

#: Plans that make each of their rows from one row of their children.
_BY_RECORD = (
    "Project",
    "Filter",
    "SubqueryAlias",
    "View",
    "Union",
    "Generate",
    "Expand",
    "Repartition",
    "RepartitionByExpression",
    "ResolvedHint",
)
#: What other plans do, in words; the rest is called by its name.
_ACROSS_RECORDS = {
    "Aggregate": "aggregates records",
    "Window": "looks at other records through a window",
    "Join": "joins rows",
    "Deduplicate": "removes duplicates",
    "Distinct": "removes duplicates",
    "Sort": "sorts records",
    "GlobalLimit": "limits the number of records",
    "LocalLimit": "limits the number of records",
}

#: What no operator does, in words.
FROM_NO_RECORD, SUBQUERY = "adds rows that come from no record", "uses a subquery"

#: Ids of the columns that operators above need; None for all.
Needed = frozenset[int] | None


def suspects(effect: str, frame: DataFrame) -> tuple[Suspect, ...]:
    """Expressions of a DataFrame's analysed plan whose result is not settled by its rows alone, without repetition.

    Computes nothing. Columns that do not reach the result are left aside.

    Args:
        effect: what the DataFrame is computed for; the suspects name it.
        frame: the rows.
    """
    if _is_settled(frame):
        return ()
    expressions = _plan(_analysed(frame), None)
    return tuple(
        dict.fromkeys(
            Suspect(effect=effect, cause=cause, expression=text, column=name) for cause, text, name in expressions
        )
    )


def _is_settled(frame: DataFrame) -> bool:
    """Whether nothing occurs in a plan that could be a suspect anywhere: most plans, and they need no walk."""
    plan = _analysed(frame)
    classes = set(_CLASS.findall(plan.toJSON()))
    return (
        classes.isdisjoint((*_SUSPECT_PLANS, *_CAUSES, *_FIRST))
        and bool(plan.deterministic())
        and bool(plan.subqueriesAll().isEmpty())
    )


def across_records(
    frame: DataFrame, records: Mapping[str, DataFrame], tables: Mapping[str, DataFrame]
) -> tuple[str, ...]:
    """The dependencies of a DataFrame's rows beside one record each, in words; empty if computed record by record.

    Computes nothing.

    Args:
        frame: the rows.
        records: the DataFrames of records that it may be made from.
        tables: those of tables, by name. All of them come from rows of Python, as ``createDataFrame`` makes them.
    """
    owners = {_rows(_analysed(table)): f"reads table {name!r}" for name, table in tables.items()}
    owners |= {_rows(_analysed(source)): "" for source in records.values()}
    return tuple(dict.fromkeys(dependency for dependency in _across(_analysed(frame), owners) if dependency))


def read_from(frame: DataFrame, sources: Mapping[str, DataFrame]) -> tuple[str, ...]:
    """Names of those of these DataFrames that another is made from, sorted; see :func:`across_records`."""
    owners = {_rows(_analysed(one)): name for name, one in sources.items()}
    return tuple(sorted({owners[rows] for rows in map(_rows, _leaves(_analysed(frame))) if rows in owners}))


def _leaves(plan: Any) -> Iterator[Any]:
    children = _listed(plan.children())
    if not children:
        yield plan
    for child in children:
        yield from _leaves(child)


def _across(plan: Any, owners: Mapping[int | None, str]) -> Iterator[str]:
    kind, children = plan.nodeName(), _listed(plan.children())
    if not children:
        yield owners.get(_rows(plan), FROM_NO_RECORD)
        return
    if kind not in _BY_RECORD:
        yield _ACROSS_RECORDS.get(kind, f"uses {kind}")
    if not plan.subqueries().isEmpty():
        yield SUBQUERY
    for child in children:
        yield from _across(child, owners)


def _rows(plan: Any) -> int | None:
    """The id of the rows that a childless plan hands on; a copy of the plan with other column ids has it too."""
    while not plan.children().isEmpty():
        plan = plan.children().head()
    return int(plan.rdd().id()) if plan.getClass().getSimpleName() == "LogicalRDD" else None


def _analysed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


_Found = tuple[Cause, str, str]


def _plan(plan: Any, needed: Needed) -> Iterator[_Found]:
    kind = plan.nodeName()
    own = _own(plan, kind, needed)
    for expression in own:
        yield from _expression(expression, _name(expression))
    yield from _itself(plan, kind, needed)
    for query in _listed(plan.subqueries()):
        yield from _plan(query, None)
    below = _below(kind, own, needed)
    for child in _listed(plan.children()):
        yield from _plan(child, below)


def _own(plan: Any, kind: str, needed: Needed) -> list[Any]:
    """The expressions of a plan that these columns depend on."""
    match kind:
        case "Project":
            return _needed(plan.projectList(), needed)
        case "Aggregate":
            return [*_listed(plan.groupingExpressions()), *_needed(plan.aggregateExpressions(), needed)]
        case "Window":
            windows = _needed(plan.windowExpressions(), needed)
            return [*windows, *_listed(plan.partitionSpec()), *_listed(plan.orderSpec())] if windows else []
    return _listed(plan.expressions())


def _below(kind: str, own: list[Any], needed: Needed) -> Needed:
    """The columns that the children have to give."""
    used = frozenset(_id(column) for part in own for column in _listed(part.references().toSeq()))
    if kind in ("Project", "Aggregate"):
        return used
    return needed | used if needed is not None and kind in _HANDING_ON else None


def _itself(plan: Any, kind: str, needed: Needed) -> Iterator[_Found]:
    """What the plan's own kind says."""
    if kind == "Sample":
        yield Cause.RANDOM, "sample", ""
    elif kind in ("GlobalLimit", "Tail", "Offset") and not _is_sorted(plan.children().head()):
        yield Cause.ORDER, {"GlobalLimit": "limit", "Tail": "tail", "Offset": "offset"}[kind], ""
    elif kind == "Deduplicate":
        keys = _listed(plan.keys())
        rest = {_id(column) for column in _listed(plan.output())} - {_id(key) for key in keys}
        if rest & needed if needed is not None else rest:
            yield Cause.ORDER, f"dropDuplicates({', '.join(key.name() for key in keys)})", ""


def _is_sorted(plan: Any) -> bool:
    kind = plan.nodeName()
    if kind == "Sort":
        return bool(getattr(plan, "global")())  # a word of Python's own
    return kind in _IN_ORDER and _is_sorted(plan.children().head())


def is_union(frame: DataFrame) -> bool:
    """Whether the rows are those of several frames, one after the other."""
    plan = frame._jdf.queryExecution().analyzed()
    while plan.nodeName() in _IN_ORDER:
        plan = plan.children().head()
    return bool(plan.nodeName() == "Union")


def _expression(expression: Any, name: str, settled: tuple[str, ...] = ()) -> Iterator[_Found]:
    """Suspects in an expression.

    Args:
        expression: Catalyst's.
        name: what the column is called that it is part of.
        settled: classes whose order is settled by what is around them.
    """
    kind = expression.getClass().getSimpleName()
    if kind in _CAUSES:
        yield _CAUSES[kind], expression.sql(), name
        return
    if kind in _FIRST:
        is_ordered = kind == "ListAgg" and not expression.orderExpressions().isEmpty()
        if not is_ordered and kind not in settled:
            yield Cause.ORDER, expression.sql(), name
    elif kind == "WindowExpression" and not expression.windowSpec().orderSpec().isEmpty():
        settled = _FIRST
    elif kind in ("SortArray", "ArraySort"):
        settled = (*settled, *_COLLECTING)
    parts = _listed(expression.children())
    if kind not in _FIRST and not expression.deterministic() and all(part.deterministic() for part in parts):
        yield Cause.FUNCTION, expression.sql(), name
    for part in parts:
        yield from _expression(part, name, settled)


def _needed(columns: Any, needed: Needed) -> list[Any]:
    return [column for column in _listed(columns) if needed is None or _id(column) in needed]


def _name(expression: Any) -> str:
    return str(expression.name()) if expression.getClass().getSimpleName() == "Alias" else ""


def _id(column: Any) -> int:
    return int(column.exprId().id())


def _listed(items: Any) -> list[Any]:
    return [items.apply(index) for index in range(items.size())]
