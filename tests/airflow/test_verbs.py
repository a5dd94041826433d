"""The one call of a DAG file: what it makes, for a list of DAGs and for a task; and what it refuses."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.dag_files import REPOSITORY, SHIPPED, last_line

import kappa_airflow
from kappa.errors import UsageError
from kappa_airflow import verbs

# Parses the folder as the DAG processor does, then once for each DAG as a task of it does.
_PARSE = """
import json, os, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.models.serialized_dag import SerializedDagModel
from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager
from airflow.serialization.serialized_objects import DagSerialization
def parsed():
    bag = DagBag(sys.argv[1])
    hashes = {name: SerializedDagModel.hash(DagSerialization.to_dict(dag)) for name, dag in bag.dags.items()}
    return hashes, {os.path.basename(file): error for file, error in bag.import_errors.items()}, bag
whole, errors, bag = parsed()
waits = {
    name: [dag.dagrun_timeout.total_seconds() / 3600, [task.hours for task in dag.tasks if hasattr(task, "hours")]]
    for name, dag in bag.dags.items()
}
files = {name: os.path.basename(dag.fileloc) for name, dag in bag.dags.items()}
single = {}
for name in [*json.loads(os.environ.get("ALONE", "[]")), *whole]:
    with _airflow_parsing_context_manager(dag_id=name, task_id="any"):
        single[name] = parsed()[:2]
