import subprocess
import sys
from inspect import signature
from pathlib import Path
from typing import Any

from support.airflow_stack import FAKES, load

REPOSITORY = Path(__file__).parents[2]

# Parses the folder twice: what the first time costs more than the second is Airflow itself being imported.
_PARSE = """
import sys, time
from airflow.dag_processing.dagbag import DagBag
import airflow.sdk, airflow.triggers.base, airflow.sdk.definitions.param, airflow.sdk.bases.operator
airflow.sdk.DAG, airflow.sdk.chain, airflow.sdk.Param, airflow.sdk.BaseOperator
begun = time.perf_counter()
bag = DagBag(sys.argv[1])
seconds = time.perf_counter() - begun
heavy = {"pyspark", "deltalake", "confluent_kafka", "pyarrow", "pandas", "kappa.control"} & set(sys.modules)
print(dict(errors=bag.import_errors, dags=sorted(bag.dags), heavy=sorted(heavy), seconds=seconds))
"""


def parsed(folder: Path, **environment: str) -> dict[str, object]:
    env = {"PYTHONPATH": str(REPOSITORY / "include"), "AIRFLOW_HOME": str(folder), "HOME": str(folder)}
    run = subprocess.run(
        [sys.executable, "-c", _PARSE, str(REPOSITORY / "dags")],
        env={**env, "AIRFLOW__CORE__LOAD_EXAMPLES": "False", **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(eval(run.stdout.splitlines()[-1]))


def test_every_dag_parses_in_an_empty_environment_and_loads_nothing_heavy(tmp_path: Path) -> None:
    found = parsed(tmp_path)
    assert found["errors"] == {} and found["heavy"] == []


def test_a_dag_costs_no_more_to_parse_where_many_topologies_are_declared(tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "one.py").write_text((REPOSITORY / "include" / "topologies" / "retail_shipments.py").read_text())
    one, many = parsed(tmp_path, KAPPA_TOPOLOGIES=str(alone)), parsed(tmp_path)
    assert len(many["dags"]) > 10 * len(one["dags"])  # type: ignore[arg-type]
    each = [float(str(found["seconds"])) / len(found["dags"]) for found in (one, many)]  # type: ignore[arg-type]
    assert each[1] < 2 * each[0]


def test_each_declared_topology_has_its_dags_and_a_broken_file_takes_none_down(tmp_path: Path) -> None:
    folder = tmp_path / "topologies"
    folder.mkdir()
    (folder / "good.py").write_text("Topology(name='demo.good', version='1')")
    (folder / "broken.py").write_text("def")
    found = parsed(tmp_path, KAPPA_TOPOLOGIES=str(folder))
    verbs = ("abort", "backfill", "cutover", "replay", "rollback", "stream")
    assert (found["errors"], found["dags"]) == ({}, [f"{verb}__demo.good" for verb in verbs])


def test_a_dag_file_is_a_screenful() -> None:
    for file in (REPOSITORY / "dags").glob("*.py"):
        assert len(file.read_text().splitlines()) <= 60, file


def test_the_fake_control_has_the_functions_and_values_of_the_real_one() -> None:
    from kappa import control

    fake: Any = load("kappa_fake_control", FAKES / "fake_control.py")
    for name in (
        "start",
        "ensure_driver",
        "driver_status",
        "plan",
        "replay",
        "progress",
        "cut_over",
        "history",
        "rebuild_request",
        "diff",
        "approval_terms",
        "approve",
        "reject",
        "previous",
        "rollback",
        "abort",
    ):
        known, faked = (list(signature(getattr(module, name)).parameters) for module in (control, fake))
        assert faked == known, name
    for name in ("DriverStatus", "Progress"):
        known, faked = (set(getattr(module, name).__dataclass_fields__) for module in (control, fake))
        assert faked <= known, name
        assert hasattr(getattr(control, name), "is_running" if name == "DriverStatus" else "message")
