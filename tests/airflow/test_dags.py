from datetime import datetime, timedelta
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import RetryAction
from support.airflow_stack import FAKES
from support.dag_files import REPOSITORY, SHIPPED, last_line
from support.odd_texts import UNPARSED
from support.scripts import load

from kappa import clock
from kappa.errors import LakeUnreachableError, LedgerError
from kappa_airflow.factory import BY_KIND
from kappa_airflow.pools import POOLS

# Parses the folder twice: what the first time costs more than the second is Airflow itself being imported.
_PARSE = """
import json, sys, time
from airflow.dag_processing.dagbag import DagBag
import airflow.sdk, airflow.triggers.base, airflow.sdk.definitions.param, airflow.sdk.bases.operator
airflow.sdk.DAG, airflow.sdk.chain, airflow.sdk.Param, airflow.sdk.BaseOperator
start = time.perf_counter()
bag = DagBag(sys.argv[1])
seconds = time.perf_counter() - start
heavy = {"pyspark", "deltalake", "confluent_kafka", "pyarrow", "pandas", "kappa.control"} & set(sys.modules)
facts = {
    dag.dag_id: dict(
        tags=sorted(dag.tags), doc=dag.doc_md, limit=dag.dagrun_timeout.total_seconds(), owner=dag.owner,
        pools=sorted({task.pool for task in dag.tasks}), runs=dag.max_active_runs, paused=dag.is_paused_upon_creation,
        types=sorted(str(kind.value) for kind in dag.allowed_run_types or []), fields=sorted(dag.params),
        owners=sorted({task.owner for task in dag.tasks}), links=dag.owner_links,
        fails=[task.task_id for task in dag.tasks if task.retry_policy is not None], tasks=dag.task_ids,
        resumes=[task.task_id for task in dag.tasks if getattr(task, "resumes", False)],
        approved=[task.task_id for task in dag.tasks if getattr(task, "is_approval_required", False)],
    ) for dag in bag.dags.values()
}
print(json.dumps(dict(
    errors=bag.import_errors, dags=sorted(bag.dags), heavy=sorted(heavy), seconds=seconds, facts=facts,
)))
"""


def parsed(folder: Path, **environment: str) -> dict[str, Any]:
    return dict(last_line(_PARSE, folder, **environment))


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The DAGs of the topologies that are shipped, parsed in an empty environment."""
    return parsed(tmp_path_factory.mktemp("shipped"))


def test_every_dag_parses_in_an_empty_environment_and_loads_nothing_heavy(shipped: dict[str, Any]) -> None:
    assert shipped["errors"] == {} and shipped["heavy"] == []


def test_a_dag_costs_no_more_to_parse_where_many_topologies_are_declared(
    tmp_path: Path, shipped: dict[str, Any]
) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "one.py").write_text((REPOSITORY / "include" / "topologies" / "retail_shipments.py").read_text())
    one, many = parsed(tmp_path, KAPPA_TOPOLOGIES=str(alone)), shipped
    assert len(many["dags"]) > 8 * len(one["dags"])
    each = [bag["seconds"] / len(bag["dags"]) for bag in (one, many)]
    assert each[1] < 2 * each[0]


def test_each_declared_topology_has_its_dags_and_a_broken_file_takes_none_down(tmp_path: Path) -> None:
    folder = tmp_path / "topologies"
    folder.mkdir()
    (folder / "good.py").write_text("Topology(name='demo.good', version='1')")
    for number, text in enumerate(UNPARSED.values()):
        (folder / f"broken_{number}.py").write_bytes(text)
    bag = parsed(tmp_path, KAPPA_TOPOLOGIES=str(folder))
    verbs = ("abort", "backfill", "cutover", "rebuild", "replay", "rollback", "stream")
    assert (bag["errors"], bag["dags"]) == (
        {},
        sorted(["announcements", "housekeeping", *(f"{verb}__demo.good" for verb in verbs)]),
    )


REFUSED = (
    "Topology(name='retail spending', version='1')",
    "Topology(name='Retail/Orders', version='1')",
    f"Topology(name='retail.{'a' * 101}', version='1')",
    "from other import Topology\nTopology(name='Map of Europe')",
    "Topology(name='demo.bad', version='1', approvals=300)",
    "Topology(name='demo.good', version='2')",  # by another file
)


def test_declarations_that_are_refused_take_no_other_topology_down(tmp_path: Path) -> None:
    folder = tmp_path / "topologies"
    folder.mkdir()
    (folder / "good.py").write_text("Topology(name='demo.good', version='1')")
    for number, bad in enumerate(REFUSED):
        (folder / f"other_{number}.py").write_text(bad)
    bag = parsed(tmp_path, KAPPA_TOPOLOGIES=str(folder))
    assert bag["errors"] == {} and {name.partition("__")[2] for name in bag["dags"]} == {"", "demo.good"}
    assert not any(name.startswith("joint_") for name in bag["dags"])
    assert "demo.good version 1" in bag["facts"]["replay__demo.good"]["doc"]


# Parses the folder where one DAG of one topology fails after its first task.
_FAILS = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
from kappa_airflow.verbs import rollback
real = rollback.confirm_choice
def fails(choice, *, what, hours):
    assert "demo.bad" not in what
    return real(choice, what=what, hours=hours)
rollback.confirm_choice = fails
bag = DagBag(sys.argv[1])
print(json.dumps([bag.import_errors, sorted(bag.dags)]))
"""


