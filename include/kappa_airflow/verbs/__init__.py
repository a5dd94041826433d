"""The DAGs of Kappa, one module per verb: its docstring is the documentation of the DAG.

Function ``build`` of a module makes one DAG, for the topologies that it is called with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

import structlog
from airflow.sdk import get_parsing_context

from kappa.config import Config
from kappa.errors import UsageError, first_line
from kappa.topology import registry
from kappa_airflow.factory import APPROVAL_HOURS, MOST_APPROVAL_HOURS
from kappa_airflow.tasks import dag_id

if TYPE_CHECKING:
    from pathlib import Path

    from kappa.topology.registry import Declared

log = structlog.get_logger(__name__)

#: Each of them has a DAG for each topology.
OF_EACH = ("abort", "backfill", "cutover", "rebuild", "replay", "reprocess", "rollback", "stream")
#: Each of them has one DAG for several topologies. The verb after the prefix has its module.
JOINT = ("joint_cutover", "joint_replay", "joint_rollback")
#: Each of them has one DAG, whatever topologies there are.
OF_ALL = ("announcements", "housekeeping")
#: All verbs: what a DAG's id begins with.
VERBS = (*OF_EACH, *JOINT, *OF_ALL)


def dags(
    *, verbs: Collection[str] = VERBS, topologies: Collection[str] | None = None, approval_hours: float = APPROVAL_HOURS
) -> None:
    """Make the DAGs of all topologies in the topologies folder. Call it at the top of a DAG file.

    The id of a DAG is ``<verb>__<topology>``; that of a joint DAG, ``announcements`` and ``housekeeping`` is the verb
    alone. Joint DAGs exist where there are two or more topologies. Airflow registers the DAGs while it parses the file.
    A topology whose import is refused has none, and a DAG that cannot be made is left out: the log says why, and the
    others are made.
    In a process that runs a task, only the DAG of the task is made, and nothing is refused.

    A team that wants several files gives each of them verbs of its own, so that no DAG is in two files.

    Args:
        verbs: which DAGs, by the beginnings of their ids: :data:`VERBS`, all by default.
        topologies: names of the topologies that have DAGs, all by default. A topology whose file does not parse has
            none until it does.
        approval_hours: how long a question waits for an answer before that counts as a rejection.

    Raises:
        UsageError: there is no such verb; the message names the nearest. Or ``approval_hours`` is not a time for an
            answer, or there is no topologies folder: the process does not know the settings of the repository.
        UnknownTopologyError: no file declares a topology of that name; the message names the nearest.
        ConfigError: the settings are not valid.

    Examples:
        The whole DAG file of a team::

            from kappa_airflow import dags

            dags(approval_hours=48)

        One file of several::

            dags(verbs=["stream", "announcements", "housekeeping"])
    """
    folder = Config.from_env().topologies
    only = get_parsing_context().dag_id
    if only is None:
        _check(verbs, topologies or (), approval_hours, folder)
    group = [item for item in registry.declared(folder) if topologies is None or item.name in topologies]
    for verb in VERBS:
        for id_, module, members in _dags_of(verb, group) if verb in verbs else ():
            if only in (None, id_):
                _build(id_, module, members, approval_hours, is_alone=only is not None)


def _build(id_: str, module: str, members: Sequence[Declared], approval_hours: float, *, is_alone: bool) -> None:
    """Make one DAG. One that cannot be made is logged, and takes down no other of its file."""
    try:
        import_module(f"{__name__}.{module}").build(members, approval_hours)
    except Exception as error:  # whatever the text of a topology's file leads to is that topology's error
        if is_alone:
            raise
        log.error("the DAG is not made", dag=id_, error=first_line(error))


def _dags_of(verb: str, topologies: Sequence[Declared]) -> Iterator[tuple[str, str, Sequence[Declared]]]:
    """Id, module and topologies of each DAG of a verb."""
    if verb in OF_EACH:
        yield from ((dag_id(verb, [topology.name]), verb, [topology]) for topology in topologies)
    elif verb in OF_ALL:
        yield verb, verb, topologies
    elif len(topologies) > 1:
        yield verb, verb.removeprefix("joint_"), topologies


def _check(verbs: Collection[str], names: Collection[str], approval_hours: float, folder: Path) -> None:
    """Refuse what a DAG file cannot mean, and log declarations of topologies that have no DAGs."""
    registry.check_folder(folder)
    if isinstance(verbs, str) or isinstance(names, str):
        raise UsageError("dags() takes lists of verbs and topologies, but one is text. Write a list in the DAG file.")
    for verb in verbs:
        if verb not in VERBS:
            near = get_close_matches(verb, VERBS, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(sorted(VERBS))}."
            raise UsageError(f"dags() has no verb {verb!r}. {hint} Correct it in the DAG file.")
    if not isinstance(approval_hours, int | float) or not 0 < approval_hours <= MOST_APPROVAL_HOURS:
        raise UsageError(
            f"dags() has approval_hours={approval_hours!r}, which is not a time for an answer. Write a number above 0 "
            f"and up to {MOST_APPROVAL_HOURS:g} in the DAG file."
        )
    for file in registry.broken_files(folder):
        log.error("a file does not parse, so its topologies have no DAGs", file=str(file))
    every = registry.declarations(folder)
    files: dict[str, Path] = {}
    for item in every:
        if item.objection or files.setdefault(item.name, item.file) != item.file:
            why = item.objection or str(registry.defined_twice(item.file, item.name))
            log.error("a declaration has no DAGs", file=str(item.file), why=why)
    present = [item.name for item in every]
    for name in names:
        if name not in present and not registry.is_in_broken_file(folder, name):
            raise registry.unknown(folder, name, present)
