"""Airflow's plugin: by the entry point of an installed package, by the file of a plugins folder, and by both."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.dag_files import REPOSITORY

# What each of Airflow's two managers of plugins loads: that of its servers, and that of its tasks.
_PLUGINS = """
import json, sys
sys.path = [sys.argv[1], *sys.path]
from airflow import plugins_manager as of_servers
from airflow.sdk import plugins_manager as of_tasks
of_servers.integrate_macros_plugins()
from airflow.sdk.execution_time import macros
print(json.dumps(dict(
    servers=sorted(plugin.name for plugin in of_servers._get_plugins()[0]),
    tasks=sorted(plugin.name for plugin in of_tasks._get_plugins()[0]),
    errors={**of_servers.get_import_errors(), **of_tasks._get_plugins()[1]},
    apps=[app["url_prefix"] for app in of_servers.get_fastapi_plugins()[0]],
    views=[view["url_route"] for view in of_servers._get_ui_plugins()[0]],
    links=[type(link).__name__ for link in of_servers.get_operator_extra_links()],
    timetables=list(of_servers.get_timetables_plugins()),
    macros=sorted(name for name in vars(macros.kappa) if name.startswith("live")),
)))
"""
_OTHER = "from airflow.plugins_manager import AirflowPlugin\nclass Other(AirflowPlugin):\n    name = 'other'\n"


def site(folder: Path, *, is_installed: bool) -> Path:
    """A folder of packages: the platform's from its sources, all others as they are installed here.

    Args:
        folder: where to make it.
        is_installed: whether the platform has its entry points, before those of another plugin.
    """
    folder.mkdir()
    for parent in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for path in Path(parent).iterdir():
            if not path.name.startswith(("kappa", "__editable__")):
                (folder / path.name).symlink_to(path)
    for path in (REPOSITORY / "include").glob("kappa*"):
        if path.suffix != ".egg-info":
            (folder / path.name).symlink_to(path)
    (folder / "other_plugin.py").write_text(_OTHER)
    points = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["entry-points"]["airflow.plugins"]
    if is_installed:
        _distribution(folder / "kappa-0.dist-info", points)
    _distribution(folder / "other-0.dist-info", {"other": "other_plugin:Other"})
    return folder


def _distribution(folder: Path, points: dict[str, str]) -> None:
    folder.mkdir()
    name = folder.name.partition("-")[0]
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    lines = "".join(f"{point} = {value}\n" for point, value in points.items())
    (folder / "entry_points.txt").write_text(f"[airflow.plugins]\n{lines}")


@pytest.mark.parametrize(
    ("is_installed", "has_folder"), [(True, False), (False, True), (True, True)], ids=["entry point", "folder", "both"]
)
def test_airflow_finds_the_plugin_once_wherever_it_is(tmp_path: Path, is_installed: bool, has_folder: bool) -> None:
    (tmp_path / "empty").mkdir()
    folder = REPOSITORY / "plugins" if has_folder else tmp_path / "empty"
    environment = {"AIRFLOW__CORE__PLUGINS_FOLDER": str(folder), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    run = subprocess.run(
        [sys.executable, "-S", "-c", _PLUGINS, str(site(tmp_path / "site", is_installed=is_installed))],
        env={**environment, "AIRFLOW_HOME": str(tmp_path), "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    loaded: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    assert loaded == {
        "servers": ["kappa", "other"],
        "tasks": ["kappa", "other"],
        "errors": {},
        "apps": ["/kappa"],
        "views": ["kappa"],
        "links": ["ReportLink"],
        "timetables": ["kappa_airflow.timetables.BackfillTimetable"],
        "macros": ["live_epoch", "live_path"],
    }
