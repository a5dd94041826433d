"""Interactive queries over HTTP: a key, a prefix, a range, windows by time; each answer shows one slice.

Kafka Streams' interactive queries use local stores and a routing layer that the application writes. Here tables are in
the lake, so each server answers for all topologies, whichever host runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from pydantic import Field

from kappa.delta import table_files
from kappa.driver.processes.process import status_or_problem
from kappa.errors import UsageError
from kappa.offsets.notation import parsed_time
from kappa.topology.shapes import Shape
from kappa.wire.encoding import to_json
from kappa.wire.json.json_forms import json_rows
from kappa_web import parameters, scans
from kappa_web.access import Access
from kappa_web.answers import MetadataAnswer, PageAnswer, ProblemAnswer, RowAnswer, TopologiesAnswer
from kappa_web.bounded import Bounded
from kappa_web.description import described
from kappa_web.lake import Lake, Staleness, View
from kappa_web.problems import Problem, check_readable

if TYPE_CHECKING:
    import pyarrow as pa

#: Size at which a page of a scan ends before it has all its rows.
PAGE_BYTES = 8 << 20
#: Largest table, in bytes of its files, whose scan may name neither keys nor a range.
SCAN_BYTES = 1 << 30
_JSON = "application/json"
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemAnswer, "description": what}
    for status, what in {
        400: "A parameter is malformed, unknown, given twice or unfit for the table; or a scan would read too much.",
        401: "No login.",
        403: "The topology may not be read.",
        404: "No such topology, epoch, slice, table or key.",
        409: "The slice existed, but its files were cleaned up. Begin again without epoch, seq, at or cursor.",
        503: "Not available now: nothing is live or committed, the lake does not answer, or too many queries run.",
    }.items()
}

#: For answers with rows: a copy that the caller has and that is still valid is not sent again.
_ROWS: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            name: {"description": what, "required": not name.startswith("Kappa-Stale"), "schema": {"type": kind}}
            for name, kind, what in (
                ("ETag", "string", "Epoch, slice and whether it is live, for If-None-Match."),
                ("Kappa-Epoch", "integer", "The epoch that was read."),
                ("Kappa-Seq", "integer", "Its slice."),
                (
                    "Kappa-Stale-Seconds",
                    "number",
                    "Seconds since the slice was committed; 0 if nothing is newer. Absent if that is not known.",
                ),
                ("Kappa-Stale-Offsets", "integer", "Offsets behind the end of the log; absent if that is not known."),
            )
        }
    },
    304: {"description": "The caller's copy shows this slice."},
}

# Each is bounded, so that the server accepts the longest request: kappa_web.server.REQUEST_BYTES.
_Tags = Annotated[
    str | None, Header(max_length=1_000, alias="If-None-Match", description="ETags of copies that the caller has.")
]
_Number = Annotated[int | None, Query(ge=0, le=2**53)]
_Name = Annotated[str, Path(max_length=200)]
_Text = Annotated[str | None, Query(max_length=1_000)]
_Time = Annotated[str | None, Query(max_length=100)]
_Keys = Annotated[list[Annotated[str, Field(max_length=1_000)]], Query(max_length=16)]


def router(lake: Lake, access: Callable[..., Access]) -> APIRouter:
    """Routes of the queries."""
    routes = APIRouter(responses=_PROBLEMS, dependencies=[Depends(parameters.check)])
    bounded = Bounded()
    dependency = Depends(access)

    @routes.get("/openapi.json", include_in_schema=False)
    async def description(request: Request, _: Any = dependency) -> dict[str, Any]:
        return described(request.app, request.scope.get("root_path", ""))

    @routes.get("/metadata", response_model=TopologiesAnswer, summary="Topologies")
    @bounded.route
    def topologies(caller: Any = dependency) -> Response:
        """The topologies on record that the caller may read."""
        records = [record for name, record in lake.records().items() if caller.may_read(name)]
        entries = [{"name": one.topology, "live_epoch": one.live, "epochs": one.readable_epochs} for one in records]
        return Response(to_json({"topologies": entries}), media_type=_JSON)

    @routes.get("/metadata/{topology}", response_model=MetadataAnswer, summary="Metadata of a topology")
    @bounded.route
    def metadata(topology: _Name, epoch: _Number = None, caller: Any = dependency) -> Response:
        """Epoch, slice, offsets, writer, and each table's key, columns, path and Delta version."""
        check_readable(caller, topology)
        view = lake.view(topology, epoch=epoch)
        stale = lake.staleness(view)
        return Response(to_json(_metadata(lake, view, stale)), media_type=_JSON)

    @routes.get("/tables/{topology}/{table}", response_model=PageAnswer, summary="Rows of a table", responses=_ROWS)
    @bounded.route
    def scan(
        topology: _Name,
        table: _Name,
        key: _Keys = [],  # noqa: B006  # FastAPI copies it
        prefix: _Text = None,
        start: Annotated[str | None, Query(alias="from", max_length=1_000)] = None,
        end: Annotated[str | None, Query(alias="to", max_length=1_000)] = None,
        window_from: _Time = None,
        window_to: _Time = None,
        limit: Annotated[int, Query(ge=1, le=scans.MOST_ROWS)] = scans.ROWS,
        cursor: Annotated[str | None, Query(max_length=30_000)] = None,
        epoch: _Number = None,
        seq: _Number = None,
        at: _Time = None,
        copies: _Tags = None,
        caller: Any = dependency,
    ) -> Response:
        """Rows in the order of their keys, page by page; all pages show one slice.

        `key` gives values of the leading columns of the key, in order; `prefix`, `from` (inclusive) and `to`
        (exclusive) apply to the next column; `window_from` (inclusive) and `window_to` (exclusive) apply to the start
        of a window. `epoch` and `seq` name a slice, `at` the last one that was committed by a time.
        """
        check_readable(caller, topology)
        selection = scans.Scan(
            key=tuple(key), prefix=prefix, start=start, end=end, window_from=window_from, window_to=window_to
        )
        if cursor is not None:
            if (epoch, seq, at) != (None, None, None):
                raise Problem(400, "malformed", "A cursor already names the slice: omit epoch, seq and at.")
            place = scans.Cursor.of(cursor)
            selection, epoch, seq = scans.resumed(selection, place), place.epoch, place.seq
        view = _view(lake, topology, epoch, seq, at)
        shape, withheld = _shape(view, table, caller)
        if scans.WINDOW in withheld and (window_from, window_to) != (None, None):
            raise Problem(
                403,
                "masked-window",
                f"Column {scans.WINDOW!r} of table {table!r} is masked: rows by their windows would tell its values. "
                "Only callers with the right to read masked values may request them.",
            )
        condition = scans.where(selection, shape)

        def read() -> tuple[bytes, str | None]:
            if selection.is_whole:
                _check_size(view, table)
            rows = view.snapshot.rows(table, condition, order_by=scans.order(shape), limit=limit + 1)
            return _page(rows, shape, withheld, limit, view, selection)

        return _answer(lake, copies, view, withheld, read, _page_body)

    @routes.get(
        "/tables/{topology}/{table}/{key:path}", response_model=RowAnswer, summary="The row of a key", responses=_ROWS
    )
    @bounded.route
    def lookup(
        request: Request,
        topology: _Name,
        table: _Name,
        key: Annotated[str, Path(max_length=10_000)],
        epoch: _Number = None,
        seq: _Number = None,
        at: _Time = None,
        copies: _Tags = None,
        caller: Any = dependency,
    ) -> Response:
        """One row. A key of several columns has their values one after the other, separated by `/`; a `/` within a
        value is `%2F`.
        """
        check_readable(caller, topology)
        view = _view(lake, topology, epoch, seq, at)
        shape, withheld = _shape(view, table, caller)
        values = _values(request, key)
        condition = scans.key_condition(values, shape)

        def read() -> bytes:
            rows = view.snapshot.row(table, condition)
            if not rows.num_rows:
                named = ", ".join(f"{name}={value!r}" for name, value in zip(shape.key, values, strict=True))
                raise Problem(
                    404,
                    "no-such-key",
                    f"Table {table!r} of epoch {view.snapshot.epoch} of {topology!r} has no row {named} after slice "
                    f"{view.snapshot.seq}.",
                )
            return b"".join(_rows(rows, shape, withheld))

        return _answer(lake, copies, view, withheld, read, _row_body)

    return routes


