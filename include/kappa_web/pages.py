"""Pages for people."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from kappa_web.lake import Lake

if TYPE_CHECKING:
    from fastapi import APIRouter


def router(lake: Lake, access: Callable[..., Any]) -> APIRouter:
    """Routes of the pages."""
    from fastapi import APIRouter, Depends
    from fastapi.responses import HTMLResponse

    routes = APIRouter()
    given = Depends(access)

    @routes.get("/", response_class=HTMLResponse)
    def overview(caller: Any = given) -> str:
        names = [name for name in lake.topologies() if caller.may_read(name)]
        return "".join(f"<p>{escape(name)}</p>" for name in names)

    return routes
