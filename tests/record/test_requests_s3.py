"""The requests of one writer on S3: what it has just written itself it does not look for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from support.s3_proxy import Proxy
from support.slices import SCHEMA, Epoch

from kappa import clock
from kappa.delta import tables, tail_table
from kappa.errors import StaleWriterError
from kappa.names import EpochPaths
from kappa.record.foreign_writes import Watch
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.slices.writing import write_frames

#: What one append asks for: a file, an entry, and whether the entry before is still there.
APPEND = {"PUT": 2, "HEAD": 1}


def row(seq: int, writer: str = "me") -> LedgerRow:
    return LedgerRow(kind="plan", seq=seq, writer=writer, at=clock.now())


@pytest.fixture
def ledger(proxied_lake: str) -> Ledger:
    """A ledger that this process has claimed."""
    ledger = Ledger(f"{proxied_lake}/ledger")
    ledger.create()
    ledger.claim("me", "code", ledger.state())
    return ledger


def test_a_writer_appends_row_after_row_without_a_look(ledger: Ledger, proxy: Proxy) -> None:
    before = len(proxy.requests)
    for seq in range(3):
        assert ledger.append(row(seq)).n == seq + 2
        assert ledger.state(look=False).seq == seq
    assert proxy.counts(before) == {kind: 3 * count for kind, count in APPEND.items()}


def test_a_row_after_the_claim_of_another_is_refused_without_a_look(ledger: Ledger) -> None:
    other = Ledger(ledger.path)
    other.claim("other", "code", other.state())
    with pytest.raises(StaleWriterError, match="claimed by other"):
        ledger.append(row(0))
    assert [one.kind for one in Ledger(ledger.path).rows()] == ["claim", "claim"]


def test_a_writer_looks_again_after_a_minute_without_a_row(
    ledger: Ledger, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Ledger(ledger.path)
    other.claim("other", "code", other.state())
    claim = ledger.state(look=False).claim
    assert claim is not None and claim.writer == "me", "it has not looked"
    before = len(proxy.requests)
    monkeypatch.setattr(tail_table, "NEXT_ENTRY_SECONDS", -1.0)
    with pytest.raises(StaleWriterError, match="claimed by other"):
        ledger.append(row(0))
    assert proxy.counts(before)["PUT"] == 0


def test_slices_are_appended_and_looked_at_by_one_look(proxied_lake: str, proxy: Proxy) -> None:
    paths = EpochPaths(lake=proxied_lake, topology="a.b", epoch=1)
    tables.create(paths.dead_letters, (tables.SEQ,))
    watch = Watch(paths=paths)
    rows = {seq: pa.table({"_seq": pa.array([seq], pa.int64())}) for seq in range(1, 5)}
    watch.pass_over("dead_letters", tables.append(paths.dead_letters, rows[1], 1, "plan") or 0)
    watch.look({"dead_letters": 0})
    before = len(proxy.requests)
    for seq in (2, 3, 4):
        version = tables.append(paths.dead_letters, rows[seq], seq, "plan")
        assert version == seq
        watch.pass_over("dead_letters", version)
        watch.look({"dead_letters": 1}, {"dead_letters": version})
    assert proxy.counts(before) == {kind: 3 * count for kind, count in APPEND.items()}
    watch.look({"dead_letters": 1})
    assert (watch.newest("dead_letters"), proxy.counts(before)["GET"]) == (4, 1)
    watch.expire("dead_letters")
    assert watch.newest("dead_letters") is None


def test_the_places_of_a_slice_are_written_at_once(proxied_lake: str, proxy: Proxy) -> None:
    epoch = Epoch(proxied_lake)
    plan = epoch.run.ledger.append(row(1))
    places = ("dead_letters", "changes/sums")
    held = {place: proxy.hold(rf"{place}/_delta_log/0{{19}}1\.json$") for place in places}
    rows = pa.Table.from_pylist([{"id": "a", "select": 0, "total": 2, "_deleted": False}], SCHEMA.remove(0))
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write_frames, epoch.run, plan, {}, {"sums": rows}, pa.table({}))
        for place in places:
            held[place].await_arrival()  # each while the other one has no answer
        for place in reversed(places):
            held[place].release()
        assert set(writing.result(60)) == {"changes/sums"}
    assert epoch.run.scratch.versions == dict.fromkeys(places, 1)