def _view(lake: Lake, topology: str, epoch: int | None, seq: int | None, at: str | None) -> View:
    if seq is not None and at is not None:
        raise Problem(400, "malformed", "seq and at both name a slice: give one of them.")
    if seq is not None and epoch is None:
        raise Problem(400, "malformed", "A slice belongs to an epoch: give epoch with seq.")
    try:
        time = None if at is None else parsed_time(at)
    except UsageError as error:
        raise Problem(400, "malformed", f"at: {error}") from error
    return lake.view(topology, epoch=epoch, seq=seq, at=time)


def _shape(view: View, table: str, caller: Access) -> tuple[Shape, tuple[str, ...]]:
    """The table's shape, and the columns whose values the caller does not get.

    Raises:
        UnknownTableError: the epoch has no table of that name.
        Problem: 403, a column of its key is masked and the caller may not read it; 404, it is an append output.
    """
    view.snapshot.place(table)
    shape = view.shapes.get(f"tables/{table}")
    if shape is None:
        raise Problem(
            404,
            "no-such-table",
            f"{table!r} is an append output, which has no key. Read it: kappa query {view.snapshot.topology} {table}",
        )
    masked = view.masked.get(f"tables/{table}", ())
    if not masked or caller.may_unmask(view.snapshot.topology):
        return shape, ()
    hidden = [name for name in shape.key if name in masked]
    if hidden:
        raise Problem(
            403,
            "masked-key",
            f"The key of table {table!r} has masked columns: {', '.join(hidden)}. Only callers with the right to read "
            "masked values may read its rows.",
        )
    return shape, tuple(name for name in shape.results if name in masked)


