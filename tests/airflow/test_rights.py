"""Who may read the pages inside Airflow: its user, and its auth manager's word on that user. No Airflow runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from support.page_lake import CANDIDATE, TopologyStory, report, steady

from kappa import clock
from kappa.config import Config

NAME = "retail.loyalty"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """The plugin's application, mounted as Airflow mounts it; header ``x-role`` stands for a login of that role."""
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    from kappa_airflow import rights
    from kappa_airflow.pages import Pages

    real = rights.get_user

    async def user(request: Any, token: Any, bearer: Any) -> Any:
        role = request.headers.get("x-role")
        if role is None:
            return await real(request, token, bearer)
        return SimpleAuthManagerUser(username=f"the {role}", role=None if role == "nobody" else role)

    monkeypatch.setattr(rights, "get_user", user)
    manager = SimpleAuthManager()
    monkeypatch.setattr(rights, "get_auth_manager", lambda: manager)
    for name, value in (("HOME", tmp_path), ("LAKE", tmp_path / "lake"), ("BOOTSTRAP_SERVERS", "127.0.0.1:1")):
        monkeypatch.setenv(f"KAPPA_{name}", str(value))
    config = Config.from_env()
    Path(config.lake).mkdir()
    story, now = TopologyStory(config=config, name=NAME, masked={"tables/rewards": ("Tier",)}), clock.now()
    story.begin(1, now)
    story.move(1, None, 0, now)
    story.ledger(1, steady(now, 3))
    story.begin(2, now, live=1, stages=CANDIDATE, report=report())
    return TestClient(Starlette(routes=[Mount("/kappa", app=Pages())]), follow_redirects=False)


@pytest.mark.parametrize(
    ("role", "reads", "unmasks"),
    [
        ("viewer", True, False),
        ("user", True, False),
        ("op", True, True),
        ("admin", True, True),
        ("nobody", False, False),
    ],
)
def test_a_role_of_airflow_reads_what_its_rights_on_dags_and_connections_allow(
    site: TestClient, role: str, reads: bool, unmasks: bool
) -> None:
    answer = site.get(f"/kappa/topologies/{NAME}/2", headers={"x-role": role})
    assert answer.status_code == (200 if reads else 403)
    assert ("gold" in answer.text) is unmasks
    assert ("Values of masked columns are withheld." in answer.text) is (reads and not unmasks)
    overview = site.get("/kappa/", headers={"x-role": role})
    assert overview.status_code == 200
    history = site.get("/kappa/history", headers={"x-role": role})
    assert (NAME in history.text) is reads


def test_without_a_login_a_browser_goes_to_airflows_and_a_program_gets_401(site: TestClient) -> None:
    url = f"/kappa/topologies/{NAME}/2?x=1"
    answer = site.get(url, headers={"accept": "text/html"})
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/api/v2/auth/login?next=%2Fkappa%2Ftopologies%2F{NAME}%2F2%3Fx%3D1"
    for accept in ("application/json", "*/*"):
        assert site.get(url, headers={"accept": accept}).status_code == 401
    for path in ("/kappa/", "/kappa/static/kappa.css", f"/kappa/tables/{NAME}/rewards/x"):
        assert site.get(path).status_code == 401, path


def test_buttons_lead_to_the_dags_on_the_same_server(site: TestClient) -> None:
    html = site.get(f"/kappa/topologies/{NAME}", headers={"x-role": "viewer"}).text
    assert f'href="/dags/cutover__{NAME}" target="_top"' in html and "--execute" not in html


def test_behind_a_path_of_its_host_every_address_has_that_path(
    site: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kappa.topology.registry import Declared
    from kappa_airflow.forms import replay_form
    from kappa_airflow.pages import Pages, view
    from kappa_airflow.replays.reports import report_path

    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://data.example.com/airflow")
    airflow = FastAPI(root_path="/airflow")  # as Airflow derives it from that setting
    airflow.mount("/kappa", Pages())
    behind = TestClient(airflow, follow_redirects=False, headers={"x-role": "admin"})
    form = replay_form([Declared(name=NAME, version="2", file=Path("loyalty.py"))])["start"].schema["description_md"]
    begin = [value for key, value in view().items() if key in ("href", "icon", "icon_dark_mode")]
    begin += [report_path(NAME, 2), *re.findall(r"\((/[^)]+)\)", form)]
    assert len(begin) == 5
    seen: set[str] = set()
    while begin:
        address = begin.pop()
        seen.add(address)
        answer = behind.get(address)
        assert answer.status_code == 200, address
        links = set(re.findall(r'(?:href|src)="(/[^"#]*)', answer.text)) - seen
        assert all(link.startswith(("/airflow/kappa/", "/airflow/dags/")) for link in links), links
        begin += [link for link in links if link.startswith("/airflow/kappa/")]
        seen |= links
    assert f"/airflow/dags/cutover__{NAME}" in seen and f"/airflow/kappa/topologies/{NAME}/certificate" in seen
    assert behind.get("/airflow/kappa/openapi.json").json()["servers"] == [{"url": "/airflow/kappa"}]
    stranger = TestClient(airflow, follow_redirects=False).get(report_path(NAME, 2), headers={"accept": "text/html"})
    assert stranger.headers["location"].startswith("/airflow/api/v2/auth/login?next=%2Fairflow%2Fkappa%2Ftopologies")


def test_the_plugin_puts_the_pages_into_airflows_navigation() -> None:
    from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse

    from kappa_airflow.plugin import KappaPlugin

    (view,) = KappaPlugin.external_views
    response = ExternalViewResponse.model_validate(view)
    (app,) = KappaPlugin.fastapi_apps
    assert response.destination == "nav" and response.nav_top_level and response.href == f"{app['url_prefix']}/"
