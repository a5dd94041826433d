"""Rules about the content of a seed: a missing table would begin without its history, and rows of another shape do not
fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kappa.replay.findings import Finding, refuses, warns
from kappa.replay.rules.upgrade import LONGER_GRACE, SHORTER_GRACE
from kappa.topology.readers import may_go_on
from kappa.topology.revisions import inputs_of
from kappa.topology.shapes import Shape, changed_graces, changed_times
from kappa.topology.times import durations

_FROM_START = "Replay --to-earliest, which computes it from the first record on."
_UNLESS_MEANT = "No action needed if that is meant; otherwise replay --to-earliest."

SEED_LACKS_TABLE = refuses(
    "seed-lacks-table",
    "{keeper} has no table {table!r}, it has {seeded}: the table would begin without its history.",
    _FROM_START,
)
SEED_LACKS_OUTPUT = warns(
    "seed-lacks-output", "{keeper} has no output {output!r}: it will hold no row of earlier records.", _UNLESS_MEANT
)
SEED_KEY_CHANGED = refuses(
    "seed-key-changed", "Table {name!r} has the key {key}; in {place} it is {seed_key}.", _FROM_START
)
SEED_TYPE_CHANGED = refuses(
    "seed-type-changed",
    "Columns {columns} of {name!r} have another type than in {place}, or may no longer be null.",
    f"{_FROM_START} A new column beside the old one works as well.",
)
SEED_OPERATOR_CHANGED = refuses(
    "seed-operator-changed",
    "Table {name!r} is the state of {made_by}; in {place} it is that of {seed_made_by}.",
    _FROM_START,
)
SEED_TIME_CHANGED = refuses(
    "seed-time-changed",
    "Rows of table {name!r} come and go by another event time than in {place}, or no longer by any: {said}. The old "
    "times decided which rows are open and which records are late.",
    f"{_FROM_START} `--to-datetime TIME` computes it from a time on.",
)
SEED_TIME_UNKNOWN = refuses(
    "seed-time-unknown",
    "Rows of table {name!r} come and go by event time, and {place} does not say by which time and grace: an earlier "
    "version of Kappa wrote it.",
    f"{_FROM_START} Or `kappa upgrade` the live epoch, which compares both codes, and start from a later savepoint.",
)
SEED_GRACE_CHANGED = warns(
    "seed-grace-changed",
    "The grace of source {topic!r} was {was} in {place} and is {now}. {effect}",
    "No action needed if that is meant; otherwise replay --to-earliest.",
    way_out="No action needed if that is meant: a longer grace does not reopen anything. Otherwise replay "
    "--to-earliest.",
)
SEED_LACKS_REQUIRED_COLUMN = refuses(
    "seed-lacks-required-column", "{keeper} has no columns {columns} of {name!r}, which may not be null.", _FROM_START
)
SEED_LACKS_COLUMN = warns(
    "seed-lacks-column", "{keeper} has no columns {columns} of {name!r}: they are null in its rows.", _UNLESS_MEANT
)


def unlike_seed(shapes: Mapping[str, Shape], seed: Mapping[str, Shape], keeper: str) -> list[Finding]:
    """Objections to a seed: a table that it lacks, and rows of another shape."""
    findings = [
        finding
        for place, shape in shapes.items()
        for finding in (
            _unlike(place, shape, seed[place], keeper) if place in seed else [_lacking(place, seed, keeper)]
        )
    ]
    return [*findings, *_graces(shapes, seed, keeper)]


def _graces(shapes: Mapping[str, Shape], seed: Mapping[str, Shape], keeper: str) -> list[Finding]:
    """Sources with another grace, once for all tables."""
    both = [(seed[place].times or {}, shape.times or {}) for place, shape in shapes.items() if place in seed]
    changes = sorted({change for was, now in both for change in changed_graces(was, now)})
    return [
        SEED_GRACE_CHANGED(
            {"place": _inner(keeper), "effect": LONGER_GRACE if now > was else SHORTER_GRACE},
            topic=topic,
            was=durations.shown(was),
            now=durations.shown(now),
        )
        for topic, was, now in changes
    ]


def _lacking(place: str, seed: Mapping[str, Shape], keeper: str) -> Finding:
    kind, _, name = place.partition("/")
    if kind != "tables":
        return SEED_LACKS_OUTPUT({"keeper": keeper}, output=name)
    has = sorted(other.removeprefix("tables/") for other in seed if other.startswith("tables/"))
    return SEED_LACKS_TABLE({"keeper": keeper}, table=name, seeded=has)


def _changed_times(shape: Shape, seed: Shape) -> list[str]:
    """Other event times of the sources that the rows of a table follow; of all where it does not name them."""
    was, now = seed.times or {}, shape.times or {}
    sources = inputs_of(shape.made_by) if shape.made_by == seed.made_by else None
    if sources is not None:
        was, now = ({topic: one for topic, one in times.items() if topic in sources} for times in (was, now))
    return changed_times(was, now)


def _unlike(place: str, shape: Shape, seed: Shape, keeper: str) -> Iterable[Finding]:
    name = place.partition("/")[2]
    words = {"keeper": keeper, "place": _inner(keeper)}
    if shape.key != seed.key:
        yield SEED_KEY_CHANGED(words, name=name, key=list(shape.key), seed_key=list(seed.key))
    if not may_go_on(shape.made_by, seed.made_by):
        made_by, seed_made_by = shape.made_by or "no operator", seed.made_by or "no operator"
        yield SEED_OPERATOR_CHANGED(words, name=name, made_by=made_by, seed_made_by=seed_made_by)
    if shape.times and seed.times is None:
        yield SEED_TIME_UNKNOWN(words, name=name)
    elif times := _changed_times(shape, seed):
        yield SEED_TIME_CHANGED(words, name=name, said="; ".join(times), changes=times)
    changed = [c for c, kind in shape.columns.items() if seed.columns.get(c, kind) != kind]
    changed += [c for c in shape.required if c in seed.columns and c not in seed.required and c not in changed]
    if changed:
        yield SEED_TYPE_CHANGED(words, name=name, columns=changed)
    new = [c for c in shape.columns if c not in seed.columns]
    if required := [c for c in new if c in shape.required]:
        yield SEED_LACKS_REQUIRED_COLUMN(words, name=name, columns=required)
    elif new:
        yield SEED_LACKS_COLUMN(words, name=name, columns=new)


def _inner(keeper: str) -> str:
    """The keeper within a sentence."""
    return f"{keeper[0].lower()}{keeper[1:]}"
