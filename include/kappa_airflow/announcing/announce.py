"""How moves become asset events, each exactly once: a watcher wakes a task, which announces the new ones.

A watcher alone would announce a move twice or never if the triggerer died between an event and its own bookmark. Here
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

from kappa import clock
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
#: Number of stored events that are searched for the last announced one: those of several moves.
_LOOKED_AT = 200
#: Time after which a position is emitted again: less than Airflow keeps its events for.
_AGAIN = timedelta(days=1)


class MovesTrigger(BaseEventTrigger):
    """Wakes DAGs that its asset schedules after any move of readers or backfill of rows, whoever made it.

    It emits the last position in the record of epochs when it begins, each time that changes, and once a day: the
    bookmark of a run leaves out what that run itself announces. After the death of a triggerer it emits at least once.
    Each look reads the added events, for some milliseconds in a thread. An error in reading is logged once, and the
    next look tries again.

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
        """Emit the position of the record whenever it changes, and once a day."""
        from kappa.config import Config
        from kappa.record.epochs import epochs_of

        epochs = epochs_of(Config.from_env().lake)
        position, emitted_at = -1, clock.now()
        while True:
            now = await asyncio.to_thread(self._look, epochs)
            if now is not None and (now != position or clock.is_due(emitted_at, _AGAIN, clock.now())):
                position, emitted_at = now, clock.now()
                yield TriggerEvent({"up_to": now})  # type: ignore[no-untyped-call]  # as above
            await asyncio.sleep(self.poll_seconds)

    def _look(self, epochs: Epochs) -> int | None:
        try:
            position = last(epochs.events())
        except Exception as error:  # even a disk that fails: Airflow does not restart a watcher that ended
            words = f"{type(error).__name__}: {first_line(error)}"
            if words != self._trouble:
                self.log.warning("%s. Looking again every %s s.", words, self.poll_seconds)
            self._trouble = words
            return None
        self._trouble = ""
        return position


def moves(poll_seconds: float = 5.0) -> Asset:
    """The asset that changes with the record of moves."""
    watcher = AssetWatcher(name="record_of_epochs", trigger=MovesTrigger(poll_seconds=poll_seconds))
    return Asset(name="kappa_moves", uri="kappa://moves", watchers=[watcher])


class Announce(BaseOperator):
    """Emits an asset event for each served table of each move and backfill that has not been announced yet.

    Exactly once: the stored events decide what was announced, and Airflow stores the events of a task in the
    transaction that ends it. A task that was killed or cleared announces only what is missing. There must not be two at
    a time. Where ``airflow db clean`` removed events, the bookmark of the previous run counts.

    The first run announces only the live epochs, and so does the first one in another lake. In a lake that was restored
    from a copy, events after the copy count: a bookmark belongs to one lake and to the event at its place.
    """

    ui_color = "#f2dede"

    def __init__(self, *, wakes: Asset, spark_conn_id: str = DEFAULT_SPARK_CONNECTION, **kwargs: Any) -> None:
        fixed = {"inlets": [wakes, ANNOUNCED], "outlets": [ANNOUNCED], "max_active_tis_per_dag": 1}
        super().__init__(**{**REPLAY_RETRIES, "execution_timeout": timedelta(hours=1), **fixed, **kwargs})
        self.wakes = wakes
        self.spark_conn_id = spark_conn_id

    def execute(self, context: Context) -> list[str]:
        """Return the ids of the moves that were announced."""
        from kappa.record.epochs import epochs_of

        with terminal_errors_fail():
            epochs = epochs_of(config_with_spark(self.spark_conn_id).lake)
            events = epochs.events()
            lake = epochs.lake_id() if events else ""
        state = context["asset_state_store"][self.wakes]
        stored: Any = context["inlet_events"][ANNOUNCED].ascending(False).limit(_LOOKED_AT)
        bookmark: Any = state.get(BOOKMARK)
        bookmarks = [Bookmark.of(event.extra) for event in stored]
        bookmarks += [] if bookmark is None else [Bookmark.of(bookmark)]
        if bookmarks and max(one.n for one in bookmarks) <= epochs.rolled_up_to:  # the last run was long ago
            with terminal_errors_fail():
                events = epochs.history()
        after = max((one.n for one in bookmarks if one.is_of(lake, events)), default=None)
        if bookmarks and after is None:
            self.log.warning(
                "The announcements up to position %s belong to another record of epochs: the lake is new, or was "
                "restored from a copy. The live epochs are announced.",
                max(one.n for one in bookmarks),
            )
        news = announcements(events, after=after)
        # Only up to events that are stored for certain: the events below are stored when this task succeeds.
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
