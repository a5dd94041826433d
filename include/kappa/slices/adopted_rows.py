"""Rows of another job's tables, as a seed: checked, brought to the declared columns, and written into an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kappa.delta import tables
from kappa.delta.access import id_of, open_table
from kappa.delta.commits import commits_after
from kappa.errors import AdoptionError
from kappa.record.merge_on_read import read_files
from kappa.replay.adoption import ExistingTable
from kappa.replay.rules.adoption import delta_type, is_lossless
from kappa.slices.rows.contract import rules_of
from kappa.slices.run import EpochRun
from kappa.slices.seeded_rows import seed_output, seed_table
from kappa.topology import Append, Table
from kappa.topology.ddl import plain_type, quote, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Types of which Spark takes the largest BIGINT and 2^63 for each other.
_SATURATING = (("long", "double"), ("long", "float"), ("double", "long"), ("float", "long"))


def copy_tables(run: EpochRun, existing: Sequence[ExistingTable], *, is_first: bool) -> None:
    """Replace the rows of the epoch's tables and append outputs by those of existing tables. Idempotent.

    Args:
        existing: the versions whose rows are copied.
        is_first: whether the other job must have stood still since the plan: it could have read further in the log.

    Raises:
        AdoptionError: the job wrote on; the table was made anew; a key is null or has two rows; or a value does not fit
            its column.
    """
    members: dict[str, Table | Append] = {f"tables/{table.name}": table for table in run.topology.tables}
    members |= {f"outputs/{append.name}": append for append in run.topology.appends}
    for table in existing:
        if is_first:
            _check_still(run.paths.topology, run.paths.epoch, table)
        if table.place not in members:
            continue  # of an earlier version of the code
        _check_same(run.paths.topology, run.paths.epoch, table)
        member = members[table.place]
        rows = _named(read_files(run.engines.session, table.address, table.version), member)
        _check(table, member, rows)
        if isinstance(member, Table):
            seed_table(run, member, rows)
            continue
        # No lineage: the rows come from no record that this epoch read.
        seed_output(run, member, rows.drop(*(column.name for column in tables.LINEAGE)))


def _named(rows: DataFrame, member: Table | Append) -> DataFrame:
    """The rows with declared names: Delta and Spark do not distinguish names by case."""
    declared = {column.name.lower(): column.name for column in member.columns}
    return rows.toDF(*(declared.get(name.lower(), name) for name in rows.columns))


def _check_still(topology: str, epoch: int, table: ExistingTable) -> None:
    newest = open_table(table.address).version()
    commits = list(commits_after(table.address, table.newest))
    has_all = table.newest + sum(commit.version <= newest for commit in commits) == newest
    if has_all and not any(commit.changes_rows for commit in commits):  # merging files moves no rows
        return
    raise AdoptionError(
        f"{table.address} moved on: it is at version {newest}, and was at {table.newest} when the adoption was "
        "planned. The old job runs, and has read further in the log. Stop it, give this epoch up, and adopt the table "
        f"again: kappa abort {topology} {epoch} --execute",
        address=table.address,
        version=newest,
    )


def _check_same(topology: str, epoch: int, table: ExistingTable) -> None:
    error = table.replacement(id_of(open_table(table.address, table.version)))
    if error:
        raise AdoptionError(
            f"{table.address} is not the table that was adopted: {error}. Nothing was sent. Bring the adopted table "
            f"back, or give this epoch up: kappa abort {topology} {epoch} --execute",
            address=table.address,
            version=table.version,
        )


def _check(table: ExistingTable, member: Table | Append, rows: DataFrame) -> None:
    """Refuse rows that the epoch could not hold as they are: one look at all of them."""
    objections = list(_objections(table, member, rows))
    if objections:
        raise AdoptionError(
            f"{table.address} at version {table.version} cannot be {member.name!r}: {'; '.join(objections)}. Nothing "
            "was sent. Mend the table or the declaration, give this epoch up with `kappa abort`, and adopt it again.",
            address=table.address,
            version=table.version,
        )


def _objections(table: ExistingTable, member: Table | Append, rows: DataFrame) -> Iterator[str]:
    from pyspark.sql import functions as F

    key = tuple(member.key) if isinstance(member, Table) else ()
    types = {field["name"]: plain_type(field["type"]) for field in rows.schema.jsonValue()["fields"]}
    conditions = [(rule.problem, rule.condition) for rule in rules_of(member) if rule.column in types]
    for c in member.columns:
        if c.name in types and not is_lossless(types[c.name], delta_type(c.type)):
            name = quote(c.name)
            back = rows.schema[c.name].dataType.simpleString()
            same = f"try_cast(try_cast({name} AS {c.type}) AS {back}) = {name}"
            if (types[c.name], delta_type(c.type)) in _SATURATING:
                same = f"{same} AND {name} < {2.0**63!r}D"
            lossy = f"{name} IS NOT NULL AND NOT coalesce({same}, false)"
            conditions.append((f"have a value in column {c.name!r} that does not fit {c.type}", lossy))
    if conditions:
        counts = rows.agg(*(F.expr(f"count_if({sql})") for _, sql in conditions)).first()
        assert counts is not None
        for (problem, sql), count in zip(conditions, counts, strict=True):
            if count:
                yield f"{count:,} rows {problem} ({_shown(table, sql)})"
    if key:
        names = ", ".join(quoted(key))
        twice = rows.groupBy(*quoted(key)).count().where("count > 1").count()
        if twice:
            query = f"SELECT {names}, count(*) FROM {_source(table)} GROUP BY {names} HAVING count(*) > 1"
            yield f"{twice:,} keys ({', '.join(key)}) have several rows ({query})"


def _shown(table: ExistingTable, condition: str) -> str:
    """The statement that shows rows: no message has a value of them."""
    return f"SELECT * FROM {_source(table)} WHERE {condition}"


def _source(table: ExistingTable) -> str:
    return f"delta.{quote(table.address)} VERSION AS OF {table.version}"
