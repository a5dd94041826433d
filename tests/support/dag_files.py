"""DAG files parsed by Airflow in a process of its own, as its DAG processor and its tasks parse them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
#: The DAG files of this repository.
SHIPPED = REPOSITORY / "dags"


def last_line(program: str, home: Path, *, dags: Path = SHIPPED, **environment: str) -> Any:
    """The value of the last line that a program prints, as JSON.

    Args:
        program: Python; its argument is the folder of the DAG files.
        home: the home of Airflow and of Kappa.
        dags: the folder.
        **environment: further variables.
    """
    homes = {"PYTHONPATH": str(REPOSITORY / "include"), "AIRFLOW_HOME": str(home), "HOME": str(home)}
    topologies = {"KAPPA_TOPOLOGIES": str(REPOSITORY / "include" / "topologies")}
    settings = {"LOAD_EXAMPLES": "False", "PLUGINS_FOLDER": str(REPOSITORY / "plugins")}
    core = {f"AIRFLOW__CORE__{name}": value for name, value in settings.items()}
    run = subprocess.run(
        [sys.executable, "-c", program, str(dags)],
        env={**homes, **topologies, **core, **environment},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])
