"""The ``detail`` of an event and of a ledger row, by kind: its fields, with their types.

A field is there where it says something: one that is absent means what its description says, or nothing. Offsets are
``{"topic": {"0": 12}}`` and offset ranges ``{"topic": {"0": [5, 12]}}``; times are ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kappa.record.events import EventKind
from kappa.record.ledger_rows import Kind


@dataclass(frozen=True)
class Field:
    """One field of a detail.

    Attributes:
        type: of its JSON value.
        what: what it says.
    """

    type: str
    what: str


_GROUP = Field("text", "id of the group that moves together; of several topologies only")
_TOGETHER = Field("topology -> epoch", "all that move together; of several topologies only")
_HANDOVER = Field("number", "the event `handover` that it belongs to")
_FROM_TIME, _TO_TIME = Field("time", "the interval's beginning"), Field("time", "its end, which does not belong to it")
_OUTPUTS = Field("object", "output or table -> rows now and before, whether they are the same, where they are")
_ASKED = Field("number", "the event of the request")
_STANDING = Field("offsets", "up to where of the root topics the epoch has read")
_SAVEPOINT = Field("text", "name of the savepoint before it")
_REPORT = Field("JSON text", "the report of the comparison")
_VERDICT = Field("text", "`same`, `differs` or `failed`")
_TAKEN = Field("boolean", "true: of no driver: its lake is copied, or its epoch removed or restored")
_IN_ENVIRONMENT = Field("text", "id of the environment in which it is to run from then on, by decision")
_ENVIRONMENT = Field("text", "id of the environment in which the driver runs")
_INSTEAD_OF = Field("text", "id of the epoch's own environment, where the driver runs in another one")

#: Kinds that are not named have none.
EVENTS: Mapping[EventKind, Mapping[str, Field]] = {
    "planned": {
        "plan": Field("JSON text", "the plan"),
        "plan_id": Field("text", "its hash"),
        "code": Field("text", "content hash of the code"),
        "version": Field("text", "its author's word for the code"),
        "start": Field("JSON text", "offsets of the start"),
        "origin": Field("JSON text", "offsets from which the epoch's rows come, seeds included"),
        "live": Field("number or null", "the live epoch that it may replace"),
        "rolled_up": Field(
            "text",
            "of an epoch that ended long ago: the file with all its events, in the record's history; `plan`, `start` "
            "and `origin` are there only",
        ),
        "sends_to": Field("list", "of such an epoch: names of its topic outputs, from the plan"),
        "seed": Field("text", "of such an epoch: what its tables began with, from the plan"),
    },
    "rewound": {"group": Field("text", "the consumer group")},
    "seeded": {
        "findings": Field("list", "findings where Spark runs"),
        "folded": Field("object", "offsets and seconds of the fold; of a seed from a changelog"),
    },
    "replayed": {
        "seq": Field("number", "the last slice"),
        "throttled_seconds": Field("number", "time for which the live stream came first"),
        "determinism": Field("object", "outcome of a second run of the range, where the plan has one"),
        "estimate": Field("object", "estimate of the plan"),
        "measured": Field("object", "offsets, records, bytes, seconds and disk"),
        "by_estimate": Field("object", "the one over the other"),
    },
    "caught_up": {
        "seq": Field("number", "the last slice"),
        "lag": Field("number", "offsets still to be read; absent for a first epoch"),
    },
    "verified": {
        "verdict": _VERDICT,
        "report": _REPORT,
        "live_epoch": Field("number or null", "the epoch that it was compared with"),
    },
    "approved": {
        "topology": Field("text", "topology that is approved"),
        "epoch": Field("number", "the epoch that becomes live"),
        "live": Field("number or null", "the one that it replaces"),
        "code": Field("text", "content hash of the code"),
        "report": Field("text", "hash of the report"),
        "verdict": _VERDICT,
    },
    "asked": {
        "terms": Field("object", "terms of an approval: the fields of `approved`"),
        "nth": Field("number", "for which of several people it waits"),
        "needed": Field("number", "how many have to approve"),
        "asking": Field("text", "the task that asks: its run, and its number of tries when it was cleared last"),
        "link": Field("text", "the page for the answer"),
        "until": Field("time", "how long it waits"),
        "airflow_only": Field("boolean", "whether only answers in Airflow count"),
    },
    "rejected": {"hours": Field("number", "for how long the tables stay")},
    "start": {"in_environment": _IN_ENVIRONMENT},
    "recalled": {"live": Field("number or null", "the live epoch"), "in_environment": _IN_ENVIRONMENT},
    "handover": {
        "from": Field("number or null", "the live epoch"),
        "keep_old_running": Field("boolean", "whether the old epoch follows on"),
        "group": _GROUP,
        "together": _TOGETHER,
        "approved": Field("object", "by whom and when, where it was approved"),
        "override": Field("object", "why it goes live without approvals that it needs"),
        "accepted_verdict": Field("text", "`failed`, where that was accepted"),
        "in_environment": _IN_ENVIRONMENT,
    },
    "standing": {"handover": _HANDOVER, "group": _GROUP, "at": _STANDING},
    "withdrawn": {"handover": _HANDOVER, "group": _GROUP, "together": _TOGETHER},
    "moved": {
        "from": Field("number or null", "the epoch that was live"),
        "at": _STANDING,
        "yielded": Field("offsets", "where the epoch that was live stopped; absent for a first epoch"),
        "seq": Field("number", "its last slice"),
        "handover": Field("number or null", "the event of the request; null for a first epoch"),
        "plan": Field("text", "hash of its plan"),
        "certificate": Field("JSON text", "the certificate; absent where the epoch was rolled up"),
        "keep_old_running": Field("boolean", "whether the old epoch follows on"),
        "group": _GROUP,
        "together": _TOGETHER,
        "topics": Field("object", "versioned topic -> where its readers leave the one and begin the other"),
        "reconciled": Field("object", "reconciled topic -> how many rows and tombstones it gets"),
        "environment": _ENVIRONMENT,
        "instead_of": _INSTEAD_OF,
        "in_environment": _IN_ENVIRONMENT,
    },
    "stuck": {
        "error": Field("text", "the error"),
        "seq": Field("number", "the slice"),
        "claims": Field("number", "drivers that ended at it"),
        "record": Field("object", "the record that is refused: topic, partition, offset, error class, what fails"),
    },
    "set_aside": {
        "records": Field("list", "topic, its id, partition, offsets with hashes, and the fingerprint of their key"),
        "count": Field("number", "how many they are"),
        "failing": Field("text", "the error class by which they were listed; empty where offsets were named"),
    },
    "set_aside_withdrawn": {"set_aside": _ASKED},
    "savepoint": {
        "name": Field("text", "its name"),
        "seq": Field("number", "the slice"),
        "offsets": Field("offsets", "where the slice ends"),
        "delta_versions": Field("table -> version", "of every table of the epoch"),
        "finished_at": Field("time", "when the slice was committed"),
    },
    "savepoint_dropped": {"name": Field("text", "its name"), "seq": Field("number", "the slice")},
    "upgrade": {
        "code": Field("text", "content hash of the new code"),
        "from": Field("text", "that of the running code"),
        "version": Field("text", "its author's word for the new code"),
        "history_stands": Field(
            "boolean", "true: its author vouches for the rows that are there; false: two releases gave equal rows"
        ),
        "report": _REPORT,
        "verdict": _VERDICT,
        "findings": Field("list", "objections to it"),
    },
    "upgraded": {
        "code": Field("text", "content hash of the new code"),
        "from": Field("text", "that of the code before"),
        "version": Field("text", "its author's word for the new code"),
        "verdict": _VERDICT,
        "upgrade": _ASKED,
        "seq": Field("number", "the last slice of the code before"),
        "at": Field("offsets", "where that slice ends"),
        "savepoint": _SAVEPOINT,
    },
    "upgrade_withdrawn": {"upgrade": _ASKED},
    "backfill": {
        "from": _FROM_TIME,
        "to": _TO_TIME,
        "code": Field("text", "content hash of the code that computed it"),
        "folder": Field("text", "where it was computed, within the epoch's folder"),
        "writer": Field("text", "the process that computed it"),
        "ranges": Field("offset ranges", "the ranges that were read again"),
        "offsets": Field("number", "how many offsets that are"),
        "outputs": _OUTPUTS,
    },
    "backfilled": {
        "from": _FROM_TIME,
        "to": _TO_TIME,
        "seq": Field("number", "the slice that replaced the rows; absent where all were the same"),
        "outputs": _OUTPUTS,
        "offsets": Field("number", "how many offsets were read again"),
        "backfill": _ASKED,
    },
    "backfill_withdrawn": {"from": _FROM_TIME, "to": _TO_TIME, "backfill": _ASKED},
    "own_topics": {"topics": Field("list of text", "names that the epoch takes for versioned topics")},
    "superseded": {
        "by": Field("number", "the epoch that was built from it"),
        "lake": Field("text", "id of the lake where that is"),
    },
    "relocated": {
        "from": Field("text", "address of the lake until then"),
        "to": Field("text", "its address from then on"),
    },
    "restored": {
        "undone": Field("table -> versions", "commits of other programs"),
        "made": Field("table -> version", "the commit that put the rows back"),
    },
}

_ARCHIVED = Field("offset ranges", "those that are read from archives")
_ROOTS = Field("offsets", "where it ends in root topics, of an epoch that reads versioned topics")
_RELEASES = Field("object", "topic -> partition -> offset -> stream time, of partitions that hold no frontier back")
_SET_ASIDE = Field("list", "records that a decision set aside: its number and reason, and what `set_aside` has of them")
_FLOORS = Field("object", "topic -> partition -> offset -> frontier, behind which none goes back from there on")
_SENT = Field("offsets", "ends of the epoch's versioned topics")
_FINAL = Field("object", "versioned topic -> column of its `time`, and `ms` up to which its rows are final")
_FRONTIERS = Field("object", "versioned topic that is read -> up to when its rows are final, epoch milliseconds")
_BACKFILL = Field("object", "of a replacement: fields of event `backfill`, and `n`, its number")
_BYTES = Field("number", "bytes of the values that were read")
_FILES = Field("object", "place -> data file that came to it -> hash of its content")
_MASKED = Field("table -> columns", "columns that no reader gets without a right of its own")

_ABANDONED: Mapping[str, Field] = {
    "most": Field("number", "offsets of the next slice at most"),
    "decided": Field("boolean", "true: records were set aside, and the next slices are as large as ever"),
    "tries": Field("number", "how often it was tried"),
    "miscounted": Field("object", "records that did not add up"),
    "reread": Field("object", "counts of the records at the attempt `before` and `now`, where they differ"),
    "backfill": _BACKFILL,
}

#: Kinds that are not named have none.
ROWS: Mapping[Kind, Mapping[str, Field]] = {
    "claim": {"taken": _TAKEN, "environment": _ENVIRONMENT, "instead_of": _INSTEAD_OF},
    "plan": {
        "archived": _ARCHIVED,
        "roots": _ROOTS,
        "frontiers": _FRONTIERS,
        "releases": _RELEASES,
        "floors": _FLOORS,
        "set_aside": _SET_ASIDE,
        "backfill": _BACKFILL,
    },
    "effects": {"bytes_read": _BYTES, "files": _FILES, "backfill": _BACKFILL},
    "commit": {
        "bytes_read": _BYTES,
        "started_at": Field("time", "when the slice was planned"),
        "seconds": Field("line -> number", "how long the driver that committed it took for each line of the protocol"),
        "archived": _ARCHIVED,
        "roots": _ROOTS,
        "releases": _RELEASES,
        "set_aside": _SET_ASIDE,
        "floors": _FLOORS,
        "frontiers": _FRONTIERS,
        "sent": _SENT,
        "final": _FINAL,
        "merged": Field("object", "table -> slice up to which its version has the changes, and the key"),
        "files": _FILES,
        "backfill": _BACKFILL,
        "seed": Field("text", "slice 0: `empty`, `from-savepoint`, `from-changelog` or `from-tables`"),
        "of_epoch": Field("number or null", "slice 0: the epoch whose state it is"),
        "of_seq": Field("number or null", "slice 0: that epoch's slice"),
        "topic_ids": Field("topic -> id", "slice 0: ids of the source topics"),
        "shapes": Field(
            "object",
            "slice 0: keys, columns, those that no reader gets, operators, times and graces of tables and outputs",
        ),
        "masked": _MASKED,
        "lost_releases": Field("boolean", "slice 0: true where releases did not come with the seed"),
        "lost_set_asides": Field("boolean", "slice 0: true where not all that was set aside came with the seed"),
        "bound": Field("object", "slice 0: versioned topics that it reads -> whose they are"),
        "mask": Field("text", "slice 0: fingerprint of the key of masked values"),
    },
    "seal": _ABANDONED,
    "abandon": _ABANDONED,
    "baseline": {"sent": _SENT, "final": _FINAL},
    "yield": {"handover": _HANDOVER, "at": _STANDING},
    "resume": {
        "handover": _HANDOVER,
        "at": _STANDING,
        "reconciled": Field("object", "reconciled topic -> how many rows and tombstones were sent"),
    },
    "upgrade": {
        "asked": _ASKED,
        "from": Field("text", "content hash of the code before"),
        "at": Field("offsets", "where its last slice ends"),
        "savepoint": _SAVEPOINT,
        "masked": _MASKED,
        "times": Field(
            "topic -> object", "`time` and `grace_ms` of each source with event time, and which topology it `follows`"
        ),
        "floors": _FLOORS,
    },
    "maintain": {
        "readable_from": Field("number", "the slice from which on every commit is readable"),
        "savepoints": Field("list of numbers", "slices before that which stay readable"),
        "merges": Field("object", "table -> Delta versions that are kept"),
        "recent_from": Field("number", "the slice from which on changes are kept"),
        "forgotten": Field("table -> slice", "up to which its changes are gone"),
    },
    "files": {"files": _FILES},
    "rollup": {
        "upto": Field("number", "rows up to this number may be gone"),
        "seq": Field("number", "the last slice of them"),
        "commits": Field("number", "how many slices they committed"),
        "standing": _STANDING,
        "runs": Field("list", "slices that read on from one another, as one"),
        "sent": Field("list", "some of the ends of versioned topics, where it stood, and up to when they were final"),
        "releases": _RELEASES,
        "set_aside": _SET_ASIDE,
        "floors": _FLOORS,
        "file": Field("text", "the file of the rows, in the ledger's history"),
    },
}

_LOST = Field("list of text", "ranges that retention took before they were archived")

#: The same of an archive's ledger.
ARCHIVE_ROWS: Mapping[Kind, Mapping[str, Field]] = {
    "claim": {"taken": _TAKEN},
    "plan": {
        "schemas": Field("list of text", "schemas by which records are parsed, by their columns' names"),
        "lost": _LOST,
    },
    "commit": {
        "topic_id": Field("text", "slice 0: id of the topic"),
        "schemas": Field("list of text", "those whose columns every good record has"),
        "lost": _LOST,
        "parts": Field("object", "partition -> rows, and the largest timestamp in milliseconds"),
    },
    "seal": {"lost": _LOST},
    "abandon": {"lost": _LOST},
}


def undeclared(fields: Mapping[str, Field] | None, detail: Mapping[str, object]) -> list[str]:
    """Fields of a detail that its kind does not declare, sorted.

    Args:
        fields: those of its kind; None where it has none.
    """
    return sorted(set(detail) - set(fields or {}))
