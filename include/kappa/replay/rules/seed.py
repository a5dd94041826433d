"""Rules about what a seed gives: a missing table would begin without its history, rows of another shape do not fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kappa.replay.findings import Finding, refuses, warns
from kappa.topology.shapes import Shape

_FROM_START = "Replay --to-earliest, which computes it from the first record on."
_UNLESS_MEANT = "No action needed if that is meant; otherwise replay --to-earliest."

SEED_LACKS_TABLE = refuses(
    "seed-lacks-table",
    "{keeper} has no table {table!r}, it has {seeded}: the table would begin without its history.",
    _FROM_START,
    meaning="a table of the deployed code is not in the savepoint or changelog that its epoch would be seeded from",
)
SEED_LACKS_OUTPUT = warns(
    "seed-lacks-output",
    "{keeper} has no output {output!r}: it will hold no row of earlier records.",
    _UNLESS_MEANT,
    meaning="an append output of the deployed code is not in the savepoint: it begins with the first record of the "
    "replay",
)
SEED_KEY_CHANGED = refuses(
    "seed-key-changed",
    "Table {name!r} has the key {key}; in {place} it is {seed_key}.",
    _FROM_START,
    meaning="a table has another key than in the savepoint or changelog that its epoch would be seeded from",
)
SEED_TYPE_CHANGED = refuses(
    "seed-type-changed",
    "Columns {columns} of {name!r} have another type than in {place}, or may no longer be null.",
    _FROM_START,
    meaning="a column has another type than in the savepoint or changelog, or may no longer be null",
    way_out=f"{_FROM_START} A new column beside the old one does as well.",
)
SEED_OPERATOR_CHANGED = refuses(
    "seed-operator-changed",
    "Table {name!r} is the state of {made_by}; in {place} it is that of {seed_made_by}.",
    _FROM_START,
    meaning="a table is the state of another operator, or of one with other parameters, than in the savepoint or "
    "changelog",
)
SEED_LACKS_REQUIRED_COLUMN = refuses(
    "seed-lacks-required-column",
    "{keeper} has no columns {columns} of {name!r}, which may not be null.",
    _FROM_START,
    meaning="a column of the deployed code that may not be null is not in the savepoint or changelog",
)
SEED_LACKS_COLUMN = warns(
    "seed-lacks-column",
    "{keeper} has no columns {columns} of {name!r}: they are null in its rows.",
    _UNLESS_MEANT,
    meaning="a column of the deployed code is not in the savepoint or changelog: it is null in the rows of the seed",
)


def unlike_seed(wanted: Mapping[str, Shape], seed: Mapping[str, Shape], keeper: str) -> list[Finding]:
    """What a seed cannot give, so that it is refused: a table that it lacks, and rows of another shape."""
    return [
        finding
        for place, shape in wanted.items()
        for finding in (
            _unlike(place, shape, seed[place], keeper) if place in seed else [_lacking(place, seed, keeper)]
        )
    ]


def _lacking(place: str, seed: Mapping[str, Shape], keeper: str) -> Finding:
    kind, _, name = place.partition("/")
    if kind != "tables":
        return SEED_LACKS_OUTPUT({"keeper": keeper}, output=name)
    has = sorted(other.removeprefix("tables/") for other in seed if other.startswith("tables/"))
    return SEED_LACKS_TABLE({"keeper": keeper}, table=name, seeded=has)


def _unlike(place: str, wanted: Shape, seed: Shape, keeper: str) -> Iterable[Finding]:
    name = place.partition("/")[2]
    words = {"keeper": keeper, "place": f"{keeper[0].lower()}{keeper[1:]}"}
    if wanted.key != seed.key:
        yield SEED_KEY_CHANGED(words, name=name, key=list(wanted.key), seed_key=list(seed.key))
    if wanted.made_by != seed.made_by:
        made_by, seed_made_by = wanted.made_by or "no operator", seed.made_by or "no operator"
        yield SEED_OPERATOR_CHANGED(words, name=name, made_by=made_by, seed_made_by=seed_made_by)
    changed = [c for c, kind in wanted.columns.items() if seed.columns.get(c, kind) != kind]
    changed += [c for c in wanted.required if c in seed.columns and c not in seed.required and c not in changed]
    if changed:
        yield SEED_TYPE_CHANGED(words, name=name, columns=changed)
    new = [c for c in wanted.columns if c not in seed.columns]
    if required := [c for c in new if c in wanted.required]:
        yield SEED_LACKS_REQUIRED_COLUMN(words, name=name, columns=required)
    elif new:
        yield SEED_LACKS_COLUMN(words, name=name, columns=new)
