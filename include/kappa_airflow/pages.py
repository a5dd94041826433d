"""Pages of Airflow's web server: what is live of a topology, its epochs, and the report of each verification.

They need a login, and the right to read the topology's replay DAG. Built at the first request, so that no other process
of Airflow imports what a web server needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from html import escape
from typing import TYPE_CHECKING, Any

from kappa_airflow.forms import PAGES

if TYPE_CHECKING:
    from fastapi import FastAPI

    from kappa.config import Config

Message = MutableMapping[str, Any]


class Pages:
    """An ASGI application that is built when it is first asked."""

    def __init__(self) -> None:
        self._app: FastAPI | None = None

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Serve one request."""
        self._app = self._app or build()
        await self._app(scope, receive, send)


def build() -> FastAPI:
    """The application; its addresses are below :data:`kappa_airflow.forms.PAGES`."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import Depends, FastAPI, HTTPException
    from fastapi.responses import HTMLResponse

    from kappa import control
    from kappa.config import Config
    from kappa.errors import KappaError
    from kappa.verify.report import html

    app = FastAPI(title="Kappa", docs_url=None, redoc_url=None, openapi_url=None)

    def check(topology: str, user: Any) -> None:
        details = DagDetails(id=f"replay__{topology}")
        if not get_auth_manager().is_authorized_dag(method="GET", details=details, user=user):
            raise HTTPException(403, f"You may not read DAG {details.id}.")

    def answered(page: Callable[[], str]) -> HTMLResponse:
        try:
            return HTMLResponse(page())
        except KappaError as error:
            raise HTTPException(404, str(error)) from error

    user = Depends(get_user)

    @app.get("/topologies/{topology}", response_class=HTMLResponse)
    def topology_page(topology: str, user: Any = user) -> HTMLResponse:
        check(topology, user)
        return answered(lambda: _topology(Config.from_env(), topology))

    @app.get("/topologies/{topology}/{epoch}", response_class=HTMLResponse)
    def report_page(topology: str, epoch: int, user: Any = user) -> HTMLResponse:
        check(topology, user)
        return answered(lambda: html(control.diff(Config.from_env(), topology, epoch)))

    return app


def _topology(config: Config, topology: str) -> str:
    from kappa import control
    from kappa.lake.epochs import Epochs
    from kappa.verify.report import page

    record = Epochs(config.lake).record(topology)
    status = control.status(config, topology)
    live = f"Live is epoch {status.live}." if status.live is not None else "No epoch is live yet."
    rows = [_row(topology, record.epoch(progress.epoch), progress) for progress in reversed(status.epochs)]
    head = ["epoch", "stage", "version", "code", "verdict", "planned", "now"]
    parts = [
        f"<p>{escape(live)}</p>",
        '<div class="wide"><table><thead><tr>'
        + "".join(f'<th scope="col">{name}</th>' for name in head)
        + "</tr></thead><tbody>",
        *rows,
        "</tbody></table></div>",
        "<p>DAGs: "
        f"{', '.join(_dag(verb, topology) for verb in ('replay', 'cutover', 'rollback', 'abort', 'stream'))}</p>",
    ]
    return page(topology, parts)


def _row(topology: str, epoch: Any, progress: Any) -> str:
    verdict = escape(progress.verdict or "")
    if verdict:
        verdict = f'<a href="{PAGES}/{escape(topology)}/{epoch.epoch}">{verdict}</a>'
    approved = f"; approved by {epoch.approved.actor}" if epoch.approved is not None else ""
    short = (
        escape(f"{epoch.epoch}{' (live)' if progress.is_live else ''}"),
        escape(f"{epoch.stage}"),
        escape(epoch.version),
        f"<code>{escape(epoch.code[:12])}</code>",
        verdict,
    )
    long = (
        escape(f"{epoch.planned.at:%Y-%m-%d %H:%M} UTC by {epoch.planned.actor}: {epoch.planned.reason}"),
        escape((progress.rejected or progress.driver.message or progress.driver.state) + approved),
    )
    cells = [*(f'<td class="k">{cell}</td>' for cell in short), *(f"<td>{cell}</td>" for cell in long)]
    return f"<tr>{''.join(cells)}</tr>"


def _dag(verb: str, topology: str) -> str:
    name = escape(f"{verb}__{topology}")
    return f'<a href="/dags/{name}">{name}</a>'
