"""The maker of every DAG of the platform: its id, tags, owner, documentation, time limit, pool and retries.

The content of a DAG comes from its file, the topology's file and the settings, never from anything that a run changes:
Airflow makes a new version of a DAG whenever its serialised form differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, ExceptionRetryPolicy, Param, RetryAction, RetryRule
from airflow.sdk.definitions.param import ParamsDict

from kappa.drawing import text
from kappa.drawing.literals import graph_of_literals
from kappa_airflow.pools import BACKFILLS, MOVES, REPLAYS, STREAMS
from kappa_airflow.tasks import dag_id

if TYPE_CHECKING:
    from kappa.topology.registry import Declared

#: Owner of what belongs to no topology, and of topologies without an owner.
OWNER = "kappa"
#: Airflow logs the owner of a task in a column of this width.
MOST_OF_OWNERS = 500

#: How long a question waits for an answer before that counts as a rejection; a DAG's file may say otherwise.
APPROVAL_HOURS = 24.0
#: Longest time that a DAG's file may name: ten years.
MOST_APPROVAL_HOURS = 87_600.0
#: Stages that a replay waits for, one task each, before it is verified.
STAGES = ("REWOUND", "SEEDED", "REPLAYED", "CAUGHT_UP")

#: Retries by kind of error: an error that a further try cannot change fails immediately, any other has its tries.
BY_KIND = ExceptionRetryPolicy(
    rules=[
        RetryRule(
            exception="kappa.errors.Terminal", action=RetryAction.FAIL, reason="trying again would change nothing"
        )
    ]
)

_MAIL = re.compile(r"[\w.+-]+@[\w.-]+")
_POOLS = {"stream": STREAMS.name, "backfill": BACKFILLS.name, "cutover": MOVES, "rollback": MOVES, "abort": MOVES}
#: Longest time of a run, on top of the time for its answers. Drivers continue after it, and a cleared task continues to
#: wait.
_LASTS = {
    "stream": timedelta(days=1),
    "replay": timedelta(days=14),
    "rebuild": timedelta(days=14),
    "reprocess": timedelta(days=14),
    "backfill": timedelta(days=1),
}
_SHORT = timedelta(days=1)
#: Descriptions that are not the first sentence of the DAG's file.
_DESCRIPTIONS = {
    "replay": "Replays {topology} into a new epoch, asks for approval and cuts over.",
    "joint_replay": "Replays several topologies into new epochs, asks once, and cuts over all of them together.",
    "joint_cutover": "Moves readers of several topologies in one commit to the epochs that wait for it.",
    "joint_rollback": "Moves readers of several topologies back in one commit to the epochs that were live before.",
}
_TOGETHER = """Several topologies, which the form names, are moved together: nothing is built or brought back before all
of them can be, one question shows what would change in each, and one commit moves readers of all. One rejection keeps
all where they are. What happens to each of them:
"""


def owners_of(topologies: Sequence[Declared]) -> list[str]:
    """The owners that the files of topologies name, each once."""
    return sorted({topology.owner for topology in topologies} - {""})


def topology_dag(verb: str, topology: Declared, *, doc: str | None, **settings: Any) -> AbstractContextManager[DAG]:
    """A DAG of one topology, ``<verb>__<topology>``.

    Args:
        verb: what it does.
        doc: docstring of its file; the first sentence describes the DAG. A drawing of the topology is added.
        **settings: what else :class:`airflow.sdk.DAG` takes.
    """
    drawing = text(graph_of_literals(topology))
    return platform_dag(
        dag_id(verb, [topology.name]),
        tags=[verb, topology.name],
        owners=owners_of([topology]),
        doc=f"{doc or ''}\n```text\n{drawing}```\n",
        lasts=_LASTS.get(verb, _SHORT),
        pool=_POOLS.get(verb, REPLAYS.name),
        policy=None if verb == "stream" else BY_KIND,  # a stream is checked again whatever happened
        **settings,
    )


def form_dag(
    verb: str, topologies: Sequence[Declared], *, doc: str | None, params: Mapping[str, Param]
) -> AbstractContextManager[DAG]:
    """A DAG that only its form triggers, for one topology, or for several of which a run names some.

    Args:
        verb: what it does.
        topologies: the one, or all topologies.
        doc: its documentation.
        params: the fields of its form.
    """
    settings: dict[str, Any] = {
        "schedule": None,
        "is_paused_upon_creation": False,
        "params": params,
        # one that is in the way is refused with the reason, and need not queue behind one that waits for an answer
        "max_active_runs": 3,
    }
    if len(topologies) > 1:
        joint = dag_id(verb, [topology.name for topology in topologies])
        return platform_dag(
            joint,
            tags=[joint],
            owners=owners_of(topologies),
            doc=f"{_TOGETHER}\n{doc or ''}",
            lasts=_LASTS["replay"],
            pool=_POOLS.get(verb, REPLAYS.name),
            description=_DESCRIPTIONS[joint],
            **settings,
        )
    (topology,) = topologies
    return topology_dag(
        verb, topology, doc=doc, description=_DESCRIPTIONS.get(verb, "").format(topology=topology.name), **settings
    )


@contextmanager
def platform_dag(
    id_: str,
    *,
    tags: list[str],
    owners: Sequence[str] = (),
    doc: str,
    lasts: timedelta,
    pool: str = REPLAYS.name,
    policy: ExceptionRetryPolicy | None = BY_KIND,
    params: Mapping[str, Param] | None = None,
    description: str = "",
    **settings: Any,
) -> Iterator[DAG]:
    """A DAG with the properties of all DAGs of the platform; its tasks are made inside.

    Args:
        tags: tags besides ``kappa``.
        owners: who owns it; each is a tag too, by which Airflow filters. Empty: the platform.
        doc: Markdown.
        lasts: longest duration of a run, on top of the time for the answers that its tasks wait for.
        pool: name of the pool of its tasks.
        policy: retry policy of its tasks.
        params: the fields of its form.
        description: one line; by default the first sentence of ``doc``.
        **settings: what else :class:`airflow.sdk.DAG` takes.
    """
    with DAG(
        dag_id=id_,
        tags=["kappa", *tags, *owners],
        doc_md=doc,
        description=description or " ".join(doc.partition(".")[0].split()) + ".",
        owner_links={owner: f"mailto:{owner}" for owner in owners if _MAIL.fullmatch(owner)},
        default_args={"owner": _joined(owners), "pool": pool, **({"retry_policy": policy} if policy else {})},
        **settings,
    ) as dag:
        try:
            yield dag
        except BaseException:
            dag.auto_register = False  # a part of its tasks would do a part of its work
            raise
    # Set only after its tasks exist: each of them would copy the whole form several times, which was half of the time
    # that a DAG's file took. At run time a task gets the DAG's params in any case.
    dag.params = ParamsDict(dict(params or {}))
    waits = (getattr(task, "response_timeout", None) for task in dag.tasks)
    dag.dagrun_timeout = lasts + sum(filter(None, waits), timedelta())


def _joined(owners: Sequence[str]) -> str:
    """The owner of each task: Airflow splits it at commas."""
    text = ", ".join(owners)
    return text if 0 < len(text) <= MOST_OF_OWNERS else OWNER
