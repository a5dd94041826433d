"""Keys on the disk: a multiset like those of Python, whose memory does not grow with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.memory import growth

from kappa.slices.topics.paged_keys import PagedKeys

KEYS = st.lists(st.sampled_from([b"", b"\0", b"a", b"a\0", b"b", b"\xff\xff"]), max_size=4)
ACTS = st.lists(st.tuples(st.sampled_from(["add", "discard", "take"]), KEYS), max_size=12)


@given(acts=ACTS)
def test_keys_are_counted_as_in_memory(acts: list[tuple[str, list[bytes]]]) -> None:
    expected: Counter[bytes] = Counter()
    with PagedKeys() as paged:
        for act, keys in acts:
            match act:
                case "add":
                    paged.add(keys)
                    expected.update(keys)
                case "discard":
                    paged.discard(keys)
                    for key in keys:
                        del expected[key]
                case _:
                    for key in keys:
                        assert paged.take(key) == (expected[key] > 0)
                        expected[key] = max(0, expected[key] - 1)
        assert [key for batch in paged.batches(2) for key in batch if expected[key]] == sorted(+expected)


def test_keys_beyond_memory_are_on_the_disk_and_leave_no_file(tmp_path: Path) -> None:
    peak = growth()
    with PagedKeys(str(tmp_path / "scratch")) as paged:
        paged.add(_digests(500_000))
        paged.discard(_digests(499_000))
        assert sum(len(batch) for batch in paged.batches(300)) == 1_000
        assert list((tmp_path / "scratch").iterdir()) == []
    assert peak() < 64, "a set of these takes 100 MB"


def _digests(count: int) -> Iterator[bytes]:
    return (blake2b(b"%d" % n, digest_size=64).digest() * 2 for n in range(count))