def _check_size(view: View, table: str) -> None:
    """Refuse to scan a table that is too large for it.

    Raises:
        Problem: 400.
    """
    path, version = view.snapshot.place(table)
    merged, seq = view.snapshot.merged(table), view.snapshot.seq
    size = table_files.size_bytes(path, version)
    if size > SCAN_BYTES:
        raise Problem(
            400,
            "too-large",
            f"Each page of this scan would read all of table {table!r}, {size / 1e9:,.1f} GB; at most "
            f"{SCAN_BYTES / 1e9:,.1f} GB may be read. Name values of the key, a prefix or a range. To read all of it, "
            f"let Spark read Delta version {version} of its path, which has the rows up to slice {merged}"
            f"{'' if merged == seq else f' and not the changes after it, up to slice {seq}'}: "
            f"spark.read.option('versionAsOf', {version}).format('delta').load({path!r})",
        )


def _values(request: Request, key: str) -> tuple[str, ...]:
    """Values of a key's columns, separated before they are decoded: a decoded ``%2F`` is not a separator."""
    path: str = request.scope["path"]
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    before = path[: len(path) - len(key)].count("/")
    try:
        parts = raw.decode("ascii").split("/", before)[before].split("/")
        return tuple(unquote(part, errors="strict") for part in parts)
    except (UnicodeDecodeError, IndexError) as error:
        raise Problem(400, "malformed", "The key is not text in UTF-8, encoded as in a URL.") from error


def _rows(rows: pa.Table, shape: Shape, withheld: tuple[str, ...]) -> list[bytes]:
    """Rows as JSON, in the columns of the table."""
    names = list(shape.results)
    return [to_json({**row, **dict.fromkeys(withheld)}) for row in json_rows(rows, names)]


def _page(
    table: pa.Table, shape: Shape, withheld: tuple[str, ...], limit: int, view: View, scan: scans.Scan
) -> tuple[bytes, str | None]:
    """The rows of a page as a JSON array, and the cursor of the next one."""
    import pyarrow as pa

    rows: list[bytes] = []
    size = 0
    for row in _rows(table.slice(0, limit), shape, withheld):
        if rows and size + len(row) > PAGE_BYTES:
            break
        rows.append(row)
        size += len(row)
    body = b"[" + b",".join(rows) + b"]"
    if len(rows) == table.num_rows:
        return body, None
    last = table.slice(len(rows) - 1, 1).select(list(shape.key))
    numbers = {"TIMESTAMP": (pa.timestamp("us", "UTC"), pa.int64()), "DATE": (pa.date32(), pa.int32())}
    for place, name in enumerate(shape.key):
        declared = shape.columns[name]
        if declared in numbers:
            kind, number = numbers[declared]
            last = last.set_column(place, name, last[name].cast(kind).cast(number))
    (values,) = json_rows(last, shape.key)
    after = tuple(scans.mark(value) for value in values.values())
    snapshot = view.snapshot
    return body, scans.Cursor(epoch=snapshot.epoch, seq=snapshot.seq, scan=scan.digest, after=after).text()


