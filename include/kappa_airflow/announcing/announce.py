"""How moves become asset events, each exactly once: a watcher wakes a task, which announces what is not announced yet.

A watcher alone would tell a move twice, or never, where the triggerer dies between an event and its own bookmark. Here
it only wakes. The task looks up which moves the stored events name, and Airflow stores its new events in the
transaction that makes the task a success.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias, AssetWatcher, BaseOperator
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from kappa.errors import first_line
from kappa_airflow.announcing.announcements import Bookmark, announcements, last, served
from kappa_airflow.connections import DEFAULT_SPARK_CONNECTION, config_with_spark
from kappa_airflow.drivers import terminal_errors_fail
from kappa_airflow.tasks import REPLAY_RETRIES

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kappa.record.epochs import Epochs

#: The alias under which Airflow keeps all events of served tables.
ANNOUNCED = AssetAlias("kappa_served_tables")
#: Key of the bookmark in the state store of the asset that wakes the task.
BOOKMARK = "announced_up_to"
#: Events that are looked at for the last one announced: those of some moves.
_LOOKED_AT = 200


class MovesTrigger(BaseEventTrigger):
    """Wakes DAGs that are scheduled by its asset when readers were moved or rows backfilled, by whomever.

    It tells the last position in the record of epochs when it begins and each time that changes: after a triggerer
    died, at least once. It reads what was added since its last look, some milliseconds in a thread. What it cannot read
    is told in the log, once, and looked at again.

    Args:
        poll_seconds: time between two looks.
    """

    def __init__(self, *, poll_seconds: float = 5.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's triggers are not typed
        self.poll_seconds = poll_seconds
        self._trouble = ""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments; all of them plain values."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {"poll_seconds": self.poll_seconds}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Tell where the record stands, whenever that is another place."""
        from kappa.config import Config
        from kappa.record.epochs import Epochs

        epochs = Epochs(Config.from_env().lake)
        position: int | None = None
        while True:
            now = await asyncio.to_thread(self._look, epochs)
            if now is not None and now != position:
                position = now
                yield TriggerEvent({"up_to": now})  # type: ignore[no-untyped-call]  # as above
            await asyncio.sleep(self.poll_seconds)

    def _look(self, epochs: Epochs) -> int | None:
        try:
            position = last(epochs.events())
        except Exception as error:  # also a disk that fails: Airflow starts a watcher that ended no second time
            words = f"{type(error).__name__}: {first_line(error)}"
            if words != self._trouble:
                self.log.warning("%s. Looking again every %s s.", words, self.poll_seconds)
            self._trouble = words
            return None
        self._trouble = ""
        return position


def moves(poll_seconds: float = 5.0) -> Asset:
    """The asset that changes when the record of moves does."""
    watcher = AssetWatcher(name="record_of_epochs", trigger=MovesTrigger(poll_seconds=poll_seconds))
    return Asset(name="kappa_moves", uri="kappa://moves", watchers=[watcher])


class Announce(BaseOperator):
    """Emits an asset event for each served table of each move and backfill that was not announced yet.

    Exactly once: what was announced is what the stored events say, and Airflow stores the events of a task in the
    transaction that ends it. Killed, or cleared, it announces what is missing and nothing else. There must not be two
    at a time. Where events were removed by ``airflow db clean`` the bookmark of the run before counts.

    Where nothing was ever announced, only what is live is. So it is in another lake. In one that was put back from a
    copy it is what came after the copy: a bookmark is of a lake and of the event at its place, and counts for no other.
    """

    ui_color = "#f2dede"

    def __init__(self, *, wakes: Asset, spark_conn_id: str = DEFAULT_SPARK_CONNECTION, **kwargs: Any) -> None:
        fixed = {"inlets": [wakes, ANNOUNCED], "outlets": [ANNOUNCED], "max_active_tis_per_dag": 1}
        super().__init__(**{**REPLAY_RETRIES, "execution_timeout": timedelta(hours=1), **fixed, **kwargs})
        self.wakes = wakes
        self.spark_conn_id = spark_conn_id

    def execute(self, context: Context) -> list[str]:
        """Return the ids of the moves that were announced."""
        from kappa.record.epochs import Epochs

        with terminal_errors_fail():
            epochs = Epochs(config_with_spark(self.spark_conn_id).lake)
            events = epochs.events()
            lake = epochs.lake_id() if events else ""
        state = context["asset_state_store"][self.wakes]
        stored: Any = context["inlet_events"][ANNOUNCED].ascending(False).limit(_LOOKED_AT)
        bookmark: Any = state.get(BOOKMARK)
        bookmarks = [Bookmark.of(event.extra) for event in stored]
        bookmarks += [] if bookmark is None else [Bookmark.of(bookmark)]
        after = max((one.n for one in bookmarks if one.is_of(lake, events)), default=None)
        if bookmarks and after is None:
            self.log.warning(
                "What was announced, up to position %s, is of another record of epochs: the lake is new, or was put "
                "back from a copy. What is live is announced.",
                max(one.n for one in bookmarks),
            )
        news = announcements(events, after=after)
        # Only of what is stored for certain: the events below are not before this task is a success.
        safe = after if after is not None else None if news else last(events)
        if safe is not None and (mark := Bookmark.at_place(lake, events, safe).to_dict()) != bookmark:
            state.set(BOOKMARK, mark)
        for one in news:
            self.log.info("%(id)s: %(move)s of %(table)s, epoch %(epoch)s", one.extra)
            extra = {**one.extra, "lake": lake}
            context["outlet_events"][ANNOUNCED].add(served(one.topology, one.table), extra=extra)
        if not news:
            self.log.info("There is nothing new up to position %s of the record of epochs.", after or 0)
        return list(dict.fromkeys(one.extra["id"] for one in news))