print(json.dumps(dict(whole=whole, errors=errors, waits=waits, files=files, single=single)))
"""
_TOPOLOGY = "Topology(name={name!r}, version='1'{more})"


def parsed(folder: Path, *calls: str, topologies: tuple[str, ...] = ("demo.a", "demo.b"), alone: str = "[]") -> Any:
    """A team's DAG files, one for each call, parsed with topologies of these names; the first has a schedule
    and needs two approvals."""
    for name, more in zip(
        topologies, (", approvals=2, reprocess=Schedule(cron='0 3 * * *')", *[""] * len(topologies)), strict=False
    ):
        (folder / "topologies").mkdir(exist_ok=True)
        (folder / "topologies" / f"{name}.py").write_text(_TOPOLOGY.format(name=name, more=more))
    for number, call in enumerate(calls):
        (folder / "dags").mkdir(exist_ok=True)
        (folder / "dags" / f"team_{number}.py").write_text(f"from kappa_airflow import dags\n\n{call}\n")
    environment = {"KAPPA_TOPOLOGIES": str(folder / "topologies"), "ALONE": alone}
    return last_line(_PARSE, folder, dags=folder / "dags", **environment)


def ids(*names: str) -> set[str]:
    """The DAGs of topologies of which none has a schedule."""
    return {f"{verb}__{name}" for verb in verbs.OF_EACH if verb != "reprocess" for name in names}


def test_three_lines_make_all_dags_and_a_task_gets_its_own_one_alone(tmp_path: Path) -> None:
    bag = parsed(tmp_path, "dags()", alone='["replay__demo.unknown", "another"]')
    assert bag["errors"] == {}
    assert set(bag["whole"]) == ids("demo.a", "demo.b") | {"reprocess__demo.a", *verbs.JOINT, *verbs.OF_ALL}
    assert set(bag["files"].values()) == {"team_0.py"}, "the code of a DAG in Airflow is the team's file"
    assert bag["single"].pop("replay__demo.unknown") == bag["single"].pop("another") == [{}, {}]
    assert bag["single"] == {name: [{name: hash_}, {}] for name, hash_ in bag["whole"].items()}


def test_files_may_share_the_verbs_and_the_topologies(tmp_path: Path) -> None:
    bag = parsed(
        tmp_path,
        "dags(verbs=['stream', 'joint_replay', 'housekeeping'])",
        "dags(verbs=['replay', 'reprocess'], topologies=['demo.b', 'demo.c'])",
        "dags(verbs=['replay', 'joint_cutover'], topologies=['demo.a'])",
        topologies=("demo.a", "demo.b", "demo.c"),
    )
    assert bag["errors"] == {}
    files: dict[str, set[str]] = {}
    for name, file in bag["files"].items():
        files.setdefault(file, set()).add(name)
    assert files == {
        "team_0.py": {"stream__demo.a", "stream__demo.b", "stream__demo.c", "joint_replay", "housekeeping"},
        "team_1.py": {"replay__demo.b", "replay__demo.c"},
        "team_2.py": {"replay__demo.a"},
    }


def test_a_call_that_cannot_be_meant_is_an_import_error_and_stops_no_task(tmp_path: Path) -> None:
    messages = {
        "dags(verbs=['replya'])": "dags() has no verb 'replya'. Did you mean 'replay'? Correct it in the DAG file.",
        "dags(verbs=['x'])": f"It has {', '.join(sorted(verbs.VERBS))}. Correct it in the DAG file.",
        "dags(topologies=['demo.aa'])": "declares topology 'demo.aa'. Did you mean 'demo.a'?",
        "dags(topologies=['x'])": "declares topology 'x'. Deployed: ['demo.a', 'demo.b'].",
        "dags(verbs='replay')": "dags() takes lists of verbs and topologies, but one is text.",
        "dags(topologies='demo.a')": "dags() takes lists of verbs and topologies, but one is text.",
        **{
            f"dags(approval_hours={hours})": f"dags() has approval_hours={shown}, which is not a time for an answer."
            for hours, shown in (("0", "0"), ("87601", "87601"))
        },
    }
    bag = parsed(tmp_path, *messages, alone='["replay__demo.a"]')
    assert bag["whole"] == {} and len(bag["errors"]) == len(messages)
    for number, message in enumerate(messages.values()):
        assert message in bag["errors"][f"team_{number}.py"]
    of_task, others = bag["single"]["replay__demo.a"]
    assert set(of_task) == {"replay__demo.a"}
    assert all("AirflowDagDuplicatedIdException" in error for error in others.values()), (
        "several of these files make it"
    )


@pytest.mark.parametrize("hours", ["48", None, float("nan")])
def test_hours_that_are_not_a_number_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: Any) -> None:
    monkeypatch.setenv("KAPPA_TOPOLOGIES", str(tmp_path))
    with pytest.raises(UsageError, match=rf"approval_hours={hours!r}, which is not a time for an answer"):
        verbs.dags(approval_hours=hours)


def test_an_airflow_without_the_settings_of_the_repository_says_so(tmp_path: Path) -> None:
    bag = parsed(tmp_path, "dags()", topologies=())
    assert bag["whole"] == {}
    assert "Work in a repository, or name its settings file: export KAPPA_SETTINGS=" in bag["errors"]["team_0.py"]


def test_a_topology_that_is_named_and_does_not_parse_takes_no_other_down(tmp_path: Path) -> None:
    (tmp_path / "topologies").mkdir()
    (tmp_path / "topologies" / "broken.py").write_text("Topology(name='demo.c', version='1'")
    (tmp_path / "topologies" / "latin.py").write_bytes("Topology(name='demo.d', owner='é')".encode("latin-1"))
    bag = parsed(tmp_path, "dags(verbs=['replay'], topologies=['demo.a', 'demo.c', 'demo.d'])")
    assert (bag["errors"], set(bag["whole"])) == ({}, {"replay__demo.a"})


def test_the_time_for_an_answer_is_that_of_every_question(tmp_path: Path) -> None:
    bag = parsed(tmp_path, "dags(approval_hours=30)")["waits"]
    day, fortnight = 24.0, 14 * 24.0
    assert {name: waits for name, waits in bag.items() if waits[1]} == {
        "abort__demo.a": [day + 30, [30]],
        "cutover__demo.a": [day + 60, [30, 30]],
        "rollback__demo.a": [day + 30, [30]],
        "replay__demo.a": [fortnight + 60, [30, 30]],
        "rebuild__demo.a": [fortnight + 90, [30, 30, 30]],
        "abort__demo.b": [day + 30, [30]],
        "cutover__demo.b": [day + 30, [30]],
        "rollback__demo.b": [day + 30, [30]],
        "replay__demo.b": [fortnight + 30, [30]],
        "rebuild__demo.b": [fortnight + 60, [30, 30]],
        "joint_replay": [fortnight + 60, [30, 30]],
        "joint_cutover": [fortnight + 60, [30, 30]],
        "joint_rollback": [fortnight + 30, [30]],
    }


def test_each_verb_has_a_module_and_each_module_a_verb() -> None:
    modules = {file.stem for file in Path(verbs.__file__).parent.glob("[!_]*.py")}
    assert modules == {verb.removeprefix("joint_") for verb in verbs.VERBS}


def test_the_shipped_dag_file_runs_by_itself(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(REPOSITORY / "include"), "HOME": str(tmp_path), "AIRFLOW_HOME": str(tmp_path)}
    (file,) = SHIPPED.glob("*.py")
    run = subprocess.run([sys.executable, str(file)], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]


def test_the_package_alone_imports_no_airflow() -> None:
    program = "import sys, kappa_airflow; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    environment = {"PYTHONPATH": str(REPOSITORY / "include")}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert "kappa_airflow" in run.stdout and not {"airflow", "kappa"} & set(eval(run.stdout))
    with pytest.raises(AttributeError, match="module 'kappa_airflow' has no attribute 'dag'"):
        kappa_airflow.dag  # noqa: B018  the access is the point