def _answer(
    lake: Lake,
    copies: str | None,
    view: View,
    withheld: tuple[str, ...],
    read: Callable[[], Any],
    body: Callable[[bytes, bytes, Any], bytes],
) -> Response:
    """An answer with the headers of its state; without a body if the caller already has it."""
    stale = lake.staleness(view)
    snapshot = view.snapshot
    what = ("" if view.is_live else ".not-live") + (".withheld" if withheld else "")
    headers = {
        "ETag": f'"{snapshot.epoch}.{snapshot.seq}{what}"',
        "Cache-Control": "private, no-cache",
        "Vary": "Authorization, Cookie",
        "Kappa-Epoch": str(snapshot.epoch),
        "Kappa-Seq": str(snapshot.seq),
    }
    if stale.seconds is not None:
        headers["Kappa-Stale-Seconds"] = str(stale.seconds)
    if stale.offsets is not None:
        headers["Kappa-Stale-Offsets"] = str(stale.offsets)
    tags = {tag.strip().removeprefix("W/") for tag in (copies or "").split(",")}
    if headers["ETag"] in tags:
        return Response(status_code=304, headers=headers)
    result = read()
    content = body(to_json(_snapshot(view, stale)), to_json(list(withheld)), result)
    return Response(content, headers=headers, media_type=_JSON)


def _row_body(snapshot: bytes, withheld: bytes, row: bytes) -> bytes:
    return b'{"snapshot":%b,"row":%b,"withheld":%b}' % (snapshot, row, withheld)


def _page_body(snapshot: bytes, withheld: bytes, page: tuple[bytes, str | None]) -> bytes:
    rows, cursor = page
    return b'{"snapshot":%b,"rows":%b,"withheld":%b,"next":%b}' % (snapshot, rows, withheld, to_json(cursor))


def _snapshot(view: View, stale: Staleness) -> dict[str, Any]:
    return {
        "epoch": view.snapshot.epoch,
        "seq": view.snapshot.seq,
        "is_live": view.is_live,
        "position": view.snapshot.position.as_dict(),
        "committed_at": view.committed_at.isoformat(),
        "stale": {"offsets": stale.offsets, "seconds": stale.seconds},
    }


def _metadata(lake: Lake, view: View, stale: Staleness) -> Mapping[str, Any]:
    snapshot = view.snapshot
    epoch = lake.record(snapshot.topology).epoch(snapshot.epoch)
    driver = status_or_problem(lake.config, snapshot.topology, snapshot.epoch)
    return {
        "topology": snapshot.topology,
        "version": epoch.version,
        "code": epoch.code,
        "snapshot": _snapshot(view, stale),
        "writer": {
            "state": driver.state,
            "host": driver.host,
            "pid": driver.pid,
            "heartbeat_at": driver.heartbeat_at and driver.heartbeat_at.isoformat(),
            "message": driver.message,
        },
        "tables": {
            place.removeprefix("tables/"): _table(view, place, shape)
            for place, shape in view.shapes.items()
            if place.startswith("tables/")
        },
        "topics": {name: epoch.topic(name) for name in epoch.sends_to},
    }


def _table(view: View, place: str, shape: Shape) -> Mapping[str, Any]:
    name = place.removeprefix("tables/")
    path, version = view.snapshot.place(name)
    masked = view.masked.get(place, ())
    return {
        "key": list(shape.key),
        "columns": {
            column: {"type": kind, "required": column in shape.required, "masked": column in masked}
            for column, kind in shape.results.items()
        },
        "path": path,
        "delta_version": version,
        "merged_to": view.snapshot.merged(name),
    }
