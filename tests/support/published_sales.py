"""A rig with published tables, whose second version has one more column and one output less; what they must show."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from kappa.delta.damage import entry_number
from kappa.delta.log_entries import actions_of
from kappa.delta.log_state import LogState, state_of
from kappa.delta.publication import EPOCH, SEQ, VERSION
from kappa.store.stores import store_of
from support.amounts import BEGIN, DAY, AmountsMixin
from support.epochs import content, place, read_messages
from support.path_readers import Rows, rows_of
from support.processes import Rig
from support.s3_lake import S3Rig

_TOPOLOGY = '''
"""Sales, version {version}: each amount counts {version} times."""

from kappa.operators import running_total
from kappa.topology import Append, Source, Topic, Topology

SALES = Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL")
balances = running_total(
    SALES, rows="id STRING, counted BIGINT", key="id", amount="counted", total="total", table="balances"
)

def step(slice):
    """A move for each record, and running totals of the accounts."""
    moves = slice["{topic}"].selectExpr("*", "CAST(amount * {version} AS BIGINT) AS counted"{column})
    totals = balances(slice, moves).rows
    return {{"moves": moves, "totals": totals{output}}}


sales = Topology(
    name="{name}",
    version="{version}",
    sources=[SALES],
    operators=[balances],
    outputs=[
        {declared}
        Append(name="totals", schema="id STRING NOT NULL, total BIGINT"),
        Topic(name="{topic}.moves", of="moves", key="id"),
    ],
    step=step,
)
'''
_FIRST = {
    "column": "",
    "output": ', "notes": moves',
    "declared": 'Append(name="moves", schema="id STRING NOT NULL, counted BIGINT"),\n'
    '        Append(name="notes", schema="id STRING NOT NULL, amount BIGINT"),',
}
_SECOND = {
    "column": ', "CAST(amount AS STRING) AS words"',
    "output": "",
    "declared": 'Append(name="moves", schema="id STRING NOT NULL, counted BIGINT, words STRING"),',
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry of the log of a published table.

    Attributes:
        version: its Delta version.
        epoch: the epoch that it shows.
        source_version: the Delta version of that epoch's table.
        seq: the last slice in it.
        offsets: up to which it has all records: partition -> offset; None where that is not known.
        has_metadata: whether it changes the schema.
        files: files of the table from then on, by their paths in it.
    """

    version: int
    epoch: int
    source_version: int
    seq: int | None
    offsets: Mapping[int, int] | None
    has_metadata: bool
    files: frozenset[str]


