"""A topology is drawn with everything that its rows go through, whatever its names hold."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.drawing import Graph, Kind, graph_of, text
from kappa.drawing.graph import Box
from kappa.drawing.literals import graph_of_literals
from kappa.drawing.text import width, wrapped
from kappa.topology import Append, Slice, Source, Table, Topic, Topology
from kappa.topology.registry import declared, load

ROW = "symbol STRING NOT NULL, n BIGINT"


def all_boxes(boxes: Iterable[Box]) -> list[Box]:
    """Boxes, each before those that it leads to."""
    return [one for box in boxes for one in (box, *all_boxes(box.leads_to))]


def measure(slice: Slice) -> dict[str, Any]:
    """Prices of each symbol,
    by window.

    Not drawn.
    """
    return {}


def prices(**changes: Any) -> Topology:
    words: dict[str, Any] = {
        "name": "market.prices",
        "version": "3",
        "sources": [
            Source(topic="ticks", schema=f"{ROW}, at BIGINT", time="at", grace="10 seconds"),
            Source(topic="orders", format="bytes", of="market.orders", keyed=False, sensitive=True),
        ],
        "tables": [
            Table(name="windows", key=["symbol"], schema=ROW, made_by="hopping_window(size=5 seconds, n=count())"),
            Table(name="newest", key=["symbol"], schema=ROW, masked=["n"]),
        ],
        "outputs": [
            Append(name="stats", schema=ROW, partition_by=["symbol"]),
            Topic(name="market.stats", of="stats", key="symbol", on_replay="versioned", time="n"),
            Topic(name="market.newest", of="newest", key="symbol", on_replay="reconcile"),
        ],
        "step": measure,
    }
    return Topology(**{**words, **changes})


def hostile(name: str) -> Graph:
    """A graph with this text in each place that takes any text."""
    quoted = "`" + name.replace("`", "``") + "`"
    schema = f"{quoted} STRING NOT NULL"
    try:
        table = Table(name="t", key=[name], schema=schema, made_by=name)
    except Exception:  # no name of a column
        table = Table(name="t", key=["symbol"], schema=ROW, made_by=name)
    topology = prices(version=name or "1", sources=[Source(topic="ticks", format="string")], tables=[table], outputs=[])
    return graph_of(topology)


HOSTILE = (
    '</text></svg><script>alert(1)</script>"]; click n0 "javascript:alert(1)"',
    "`code` *a* __b__ #35; &amp; style:x#60; %% [link](www.x.com) a@b.c ===",
    "1. one\n- two\r\n\x1b[31m\u202e\ud800\ufffe\x00|",
    "日本語" * 40,
    "x" * 300,
    " ",
)


def test_the_text_shows_sources_step_state_and_outputs() -> None:
    assert text(graph_of(prices())).splitlines() == [
        "market.prices version 3",
        "",
        "source ticks                    JSON with 3 columns; event time at, grace 10 seconds, ahead 1 hour",
        "│",
        "source orders                   format bytes; the versioned topic of market.orders; records of a key in any "
        "partition;",
        "│                               sensitive",
        "│",
        "step   measure                  Prices of each symbol, by window.",
        "├<-> table  windows             key symbol; 2 columns; state of hopping_window(size=5 seconds, n=count())",
        "├<-> table  newest              key symbol; 2 columns; masked n",
        "│    └─-> topic  market.newest  key symbol; on_replay reconcile",
        "├─-> output stats               2 columns; partitioned by symbol",
        "│    └─-> topic  market.stats   key symbol; on_replay versioned; time n",
        "└─-> output late_records        5 columns; records of ticks that an operator refused as late",
    ]


def test_a_lambda_has_no_summary_and_a_source_without_grace_no_late_records() -> None:
    graph = graph_of(prices(step=lambda slice: {}, sources=[Source(topic="ticks", format="string")]))
    assert (graph.center.name, graph.center.details) == ("<lambda>", ())
    assert [box.name for box in graph.center.leads_to] == ["windows", "newest", "stats"]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_escapes_from_its_label(name: str) -> None:
    check(hostile(name))


@given(st.text(min_size=1, max_size=60))
def test_no_hostile_text_escapes_from_its_label(name: str) -> None:
    check(hostile(name))


def check(graph: Graph) -> None:
    """Checks that all of the text is visible."""
    shown = text(graph)
    assert all(c.isprintable() or c == "\n" for c in shown)


@given(st.text(max_size=80), st.integers(min_value=2, max_value=30))
def test_wrapped_lines_fit_and_lose_no_word(text: str, most: int) -> None:
    lines = wrapped(text, most)
    assert all(width(line) <= most for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(lines) or lines == [""]


def test_wrapped_lines_are_as_long_as_possible() -> None:
    assert wrapped("a bb ccc dddd", 6) == ["a bb", "ccc", "dddd"]
    assert wrapped("abcdefgh i", 3) == ["abc", "def", "gh", "i"]
    for first, second in pairwise(wrapped("one two three four five six seven", 9)):
        assert width(f"{first} {second.split()[0]}") > 9


def test_a_parsed_file_is_drawn_with_the_same_parts_as_an_imported_one() -> None:
    folder = Path(__file__).parents[2] / "include" / "topologies"
    for file in declared(folder):
        graphs = graph_of_literals(file), graph_of(load(folder, file.name))
        read, imported = ([(b.kind, b.name) for b in all_boxes([*g.sources, g.center])] for g in graphs)
        assert read == imported, file.name


def test_computed_declarations_are_drawn_without_a_name(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(
        "Topology(name='demo.odd', version='1', sources=[Source(topic=T), *more], tables=made(), step=lambda s: {},"
        " outputs=[Topic(name='t', of=X, key=['a', 'b'])])"
    )
    graph = graph_of_literals(*declared(tmp_path))
    assert [box.name for box in all_boxes([*graph.sources, graph.center])] == ["…", "…", "…", "…", "t"]
    assert graph.center.leads_to[-1].details == ("key a, b", "on_replay hold")


def test_sources_and_operators_in_variables_are_read_from_their_declaration(tmp_path: Path) -> None:
    (tmp_path / "named.py").write_text(
        """
from kappa import Append, Source, Topology
from kappa.operators import agg, interval_join, newest_by, tumbling_window

orders = Source(topic="orders", schema="id STRING, at BIGINT", time="at", grace="1 minute")
payments = Source(topic="payments", schema="id STRING, paid BIGINT", grace="1 minute")
paid = interval_join(orders, payments, key="id", within="10 minutes", tables=("waiting_orders", "waiting_payments"))
days = tumbling_window(paid.rows, key="id", size="1 day", aggregates={"n": agg.count()}, table="open_days")
known = newest_by(orders, key="id", table="known", deletions="gone")
READ = [orders, payments]

topology = Topology(
    name="demo.named",
    version="1",
    sources=READ,
    operators=[paid, days, known],
    outputs=[Append(name="days", of=days.final)],
)
"""
    )
    (file,) = declared(tmp_path)
    graphs = graph_of_literals(file), graph_of(load(tmp_path, file.name))
    read, imported = ([(b.kind, b.name) for b in all_boxes([*g.sources, g.center])] for g in graphs)
    assert read == imported
    tables = ["waiting_orders", "waiting_payments", "open_days", "known", "gone"]
    assert [name for kind, name in read if kind is Kind.TABLE] == tables
    assert graphs[0].center.leads_to[2].details == ("state of tumbling_window",)
    assert graphs[0].sources[0].details == ("event time at, grace 1 minute",)
