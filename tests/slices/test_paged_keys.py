"""Keys on the disk: a multiset like those of Python, whose memory does not grow with it."""

from __future__ import annotations

import signal
import subprocess
import sys
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


@given(acts=ACTS, most=st.sampled_from([0, 2, 100]))
def test_keys_are_counted_as_in_memory(acts: list[tuple[str, list[bytes]]], most: int) -> None:
    expected: Counter[bytes] = Counter()
    with PagedKeys(most=most) as paged:
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
    with PagedKeys(str(tmp_path / "it's scratch"), most=20_000) as paged:
        paged.add(_digests(500_000))
        files = [str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
        assert any(file.startswith(f"{tmp_path}/it's scratch/") for file in files), "they are below home"
        paged.discard(_digests(499_000))
        assert sum(len(batch) for batch in paged.batches(300)) == 1_000
        assert list((tmp_path / "it's scratch").iterdir()) == []
    assert peak() < 64, "a set of these takes 100 MB"


def test_keys_that_fit_into_memory_open_no_file(tmp_path: Path) -> None:
    with PagedKeys(str(tmp_path / "scratch"), most=3) as paged:
        paged.discard(_digests(1_000))
        assert not paged.take(b"a")
        paged.add([b"b", b"a", b"b", b"c"])
        assert [paged.take(b"b") for _ in range(3)] == [True, True, False]
        assert list(tmp_path.iterdir()) == []
        paged.add([b"d"])
        assert (tmp_path / "scratch").is_dir()


#: Dies by SIGKILL at the moment at which a database is connected, or by itself where none is.
KILLED = """
import os, signal, sys
from kappa.slices.topics.paged_keys import PagedKeys
sys.addaudithook(lambda name, _: name == "sqlite3.connect/handle" and os.kill(os.getpid(), signal.SIGKILL))
keys = PagedKeys(sys.argv[1], *map(int, sys.argv[2:]))
keys.add([b"a"])
"""


def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    died = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), "0"], check=False)
    assert died.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def _digests(count: int) -> Iterator[bytes]:
    return (blake2b(b"%d" % n, digest_size=64).digest() * 2 for n in range(count))