def test_a_dag_that_cannot_be_made_takes_no_other_down_and_no_part_of_it_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "topologies"
    folder.mkdir()
    for name in ("bad", "good"):
        (folder / f"{name}.py").write_text(f"Topology(name='demo.{name}', version='1')")
    errors, ids = last_line(_FAILS, tmp_path, KAPPA_TOPOLOGIES=str(folder))
    assert errors == {} and {"rollback__demo.good", "replay__demo.bad", "replay__demo.good"} <= set(ids)
    assert "rollback__demo.bad" not in ids


def test_an_owner_owns_the_tasks_of_its_dags_and_all_own_the_joint_ones(tmp_path: Path) -> None:
    folder = tmp_path / "topologies"
    folder.mkdir()
    for name, owner in (("a", "team-a"), ("b", "ann@example.org"), ("c", ""), ("d", "#a@b")):
        (folder / f"{name}.py").write_text(f"Topology(name='demo.{name}', version='1', owner='{owner}', approvals=2)")
    bag = parsed(tmp_path, KAPPA_TOPOLOGIES=str(folder))
    assert bag["errors"] == {}
    for dag_id, dag in bag["facts"].items():
        owned = {"a": ["team-a"], "b": ["ann@example.org"], "c": [], "d": ["#a@b"]}
        names = ["#a@b", "ann@example.org", "team-a"] if dag_id.startswith("joint_") else owned.get(dag_id[-1], [])
        assert dag["owners"] == [", ".join(names) or "kappa"], dag_id
        assert [tag for tag in dag["tags"] if "a@" in tag or "ann@" in tag or "team" in tag] == names, dag_id
        assert dag["links"] == ({"ann@example.org": "mailto:ann@example.org"} if "ann@example.org" in names else {})


# Parses and hashes, then once more a year later, in another process's view of the lake and of the code.
_HASHES = """
import datetime, json, os, pathlib, sys, time
from airflow.dag_processing.dagbag import DagBag
from airflow.models.serialized_dag import SerializedDagModel
from airflow.serialization.serialized_objects import DagSerialization
def hashes():
    bag = DagBag(sys.argv[1])
    assert not bag.import_errors, bag.import_errors
    return {name: SerializedDagModel.hash(DagSerialization.to_dict(dag)) for name, dag in bag.dags.items()}
first = hashes()
class Later(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
began = time.time
time.time = lambda: began() + 365 * 86400
datetime.datetime = Later
lake = pathlib.Path(os.environ["KAPPA_LAKE"])
lake.mkdir(parents=True)
(lake / "fake.json").write_text("{}")
for name in [name for name in sys.modules if name.startswith("kappa")]:
    del sys.modules[name]
print(json.dumps([first, hashes(), Later.now(datetime.UTC).isoformat()]))
"""


