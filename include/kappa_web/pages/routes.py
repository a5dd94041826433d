"""Addresses of the pages, and their errors, which are pages too."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from kappa import clock
from kappa_web.access import LoginNeeded
from kappa_web.bounded import Bounded
from kappa_web.lake import Lake
from kappa_web.pages import epoch, history, overview, proof, rendering, topology
from kappa_web.pages.board import Board
from kappa_web.problems import RETRY_SECONDS, Problem, answered, check_readable, problem_of

#: Problem of an address that is neither a page's nor a query's.
_NO_PAGE = "no-such-page"
#: Events on one page of the history.
EVENTS = 100
_TITLES = {
    400: "This address is malformed",
    401: "Log in to see this",
    403: "You may not read this",
    404: "Not found",
    503: "Not available now",
}
#: What a caller can do about it.
_WAYS_OUT = {
    403: "Ask an administrator of Airflow for the right to read the topology's DAGs.",
    503: "This page tries again automatically every few seconds.",
}


def router(lake: Lake, access: Callable[..., Any]) -> APIRouter:
    """Routes of the pages."""
    routes, board, dependency, bounded = _router(), Board(lake), Depends(access), Bounded()

    def readable(caller: Any, name: str) -> Any:
        check_readable(caller, name)
        return lake.record(name)

    @routes.get("/")
    @bounded.route
    def all_topologies(request: Request, caller: Any = dependency) -> Response:
        values = overview.page(board, caller, clock.now())
        return rendering.response(request, "overview.html", values, caller=caller)

    @routes.get("/history")
    @bounded.route
    def whole_history(request: Request, before: int | None = None, caller: Any = dependency) -> Response:
        records = [record for name, record in lake.records().items() if caller.may_read(name)]
        events = lake.history(records, EVENTS, before=before)
        return rendering.response(request, "history.html", _history(events, before, None), caller=caller)

    @routes.get("/topologies/{name}")
    @bounded.route
    def one_topology(request: Request, name: str, caller: Any = dependency) -> Response:
        values = topology.page(board, readable(caller, name), clock.now(), caller)
        return rendering.response(request, "topology.html", values, caller=caller)

    @routes.get("/topologies/{name}/certificate")
    @bounded.route
    def certificate(request: Request, name: str, caller: Any = dependency) -> Response:
        record = readable(caller, name)
        values: dict[str, Any] = {"record": record, "certificate": None}
        if record.live is not None:
            values |= proof.page(board.certificate(record))
        return rendering.response(request, "certificate.html", values, caller=caller)

    @routes.get("/topologies/{name}/history")
    @bounded.route
    def history_of_one(request: Request, name: str, before: int | None = None, caller: Any = dependency) -> Response:
        values = _history(lake.history([readable(caller, name)], EVENTS, before=before), before, name)
        return rendering.response(request, "history.html", values, caller=caller)

    @routes.get("/topologies/{name}/{number}")
    @bounded.route
    def one_epoch(request: Request, name: str, number: int, caller: Any = dependency) -> Response:
        record = readable(caller, name)
        if record.epoch(number).rolled_up:
            record = lake.epochs.whole_record(name)
        values = epoch.page(board, record, number, caller)
        return rendering.response(request, "epoch.html", values, caller=caller)

    @routes.get("/static/{file}")
    async def static(file: str, caller: Any = dependency) -> Response:
        if file not in rendering.STATIC:
            raise HTTPException(404, f"There is no file {file!r}.")
        content, _ = rendering.static(file)
        headers = {"Cache-Control": "private, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
        return Response(content, media_type=rendering.STATIC[file], headers=headers)

    @routes.get("/{path:path}")
    async def nothing(path: str, caller: Any = dependency) -> Response:
        raise Problem(404, _NO_PAGE, f"There is no page {path}.")

    return routes


def _history(events: list[Any], before: int | None, name: str | None) -> dict[str, Any]:
    shown = history.event_lines(events, EVENTS, before=before)
    return {
        "name": name,
        "events": shown,
        "before": before,
        "older": shown[-1].n if shown and events[0].n < shown[-1].n else None,
    }


def _router() -> APIRouter:
    """A router whose errors are pages."""

    errors = answered()

    class Page(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handled(request: Request) -> Response:
                try:
                    return await handle(request)
                except LoginNeeded as error:
                    return _to_login(request, error)
                except errors as error:
                    problem = problem_of(error)
                    if problem.code == _NO_PAGE and not _is_browser(request):
                        raise
                    return _failed(request, problem)

            return handled

    return APIRouter(route_class=Page)


def _to_login(request: Request, error: LoginNeeded) -> Response:
    """A browser that opens a page is sent to the login; a request for a part of a page gets the error."""
    if _is_browser(request) and "part" not in request.query_params:
        return RedirectResponse(error.url, HTTPStatus.SEE_OTHER, headers={"Cache-Control": "no-store"})
    return _failed(request, Problem(401, "login-needed", str(error.detail)))


def _is_browser(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _failed(request: Request, problem: Problem) -> Response:
    values = {
        "status": problem.status,
        "title": _TITLES.get(problem.status, HTTPStatus(problem.status).phrase),
        "detail": problem.detail,
        "way_out": _WAYS_OUT.get(problem.status, ""),
    }
    response = rendering.response(request, "error.html", values, status=problem.status)
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response
