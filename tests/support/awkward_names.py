"""A topology of every operator, under plain names and under names that SQL, DataFrames and files could take for more.

Both have to give the same: whatever differs is a name that some path does not quote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kappa import Append, Effects, Slice, Source, Table, Topic, Topology
from kappa.operators import (
    agg,
    aggregate,
    aggregate_table,
    at_most_every,
    deduplicate,
    foreign_key_join,
    interval_join,
    lookup,
    newest,
    newest_by,
    newest_table_join,
    running_total,
    session_window,
    sliding_window,
    table_join,
    table_table_join,
    tumbling_window,
)
from kappa.testing import Input
from kappa.topology.ddl import quote
from kappa.topology.operator import Operator

Names = Mapping[str, str]
PLAIN: Names = {name: name for name in ("id", "key", "n", "at", "region", "more")}
AWKWARD: Names = {
    "id": "_id",
    "key": ".service.name",
    "n": "$n `x` (a=b;c)",
    "at": "@time stamp",
    "region": 'größe/"q"',
    "more": "select",
}


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a topology has beside its sources and topics."""

    operators: list[Operator[Any]]
    tables: list[Table]
    outputs: list[Append]
    step: Callable[[Slice], Effects]


def schema(names: Names, *columns: str) -> str:
    """DDL of some of the columns."""
    kinds = {"id": "STRING NOT NULL", "key": "STRING", "n": "BIGINT", "at": "BIGINT", "region": "STRING"}
    kinds["more"] = "STRUCT<{id}: STRING, {key}: ARRAY<STRUCT<{at}: INT>>>".format(
        **{name: quote(shown) for name, shown in names.items()}
    )
    return ", ".join(f"{quote(names[name])} {kinds[name]}" for name in columns or kinds)


def source(topic: str, names: Names) -> Source:
    return Source(topic=topic, schema=schema(names), time=names["at"], grace="1 second")


def of_records(names: Names) -> Parts:
    """What needs no time: rows, partitions, keyed state, topics."""
    rows, key, n, id_ = schema(names, "id", "key", "n"), names["key"], names["n"], names["id"]
    q = {name: quote(shown) for name, shown in names.items()}
    left, right = (source(topic, names) for topic in ("left", "right"))
    state = Table(name="state", key=[id_], schema=schema(names, "id", "key", "n", "region", "more"))
    counted = running_total(
        left, key=key, amount=n, total="so.far", table="counted", every=2, rows=schema(names, "id", "key", "n")
    )
    seen = lookup(left, right, key=id_, table="looked_up", left_rows=rows, table_rows=rows)
    sums = {"total": agg.sum(n), "last": agg.last(id_), "top": agg.top(id_, n=2, by=n)}
    totals = aggregate(left, key=key, aggregates=sums, table="totals", rows=rows)
    most = {"total": agg.sum(n), "most": agg.max(n)}
    regrouped = aggregate_table(state, key=key, aggregates=most, table="regrouped", rows=rows)
    latest = newest_by(left, key=[id_, key], table="latest", rows=rows)
    once = deduplicate(left, key=key, within=None, table="once", rows=rows)

    def step(slice: Slice) -> Effects:
        records = slice["left"]
        present = records.where(f"{q['key']} IS NOT NULL")
        own = newest(records, key=id_)
        counted(slice, present)
        seen(slice)
        totals(slice)
        regrouped(slice, own)
        latest(slice, present)
        once(slice, present)
        return {"rows": records, "state": own}

    outputs = [
        Append(name="rows", schema=schema(names), partition_by=[names["region"], key], masked=[n], time=names["at"]),
        Append(name="many", of=counted.crossings),
        Append(name="seen", of=seen.rows, cuts="equal"),
    ]
    operators: list[Operator[Any]] = [totals, regrouped, latest, once, counted, seen]
    return Parts(operators=operators, tables=[state], outputs=outputs, step=step)