def test_what_a_run_or_the_time_changes_makes_no_new_version_of_a_dag(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    first, second, later = last_line(_HASHES, tmp_path, KAPPA_LAKE=str(lake))
    assert lake.is_dir() and datetime.fromisoformat(later) > clock.now() + timedelta(days=360)
    assert "replay__retail.loyalty" in first and second == first


def test_joint_dags_are_there_where_there_is_something_to_join(shipped: dict[str, Any]) -> None:
    joint = {name: dag for name, dag in shipped["facts"].items() if name.startswith("joint_")}
    assert set(joint) == {"joint_replay", "joint_cutover", "joint_rollback"}
    assert all("topologies" in dag["fields"] and not dag["paused"] for dag in joint.values())
    assert {"name", "plan", "start", "verified", "approve", "cut_over"} < set(joint["joint_replay"]["tasks"])


def test_every_dag_is_made_by_the_factory(shipped: dict[str, Any]) -> None:
    facts = shipped["facts"]
    pools = {"stream": "kappa_streams", "backfill": "kappa_backfills"}
    assert set(pools.values()) < {pool.name for pool in POOLS}
    pools |= dict.fromkeys(("abort", "cutover", "rollback", "joint_cutover", "joint_rollback"), "default_pool")
    for dag_id, dag in facts.items():
        verb, _, topology = dag_id.partition("__")
        assert dag["tags"] == sorted({"kappa", verb, topology} - {""}), dag_id
        assert dag["owner"] == "kappa" and dag["limit"] > 0, dag_id
        assert dag["runs"] > 1 or dag["fields"] in ([], ["remove"]), "a run by hand waits behind no other one"
        assert dag["pools"] == [pools.get(verb, "kappa_replays")], dag_id
        assert dag["fails"] == ([] if verb == "stream" else dag["tasks"]), dag_id
        assert dag["resumes"] == (["approve"] if verb in ("cutover", "joint_cutover") else []), dag_id
        assert dag["approved"] == (["cut_over"] if "approve" in dag["tasks"] else []), (
            "what needs an answer asks for it"
        )
        assert not topology or f"```text\n{topology} version" in dag["doc"], dag_id
    stream = facts["stream__retail.loyalty"]
    assert (stream["paused"], stream["types"]) == (True, ["scheduled"])
    assert "└─-> output notifications\n     └─-> topic  loyalty" in stream["doc"]
    assert facts["replay__retail.loyalty"]["paused"] is False and "start" in facts["replay__retail.loyalty"]["fields"]


@pytest.mark.parametrize(
    ("error", "action"), [(LedgerError("gone"), RetryAction.FAIL), (LakeUnreachableError("later"), RetryAction.DEFAULT)]
)
def test_what_another_try_cannot_change_has_none(error: Exception, action: RetryAction) -> None:
    assert BY_KIND.evaluate(error, 1, 10).action is action


def test_a_dag_file_is_a_screenful() -> None:
    for file in (*SHIPPED.glob("*.py"), *(REPOSITORY / "include" / "kappa_airflow" / "verbs").glob("[!_]*.py")):
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
        "cut_over_together",
        "record",
        "rebuild_request",
        "diff",
        "approval_terms",
        "approve",
        "reject",
        "previous",
        "recall_together",
        "ask",
        "abort",
        "supersede",
        "housekeeping",
        "clean",
    ):
        real, faked = (list(signature(getattr(module, name)).parameters) for module in (control, fake))
        assert faked == real, name
    for name in ("DriverStatus", "Progress"):
        real, faked = (set(getattr(module, name).__dataclass_fields__) for module in (control, fake))
        assert faked <= real, name
        assert hasattr(getattr(control, name), "is_running" if name == "DriverStatus" else "message")
