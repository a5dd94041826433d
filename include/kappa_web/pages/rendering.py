"""Pages from templates, with the headers that each of them carries."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kappa import clock
from kappa_web.pages import words

if TYPE_CHECKING:
    from jinja2 import Environment
    from starlette.requests import Request
    from starlette.responses import Response

_HERE = Path(__file__).resolve().parents[1]
#: Files that pages load, and their content types.
STATIC = {
    "kappa.css": "text/css; charset=utf-8",
    "kappa.js": "text/javascript; charset=utf-8",
    "kappa.svg": "image/svg+xml",
    "kappa-dark.svg": "image/svg+xml",
}
#: A page loads only these files, and appears only in frames of its own server.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@cache
def static(name: str) -> tuple[bytes, str]:
    """A file that pages load, and a word that changes with its content."""
    content = (_HERE / "static" / name).read_bytes()
    return content, hashlib.sha256(content).hexdigest()[:12]


def response(
    request: Request, template: str, values: Mapping[str, Any], *, caller: Any = None, status: int = 200
) -> Response:
    """A page, or only the part that changes, if the query has ``part``."""
    from starlette.responses import HTMLResponse

    base = str(request.scope.get("root_path", "")).rstrip("/")
    # The server that this application is mounted on: Airflow's own pages are there.
    root = str(request.scope.get("app_root_path", "")).rstrip("/")
    page = _environment().get_template(template)
    body = page.render(
        **values,
        base=base,
        root=root,
        caller=caller,
        has_forms=bool(caller is not None and caller.has_forms),
        now=clock.now(),
        is_part="part" in request.query_params,
        version={name: static(name)[1] for name in STATIC},
    )
    return HTMLResponse(body, status, headers=HEADERS)


def page(template: str, values: Mapping[str, Any]) -> str:
    """A page that is not part of a server: one file, with its style in it."""
    return _environment().get_template(template).render(**values, style=static("kappa.css")[0].decode()) + "\n"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count=words.count,
        short=words.short,
        lasting=words.lasting,
        stamp=words.stamp,
        text=words.text,
        segment=lambda value: quote(str(value), safe=""),
    )
    environment.globals["ago"] = words.ago
    return environment