def of_time(names: Names) -> Parts:
    """Windows and joins by event time."""
    rows, key, n, id_ = schema(names, "id", "key", "n"), names["key"], names["n"], names["id"]
    left, right = (source(topic, names) for topic in ("left", "right"))
    counts = {"total": agg.sum(n), "ids": agg.collect(id_, most=5)}
    windows = {
        "tumbling": tumbling_window(left, key=key, size="2 seconds", aggregates=counts, table="tumbling", rows=rows),
        "sessions": session_window(
            left, key=[key, id_], gap="1 second", aggregates=counts, table="sessions", rows=rows
        ),
        "sliding": sliding_window(left, key=key, size="2 seconds", aggregates=counts, table="sliding", rows=rows),
        "seldom": at_most_every(left, key=key, every="2 seconds", table="seldom", rows=rows),
    }
    within = deduplicate(left, key=key, within="2 seconds", table="within", rows=rows)
    sides = {"left_rows": rows, "right_rows": rows}
    near = interval_join(
        left, right, key=key, within="2 seconds", how="left", tables=("near_left", "near_right"), **sides
    )
    as_of = table_join(left, right, key={key: id_}, tables=("waiting", "versions"), left_rows=rows, version_rows=rows)
    before = newest_table_join(left, right, key={key: id_}, table="before", left_rows=rows, table_rows=rows)
    of_sources: list[Operator[Any]] = [*windows.values(), within, near, as_of, before]
    lefts, rights = (Table(name=name, key=[id_], schema=rows) for name in ("lefts", "rights"))
    both = table_table_join(lefts, rights, key=id_, how="outer", table="both")
    named = foreign_key_join(lefts, rights, foreign_key={key: id_}, how="left", table="named")

    def step(slice: Slice) -> Effects:
        for operator in of_sources:
            operator(slice)
        changes = {"lefts": newest(slice["left"], key=id_), "rights": newest(slice["right"], key=id_)}
        for join in (both, named):
            join(slice, *changes.values())
        return changes

    outputs = [
        *(Append(name=f"final_{name}", of=window.final) for name, window in windows.items()),
        Append(name="distinct", of=within.rows),
        Append(name="pairs", of=near.rows),
        Append(name="valid", of=as_of.rows),
        Append(name="joined", of=before.rows, cuts="equal"),
    ]
    return Parts(operators=[*of_sources, both, named], tables=[lefts, rights], outputs=outputs, step=step)


def topology(names: Names, parts: Callable[[Names], Parts]) -> Topology:
    topics = [
        Topic(name="rows-out", of="rows", key=[names["key"], names["id"]], time=names["at"]),
        Topic(name="state-out", of="state", key=names["id"], on_replay="reconcile"),
    ]
    contents = parts(names)
    return Topology(
        name="names.awkward",
        version="1",
        sources=[source("left", names), source("right", names)],
        operators=contents.operators,
        tables=contents.tables,
        outputs=[*contents.outputs, *(topics if parts is of_records else [])],
        step=contents.step,
    )


def slices(names: Names) -> list[list[Input]]:
    """Records of two slices, in both topics; a late one among them."""

    def record(topic: str, at: int, id: str, key: str | None, n: int, region: str = "x") -> Input:
        nested = {names["id"]: id, names["key"]: [{names["at"]: n}]}
        plain = {"id": id, "key": key, "n": n, "at": at, "region": region, "more": nested}
        value = {names[name]: value for name, value in plain.items()}
        return Input(topic=topic, value=value, key=id.encode(), timestamp_ms=at)

    first = [
        *(
            record("left", 1000, "a", "b", 1),
            record("left", 1500, "b", "a", 2, "é/ü=:"),
            record("left", 1700, "c", None, 3),
        ),
        *(record("right", 1200, "a", "b", 4), record("right", 1300, "b", "a", 5)),
    ]
    second = [
        *(record("left", 9000, "a", "b", 6), record("left", 2000, "b", "b", 7), record("left", 9100, "a", "a", 8, "")),
        *(record("right", 9000, "b", "b", 9), record("right", 12000, "a", "c", 10)),
    ]
    return [first, second]


def renamed(value: Any, names: Names) -> Any:
    """A result under awkward names with plain ones in their place."""
    back = {shown: name for name, shown in names.items()}

    def plain(name: str) -> str:
        bare = name.removesuffix("_right")
        return back.get(name, back.get(bare, bare) + name[len(bare) :])

    if isinstance(value, dict):
        return {plain(key): renamed(item, names) for key, item in value.items()}
    return [renamed(item, names) for item in value] if isinstance(value, list) else value
