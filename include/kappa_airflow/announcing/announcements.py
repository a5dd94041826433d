"""Asset events of served tables: the message of each recorded move and backfill to DAGs downstream. Pure.

An asset of a table has the name ``kappa/<topology>/<table>``: :func:`served`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

if TYPE_CHECKING:
    from kappa.record.events import Event

#: Events of the record that change what readers get.
ANNOUNCED = ("moved", "backfilled")


def served(topology: str, name: str) -> Asset:
    """The asset of a table or append output that readers get; each cutover, rollback and backfill of it is one event.

    Args:
        topology: the topology's name.
        name: the name of its table or append output.

    Examples:
        >>> served("retail.loyalty", "rewards").uri
        'kappa://retail.loyalty/rewards'
    """
    return Asset(name=f"kappa/{topology}/{name}", uri=f"kappa://{topology}/{name}")


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """One asset event.

    Attributes:
        topology: the topology's name.
        table: its table or append output.
        extra: content of the event, as plain values.
    """

    topology: str
    table: str
    extra: Mapping[str, Any]

    @property
    def n(self) -> int:
        """Position of the move in the record of epochs."""
        return int(self.extra["n"])


@dataclass(frozen=True, kw_only=True)
class Bookmark:
    """The last event that was announced.

    Attributes:
        lake: id of the lake; empty in bookmarks of earlier code.
        n: place of the event in the record of epochs; 0 for none.
        at: when it was recorded, which tells apart the events of two records at one place; empty where that is not
            known.
    """

    lake: str
    n: int
    at: str

    @classmethod
    def of(cls, value: Mapping[str, Any] | int) -> Bookmark:
        """Read what :meth:`to_dict` wrote, the content of an asset event, or the number that earlier code kept."""
        if isinstance(value, Mapping):
            return cls(lake=str(value.get("lake") or ""), n=int(value["n"]), at=str(value.get("at") or ""))
        return cls(lake="", n=int(value), at="")

    @classmethod
    def at_place(cls, lake: str, events: Sequence[Event], n: int) -> Bookmark:
        """The bookmark at a place of a lake's record."""
        return cls(lake=lake, n=n, at=next((event.at.isoformat() for event in events if event.n == n), ""))

    def is_of(self, lake: str, events: Sequence[Event]) -> bool:
        """Whether this is a place in that record."""
        if self.lake not in ("", lake):
            return False
        if self.n == 0:
            return True
        place = next((event for event in events if event.n == self.n), None)
        return place is not None and self.at in ("", place.at.isoformat())

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def last(events: Sequence[Event]) -> int:
    """Position of the last event that changes what readers get; 0 for none."""
    return max((event.n for event in events if event.event in ANNOUNCED), default=0)


def announcements(events: Sequence[Event], *, after: int | None) -> tuple[Announcement, ...]:
    """The events to announce, oldest first.

    Args:
        events: the whole record of epochs.
        after: position of the last event that was announced; None if there is none: then only the last move of each
            topology counts, which made it live.
    """
    news: list[Announcement] = []
    from kappa.record.moves import rollbacks

    back = rollbacks(events)
    latest = {event.topology: event.n for event in events if event.event == "moved"}
    earlier: dict[str, list[Event]] = {}
    for event in events:
        before = earlier.setdefault(event.topology, [])
        is_new = event.n > after if after is not None else event.n == latest.get(event.topology)
        if event.event in ANNOUNCED and is_new:
            news += _of(event, before, is_rollback=event.n in back)
        before.append(event)
    return tuple(news)


def _of(event: Event, before: Sequence[Event], *, is_rollback: bool) -> list[Announcement]:
    facts: dict[str, Any] = {
        "n": event.n,
        "id": f"{event.topology}/{event.n}",
        "topology": event.topology,
        "epoch": event.epoch,
        "at": event.at.isoformat(),
        "actor": event.actor,
        "reason": event.reason,
    }
    if event.event == "backfilled":
        outputs: Mapping[str, Mapping[str, Any]] = event.detail["outputs"]
        interval = {
            "move": "backfill",
            "from": event.detail["from"],
            "to": event.detail["to"],
            "seq": event.detail["seq"],
        }
        return [
            Announcement(
                topology=event.topology,
                table=name,
                extra={
                    **facts,
                    **interval,
                    "table": name,
                    "offsets": event.detail.get("offsets", {}),
                    "difference": {key: output[key] for key in ("rows", "before", "same") if key in output},
                },
            )
            for name, output in sorted(outputs.items())
        ]
    replaced = event.detail.get("from")
    move = {
        "move": "rollback" if is_rollback else "cutover",
        "replaces": replaced,
        "offsets": event.detail.get("at", {}),
        "seq": event.detail.get("seq"),
    }
    differences = _differences(before, {event.epoch, replaced})
    return [
        Announcement(
            topology=event.topology,
            table=name,
            extra={**facts, **move, "table": name, "difference": differences.get(name)},
        )
        for name in _tables(before, event.epoch)
    ]


def _tables(events: Sequence[Event], epoch: int) -> list[str]:
    """Tables and append outputs of an epoch, by its plan."""
    for event in events:
        if event.event == "planned" and event.epoch == epoch and "plan" in event.detail:
            plan = json.loads(event.detail["plan"])
            return sorted({*plan.get("tables", ()), *plan.get("appends", ())})
    return []


def _differences(events: Sequence[Event], pair: set[int | None]) -> dict[str, dict[str, Any]]:
    """Table -> its difference in the last comparison of the two epochs: counts for ``live`` and ``candidate``."""
    for event in reversed(events):
        report = json.loads(event.detail.get("report") or "{}") if event.event == "verified" else {}
        if report and {report["live_epoch"], report["candidate_epoch"]} == pair:
            compared = {
                "live": report["live_epoch"],
                "candidate": report["candidate_epoch"],
                "verdict": event.detail["verdict"],
            }
            return {
                part["name"]: {
                    **compared,
                    **{name: value for name, value in part.items() if name.startswith(("rows_", "keys_"))},
                }
                for part in (*report.get("tables", ()), *report.get("outputs", ()))
            }
    return {}
