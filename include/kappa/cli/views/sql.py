"""The commands that query tables: of one topology by a condition, of several by SQL."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from kappa.cli.options import Json, Topology, config, plain, say, table
from kappa.errors import UsageError, first_line
from kappa.offsets.notation import is_number

if TYPE_CHECKING:
    from kappa import serving

if TYPE_CHECKING:
    import pyarrow as pa

#: Maximum number of rows in a table on the screen, unless another limit is given.
_SCREENFUL = 100
#: What a field of CSV has in quotes only.
_TO_QUOTE = re.compile(r'[,"\r\n]')


class RowFormat(StrEnum):
    """The format of the rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(query)
    app.command()(sql)


def sql(
    query: Annotated[str, typer.Argument(help="One SELECT over tables named <topology>.<table>.")],
    format: Annotated[RowFormat, typer.Option("--format", help="Format of the rows.")] = RowFormat.TABLE,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, help=f"Write at most this many rows; by default {_SCREENFUL} in a table, and all in CSV and JSON."
        ),
    ] = None,
    epoch: Annotated[
        list[str] | None, typer.Option(metavar="TOPOLOGY=N", help="An epoch; by default the live one.")
    ] = None,
    seq: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPOLOGY=N", help="State after this slice; by default the last committed one."),
    ] = None,
    json: Json = False,
) -> None:
    """Query the tables and append outputs of all topologies: each as of one slice, by one read of the live pointers.

    Rows are written as they arrive, so that CSV and JSON of any size need little memory.
    """
    from kappa import serving

    if json and format is RowFormat.CSV:
        raise UsageError("--json and --format csv are two formats. Give one of them.")
    row_format = RowFormat.JSON if json else format
    answer = serving.answer(config(), query, epochs=_numbers("--epoch", epoch), seqs=_numbers("--seq", seq))
    if row_format is RowFormat.CSV:
        _write_csv(answer.batches.schema.names, _parts(answer.batches, limit))
    elif row_format is RowFormat.JSON:
        _write_json(answer, limit)
    else:
        _write_table(answer, _SCREENFUL if limit is None else limit)


def query(
    topology: Topology,
    name: Annotated[str, typer.Argument(help="A table or append output of the topology.")],
    where: Annotated[str | None, typer.Option(help="SQL condition, for example \"CustomerCardNo = 'C-17'\".")] = None,
    order_by: Annotated[str | None, typer.Option("--order-by", help="SQL order.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Show at most this many rows.")] = 20,
    epoch: Annotated[int | None, typer.Option(help="An epoch; by default the live one.")] = None,
    seq: Annotated[int | None, typer.Option(help="State after this slice; by default the last committed one.")] = None,
    json: Json = False,
) -> None:
    """Show rows of a served table, as of one slice, never of half a slice."""
    from kappa import serving
    from kappa.serving.sql import selection

    epochs, seqs = ({} if number is None else {topology: number} for number in (epoch, seq))
    try:
        answer = serving.answer(config(), selection(topology, name, where, order_by, limit), epochs=epochs, seqs=seqs)
        rows = [row for batch in answer.batches for row in _rows(batch)]
    except UsageError as error:
        if not (where or order_by):
            raise
        raise UsageError(f"--where {where!r} --order-by {order_by!r}: {error}") from error
    snapshot, names = answer.snapshots[topology], answer.batches.schema.names
    if json:
        about = {"epoch": snapshot.epoch, "seq": snapshot.seq, "position": plain(snapshot.position)}
        objects = [dict(zip(names, row, strict=True)) for row in rows]
        typer.echo(orjson.dumps({**about, "rows": objects}, option=orjson.OPT_INDENT_2).decode())
        return
    table([[_cell(value) for value in row] for row in rows], names)
    say(f"epoch {snapshot.epoch}, slice {snapshot.seq}: {len(rows)} rows shown")


def _numbers(option: str, words: list[str] | None) -> dict[str, int]:
    """Topology -> number.

    Raises:
        UsageError: a word is not ``topology=number``, or repeats a topology.
    """
    numbers: dict[str, int] = {}
    for word in words or ():
        topology, _, number = word.rpartition("=")
        if not topology or not is_number(number) or topology in numbers:
            raise UsageError(
                f"{option} {word} is not <topology>=<number>, each topology once. Write for example: {option} "
                "retail.loyalty=7"
            )
        numbers[topology] = int(number)
    return numbers


def _parts(batches: pa.RecordBatchReader, limit: int | None) -> Iterator[pa.RecordBatch]:
    """Batches up to this many rows; no more are read."""
    rest = limit
    while rest is None or rest > 0:
        batch = next(batches, None)
        if batch is None:
            return
        yield batch if rest is None else batch.slice(0, min(rest, batch.num_rows))
        rest = None if rest is None else rest - batch.num_rows


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    from kappa.wire.json.json_forms import json_forms

    return zip(*(json_forms(column) for column in batch.columns), strict=True)


def _write_csv(names: list[str], parts: Iterator[pa.RecordBatch]) -> None:
    sys.stdout.write(_csv_line(names))
    for batch in parts:
        for row in _rows(batch):
            sys.stdout.write(_csv_line([_cell(value) for value in row]))


def _csv_line(fields: Sequence[str | None]) -> str:
    """A row as RFC 4180 has it, but for its end: a text with a comma, a quote or the end of a line is in quotes, also a
    carriage return alone. So is an empty text, which a null is not, and a null without a neighbour, which would be an
    empty line.
    """
    if list(fields) == [None]:
        return '""\n'
    return ",".join("" if field is None else _csv_field(field) for field in fields) + "\n"


def _csv_field(text: str) -> str:
    return text if text and not _TO_QUOTE.search(text) else '"' + text.replace('"', '""') + '"'


def _cell(value: Any) -> str | None:
    """A value as one field: numbers and texts as they are, everything else as JSON."""
    return value if value is None or isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise UsageError(
            f"The result has a value without a form in text: {first_line(error)}. Make it text in the query: CAST(... "
            "AS VARCHAR)"
        ) from error


def _write_json(answer: serving.Answer, limit: int | None) -> None:
    names = answer.batches.schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"The result has several columns named {', '.join(twice)}. Give each a name of its own: AS.")
    snapshots = {
        topology: {"epoch": one.epoch, "seq": one.seq, "position": plain(one.position)}
        for topology, one in answer.snapshots.items()
    }
    sys.stdout.write(f'{{"snapshots": {orjson.dumps(snapshots).decode()},\n"rows": [')
    before = "\n"
    for batch in _parts(answer.batches, limit):
        for row in _rows(batch):
            sys.stdout.write(before + _json(dict(zip(names, row, strict=True))))
            before = ",\n"
    sys.stdout.write("\n]}\n")


def _write_table(answer: serving.Answer, limit: int) -> None:
    rows = [row for batch in _parts(answer.batches, limit + 1) for row in _rows(batch)]
    table([[_cell(value) for value in row] for row in rows[:limit]], answer.batches.schema.names)
    say(f"{name}: epoch {one.epoch}, slice {one.seq}" for name, one in answer.snapshots.items())
    shown = f"{min(len(rows), limit)} rows shown"
    say(f"{shown}, and there are more: use --limit, or --format csv for all" if len(rows) > limit else shown)
