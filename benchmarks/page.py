"""Writes docs/benchmarks.md and its picture from the stored figures: ``python -m benchmarks.page``.

The figures are in ``benchmarks/measured.json``. ``python -m benchmarks.page benchmarks/results/<run>.json "nothing
beside it"`` takes the parts (j) and (k) over from a run's file; figures of other parts are taken over by hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.__main__ import PARTS
from benchmarks.plot import PICTURE, picture
from benchmarks.result import Figure
from benchmarks.topologies import LEAST

MEASURED = Path(__file__).parent / "measured.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"

_HEAD = """\
# Benchmarks

This page is made by `python -m benchmarks.page` from `benchmarks/measured.json`.

`make bench` measures on {invoices:,} generated invoices and writes a table, and JSON with a description of the machine,
to `benchmarks/results/`. `python -m benchmarks a d --records 200000` runs some parts, smaller. A ratio compares two
measurements of one run on one machine. Seconds and records/s hold for the machine of the run only.

Machine: {machine}. Size: {invoices:,} invoices unless the row says otherwise.

## Figures

| part | what is measured | value | target | result |
|---|---|---|---|---|
"""

_TOPOLOGIES = """
## Throughput of each topology

Part (j), {date}, {conditions}: {records:,} records in each source, replayed in five slices. *Share* is the rate of a
topology's replay, the first slice left out, over the rate at which the same session merely reads and parses the same
slices; at least 0.25 is wanted, and what lies below has its reason under the table. *Rows of state* are those of tables
whose rows go when their time is over, after the first slice and after the last one, five times the history.
`logs.browser_windows_now` goes by the wall clock and has no replay; its step is that of `logs.browser_windows`.

| topology | read and parse, records/s | topology, records/s | share | rows of state |
|---|---|---|---|---|
"""

_REBUILD = """
## Rebuild from the changelog

Part (k), {date}, {conditions}. The time of `kappa rebuild --from-changelog` on a started session, from the empty epoch
to the folded table. Most of it is the same for any size. What comes on top grows with the records that are folded. The
broker's compaction leaves one record for each key, so the history beyond that costs nothing. Kafka compacts closed
segments only, and a changelog's are closed after an hour at most: what was written since is folded as it was written.

![Seconds of a rebuild by number of keys, and by length of history as written and compacted](images/rebuild.svg)