class Sales(AmountsMixin, Rig):
    """A rig whose live epoch publishes ``moves``, ``totals``, ``balances`` and, in version 1, ``notes``."""

    def deploy(self, version: int, factor: int | str | None = None) -> None:
        parts = _FIRST if version == 1 else _SECOND
        text = _TOPOLOGY.format(version=version, topic=self.topic, name=self.name, **parts)
        (self.config.topologies / "sales.py").write_text(text)

    def plan_replay(self, crash: str = "", **request: Any) -> int:  # type: ignore[override]
        """Plan a replay whose readers were told of what changes, and start its driver."""
        return super().plan_replay(crash, allow={"reader-schema-changed"}, **request)

    def published(self, name: str) -> str:
        """The path of a published table."""
        return self.paths(1).published(name)

    def backfill(self, first: int, last: int) -> None:
        """Replace the moves of some days, and wait until that is done."""
        days = [f"--from={(BEGIN + first * DAY).isoformat()}", f"--to={(BEGIN + last * DAY).isoformat()}"]
        words = ["backfill", self.name, *days, "--output", "moves", "--execute"]
        environ = {**os.environ, **self.config.to_env()}
        done = subprocess.run(
            [sys.executable, "-m", "kappa", *words], env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def entries(self, name: str) -> list[Entry]:
        """The entries of a published table, oldest first; its log begins with the first or with a checkpoint."""
        path = self.published(name)
        files = store_of(path).files(f"{path}/_delta_log")
        numbers = sorted(number for file in files if (number := entry_number(file.name)) is not None)
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        first = numbers[0] + (numbers[0] > 0)  # with a checkpoint of that version
        state = state_of(path, first - 1) if first else LogState()
        assert state is not None
        return [_entry(state, state.advance(path, number)[0]) for number in range(first, numbers[-1] + 1)]

    def newest(self, name: str) -> Entry | None:
        """The newest entry of a published table, if there is one."""
        path = self.published(name)
        state = state_of(path)
        actions = None if state is None else actions_of(path, state.version)
        return None if state is None or actions is None else _entry(state, actions)

    def await_shown(self, epoch: int, *names: str) -> None:
        """Wait until published tables show an epoch."""

        def is_shown() -> bool:
            entries = [self.newest(name) for name in names]
            return all(entry is not None and entry.epoch == epoch for entry in entries)

        self.wait(is_shown, f"epoch {epoch} is published")

    def await_published(self, epoch: int, *names: str) -> None:
        """Wait until an epoch has read everything, and published tables show all that it committed."""
        self.settle(epoch)
        standing = {partition: offset for (_, partition), offset in self.ledger(epoch).begun().standing.items()}

        def is_shown() -> bool:
            entries = [self.newest(name) for name in names]
            return all(entry is not None and (entry.epoch, entry.offsets) == (epoch, standing) for entry in entries)

        self.wait(is_shown, f"what epoch {epoch} committed is published")

    def folders(self, *names: str) -> dict[str, list[str]]:
        """The folders of published tables."""
        return {name: store_of(self.config.lake).folders(self.published(name)) for name in names}

    def history(self) -> list[tuple[tuple[int, int], str, int]]:
        """The raw topic: place, account and amount of each record, in the order of its partitions."""
        messages = sorted(read_messages(self.config.bootstrap_servers, self.topic), key=place)
        rows = ((place(message), orjson.loads(content(message))) for message in messages)
        return [(at, row["id"], row["amount"]) for at, row in rows]


class S3Sales(Sales, S3Rig):
    """The same on S3."""


def expected(name: str, epoch: int, offsets: Mapping[int, int], history: Sequence[tuple[Any, str, int]]) -> Rows:
    """What a published table must show of an epoch at offsets, from the raw topic; epoch 1 runs version 1."""
    totals: dict[str, int] = {}
    moves, running, notes = [], [], []
    for (partition, offset), account, amount in history:
        if offset >= offsets.get(partition, 0):
            continue
        counted = amount * min(epoch, 2)
        totals[account] = totals.get(account, 0) + counted
        notes.append((account, amount))
        running.append((account, totals[account]))
        moves.append((account, counted) if epoch == 1 else (account, counted, str(amount)))
    rows: dict[str, list[Any]] = {"moves": moves, "totals": running, "notes": notes, "balances": list(totals.items())}
    return sorted(rows[name])


def _entry(state: LogState, actions: Sequence[Mapping[str, Any]]) -> Entry:
    (info,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
    about = json.loads(info["userMetadata"])
    transactions = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
    assert (about["epoch"], about["seq"]) == (transactions[EPOCH], transactions.get(SEQ))
    offsets: Mapping[int, int] | None = {} if about["seq"] is None else None  # none of its slices is in it
    if about.get("offsets"):
        (ends,) = about["offsets"].values()
        offsets = {int(partition): offset for partition, offset in ends.items()}
    return Entry(
        version=state.version,
        epoch=transactions[EPOCH],
        source_version=transactions[VERSION],
        seq=transactions.get(SEQ),
        offsets=offsets,
        has_metadata=any("metaData" in action for action in actions),
        files=frozenset(state.files),
    )


def moves_between(entries: Sequence[Entry]) -> Iterator[tuple[Entry, Entry]]:
    """Each two entries of which the second shows another epoch than the first."""
    return (pair for pair in itertools.pairwise(entries) if pair[0].epoch != pair[1].epoch)


def prove(machine: Sales, name: str, epochs: Sequence[int], *, step: int = 1) -> list[Entry]:
    """Hold a published table against the tables of its epochs, and against the raw topic; its entries.

    Args:
        epochs: those that were live, in order: one commit moved the table from each to the next.
        step: every how many versions are read by time travel; of all of them the files are there.
    """
    path, history, entries = machine.published(name), machine.history(), machine.entries(name)
    assert [entries[0].epoch, *(after.epoch for _, after in moves_between(entries))] == list(epochs)
    for before, after in itertools.pairwise(entries):
        if before.epoch == after.epoch:
            assert before.source_version <= after.source_version and not after.has_metadata
        if before.offsets and after.offsets:
            assert all(after.offsets.get(p, 0) >= offset for p, offset in before.offsets.items()), after.version
    present = {file.path.removeprefix(f"{path}/") for file in store_of(path).files(path)}
    sources: dict[tuple[int, int], LogState | None] = {}
    for entry in entries:
        place = "tables" if name == "balances" else "outputs"
        paths, of = machine.paths(entry.epoch), (entry.epoch, entry.source_version)
        if of not in sources:
            sources[of] = state_of(paths.place(f"{place}/{name}"), entry.source_version)
        source = sources[of]
        assert source is not None
        assert entry.files == {f"{paths.folder}/{file}" for file in source.files}, entry.version
        assert entry.files <= present, entry.version
        if entry.offsets is not None and entry.version % step == 0:
            assert rows_of(path, entry.version) == expected(name, entry.epoch, entry.offsets, history), entry.version
    return entries
