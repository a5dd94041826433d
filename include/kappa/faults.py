"""Named places where a process may be killed on purpose, to prove that it can be started again.

``KAPPA_CRASH_AFTER=effects@3`` kills the process with SIGKILL right after point ``effects`` of slice 3; without a
number, the first time the point is passed. ``KAPPA_CRASH_AFTER=effects@3:stop`` freezes it with SIGSTOP instead, which
is what a paused virtual machine or a long garbage collection looks like from outside. Only tests and drills set it.

Right before, the process leaves a mark in ``<KAPPA_HOME>/deaths``: what died there can so be told from what ended
otherwise.
"""

from __future__ import annotations

import difflib
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kappa.errors import UsageError

#: Environment variable in which the wish to die is handed to a driver.
VARIABLE = "KAPPA_CRASH_AFTER"
#: Environment variable of the folder below which the marks are left; without it there are none.
HOME = "KAPPA_HOME"

#: Every point, with what has just been done there.
POINTS: Mapping[str, str] = {
    "claim": "the driver has claimed its epoch in the ledger",
    "planned.code": "a command has stored the code of a new epoch, whose plan is not in the lake",
    "planned.plan": "the plan is in the lake, and the epoch is not on record",
    "planned": "the epoch is on record, its driver is not started",
    "rewind.claim": "the epoch's names on the broker belong to its lake, nothing but its markers topic is there",
    "rewind.group": "the consumer group is at the plan's start",
    "rewind.names": "the names of the epoch's versioned topics are on record, the topics are not there",
    "rewind.topics": "changelog, marker and versioned topics are there",
    "rewound": "the stage REWOUND is on record",
    "seed.tables": "the tables hold the seed, commit 0 is not written",
    "seed": "commit 0 is written",
    "seeded": "seeding is done, before and after the stage SEEDED is on record",
    "plan": "a slice is planned",
    "effects.dead_letters": "its dead letters are written",
    "effects.outputs": "rows of an append output are written",
    "effects.changes": "changes of a table are written",
    "effects": "all effects are written and on record",
    "send.open": "everything is in the Kafka transaction, which is open",
    "send": "the Kafka transaction is committed",
    "merge": "the changes since the last merge are in one of the tables",
    "apply": "the changes are in the tables for which it was time",
    "commit": "the slice is committed",
    "rollup.history": "the ledger rows that are rolled up are in a file beside the ledger, which holds them still",
    "rollup": "one row of the ledger has taken the place of those that it rolls up",
    "record.history": "events of epochs that ended long ago are in a file beside the record, which holds them still",
    "record.rolled_up": "the record has what stays of them",
    "merge.between": "the changes are in one of the tables, without a slice at work",
    "abandon": "a slice that cannot be done is closed",
    "set_aside": "a decision to set records aside is on record, the driver has not looked",
    "set_aside.withdrawn": "it is on record that such a decision came too late",
    "probe": "the record that a slice fails at is known, the epoch is not stuck on record",
    "replayed": "the stage REPLAYED is on record",
    "caught_up": "the stage CAUGHT_UP is on record",
    "verify": "both epochs are compared, the verdict is not on record",
    "verified": "the verdict is on record",
    "baseline.begun": "the topics of a baseline are there; what an earlier attempt left in them is not read yet",
    "baseline.chunk": "a part of the tables is in the changelog",
    "baseline.topics": "a part of what the epoch was seeded with is in its versioned topics",
    "baseline.marker": "the whole tables are in the changelog, closed by a marker",
    "recomputed.slice": "a slice of a second run is committed in the folder of that run",
    "recomputed": "both runs are compared, the result is not on record",
    "recomputed.record": "the result of both runs is on record, the folder of the second one is there",
    "backfill.asked": "an interval is computed and its replacement asked for, the driver has not looked",
    "backfill.plan": "the replacement of an interval is planned",
    "backfill.replaced": "rows of an interval are replaced in one of the outputs",
    "backfill.undone": "rows of an interval are put back in one of the outputs",
    "backfill": "the replacement is committed, the record of epochs does not know it",
    "upgrade.asked": "the command has asked for an upgrade to another release, and has not waited for the driver",
    "upgrade.next": "the upgrade of one topology is done, that of the next one is not asked for",
    "upgrade.ready": "new code is unpacked and the last commit has a name; the old code runs",
    "upgrade": "the upgrade is in the ledger, the record of epochs does not know it",
    "upgraded": "the upgrade is on record, the new code's driver is not started",
    "standing": "the standing row of an old epoch is on record, in a cutover of several topologies",
    "yield": "the old epoch has yielded in a cutover",
    "move.ready": "all epochs of a cutover of several topologies are at its offsets, no pointer has moved",
    "moved": "the pointer has moved",
    "going_live": "the driver of an epoch that may send has seen that, and has not resumed",
    "reconcile.compared": "the keys in which the epoch differs from the live epoch that it follows are written",
    "reconcile.differences": "what a topic has to get is written, in the folder of the epoch that goes live",
    "reconcile.open": "it is in the Kafka transaction, which is open",
    "reconcile.send": "the Kafka transaction is committed; the new epoch may not send yet",
    "live.marker": "the broker knows that the epoch is live, its ledger does not",
    "resume": "the new epoch may send",
    "fenced": "a rebuild has fenced the sender of the epoch that it is built from",
    "superseded": "that epoch's markers name the one that is built from it, which is not on record",
    "publish.begin": "what a published table is to show next is known, its commit is not made",
    "publish.commit": "a published table shows the next state of its epoch's table",
    "publish.checkpoint": "the log of a published table is summed up",
    "publish.cleanup": "one of the old files of its log is gone",
    "ending": "the driver has nothing left to do, its last heartbeat is not written",
    "maintain": "it is on record which commits stay readable; no file is gone",
    "vacuum.chosen": "the files of a table that are to go are chosen, none of them is gone",
    "maintain.dead_letters": "old files of the dead letters are gone",
    "maintain.outputs": "old files of an append output are gone",
    "maintain.changes": "old files of a table's changes are gone",
    "maintain.tables": "old files of a table are gone",
    "archive.claim": "an archiver has claimed its archive",
    "archive.create": "the archive's table is there, where it begins is not on record",
    "removal.record": "it is on record that an epoch is given up or removed, all that it left is there",
    "removal.topics": "its topics are gone but for its markers",
    "removal.broker": "nothing of it is on the broker any more",
    "removal.tables": "one of the tables of an epoch that is removed is gone",
    "removal.folder": "its folder is gone, its plan and its code are there",
    "lake.file": "a file is in the other lake, of as many as the number says",
    "lake.bulk": "the files that do not change are in the other lake; drivers may run",
    "lake.closed": "the record of the old lake says that it has moved, and nothing else does",
    "lake.ledgers": "no driver and no archiver of the old lake can go on",
    "lake.files": "all files are in the new lake but for the log of its record of epochs",
    "lake.entry": "an entry of that log is, the newest first",
    "lake.opening": "all of it is but for the file with which it opens, and no other attempt was seen",
    "lake.record": "the new lake is there, and says whose copy it is",
    "lake.back.fenced": "no copy can open the new lake any more; the old one is closed",
    "lake.back.closed": "both lakes are closed on the way back, drivers of the new one may run",
    "lake.back.ledgers": "the same, and none of its drivers can go on",
    "archive.plan": "a slice of an archive is planned",
    "archive.write": "its records are written, the slice is not committed",
    "archive.commit": "the slice is committed: the archive covers its ranges",
}


