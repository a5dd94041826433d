"""Where a query of Structured Streaming stood, by the files of its query checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kappa.errors import RefusedError, UsageError
from kappa.offsets.query_checkpoint import Batches, batch_held, batches_of, end_offsets
from kappa.offsets.vector import Offsets

METADATA = b'{"id":"q-1"}'
SETTINGS = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'


def batches(last: int = 4, committed: int | None = 4, first: int = 3) -> Batches:
    return Batches(path="/c", query="q-1", first=first, last=last, committed=committed)


def test_names_that_are_not_numbers_are_not_batches() -> None:
    offsets, commits = ["3", "4", ".4.crc", "4.tmp", ".5.f0-1.tmp"], ["3", "4", ".4.crc"]
    assert batches_of("/c", METADATA, offsets, commits) == batches()


@pytest.mark.parametrize(("commits", "committed"), [(["3"], 3), (["2", "3"], 3)])
def test_the_last_batch_may_lack_its_commit(commits: Sequence[str], committed: int) -> None:
    assert batches_of("/c", METADATA, ["3", "4"], commits) == batches(4, committed)


def test_a_first_batch_may_lack_its_commit() -> None:
    assert batches_of("/c", METADATA, ["0"], []) == batches(0, None, 0)


@pytest.mark.parametrize(("metadata", "offsets"), [(None, ["0"]), (METADATA, []), (METADATA, [".0.crc"])])
def test_a_folder_of_something_else_is_refused(metadata: bytes | None, offsets: Sequence[str]) -> None:
    with pytest.raises(UsageError, match="is not the query checkpoint of a query that ran"):
        batches_of("/c", metadata, offsets, [])


@pytest.mark.parametrize(
    ("metadata", "offsets", "commits", "message"),
    [
        (b"", ["0"], ["0"], "metadata is torn"),
        (b'"q-1"', ["0"], ["0"], "metadata is torn"),
        (METADATA, ["4"], ["5"], "batch 5 is committed, and the last one with offsets is 4"),
        (METADATA, ["3", "4"], ["2"], "batch 4 was begun, and the last that is committed is 2"),
        (METADATA, ["1"], [], "batch 1 was begun, and the last that is committed is None"),
    ],
)
def test_a_query_checkpoint_that_is_not_whole_is_refused(
    metadata: bytes, offsets: Sequence[str], commits: Sequence[str], message: str
) -> None:
    with pytest.raises(RefusedError, match=message):
        batches_of("/c", metadata, offsets, commits)


def test_the_last_batch_counts_where_it_is_committed() -> None:
    assert batch_held(batches(), {"/t": None}, is_newest=True) == 4


@pytest.mark.parametrize("held", [3, 4])
def test_the_log_of_a_table_says_whether_it_holds_a_batch_without_a_commit(held: int) -> None:
    assert batch_held(batches(4, 3), {"/t": held}, is_newest=True) == held


def test_a_version_that_is_named_says_its_batch() -> None:
    assert batch_held(batches(), {"/t": 2}, is_newest=False) == 2


def test_a_table_without_a_batch_goes_with_one_of_the_last_batch() -> None:
    assert batch_held(batches(), {"/t": 4, "/u": None}, is_newest=True) == 4


@pytest.mark.parametrize(
    ("stand", "held", "is_newest", "message"),
    [
        (batches(4, 3), {"/t": None}, True, "Start the old job once more, stop it after a batch"),
        (batches(0, None), {"/t": None}, True, "does not say whether the tables hold batch 0"),
        (batches(), {"/t": None}, False, "a version is named that is not the newest"),
        (batches(4, 3), {"/t": 4, "/u": None}, True, "that of /u does not say"),
        (batches(4, 3), {"/t": 4, "/u": 3}, True, "different batches"),
        (batches(), {"/t": 5}, True, "do not belong to /c"),
        (batches(), {"/t": 3}, True, "do not belong to /c"),
    ],
)
def test_a_batch_that_nobody_names_is_refused(
    stand: Batches, held: dict[str, int | None], is_newest: bool, message: str
) -> None:
    with pytest.raises(RefusedError, match=message):
        batch_held(stand, held, is_newest=is_newest)


@pytest.mark.parametrize(
    "lines",
    [
        ["v1", SETTINGS, '{"pos":{"0":5,"1":7}}'],
        ["v1", "", '{"pos":{"0":5,"1":7}}'],
        ["v1", SETTINGS, '{"pos":{"0":5}}', '{"pos":{"1":7}}'],
        ["v1", SETTINGS, '{"pos":{"0":5,"1":7}}', "-", '{"pos":{"0":5}}'],
        ["v2", SETTINGS, '0:{"pos":{"0":5,"1":7}}'],
        ["v2", SETTINGS, 'sales:{"pos":{"0":5,"1":7}}', "1:-"],
    ],
)
def test_offsets_of_all_sources_are_one_vector(lines: Sequence[str]) -> None:
    assert end_offsets("/c/offsets/4", "\n".join(lines).encode()) == Offsets({"pos": {0: 5, 1: 7}})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is gone"),
        (b"", "torn, or of another version"),
        (b"v3\n{}\n{}", "begins with 'v3'"),
        (b"v1\n{}", "names no offset"),
        (b"v1\n{}\n-", "names no offset"),
        (b'v1\n{}\n{"pos":{"0":5', "is torn"),
        (b'v1\n{}\n{"sourceVersion":1,"reservoirId":"r"}', "not Kafka"),
        (b"v1\n{}\n12", "not Kafka"),
        (b'v1\n{}\n{"pos":{"0":5}}\n{"pos":{"0":6}}', "one up to 5 and one up to 6"),
    ],
)
def test_an_offsets_file_that_names_no_one_place_is_refused(content: bytes | None, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        end_offsets("/c/offsets/4", content)
