"""Pages and queries of Airflow's web server, for users that Airflow knows.

An app of a plugin is mounted without a login. Each route of it depends on :func:`kappa_airflow.rights.access`, which
asks Airflow for the user of the request, and its auth manager for the user's rights. Built at the first request, so
that no other process of Airflow imports what a web server needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import conf

if TYPE_CHECKING:
    from fastapi import FastAPI

Message = MutableMapping[str, Any]


class Pages:
    """An ASGI application that is built at its first request."""

    def __init__(self) -> None:
        self._app: FastAPI | None = None

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Serve one request."""
        self._app = self._app or build()
        await self._app(scope, receive, send)


def build() -> FastAPI:
    """The application; its pages are below :func:`address`."""
    from kappa.config import Config
    from kappa_airflow.rights import access
    from kappa_web.app import build as built

    return built(Config.from_env(), access)


def site() -> str:
    """Where Airflow is, by its setting ``[api] base_url``; empty if it is not set."""
    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")


def address(*parts: str | int) -> str:
    """Path of a page on Airflow's host: below the path of ``base_url``, as Airflow's own pages are."""
    return "/".join((f"{urlsplit(site()).path}/kappa", *map(str, parts or ("",))))


def view() -> dict[str, Any]:
    """Where the pages are in Airflow's navigation. A frame of it shows them."""
    return {
        "name": "Kappa",
        "href": address(),
        "destination": "nav",
        "url_route": "kappa",
        "icon": address("static", "kappa.svg"),
        "icon_dark_mode": address("static", "kappa-dark.svg"),
        "nav_top_level": True,
    }
