"""The application, from its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kappa_web import problems

if TYPE_CHECKING:
    from fastapi import FastAPI

    from kappa.config import Config


def build(config: Config, access: Callable[..., Any]) -> FastAPI:
    """Pages and queries of one lake.

    Args:
        config: where the lake and the broker are.
        access: FastAPI dependency that gives the :class:`kappa_web.access.Access` of the caller, or raises 401. Each
            route depends on it.
    """
    from fastapi import Depends, FastAPI

    from kappa_web import pages, queries
    from kappa_web.lake import Lake

    app = FastAPI(
        title="Kappa",
        description="Rows of live tables, at one slice, by key, prefix, range and time.",
        docs_url=None,  # that page would load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(access)],
    )
    problems.register(app)
    lake = Lake(config)
    app.include_router(queries.router(lake, access))
    app.include_router(pages.router(lake, access), include_in_schema=False)
    return app
