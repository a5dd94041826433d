"""A published table: a Delta table that stays at its path, whose files are those of the table of the live epoch.

Its log is written here, entry by entry, and each names the state of an epoch's table that it shows. Nothing is copied.
A writer feature that no engine has shuts out all other writers; readers do not ask for it (Delta's protocol, "Valid
Feature Names in Table Features").
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import takewhile
from typing import Any
from urllib.parse import unquote

from kappa.delta.access import COMPACTED, check_point
from kappa.delta.damage import entry_of
from kappa.delta.log_entries import actions_of, add_entry
from kappa.delta.log_state import Action, LogState, state_of
from kappa.delta.publication import (
    CHECKPOINT_EVERY,
    PROTOCOL,
    VERSION,
    Origin,
    Publication,
    Shown,
    check_file,
    check_log,
    check_table,
    entry_actions,
    is_same_metadata,
    metadata_of,
    net,
    properties_of,
    shown_by,
)
from kappa.delta.tables import APP
from kappa.delta.tail_table import milliseconds, uptime
from kappa.errors import ConflictError, LedgerError
from kappa.faults import crash_point
from kappa.names import epoch_word
from kappa.store.stores import store_of

#: After a commit of how many files there is a checkpoint at once.
_LARGE_COMMIT = 1000
#: Entries of the log that stay, at least. With those up to the next checkpoint there are never 2,000.
LOG_ENTRIES = 1800
#: Commits of the epoch's table that a publication takes one by one. Beyond them the state of the table as a whole is
#: compared: files that were merged meanwhile may be gone.
MOST_ENTRIES = 200
#: After this time without a look the last entry is looked for: it may have been cleaned up.
LOOK_SECONDS = 60.0


class PublishedTable:
    """The log of a published table, as of the last look. May be used by several threads.

    One process writes it at a time, but nothing relies on that.

    Args:
        path: the table.
        retention: how long files stay for readers of earlier versions.
    """

    def __init__(self, path: str, retention: timedelta) -> None:
        self.path = path
        self.retention = retention
        self._state: LogState | None = None
        self._is_foreign = False
        self._source: tuple[int, LogState] | None = None
        self._looked = float("-inf")
        self._lock = threading.RLock()

    def look(self) -> LogState | None:
        """Take in what was committed since the last look; None where there is no table."""
        with self._lock:
            state, self._state = self._state, None  # a look that fails begins anew
            if state is None or not self._is_there(state.version):
                state = state_of(self.path, has_statistics=False)
                self._is_foreign = state is not None and not _is_own(state)
            else:
                for actions in state.advance(self.path):
                    self._is_foreign |= not any(_is_txn(action) for action in actions)
            self._state, self._looked = state, uptime()
            return state

    @property
    def is_foreign(self) -> bool:
        """Whether another program has written an entry since the last publication: the next one undoes it."""
        return self._is_foreign

    def shown(self) -> Shown | None:
        """What it shows as of the last look, which is made here if there was none lately; None if there is no table."""
        with self._lock:
            is_due = self._state is None or uptime() - self._looked > LOOK_SECONDS
            state = self.look() if is_due else self._state
            return None if state is None else shown_by(self.path, state)

    @property
    def version(self) -> int:
        """Its Delta version as of the last look, the first of which is made here; -1 where there is no table."""
        with self._lock:
            state = self._state or self.look()
            return -1 if state is None else state.version

    def prepare(self, origin: Origin) -> None:
        """Read the files of an epoch that is about to be shown: right after the move only the rest is read.

        Raises:
            PublicationError: its table has features that a published table does not show.
        """
        with self._lock:
            self._source_state(origin)

    def publish(self, origin: Origin, after: int) -> bool:
        """Show the state of an epoch's table, in one commit, or the first part of the way there.

        Files that were merged without a change of rows are a commit of their own, so that readers of a stream need not
        read the rows again. A crash leaves the commit whole or not at all.

        A caller that looks, and asks after that whether the epoch is live, never publishes an epoch over its successor,
        however long it was frozen in between.

        Args:
            origin: the state that is to be shown.
            after: the version that the look saw; -1 for no table.

        Returns:
            Whether it was there already.

        Raises:
            ConflictError: another process published after that version; nothing was done. Look again.
            PublicationError: the epoch's table has features that a published table does not show, or another program
                has a table at the path.
        """
        with self._lock:
            state = self.look() if self._state is None else self._state
            if after != (-1 if state is None else state.version):
                raise ConflictError(f"Another process published {self.path} first.", path=self.path)
            if state is None:
                self._commit(LogState(), self._whole(LogState(), origin), origin)
                return False
            check_log(self.path, state)
            before = None if self._is_foreign else shown_by(self.path, state)
            if before is not None and (before.epoch, before.source_version) == (origin.epoch, origin.version):
                return True
            self._commit(state, self._change(state, before, origin), origin)
            return False

    def needed(self, folder: str) -> set[str]:
        """Files of a folder that readers of this table may need, by their paths in it.

        They are the present ones, those that were removed within the retention, and those of commits that are not
        published yet.
        """
        with self._lock:
            state = self.look()
            if state is None:
                return set()
            state.forget_removals(milliseconds() - self.retention.total_seconds() * 1000)
            prefix = f"{folder}/"
            named = {path.removeprefix(prefix) for path in (*state.files, *state.tombstones) if path.startswith(prefix)}
            return {unquote(path) for path in named | self._upcoming(state, folder)}

    def _upcoming(self, state: LogState, folder: str) -> set[str]:
        """Files of a folder that the next publication may name, though the table they are of no longer does."""
        shown = shown_by(self.path, state)
        if shown is None or folder != f"_{epoch_word(shown.epoch)}":
            return set()
        first = shown.source_version + 1
        entries = (actions_of(f"{self.path}/{folder}", number) for number in range(first, first + MOST_ENTRIES))
        return {
            action["add"]["path"]
            for actions in takewhile(lambda one: one is not None, entries)
            for action in actions or ()
            if "add" in action
        }

    def _change(self, state: LogState, before: Shown | None, origin: Origin) -> Publication:
        if before is None or before.epoch != origin.epoch:
            return self._whole(state, origin)
        if not 0 < origin.version - before.source_version <= MOST_ENTRIES:
            return self._whole(state, origin)
        entries = [actions_of(origin.path, number) for number in range(before.source_version + 1, origin.version + 1)]
        present = [actions for actions in entries if actions is not None]
        if len(present) < len(entries) or any(map(_is_of_table, present)):
            return self._whole(state, origin)
        properties, change = properties_of(self.retention), net(state, before, present, origin)
        if state.metadata.get("configuration") == properties:
            return change
        return replace(change, metadata={**state.metadata, "configuration": properties})

    def _whole(self, state: LogState, origin: Origin) -> Publication:
        """The difference between what is shown and an epoch's table as a whole."""
        source = self._source_state(origin)
        self._source = None  # from here on entries are enough
        files = {f"{origin.folder}/{path}": add for path, add in source.files.items()}
        for add in files.values():
            check_file(origin.path, add)
        metadata = metadata_of(state, source, origin.hidden, self.retention)
        # Another program may have added a file of the epoch again, with other statistics or a deletion vector.
        present = {} if self._is_foreign else state.files
        return Publication(
            version=source.version,
            seq=source.transactions.get(APP),
            removed=[
                add for path, add in state.files.items() if path not in files or add.get("deletionVector") is not None
            ],
            added={path: add for path, add in files.items() if path not in present},
            metadata=None if is_same_metadata(metadata, state.metadata) and not self._is_foreign else metadata,
            protocol=None if state.protocol == PROTOCOL else PROTOCOL,
        )

    def _source_state(self, origin: Origin) -> LogState:
        """The state of an epoch's table at a version, from that of the last time where it is an earlier one."""
        epoch, source = self._source or (None, None)
        self._source = None  # what a failure leaves half advanced is not gone on from
        try:
            if source is not None and epoch == origin.epoch and source.version <= origin.version:
                source.advance(origin.path, origin.version)
            else:
                source = state_of(origin.path, origin.version)
        except LedgerError:  # entries in between were cleaned up
            source = state_of(origin.path, origin.version)
        if source is None:
            raise LedgerError(f"The table {origin.path} is gone. Look: kappa status", path=origin.path)
        check_table(origin.path, source)
        self._source = (origin.epoch, source)
        return source

    def _is_there(self, version: int) -> bool:
        """Whether the entry of a version is there, by a look at it after a while: it may have been cleaned up."""
        is_due = uptime() - self._looked > LOOK_SECONDS
        return not is_due or store_of(self.path).head(entry_of(self.path, version)) is not None

    def _commit(self, state: LogState, change: Publication, origin: Origin) -> None:
        store, version = store_of(self.path), state.version + 1
        if version and not self._is_there(version - 1):
            self._state = None
            raise ConflictError(f"The log of {self.path} was cleaned up since the last look.", path=self.path)
        actions = entry_actions(change, origin)
        store.make_folder(f"{self.path}/_delta_log")
        crash_point("publish.begin", version)
        if not add_entry(self.path, version, actions):
            self._state = None
            raise ConflictError(f"Another process published {self.path} first.", path=self.path)
        crash_point("publish.commit", version)
        state.info, state.has_statistics = {}, False
        state.apply(actions)
        state.version, self._state, self._is_foreign = version, state, False
        self._looked = uptime()
        if version % CHECKPOINT_EVERY == 0 or len(change.added) + len(change.removed) > _LARGE_COMMIT:
            check_point(self.path)
            crash_point("publish.checkpoint")
        if version % CHECKPOINT_EVERY == 0:
            self._clean_up(version)
            state.forget_removals(milliseconds() - self.retention.total_seconds() * 1000)

    def _clean_up(self, version: int) -> None:
        """Remove entries and checkpoints before the last checkpoint that leaves enough of them. May be repeated."""
        store = store_of(self.path)
        names = {file.name: file.path for file in store.files(f"{self.path}/_delta_log")}
        numbers = {name: int(name[:20]) for name in names if name[:20].isdigit()}
        checkpoints = [number for name, number in numbers.items() if ".checkpoint" in name]
        first = max((number for number in checkpoints if number <= version - LOG_ENTRIES), default=0)
        for name in sorted(name for name, number in numbers.items() if number < first):  # the oldest first
            store.delete(names[name])
            crash_point("publish.cleanup")


def _is_own(state: LogState) -> bool:
    """Whether the newest entry is one of Kappa's; a checkpoint does not say."""
    return not state.info or state.info.get("operation") == "PUBLISH"


def _is_of_table(actions: Sequence[Action]) -> bool:
    """Whether an entry changes columns, properties or the protocol: one before a merge of files says the same again."""
    is_merge = any(action.get("commitInfo", {}).get("userMetadata") == COMPACTED for action in actions)
    return not is_merge and any("metaData" in action or "protocol" in action for action in actions)


def _is_txn(action: Mapping[str, Any]) -> bool:
    return "txn" in action and action["txn"]["appId"] == VERSION
