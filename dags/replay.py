"""One DAG for each topology: recompute its history with the code that is deployed now, beside the live epoch.

Trigger it with the form. Each stage is a task; all of them are safe to clear. Nothing that readers see changes before
`cut_over`, which is skipped unless the form asks for it.
"""

from __future__ import annotations

from airflow.sdk import DAG, chain

from kappa.config import Config
from kappa.registry import declared
from kappa_airflow.forms import replay_form
from kappa_airflow.replay import AwaitStage, CutOver, PlanReplay, StartReplay

STAGES = ("REWOUND", "SEEDED", "REPLAYED", "CAUGHT_UP", "VERIFIED")

for topology in declared(Config.from_env().topologies):
    with DAG(
        dag_id=f"replay__{topology.name}",
        schedule=None,
        is_paused_upon_creation=False,
        description=f"Replays {topology.name} into a new epoch and, if asked to, cuts over.",
        doc_md=__doc__,
        params=replay_form(),
        tags=["kappa", "replay", topology.name],
    ):
        name = topology.name
        plan = PlanReplay(task_id="plan", topology=name)
        start = StartReplay(task_id="start", topology=name, plan=plan.output)
        waits = [AwaitStage(task_id=stage.lower(), topology=name, epoch=start.output, stage=stage) for stage in STAGES]
        chain(plan, start, *waits, CutOver(task_id="cut_over", topology=name, epoch=start.output))
