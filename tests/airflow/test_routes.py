"""Who gets what of each route: the table of docs/pages.md, checked against Airflow's own roles. No Airflow runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient
from support.page_lake import CANDIDATE, TopologyStory, report
from support.web_site import Site

from kappa import clock
from kappa.topology import Source, Table, Topology

DOC = Path(__file__).parents[2] / "docs" / "pages.md"
NAME = "retail.cards"
#: Value of a masked column, in the table and in the samples of a report.
SECRET = "gold"
#: What a path's parameters stand for, and the rest of the request, where one is needed.
VALUES = {"name": NAME, "topology": NAME, "number": "2", "table": "rewards", "key": "C1", "file": "kappa.css"}
#: Routes whose answer holds no word of a topology.
OF_NO_TOPOLOGY = ("/openapi.json", "/static/{file}")


def table() -> dict[str, dict[str, str]]:
    """Route -> caller -> what it gets."""
    lines = DOC.read_text().partition("| route |")[2].splitlines()
    callers = [cell.strip() for cell in lines[0].strip("| ").split("|")]
    rows = {}
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        route, *cells = (cell.strip() for cell in line.strip("| ").split(" | "))
        rows[route.strip("`")] = dict(zip(callers, cells, strict=True))
    return rows


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The application as Airflow's plugin builds it, over a lake with a table, a candidate and a report."""
    declared = Topology(
        name=NAME,
        version="1",
        sources=[Source(topic="pos", schema="id STRING NOT NULL")],
        tables=[Table(name="rewards", key=["card"], schema="card STRING NOT NULL, Tier STRING", masked=["Tier"])],
        step=lambda _: {},
    )
    site = Site(tmp_path_factory.mktemp("routes"), declared)
    site.epoch.put({"card": "C1", "Tier": SECRET})
    story, now = TopologyStory(config=site.config, name=NAME, masked={"tables/rewards": ("Tier",)}), clock.now()
    story.begin(2, now, live=1, stages=CANDIDATE, report=report(NAME))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in site.config.to_env().items():
            patch.setenv(name, value)
        from kappa_airflow.pages import build

        yield build()


@pytest.fixture
def asking(app: Any, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """Header ``x-role`` stands for a login of that role."""
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    from kappa_airflow import rights

    real = rights.get_user

    async def user(request: Any, token: Any, bearer: Any) -> Any:
        role = request.headers.get("x-role")
        if role is None:
            return await real(request, token, bearer)
        return SimpleAuthManagerUser(username=f"the {role}", role=None if role == "no role" else role)

    monkeypatch.setattr(rights, "get_user", user)
    manager = SimpleAuthManager()
    monkeypatch.setattr(rights, "get_auth_manager", lambda: manager)
    return TestClient(app, follow_redirects=False)


def routes(app: Any) -> list[APIRoute]:
    api_routes = [route for route in app.routes if isinstance(route, APIRoute)]
    assert len(api_routes) == len(app.routes), "a route of another kind asks for no rights"
    return api_routes


def got(asking: TestClient, route: str, role: str) -> str:
    """What a caller gets, in the words of the table."""
    path = re.sub(r"\{(\w+)(:path)?\}", lambda name: VALUES.get(name[1], "nothing/here"), route)
    headers = {} if role == "no login" else {"x-role": role}
    answer = asking.get(path, headers={**headers, "accept": "application/json"})
    text = answer.text
    if answer.status_code == 401:
        browser = asking.get(path, headers={**headers, "accept": "text/html"})
        return "401, login" if browser.status_code == 303 else str(browser.status_code)
    if answer.status_code != 200:
        assert SECRET not in text
        return str(answer.status_code)
    if SECRET in text:
        return "all"
    if "ithheld" in text and NAME in text + path:
        return "without masked"
    return "all" if NAME in text or route in OF_NO_TOPOLOGY or path.endswith("/C1") else "empty"


def test_every_route_has_a_row_and_every_row_a_route(app: Any) -> None:
    assert {route.path for route in routes(app)} == set(table())
    assert all(route.methods == {"GET"} for route in routes(app)), "pages and queries change nothing"


@pytest.mark.parametrize("route", table())
def test_a_route_gives_each_caller_what_its_row_says(asking: TestClient, route: str) -> None:
    row = table()[route]
    assert {role: got(asking, route, role) for role in row} == row


@pytest.mark.parametrize(("role", "may"), [(None, False), ("viewer", False), ("user", True), ("op", True)])
def test_what_changes_something_is_a_dag_which_a_viewer_may_not_trigger(role: str | None, may: bool) -> None:
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    user = SimpleAuthManagerUser(username="ann", role=role)
    for method, entity in (("POST", DagAccessEntity.RUN), ("PUT", DagAccessEntity.HITL_DETAIL)):
        details = DagDetails(id=f"replay__{NAME}")
        is_allowed = SimpleAuthManager().is_authorized_dag(
            method=method,  # type: ignore[arg-type]
            access_entity=entity,
            details=details,
            user=user,
        )
        assert is_allowed is may, entity