def crash_point(name: str, seq: int | None = None) -> None:
    """Kill or freeze this process here when the environment asks for it."""
    directive = os.environ.get(VARIABLE)
    if not directive:
        return
    place, _, how = directive.partition(":")
    point, _, number = place.partition("@")
    if point != name or (number and seq is not None and int(number) != seq):
        return
    os.environ.pop(VARIABLE)
    if home := os.environ.get(HOME):
        _leave_mark(Path(home, "deaths"), {"point": name, "seq": seq, "how": how or "kill"})
    os.kill(os.getpid(), signal.SIGSTOP if how == "stop" else signal.SIGKILL)


def is_armed(prefix: str) -> bool:
    """Whether this process is to die or freeze at a point whose name begins so."""
    return os.environ.get(VARIABLE, "").startswith(prefix)


def marks(home: Path) -> list[dict[str, Any]]:
    """Every mark that was left below a home, oldest first.

    Each has ``point``, ``seq`` (or None), ``how`` (``kill`` or ``stop``), ``pid`` and the process's ``argv``.
    """
    files = sorted(home.glob("deaths/*.json"), key=lambda file: file.stat().st_mtime_ns)
    return [json.loads(file.read_text()) for file in files]


def _leave_mark(folder: Path, mark: dict[str, Any]) -> None:
    """On disk before the signal: renamed into place, so that a mark is whole or not there."""
    folder.mkdir(parents=True, exist_ok=True)
    pid = os.getpid()
    file = folder / f"{pid}-{mark['point']}.json"
    with file.with_suffix(".tmp").open("w") as out:
        json.dump({**mark, "pid": pid, "argv": sys.argv}, out)
        out.flush()
        os.fsync(out.fileno())
    file.with_suffix(".tmp").rename(file)


class CrashAfter:
    """Makes the next driver that is in this process or started by it die at a named point, by SIGKILL.

        with CrashAfter("effects", seq=2):
            control.start(config, "retail.spending", actor="test")   # its driver dies in slice 2
        control.start(config, "retail.spending", actor="test")       # and this one repairs it

    A driver takes the wish along when it is started: leaving the context does not spare it, and a driver that is
    started afterwards is not affected. Each process dies once. Not for threads that wish for different points.

    Args:
        point: one of :data:`POINTS`.
        seq: the slice; None for the first time that the point is passed.

    Raises:
        UsageError: there is no such point; the message names the nearest.

    Examples:
        >>> import os
        >>> from kappa.testing import CrashAfter
        >>> with CrashAfter("effects", seq=2):
        ...     os.environ["KAPPA_CRASH_AFTER"]
        'effects@2'
    """

    def __init__(self, point: str, seq: int | None = None) -> None:
        if point not in POINTS:
            near = difflib.get_close_matches(point, POINTS, n=1, cutoff=0.0)[0]
            raise UsageError(
                f"There is no crash point {point!r}. Did you mean {near!r}? All of them: {', '.join(POINTS)}.",
                point=point,
            )
        self._wish = point if seq is None else f"{point}@{seq}"
        self._before: str | None = None

    def __enter__(self) -> Self:
        self._before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = self._wish
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.environ.pop(VARIABLE, None)
        if self._before is not None:
            os.environ[VARIABLE] = self._before
