"""Tables that a process has open on S3, in a child that it forks."""

from __future__ import annotations

import multiprocessing

import pyarrow as pa

from kappa.delta import tail_table
from kappa.delta.access import create_table


def test_a_child_opens_its_tables_itself(proxied_lake: str) -> None:
    path = f"{proxied_lake}/t"
    create_table(path, pa.schema({"a": pa.int64()}))
    parent = tail_table.tail_of(path)
    assert tail_table.tail_of(path) is parent
    lock, _ = tail_table._tails()
    with lock:  # as another thread of the parent would hold it
        child = multiprocessing.get_context("fork").Process(target=_look, args=(path,))
        child.start()
        child.join()
    assert child.exitcode == 0


def _look(path: str) -> None:
    lock, tails = tail_table._tails()
    assert lock.acquire(blocking=False) and path not in tails
