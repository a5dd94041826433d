"""SQL over tables of several topologies: the names in a query, and the query over the relations in their place.

The query engine may also write files and read any file of the host. Here it gets one query, made of checked words:
comments are gone, and every text and quoted name is written again.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kappa.delta.access import open_table
from kappa.delta.queries import execute, lost, quoted_name, relation
from kappa.errors import KappaError, LakeUnreachableError, UnknownTableError, UsageError, first_line
from kappa.names import EpochPaths
from kappa.record.ledger import Ledger
from kappa.record.merge_on_read import Contents, changes_over
from kappa.record.topology_records import TopologyRecords
from kappa.serving.hidden_columns import named_in, refusal

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

#: Functions that make rows of their arguments, as SQL's parser names them; every other one in FROM is refused.
_ROW_FUNCTIONS = ("GENERATE_SERIES", "RANGE", "UNNEST")
#: Functions by which other engines read files; this one does not have them.
_READS_FILES = re.compile(r"(READ|SCAN|PARQUET|DELTA|ICEBERG)_|GLOB$|.*_SCAN$")
#: Words that change how the engine reads the rest, or make it write: as SQL's parser names them.
_STRANGE = ("BLOCK_END", "BLOCK_START", "HINT", "INTO", "PARAMETER", "UNKNOWN")
_ADVICE = "Write one SELECT over names like retail.loyalty.rewards"


@dataclass(frozen=True, kw_only=True, order=True)
class Name:
    """A table or append output as a query names it.

    Attributes:
        topology: its topology.
        table: its own name.
    """

    topology: str
    table: str

    def __str__(self) -> str:
        return f"{self.topology}.{self.table}" if self.topology else self.table


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a query names a table: as a relation, or as the qualifier of a column.

    Attributes:
        start: first character.
        end: last character.
        is_relation: whether it stands for rows.
        has_alias: whether the query gives the rows another name.
    """

    name: Name
    start: int
    end: int
    is_relation: bool = False
    has_alias: bool = False


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A query that was checked.

    Attributes:
        query: the text.
        places: where it names tables, in the order of the text.
    """

    query: str
    places: tuple[_Place, ...]

    @property
    def names(self) -> tuple[Name, ...]:
        """The tables that it reads, each once."""
        return tuple(dict.fromkeys(place.name for place in self.places if place.is_relation))

    @cached_property
    def own(self) -> str:
        """A prefix that is in no name of the query."""
        number = 0
        while f"_kappa{number}" in self.query:
            number += 1
        return f"_kappa{number}"

    @property
    def is_limited(self) -> bool:
        """Whether a part of it takes only some of its rows."""
        return any(token.token_type.name in ("LIMIT", "OFFSET") for token in _tokens(self.query))

    def text(self, sources: Mapping[Name, str]) -> str:
        """The query over these relations: a name or a query in brackets for each table."""
        parts: list[str] = []
        places = {place.start: place for place in self.places}
        skip_to, last = 0, 0
        for token in _tokens(self.query):
            if token.start < skip_to:
                continue
            place = places.get(token.start)
            is_text = token.token_type.name == "STRING"
            if parts and (is_text or last == -1 or token.start > last + 1):
                parts.append(" ")
            if place is not None:
                parts.append(_written(place, sources))
                skip_to, last = place.end + 1, place.end
            elif is_text:
                parts.append("'" + token.text.replace("'", "''") + "'")
                last = -1
            else:
                is_name = token.token_type.name == "IDENTIFIER"
                parts.append(quoted_name(token.text) if is_name else self.query[token.start : token.end + 1])
                last = token.end
        return "".join(parts)


def statement(query: str) -> Statement:
    """A query after its check: it reads tables, and does nothing else.

    Raises:
        UsageError: it is not a single query, or reads something that is not a table of a topology.
    """
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    tokens = _tokens(query)
    words = [token.token_type.name for token in tokens]
    while words and words[-1] == "SEMICOLON":
        words.pop()
    if not words:
        raise UsageError(f"The query is empty. {_ADVICE}.")
    if "SEMICOLON" in words:
        raise UsageError(f"The query has several statements, and one is run. {_ADVICE}, and one at a time.")
    if words[0] not in ("SELECT", "WITH", "VALUES", "L_PAREN"):
        raise UsageError(
            f"{query.split(maxsplit=1)[0].upper()!r} does not begin a query; tables are only read here, and "
            f"changed by their topology. {_ADVICE}."
        )
    strange = next((token for token in tokens if token.token_type.name in _STRANGE), None)
    if strange is not None:
        raise UsageError(
            f"The query holds {query[strange.start : strange.end + 1]!r}, which is not part of a SELECT here. "
            f"{_ADVICE}."
        )
    try:
        trees = _trees(query)
    except (SqlglotError, RecursionError) as error:
        raise UsageError(f"The query is not SQL: {first_line(error).rstrip('.')}. {_ADVICE}.") from error
    tree = trees[0]
    effect = tree.find(exp.DML, exp.DDL, exp.Command, exp.Into, exp.Lock)
    if not isinstance(tree, exp.Query | exp.Values) or (effect is not None and not isinstance(effect, exp.Query)):
        what = (effect or tree).key.upper()
        raise UsageError(f"The query holds {what}, and tables are only read here. {_ADVICE}.")
    part = tree.find(exp.TableSample, exp.Version)
    if part is not None:
        raise UsageError(
            f"The query holds {part.sql().strip()!r}, which the engine would pass over: rows are all those of one "
            "slice. An earlier slice is read by: kappa sql --seq <topology>=<slice>"
        )
    return Statement(query=query, places=tuple(_places(tree)))


def selection(topology: str, table: str, where: str | None, order_by: str | None, limit: int) -> str:
    """The query of a table's rows by one condition and one order over its columns, and nothing beyond.

    Raises:
        UsageError: one of them is not such SQL, has something after it, or holds a query of its own.
    """
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    # A comment at the end of a text ends at the line break.
    parts = {"where": f"WHERE ({where}\n)" if where else "", "order": f"ORDER BY {order_by}\n" if order_by else ""}
    query = (
        f"SELECT * FROM {quoted_name(topology)}.{quoted_name(table)} {parts['where']} {parts['order']} LIMIT {limit}"
    )
    try:
        trees = _trees(query)
    except (SqlglotError, RecursionError):
        trees = []
    clauses = {"expressions", "from_", "limit", *(name for name, part in parts.items() if part)}
    if (
        len(trees) != 1
        or {name for name, value in trees[0].args.items() if value} != clauses
        or len(list(trees[0].find_all(exp.Query))) != 1
    ):
        raise UsageError(
            f"Condition {where!r} and order {order_by!r} are not SQL over the columns of one table, such as "
            '"CustomerCardNo = \'C-17\'" and "CustomerCardNo, TotalPoints DESC". Write more than that by kappa sql.'
        )
    return query


def _trees(query: str) -> list[Any]:
    """The statements of a text. What sqlglot warns of is refused by the caller, in words of its own."""
    import sqlglot

    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    return [tree for tree in sqlglot.parse(query) if tree is not None]


def run(checked: Statement, contents: Mapping[Name, Contents]) -> pa.RecordBatchReader:
    """The result of a query, batch by batch, over the rows of these tables; the first batch is read at once.

    Raises:
        UsageError: the engine refuses the query, or ends it at a later batch.
        LakeUnreachableError: files are not there any more.
        DamagedTableError: the newest version of a table names one that is not there, or is torn.
    """
    import pyarrow as pa

    relations: dict[str, DeltaTable] = {}
    sources: dict[Name, str] = {}
    for number, (name, parts) in enumerate(contents.items()):
        base, changes = f"{checked.own}_{number}", f"{checked.own}_{number}_changes"
        table = open_table(parts.path, version=parts.version)
        relations[base] = table
        over = changes_over(parts)
        if over is not None:
            relations[changes] = open_table(over.path, version=over.delta_version)
        sources[name] = relation(table, over, parts.hidden, base=base, changes=changes, is_limited=checked.is_limited)
    try:
        results = execute(checked.text(sources), relations)
        first = next(results, None)
    except Exception as error:  # the engine's own errors have no class of their own
        raise _ended(error, checked, contents, relations) from error
    schema = pa.schema([field.with_type(_plain(field.type)) for field in results.schema])

    def batches() -> Iterator[pa.RecordBatch]:
        batch = first
        while batch is not None:
            yield batch.cast(schema)
            try:
                batch = next(results, None)
            except Exception as error:
                raise _ended(error, checked, contents, relations) from error

    return pa.RecordBatchReader.from_batches(schema, batches())


def unknown(name: Name, lake: str, records: TopologyRecords) -> UnknownTableError:
    """The error of a name that is in no live epoch, with similar ones."""
    candidates = []
    for record in records:
        topology, live = record.topology, record.live
        row = (
            None if live is None else Ledger(EpochPaths(lake=lake, topology=topology, epoch=live).ledger).last_commit()
        )
        places = [] if row is None else [place.partition("/") for place in row.delta_versions]
        candidates += [f"{topology}.{table}" for kind, _, table in places if kind in ("tables", "outputs")]
    near = difflib.get_close_matches(str(name), candidates, n=3, cutoff=0.3)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return UnknownTableError(
        f"There is no table {str(name)!r}: tables and append outputs are named <topology>.<table>.{hint} What each "
        "topology keeps and emits is listed by: kappa topologies",
        name=str(name),
        near=near,
    )


def _ended(
    error: Exception, checked: Statement, contents: Mapping[Name, Contents], relations: Mapping[str, DeltaTable]
) -> KappaError:
    for name, parts in contents.items():
        column = named_in(error, parts.hidden)
        if column is not None:
            return refusal(column, name.topology, name.table)
    if (damage := lost(relations, error)) is not None:
        return damage
    if "Object Store error" in str(error):
        return LakeUnreachableError(
            f"Files of {', '.join(map(str, checked.names))} could not be read; maybe they were cleaned up since the "
            f"snapshot was taken: {str(error)[-300:]}. Run the query again: it takes a new one."
        )
    example = checked.names[0] if checked.names else Name(topology="retail.loyalty", table="rewards")
    why = first_line(error).rstrip(".")
    return UsageError(
        f"The query engine ended the query: {why}. See the columns of a table: kappa query "
        f"{example.topology} {example.table} --limit 1"
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type as every reader of Arrow knows it: the engine's views of texts are texts."""
    import pyarrow as pa

    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_map(kind):
        item = kind.item_field.with_type(_plain(kind.item_type))
        return pa.map_(kind.key_field.with_type(_plain(kind.key_type)), item)
    return kind


