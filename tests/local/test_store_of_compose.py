"""The store of docker-compose.yaml without its container: the same server, with the arguments of the file."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.airflow_stack import wait_for
from support.environments import ROOT
from support.programs import program
from support.s3_server import VERSITYGW, ensure_built

from kappa.config import Config
from kappa_local import doctor
from kappa_local.kafka import HOST, free_port

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
SECRET = "k3yOfTheStore"
_START_SECONDS = 30.0


def environment(service: str, changes: dict[str, str]) -> dict[str, str]:
    """What a service has, with the secret filled in and with places of this host."""
    filled = {name: re.sub(r"\$\{LAKE_SECRET_KEY:\?[^}]*\}", SECRET, value) for name, value in of(service).items()}
    return {"PATH": os.environ["PATH"], **filled, **changes}


def of(service: str) -> dict[str, str]:
    """The environment in the file."""
    return dict(SERVICES[service]["environment"])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    """The address of the store, which answers its health check."""
    port, folder = free_port(), tmp_path / "data"
    folder.mkdir()
    words = [{":9000": f"{HOST}:{port}", "/data": str(folder)}.get(word, word) for word in SERVICES["store"]["command"]]
    *_, health = SERVICES["store"]["healthcheck"]["test"]
    command = [ensure_built(Config.from_env({}).cache, VERSITYGW), *words]
    with program(command, tmp_path / "store.log", environment("store", {})):
        wait_for(
            lambda: is_healthy(health.replace("localhost:9000", f"{HOST}:{port}")), _START_SECONDS, "it is healthy"
        )
        yield f"http://{HOST}:{port}"


def is_healthy(url: str) -> bool:
    """What the container's `wget` looks for."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_the_server_is_the_one_that_the_tests_of_the_lake_use() -> None:
    assert SERVICES["store"]["image"].rpartition(":")[2] == VERSITYGW.rpartition("@")[2]
    assert SERVICES["lake-init"]["environment"]["AWS_ENDPOINT_URL"] == "http://store:9000"


def test_the_first_step_makes_a_bucket_and_a_client_file_with_which_the_doctor_is_content(
    store: str, tmp_path: Path
) -> None:
    file = tmp_path / "login" / "lake.properties"
    file.parent.mkdir()
    places = {"AWS_ENDPOINT_URL": store, "KAPPA_LAKE_CLIENT_FILE": str(file), "PYTHONPATH": str(ROOT / "include")}
    script = SERVICES["lake-init"]["command"][-1].replace("/opt/kappa", str(ROOT))
    for _ in range(2):  # at each start
        subprocess.run([sys.executable, script], env=environment("lake-init", places), check=True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    lake = of("drivers")["KAPPA_LAKE"]
    config = Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": lake, "KAPPA_LAKE_CLIENT_FILE": str(file)})
    proof = next(proof for proof in doctor.proofs(config) if proof.name == "lake")
    assert proof.ok and "of 8 writers at the same moment one won" in proof.detail, proof
