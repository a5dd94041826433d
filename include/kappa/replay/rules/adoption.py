"""Rules about the tables of another job: what an epoch that begins with their rows needs of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kappa.replay.adoption import Adoption, ExistingColumns, ExistingTable
from kappa.replay.facts import TopologyFacts
from kappa.replay.findings import Finding, refusals, refuses, warns
from kappa.replay.rules import log, start
from kappa.topology.ddl import columns_of, plain_type
from kappa.topology.shapes import Shape

_FROM_LOG = "or compute it from the log: `kappa start`."
#: A replay takes the tables of the adoption on record: it names no others.
_OTHER_BEGINNINGS = "replay --to-earliest without --seed, or --from-savepoint."

ADOPTION_MISSING = refuses(
    "adoption-missing",
    "The history of the live epoch did not begin with tables of another job: there are none to start from.",
    "Replay --to-earliest without --seed, or --from-savepoint.",
)
ADOPTED_VERSION_GONE = refuses(
    "adopted-version-gone",
    "Version {version} of {address}, which {place} begins with, cannot be read: {error}",
    "Bring its files back, or adopt a version that can be read: {name}=ADDRESS@VERSION.",
    way_out="Bring its files back, or adopt a version that can be read: NAME=ADDRESS@VERSION. A replay has other "
    f"beginnings: {_OTHER_BEGINNINGS}",
)
ADOPTION_LACKS_TABLE = refuses(
    "adoption-lacks-table",
    "Nothing is named that table {table!r} begins with.",
    "Name the Delta table that has its rows: --table {table}=ADDRESS.",
    way_out="Name the Delta table that has its rows: --table NAME=ADDRESS. A replay cannot name one: choose another "
    f"beginning, {_OTHER_BEGINNINGS}",
)
ADOPTION_LACKS_OUTPUT = warns(
    "adoption-lacks-output",
    "Nothing is named that output {output!r} begins with: it will hold no row of earlier records.",
    "No action needed if that is meant; otherwise --output {output}=ADDRESS.",
    way_out="No action needed if that is meant; otherwise --output NAME=ADDRESS. A replay cannot name one: choose "
    f"another beginning, {_OTHER_BEGINNINGS}",
)
ADOPTION_NAMES_UNKNOWN = refuses(
    "adoption-names-unknown",
    "The topology has no {place!r}: it has {places}.",
    "Correct the name in --table or --output.",
)
ADOPTED_LACKS_INTERNAL_COLUMNS = refuses(
    "adopted-lacks-internal-columns",
    "{address} has no columns {columns}, in which the operator of table {name!r} keeps its state.",
    "Compute the table from the log: `kappa start`. Or keep it without that operator, by a step of your own.",
)
ADOPTED_LACKS_REQUIRED_COLUMN = refuses(
    "adopted-lacks-required-column",
    "{address} has no columns {columns} of {name!r}, which may not be null.",
    f"Add them to the existing table, {_FROM_LOG}",
)
ADOPTED_LACKS_COLUMN = warns(
    "adopted-lacks-column",
    "{address} has no columns {columns} of {name!r}: they are null in its rows.",
    "No action needed if that is meant.",
)
ADOPTED_COLUMN_LEFT_OUT = warns(
    "adopted-column-left-out",
    "Columns {columns} of {address} are not columns of {name!r}: they are not taken over.",
    "No action needed if that is meant; otherwise add them to the schema in the topology.",
)
_DECLARE_ITS_TYPE = (
    "Declare the type that the table has; a newer version of the topology can add a column of another type. If Kappa "
    "has no such type, as timestamp_ntz, adopt a copy of the table with the declared one"
)
ADOPTED_TYPE_DIFFERS = refuses(
    "adopted-type-differs",
    "Column {column!r} of {address} is {existing}, and {name!r} declares it {declared}: values would be lost.",
    f"{_DECLARE_ITS_TYPE}: CAST({{column}} AS {{declared}}).",
    way_out=f"{_DECLARE_ITS_TYPE}.",
)
ADOPTED_KEY_PADDED = refuses(
    "adopted-key-padded",
    "Key columns {columns} of {address} are CHAR: Spark padded their values with spaces, so a key of a record in "
    "{name!r} would get a second row.",
    "Copy the table with `rtrim(COLUMN)` in their place, or with the values as the records have them, and adopt the "
    f"copy; {_FROM_LOG}",
)
ADOPTED_TABLE_TIMED = refuses(
    "adopted-table-timed",
    "Rows of table {name!r} come and go by event time, and {address} does not say how far event time had come: windows "
    "could open twice.",
    "Compute the table from the log: `kappa start`, or from a time on: `kappa replay --to-datetime TIME`.",
)
ADOPTED_JOB_KEEPS_STATE = refuses(
    "adopted-job-keeps-state",
    "The job keeps state in {folder}, such as open windows, records that wait for others, or keys that it has seen. "
    "The stream would go on after the records of that state, and what no table holds of them would be lost.",
    "Compute the tables from a log that has these records: `kappa start`. Or adopt at offsets before the oldest of "
    "them, if the tables hold nothing of later records: --from-file. If the tables hold the whole state, like totals "
    "in complete mode, --allow adopted-job-keeps-state.",
    may_be_allowed=True,
)
ADOPTED_WRITTEN_BY_OTHERS = refuses(
    "adopted-written-by-others",
    "Rows changed after the query had written them, or beside it: {others}. If these rows are made of records after "
    "the offsets of the query checkpoint, the records would count twice.",
    "Name the query checkpoint of the query that wrote last: --checkpoint. Or adopt the version before: "
    "--table NAME=ADDRESS@VERSION. If the rows are made of no record after the offsets, as after a correction by hand, "
    "--allow adopted-written-by-others.",
    may_be_allowed=True,
)
ADOPTED_VALUES_UNMASKED = refuses(
    "adopted-values-unmasked",
    "Topology {topology!r} has a sensitive source: its tables hold masked values, and those of {addresses} are not "
    "masked under its key.",
    "Compute the tables from the log: `kappa start`.",
)
ADOPTED_ROWS_LEFT_OUT = warns(
    "adopted-rows-left-out",
    "The history of the live epoch began with rows of {addresses}. With an empty seed, records that the log has no "
    "longer, or never had, are left out.",
    "No action needed if the log has them all; otherwise replay --seed from-tables, which begins with these rows.",
)

#: Digits that an integer needs as a decimal.
_INTEGERS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
#: How many digits of an integer each keeps.
_FLOATING = {"float": 7, "double": 15}


def adoption_findings(
    adoption: Adoption, topology: TopologyFacts, existing: Mapping[str, ExistingColumns], *, is_first: bool
) -> list[Finding]:
    """Objections to beginning with these tables.

    Args:
        adoption: the tables.
        topology: what begins with them.
        existing: the columns of the tables, by place.
        is_first: whether the request names the tables. A later replay takes those on record and can name no others: it
            is refused where the topology has another table since, and its ways out are other beginnings.
    """
    findings: list[Finding] = []
    places, shapes = adoption.places, topology.shapes
    for place, shape in shapes.items():
        if place not in places:
            findings += _unnamed(place)
        elif existing[place].error:
            table = places[place]
            findings.append(
                ADOPTED_VERSION_GONE(
                    {"error": existing[place].error, "name": table.name},
                    place=place,
                    address=table.address,
                    version=table.version,
                )
            )
        else:
            findings += _unlike(places[place], shape, existing[place])
    if topology.is_sensitive:
        addresses = ", ".join(table.address for table in adoption.tables)
        findings.append(ADOPTED_VALUES_UNMASKED(topology=topology.name, addresses=addresses))
    if not is_first:
        return [_in_a_replay(finding) for finding in findings]
    if adoption.state:
        findings.append(ADOPTED_JOB_KEEPS_STATE(folder=adoption.state))
    if adoption.others:
        findings.append(ADOPTED_WRITTEN_BY_OTHERS(others=adoption.others))
    unknown = [place for place in places if place not in shapes]
    return [*findings, *(ADOPTION_NAMES_UNKNOWN(place=place, places=sorted(shapes)) for place in unknown)]


def adoption_missing() -> list[Finding]:
    """A replay asks for the rows of an adoption, and there was none."""
    return [ADOPTION_MISSING()]


def adopted_rows_left_out(adoption: Adoption | None) -> list[Finding]:
    """A replay with an empty seed, of a topology whose history began with the tables of another job."""
    if adoption is None:
        return []
    return [ADOPTED_ROWS_LEFT_OUT(addresses=", ".join(table.described for table in adoption.tables))]


#: Ways out of findings about a start that `kappa adopt` has: it names no start of a replay.
_IN_AN_ADOPTION = {
    start.START_NAMES_UNKNOWN.code: "Leave it out of the file, or correct its name: --from-file.",
    start.START_LACKS_PARTITION.code: "Write a line for each to a file, such as {topic},{partitions[0]},OFFSET; if the "
    "job read nothing there, the offset with which the log begins: --from-file.",
    start.START_ABOVE_HIGH_WATERMARK.code: "The job read another log. Check the broker's address, "
    "KAPPA_BOOTSTRAP_SERVERS; if it is right, name the job's own offsets: --from-file.",
    start.START_ABOVE_STABLE_OFFSET.code: "Wait until its producer ends it, then adopt again: `kappa adopt`.",
    log.START_BELOW_LOW_WATERMARK.code: "If the job read nothing there, or these records are not needed, write "
    "{topic},{partition},{low} to a file with all offsets: --from-file. Otherwise compute what is left: `kappa start`.",
}


def in_an_adoption(finding: Finding) -> Finding:
    """A finding about a start, with a way out that `kappa adopt` has."""
    remedy = _IN_AN_ADOPTION.get(finding.code)
    return finding if remedy is None else replace(finding, remedy=remedy.format(**finding.numbers))


def _in_a_replay(finding: Finding) -> Finding:
    """The finding with a way out that a replay has: it cannot name tables, and an epoch is live."""
    if finding.code == ADOPTION_LACKS_OUTPUT.code:
        return replace(finding, remedy=f"No action needed if that is meant; otherwise {_OTHER_BEGINNINGS}")
    if finding.code == ADOPTED_VERSION_GONE.code:
        return replace(finding, remedy=f"Bring its files back, or choose another beginning: {_OTHER_BEGINNINGS}")
    return replace(finding, remedy=ADOPTION_MISSING.remedy) if refusals([finding]) else finding


def _unnamed(place: str) -> list[Finding]:
    kind, _, name = place.partition("/")
    return [ADOPTION_LACKS_TABLE(table=name) if kind == "tables" else ADOPTION_LACKS_OUTPUT(output=name)]


def _unlike(table: ExistingTable, shape: Shape, columns: ExistingColumns) -> Iterable[Finding]:
    words = {"address": table.address, "name": table.name}
    if shape.times:
        yield ADOPTED_TABLE_TIMED(words)
    # Delta and Spark do not distinguish names by case.
    existing = {column.lower(): kind for column, kind in columns.types.items()}
    absent = [column for column in shape.columns if column.lower() not in existing]
    internal = [column for column in absent if column in (shape.hidden or ())]
    needed = {*shape.required, *shape.key}
    required = [column for column in absent if column in needed and column not in internal]
    rest = [column for column in absent if column not in internal and column not in required]
    if internal:
        yield ADOPTED_LACKS_INTERNAL_COLUMNS(words, columns=internal)
    if required:
        yield ADOPTED_LACKS_REQUIRED_COLUMN(words, columns=required)
    if rest:
        yield ADOPTED_LACKS_COLUMN(words, columns=rest)
    names = {column.lower() for column in shape.columns}
    if extra := [column for column in columns.types if column.lower() not in names]:
        yield ADOPTED_COLUMN_LEFT_OUT(words, columns=extra)
    padded = {column.lower() for column in columns.padded}
    if keys := [column for column in shape.key if column.lower() in padded]:
        yield ADOPTED_KEY_PADDED(words, columns=keys)
    for column, declared in shape.columns.items():
        kind = existing.get(column.lower())
        if kind is not None and not may_become(kind, delta_type(declared)):
            yield ADOPTED_TYPE_DIFFERS(words | {"declared": declared}, column=column, existing=shown(kind))


def delta_type(declared: str) -> Any:
    """A type of Spark DDL as in a Delta schema, without nullability and metadata."""
    [column] = columns_of(f"value {declared}", "a column")
    return plain_type(column.delta)


def shown(kind: Any) -> str:
    """A type of a Delta schema for people."""
    if isinstance(kind, str):
        return kind
    fields = [f"{field['name']}: {shown(field['type'])}" for field in kind.get("fields", ())]
    parts = fields or [shown(kind[name]) for name in ("keyType", "valueType", "elementType") if name in kind]
    return f"{kind['type']}<{', '.join(parts)}>"


def may_become(existing: Any, declared: Any) -> bool:
    """Whether values of a type can be those of another: all of them, or those that fit, which the seed checks."""
    return existing == declared or (_digits(existing) is not None and _digits(declared) is not None)


def is_lossless(existing: Any, declared: Any) -> bool:
    """Whether each value of a type is one of the other too."""
    if existing == declared:
        return True
    before, after = _digits(existing), _digits(declared)
    if before is None or after is None or existing in _FLOATING:
        return (existing, declared) == ("float", "double")
    if declared in _FLOATING:
        return before[1] == 0 and before[0] <= _FLOATING[declared]
    return before[0] <= after[0] and before[1] <= after[1] and not (declared in _INTEGERS and existing not in _INTEGERS)


def _digits(kind: Any) -> tuple[int, int] | None:
    """The digits of a number before and after its point; None for what is not a number."""
    if not isinstance(kind, str):
        return None
    if kind in _INTEGERS:
        return _INTEGERS[kind], 0
    if kind in _FLOATING:
        return _FLOATING[kind], _FLOATING[kind]
    match = _DECIMAL.fullmatch(kind)
    return (int(match[1]) - int(match[2]), int(match[2])) if match else None
