"""A topology of every operator, under plain names and under names that SQL, DataFrames and files could take for more.

Both have to give the same: whatever differs is a name that some path does not quote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    late_records,
    lookup,
    newest,
    newest_by,
    newest_table_join,
    running_total,
    session_window,
    sliding_window,
    table_join,
    table_table_join,
    threshold_crossings,
    tumbling_window,
)
from kappa.testing import Input
from kappa.topology.ddl import quote

Names = Mapping[str, str]
PLAIN: Names = {name: name for name in ("id", "key", "n", "at", "region", "more")}
AWKWARD: Names = {
    "id": "_id",
    "key": "service.name",
    "n": "$n `x` (a=b;c)",
    "at": "@time stamp",
    "region": 'größe/"q"',
    "more": "select",
}

Parts = tuple[list[Table], list[Append], Callable[[Slice], Effects]]


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
    totals = aggregate(
        rows=rows, key=key, aggregates={"total": agg.sum(n), "last": agg.last(id_), "top": agg.top(id_, n=2, by=n)}
    )
    regrouped = aggregate_table(rows=rows, of=id_, key=key, aggregates={"total": agg.sum(n), "most": agg.max(n)})
    latest, once = newest_by(rows=rows, key=[id_, key]), deduplicate(rows=rows, key=key, within=None)
    state = Table(name="state", key=[id_], schema=schema(names, "id", "key", "n", "region", "more"))

    def step(slice: Slice) -> Effects:
        mine = slice["left"]
        present = mine.where(f"{q['key']} IS NOT NULL")
        own = newest(mine, key=id_)
        counted = running_total(present, key=key, amount=n, total="so.far", before=slice.table("counted"))
        many = threshold_crossings(counted, key=key, total="so.far", step=2, before=slice.table("counted"))
        latest_rows = latest(present, before=slice.table("latest"))
        return {
            "rows": mine,
            "state": own,
            "totals": totals(mine, before=slice.table("totals")).changes,
            "regrouped": regrouped(own, rows=slice.table("state"), before=slice.table("regrouped")).changes,
            "latest": latest_rows.changes,
            "once": once(present, before=slice.table("once")).changes,
            "counted": newest(counted, key=key),
            "many": many,
            "seen": lookup(mine, slice.table("state"), on=id_, changes=None),
        }

    counted = Table(name="counted", key=[key], schema=f"{q['key']} STRING NOT NULL, `so.far` BIGINT")
    tables = [
        state,
        counted,
        totals.table("totals"),
        regrouped.table("regrouped"),
        latest.table("latest"),
        once.table("once"),
    ]
    right = ", ".join(f"{quote(f'{names[name]}_right')} {kind}" for name, kind in (("key", "STRING"), ("n", "BIGINT")))
    outputs = [
        Append(name="rows", schema=schema(names), partition_by=[names["region"], key], masked=[n], time=names["at"]),
        Append(name="many", schema=f"{schema(names, 'id', 'key', 'n')}, `so.far` BIGINT, threshold BIGINT"),
        Append(name="seen", schema=f"{schema(names, 'id', 'key', 'n')}, {right}", cuts="equal"),
    ]
    return tables, outputs, step


def of_time(names: Names) -> Parts:
    """Windows and joins by event time."""
    rows, key, n, id_ = schema(names, "id", "key", "n"), names["key"], names["n"], names["id"]
    counts = {"total": agg.sum(n), "ids": agg.collect(id_, most=5)}
    windows = {
        "tumbling": tumbling_window(rows=rows, key=key, size="2 seconds", aggregates=counts),
        "sessions": session_window(rows=rows, key=[key, id_], gap="1 second", aggregates=counts),
        "sliding": sliding_window(rows=rows, key=key, size="2 seconds", aggregates=counts),
    }
    seldom = at_most_every(rows=rows, key=key, every="2 seconds")
    within = deduplicate(rows=rows, key=key, within="2 seconds")
    near = interval_join(left=rows, right=rows, key=key, within="2 seconds", how="left")
    as_of = table_join(left=rows, table=rows, key={key: id_})
    before = newest_table_join(left=rows, table=rows, key={key: id_})
    both = table_table_join(left=rows, right=rows, key=id_, how="outer")
    named = foreign_key_join(left=rows, right=rows, key=id_, foreign_key={key: id_}, how="left")

    def step(slice: Slice) -> Effects:
        left, right = slice["left"], slice["right"]
        mine, other = slice.frontier("left"), slice.frontier("right")
        effects: dict[str, Any] = {}
        late = []
        for name, window in {**windows, "seldom": seldom}.items():
            found = window(left, before=slice.table(name), frontier=mine)
            effects |= {name: found.changes, f"final_{name}": found.final}
            late.append(found.late)
        distinct = within(left, before=slice.table("within"), frontier=mine)
        pairs = near(
            left,
            right,
            left_before=slice.table("near_left"),
            right_before=slice.table("near_right"),
            left_frontier=mine,
            right_frontier=other,
        )
        valid = as_of(
            left,
            right,
            waiting_before=slice.table("waiting"),
            versions_before=slice.table("versions"),
            left_frontier=mine,
            table_frontier=other,
        )
        joined = before(left, right, before=slice.table("before"))
        lefts, rights = newest(left, key=id_), newest(right, key=id_)
        tables = {"left_before": slice.table("lefts"), "right_before": slice.table("rights")}
        return {
            **effects,
            "within": distinct.changes,
            "distinct": distinct.rows,
            "near_left": pairs.left_changes,
            "near_right": pairs.right_changes,
            "pairs": pairs.rows,
            "waiting": valid.waiting_changes,
            "versions": valid.version_changes,
            "valid": valid.rows,
            "before": joined.changes,
            "joined": joined.rows,
            "lefts": lefts,
            "rights": rights,
            "both": both(lefts, rights, **tables, before=slice.table("both")).changes,
            "named": named(lefts, rights, **tables, before=slice.table("named")).changes,
            "late_records": late_records(*(part for part in (*late, distinct.late, pairs.late, valid.late) if part)),
        }

    tables = [
        *(window.table(name) for name, window in windows.items()),
        seldom.table("seldom"),
        within.table("within"),
        near.left_table("near_left"),
        near.right_table("near_right"),
        as_of.waiting_table("waiting"),
        as_of.versions_table("versions"),
        before.table("before"),
        *(Table(name=name, key=[id_], schema=rows) for name in ("lefts", "rights")),
        both.table("both"),
        named.table("named"),
    ]
    finals = {**windows, "seldom": seldom}
    outputs = [
        *(Append(name=f"final_{name}", schema=window.schema) for name, window in finals.items()),
        Append(name="distinct", schema=rows),
        Append(name="pairs", schema=near.schema),
        Append(name="valid", schema=as_of.schema),
        Append(name="joined", schema=before.schema, cuts="equal"),
    ]
    return tables, outputs, step


def topology(names: Names, parts: Callable[[Names], Parts]) -> Topology:
    tables, outputs, step = parts(names)
    topics = [
        Topic(name="rows-out", of="rows", key=[names["key"], names["id"]], time=names["at"]),
        Topic(name="state-out", of="state", key=names["id"], on_replay="reconcile"),
    ]
    return Topology(
        name="names.awkward",
        version="1",
        sources=[source("left", names), source("right", names)],
        tables=tables,
        outputs=[*outputs, *(topics if parts is of_records else [])],
        step=step if parts is of_time else lambda slice: {**step(slice), "late_records": _nothing_late(slice)},
    )


def _nothing_late(slice: Slice) -> Any:
    from kappa.operators.late import late_rows

    return late_rows(slice["left"].where("FALSE"), operator="none", reason="none")


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
    if isinstance(value, dict):
        return {
            back.get(key, back.get(key.removesuffix("_right"), key) + ("_right" if key.endswith("_right") else "")): (
                renamed(item, names)
            )
            for key, item in value.items()
        }
    return [renamed(item, names) for item in value] if isinstance(value, list) else value