def _places(tree: Any) -> Iterator[_Place]:
    from sqlglot import exp

    subqueries = {cte.alias for cte in tree.find_all(exp.CTE)}
    for function in tree.find_all(exp.Func):
        called = _function(function)
        is_source = isinstance(function.parent, exp.Table | exp.Lateral)
        if _READS_FILES.match(called) or (is_source and called not in _ROW_FUNCTIONS):
            raise UsageError(
                f"The query calls {called.lower()}, and nothing but tables of topologies is read here. {_ADVICE}.",
                function=called,
            )
    whole: set[Name] = set()
    for node in tree.find_all(exp.Table):
        if isinstance(node.this, exp.Func):
            continue
        parts = node.parts
        name = _named([part.name for part in parts])
        if len(parts) == 1 and name.table in subqueries:
            continue
        alias = node.args.get("alias")
        has_alias = alias is not None and alias.this is not None
        if not has_alias:
            whole.add(name)
        yield _Place(
            name=name, start=parts[0].meta["start"], end=parts[-1].meta["end"], is_relation=True, has_alias=has_alias
        )
    for column in tree.find_all(exp.Column):
        parts, outer = list(column.parts), column
        while isinstance(outer.parent, exp.Dot) and outer.parent.this is outer:
            outer = outer.parent
            parts.append(outer.expression)
        for size in range(2, len(parts)):
            name = _named([part.name for part in parts[:size]])
            if name in whole:
                _check_meaning(column, name)
                yield _Place(name=name, start=parts[0].meta["start"], end=parts[size - 1].meta["end"])
                break