| keys | changes of each key | records in the changelog | seconds |
|---|---|---|---|
"""


def page(measured: Mapping[str, Any]) -> str:
    """The page of the stored figures."""
    rows = measured["figures"]
    lines = [_row(row) for row in rows]
    text = _HEAD.format(machine=measured["machine"], invoices=measured["invoices"]) + "\n".join(lines) + "\n"
    missed = [row for row in rows if _figure(row).is_met is False]
    text += "\n## Missed targets\n\n"
    text += "\n".join(_missed(row) for row in missed) + "\n" if missed else "None.\n"
    stored = {row["part"] for row in rows} | ({"j"} if "topologies" in measured else set())
    without = {name: title for name, (title, _) in PARTS.items() if name not in stored}
    if without:
        text += "\n## Parts without a stored result\n\n"
        text += "\n".join(f"- ({name}) {title}" for name, title in without.items()) + "\n"
    if "topologies" in measured:
        text += _topologies(measured["topologies"])
    if "rebuild" in measured:
        text += _rebuild(measured["rebuild"])
    text += "\n## How each figure was measured\n\n"
    return text + "\n".join(_conditions(row) for row in rows) + "\n"


def take(measured: Mapping[str, Any], run: Mapping[str, Any], *, conditions: str) -> dict[str, Any]:
    """The stored figures with parts (j) and (k) of a run; reasons stay.

    Args:
        conditions: what was beside it.
    """
    figures = dict(measured)
    on = {"date": run["machine"]["at"][:10], "conditions": conditions}
    parts = {part: [figure for figure in run["figures"] if figure["part"] == part] for part in ("j", "k")}
    if parts["j"]:
        rows_by_topology = {row["topology"]: row for row in measured.get("topologies", {}).get("rows", [])}
        rows: dict[str, dict[str, Any]] = {}
        for figure in parts["j"]:
            name, _, what = figure["name"].partition(": ")
            if what.startswith("rows of "):
                rows[name]["state"][what.split()[2]] = figure["detail"]["rows"]
            else:
                floor = max(figure["detail"]["floor_records_per_second"])
                rates = {"rate": round(figure["detail"]["records_per_second"]), "floor": round(floor)}
                why = {key: rows_by_topology[name][key] for key in ("why",) if key in rows_by_topology.get(name, {})}
                rows[name] = {"topology": name, **rates, "share": round(figure["value"], 3), "state": {}, **why}
        records = next(figure["detail"]["records"] for figure in parts["j"] if "records" in figure["detail"])
        where = {key: value for key, value in measured.get("topologies", {}).items() if key == "where"}
        figures["topologies"] = {**on, **where, "records": records, "rows": list(rows.values())}
    if parts["k"]:
        figures["rebuild"] = {**on, **next(figure["detail"] for figure in parts["k"] if "keys" in figure["detail"])}
        others = [row for row in measured["figures"] if row["part"] != "k"]
        names = ("part", "name", "unit", "wanted")
        new_rows = [
            {**{name: figure[name] for name in names if figure[name]}, "value": round(figure["value"], 2), **on}
            for figure in parts["k"]
        ]
        figures["figures"] = [*others, *new_rows]
    return figures


def _topologies(section: Mapping[str, Any]) -> str:
    text = _TOPOLOGIES.format(**section)
    for row in section["rows"]:
        state = ", ".join(f"`{name}` {first:,} → {last:,}" for name, (first, last) in row["state"].items())
        share = f"{row['share']}" if row["share"] >= LEAST else f"**{row['share']}**"
        cells = (f"`{row['topology']}`", f"{row['floor']:,}", f"{row['rate']:,}", share, state)
        text += "".join(f"| {cell} ".replace("  ", " ") for cell in cells) + "|\n"
    text += f"\n{section['where']}\n" if "where" in section else ""
    reasons = [f"- `{row['topology']}`, {row['share']}: {row['why']}" for row in section["rows"] if "why" in row]
    return "\n".join([text, *reasons, ""]) if reasons else text


def _rebuild(section: Mapping[str, Any]) -> str:
    rows = [(f"{point['rounds']}, as written", point) for point in section["written"]]
    rows += [(f"{point['rounds']}, compacted", point) for point in section["compacted"][1:]]
    for point in section["keys"]:
        if point not in section["written"]:
            rows.append(("1" if point["rounds"] == 1 else "compacted, then 1 of each new key", point))
    cells = [(f"{p['keys']:,}", history, f"{p['records']:,}", f"{p['seconds']:.1f}") for history, p in rows]
    return _REBUILD.format(**section) + "\n".join(f"| {' | '.join(row)} |" for row in cells) + "\n"


def _figure(row: Mapping[str, Any]) -> Figure:
    return Figure(
        part=row["part"], name=row["name"], value=row["value"], unit=row["unit"], wanted=row.get("wanted", "")
    )


def _row(row: Mapping[str, Any]) -> str:
    figure = _figure(row)
    result = {None: "", True: "met", False: "**missed**"}[figure.is_met]
    cells = (f"({figure.part})", figure.name, _value(figure), _target(figure), result)
    return "".join(f"| {cell} ".replace("  ", " ") for cell in cells) + "|"


def _missed(row: Mapping[str, Any]) -> str:
    figure = _figure(row)
    why = f"\n  Where the time goes, and what was tried: {_link(row)}." if "decision" in row else ""
    return f"- ({figure.part}) {figure.name}: {_value(figure)}, target {_target(figure)}.{why}"


def _conditions(row: Mapping[str, Any]) -> str:
    parts = [f"- ({row['part']}) {row['name']}: {row['date']}, {row['conditions']}."]
    if "detail" in row:
        parts.append(f"  {row['detail'][0].upper()}{row['detail'][1:]}.")
    if "decision" in row:
        parts.append(f"  Decision: {_link(row)}.")
    return "\n".join(parts)


def _value(figure: Figure) -> str:
    return f"{figure.value:,} {figure.unit}"


def _target(figure: Figure) -> str:
    sign, _, limit = figure.wanted.partition(" ")
    if not figure.wanted:
        return ""
    shown = limit if float(limit) < 10_000 else f"{float(limit):,.0f}"
    return f"{'at least' if sign == '>=' else 'at most'} {shown}"


def _link(row: Mapping[str, Any]) -> str:
    heading = (PAGE.parent / row["decision"]).read_text().partition("\n")[0]
    return f"[{heading.removeprefix('# ')}]({row['decision']})"


def main() -> None:
    """Take over what a run's file has, if one is named, and write page and picture."""
    stored = json.loads(MEASURED.read_text())
    if len(sys.argv) > 1:
        file, conditions = sys.argv[1:]
        stored = take(stored, json.loads(Path(file).read_text()), conditions=conditions)
        MEASURED.write_text(json.dumps(stored, indent=2, ensure_ascii=False) + "\n")
    PAGE.write_text(page(stored))
    if "rebuild" in stored:
        PICTURE.write_text(picture(stored["rebuild"]))


if __name__ == "__main__":
    main()
