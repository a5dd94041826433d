"""Rules about what a seed gives: a table that it lacks would begin without its history, rows of another shape would not fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kappa.replay.findings import Finding, refuse, warn
from kappa.topology.shapes import Shape


def unlike_seed(wanted: Mapping[str, Shape], seed: Mapping[str, Shape], keeper: str) -> list[Finding]:
    """What a seed cannot give: a table that it lacks begins without its history, so it is refused; rows of another shape too."""
    return [
        finding
        for place, shape in wanted.items()
        for finding in (_unlike(place, shape, seed[place], keeper) if place in seed else _lacking(place, seed, keeper))
    ]


_FROM_START = "Replay --to-earliest, which computes it from the first record on."


def _lacking(place: str, seed: Mapping[str, Shape], keeper: str) -> Iterable[Finding]:
    kind, _, name = place.partition("/")
    if kind == "tables":
        has = sorted(other.removeprefix("tables/") for other in seed if other.startswith("tables/"))
        yield refuse(
            "seed-lacks-table",
            f"{keeper} has no table {name!r}, it has {has}: the table would begin without its history.",
            _FROM_START,
            table=name,
            seeded=has,
        )
    else:
        yield warn(
            "seed-lacks-output",
            f"{keeper} has no output {name!r}: it will hold no row of earlier records.",
            "Nothing, if that is meant; otherwise replay --to-earliest.",
            output=name,
        )


def _unlike(place: str, wanted: Shape, seed: Shape, keeper: str) -> Iterable[Finding]:
    name = place.partition("/")[2]
    numbers = {"name": name}
    if wanted.key != seed.key:
        yield refuse(
            "seed-key-changed",
            f"Table {name!r} has the key {list(wanted.key)}; in {keeper[0].lower()}{keeper[1:]} it is {list(seed.key)}.",
            _FROM_START,
            key=list(wanted.key),
            seed_key=list(seed.key),
            **numbers,
        )
    changed = [c for c, kind in wanted.columns.items() if seed.columns.get(c, kind) != kind]
    changed += [c for c in wanted.required if c in seed.columns and c not in seed.required and c not in changed]
    if changed:
        yield refuse(
            "seed-type-changed",
            f"Columns {changed} of {name!r} have another type than in {keeper[0].lower()}{keeper[1:]}, or may no longer be null.",
            _FROM_START,
            columns=changed,
            **numbers,
        )
    new = [c for c in wanted.columns if c not in seed.columns]
    if required := [c for c in new if c in wanted.required]:
        yield refuse(
            "seed-lacks-required-column",
            f"{keeper} has no columns {required} of {name!r}, which may not be null.",
            _FROM_START,
            columns=required,
            **numbers,
        )
    elif new:
        yield warn(
            "seed-lacks-column",
            f"{keeper} has no columns {new} of {name!r}: they are null in its rows.",
            "Nothing, if that is meant; otherwise replay --to-earliest.",
            columns=new,
            **numbers,
        )