def _check_meaning(column: Any, name: Name) -> None:
    """Refuse a column of a table where its own name alone, which the engine gets, means other rows.

    Raises:
        UsageError: the nearest query with rows of that name has them of another table.
    """
    from sqlglot import exp

    query = column.find_ancestor(exp.Select)
    while query is not None:
        rows = (one for one in query.find_all(exp.Table, exp.DerivedTable) if one.find_ancestor(exp.Select) is query)
        near = [one for one in rows if one.alias_or_name == name.table]
        if any(one.alias or _named([part.name for part in getattr(one, "parts", ())]) != name for one in near):
            raise UsageError(
                f"{column.sql()} stands where rows of another table have the name {name.table!r} too, and the engine "
                f"knows no topologies. Give each table another name, and write that before its columns: FROM {name} AS "
                f"{name.table}_1"
            )
        if near:
            return
        query = query.find_ancestor(exp.Select)


def _function(function: Any) -> str:
    from sqlglot import exp

    return str(function.name if isinstance(function, exp.Anonymous) else function.sql_name()).upper()


def _named(parts: Sequence[str]) -> Name:
    return Name(topology=".".join(parts[:-1]), table=parts[-1])


def _written(place: _Place, sources: Mapping[Name, str]) -> str:
    own = quoted_name(place.name.table)
    if not place.is_relation:
        return own
    return sources[place.name] if place.has_alias else f"{sources[place.name]} AS {own}"


def _tokens(query: str) -> Any:
    from sqlglot.errors import SqlglotError
    from sqlglot.tokens import Tokenizer

    try:
        return Tokenizer().tokenize(query)
    except SqlglotError as error:
        raise UsageError(f"The query is not SQL: {first_line(error).rstrip('.')}. {_ADVICE}.") from error
