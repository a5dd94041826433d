"""A rolled up ledger gives the same answers to those who open it and to those who follow it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.deaths import run_to_death

from kappa.errors import ConflictError, StaleWriterError
from kappa.offsets.releases import releases_detail
from kappa.offsets.vector import OffsetRange, Offsets, ranges_end
from kappa.record import rollup
from kappa.record.ledger import Ledger, _to_record
from kappa.record.ledger_rows import Kind, LedgerRow
from kappa.record.ledger_state import Commits, LedgerState, StateBuilder, stays
from kappa.record.rollup import RECENT, is_due, rolled_up, runs_of, slice_facts
from kappa.record.slice_runs import extended
from kappa.replay.chains import Final
from kappa.replay.proof.certificate import Certificate, MoveFacts, Sends
from kappa.replay.proof.certify import certify
from kappa.topology.shapes import Timing, graces_of

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


class Story:
    """Rows of an epoch as its driver would write them, numbered."""

    def __init__(self) -> None:
        self.rows: list[LedgerRow] = []
        self.n = self.seq = 0
        self.position = {0: 0}
        self.sends: Sends = "held"
        self.code = "code-0"
        self.handover = 0
        self.commit(0, {})

    def add(self, kind: Kind, seq: int | None = None, **values: Any) -> LedgerRow:
        self.n += 1
        at = BEGIN + timedelta(seconds=self.n)
        row = LedgerRow(
            n=self.n, kind=kind, seq=self.seq if seq is None else seq, writer="me", at=at, code=self.code, **values
        )
        self.rows.append(row)
        return row

    def commit(self, seq: int, sizes: dict[int, int], dead: int = 0, lost: int = 0) -> None:
        ranges = tuple(
            OffsetRange(topic="pos", partition=p, start=start, end=start + sizes.get(p, 0))
            for p, start in sorted(self.position.items())
        )
        self.position = {r.partition: r.end for r in ranges}
        count = sum(r.count for r in ranges)
        self.seq = seq
        detail = {"bytes_read": 10 * count} if seq else {"topic_ids": {"pos": "id"}, "shapes": {}}
        self.add(
            "commit",
            ranges=ranges,
            sends=self.sends,
            logged=self.sends == "live",
            rows_read=count,
            rows_parsed=count - dead - lost,
            rows_dead=dead,
            delta_versions={"tables/sums": seq // 3, "changes/sums": seq},
            max_timestamps={"pos": dict(self.position)},
            detail={**detail, "merged": {"sums": {"seq": 3 * (seq // 3), "key": ["id"]}}},
        )

    def slice(
        self, sizes: dict[int, int], dead: int = 0, lost: int = 0, *, abandoned: dict[str, Any] | None = None
    ) -> None:
        count = sum(sizes.values())
        self.add("plan", self.seq + 1, sends=self.sends)
        if abandoned is not None:
            self.add("seal", self.seq + 1, detail=abandoned)
            self.add("abandon", self.seq + 1, detail=abandoned)
            self.seq += 1
            self.add("plan", self.seq + 1, sends=self.sends)
        self.add("effects", self.seq + 1)
        self.commit(self.seq + 1, sizes, min(dead, count), min(lost, count - min(dead, count)))

    def maintain(self, keep: int, savepoints: int) -> None:
        state = state_of(self.rows)
        seqs = [row.seq for row in state.readable]
        kept_seqs = {*seqs[-keep:], *[seq for seq in seqs if seq % 5 < savepoints]}
        removed_seqs = [seq for seq in seqs if seq not in kept_seqs]
        before = max([state.readable_from, *(seq + 1 for seq in removed_seqs)])
        merges = {
            "sums": {"key": ["id"], "kept": [[seq // 3, 3 * (seq // 3)] for seq in sorted(kept_seqs) if seq % 2 == 0]}
        }
        self.add(
            "maintain",
            detail={
                "readable_from": before,
                "savepoints": sorted(s for s in kept_seqs if s < before),
                "merges": merges,
                "recent_from": before,
                "forgotten": {"sums": max(state.forgotten("sums"), min(kept_seqs) - 1)},
            },
        )

    def do(self, step: tuple[str, int, int]) -> None:
        what, a, b = step
        match what:
            case "slice":
                self.slice(dict.fromkeys(self.position, a), dead=b % 2)
            case "miscounted":
                self.slice({0: a + 1}, lost=1)
            case "abandoned":
                self.slice({0: a}, abandoned=({}, {"most": a + 1}, {"decided": True})[b])
            case "partition":
                self.position[len(self.position)] = 0
            case "claim":
                self.add("claim")
            case "upgrade":
                self.code = f"code-{a}"
                self.add("upgrade")
            case "baseline":
                self.add("baseline")
            case "resume" if self.sends == "held":
                self.sends = "live"
                self.handover += 1
                self.add("resume", detail={"handover": self.handover})
            case "yield" if self.sends == "live":
                self.sends = "held"
                self.add("yield", detail={"handover": self.handover + 1})
            case "back" if self.sends == "live":
                self.add("yield", detail={"handover": self.handover + 1})
                self.add("resume", detail={"handover": self.handover})
            case "maintain":
                self.maintain(1 + a, b)


def state_of(rows: Sequence[LedgerRow]) -> LedgerState:
    builder = StateBuilder()
    for row in rows:
        builder.add(row)
    return builder.state()


def answers(state: LedgerState) -> dict[str, Any]:
    """Everything that the product reads from a ledger, except numbers of rows."""

    def plain(row: LedgerRow | None) -> Any:
        return None if row is None else _to_record(row)

    facts = {1: tuple(run.facts for run in runs_of(state))}
    moves = (MoveFacts(epoch=1, from_epoch=None, at=Offsets({"pos": {0: 0}})),)
    runs = runs_of(state)
    return {
        **{
            name: getattr(state, name)
            for name in (
                "seq",
                "is_yielded",
                "yielded_for",
                "has_sent",
                "resumed_for",
                "baseline_seq",
                "readable_from",
                "savepoints",
                "position",
                "standing",
                "slices",
                "shapes",
                "tries",
                "since_shrunk",
            )
        },
        **{
            name: plain(getattr(state, name))
            for name in (
                "claim",
                "open_plan",
                "open_effects",
                "shrunk",
                "miscounted",
                "baseline",
                "maintained",
                "upgrade",
                "committed",
            )
        },
        "seed": plain(state.commits[0]),
        "readable": [plain(row) for row in state.readable],
        "resolved": [plain(state.resolved(row)) for row in state.readable],
        "forgotten": [state.forgotten("sums"), *(state.forgotten("sums", row.n) for row in state.readable)],
        "certificate": unnumbered(certify("sums", moves, facts)),
        "with a start": unnumbered(certify("sums", moves, facts, starts={1: Offsets({"pos": {0: 0}})})),
        "due": [c.seq for c in state.readable if c.seq > state.readable_from],
        "measured": [
            sum(getattr(run, name) for run in runs) for name in ("bytes_read", "sized_records", "sized", "slices")
        ],
        "sends": {run.facts.sends for run in runs},
    }


def fields_of(state: LedgerState) -> dict[str, Any]:
    """All that a state holds."""
    values = {field.name: getattr(state, field.name) for field in fields(state)}
    return {name: list(value) if isinstance(value, Commits) else value for name, value in values.items()}


def unnumbered(certificate: Certificate) -> Certificate:
    """Without slice numbers in spans: a run names its first and last slice even if they read nothing."""
    proofs = (
        replace(p, spans=tuple(replace(s, seq_first=0, seq_last=0) for s in p.spans)) for p in certificate.partitions
    )
    return replace(certificate, partitions=tuple(proofs))


def replayed(rows: Sequence[LedgerRow], at: Sequence[int]) -> tuple[LedgerState, LedgerState, list[LedgerRow]]:
    """The same rows with roll-ups at these numbers: for a reader that followed, and for one that opens what remains."""
    warm, remaining_rows, n = StateBuilder(), [], 0
    for row in rows:
        n += 1
        here = _numbered(row, n)
        warm.add(here)
        remaining_rows.append(here)
        if row.n in at:
            state = warm.state()
            rollup = rolled_up(state, writer="me", code="c", at=row.at)
            if rollup is None:
                continue
            n += 1
            rollup = _numbered(rollup, n)
            is_kept = stays(state, rollup.detail["upto"])
            remaining_rows = [one for one in remaining_rows if is_kept(one.n, one.kind, one.seq)] + [rollup]
            warm.add(rollup)
    return warm.state(), state_of(remaining_rows), remaining_rows


def _numbered(row: LedgerRow, n: int) -> LedgerRow:
    return replace(row, n=n)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["slice"] * 8
            + [
                "miscounted",
                "abandoned",
                "partition",
                "claim",
                "upgrade",
                "baseline",
                "resume",
                "yield",
                "back",
                "maintain",
            ]
        ),
        st.integers(0, 4),
        st.integers(0, 2),
    ),
    min_size=5,
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(steps=STEPS, every=st.integers(1, 25))
def test_a_rolled_up_ledger_gives_the_same_answers(steps: list[tuple[str, int, int]], every: int) -> None:
    story = Story()
    for step in steps:
        story.do(step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollup, "RECENT", 1)
        warm, cold, remaining_rows = replayed(story.rows, [row.n for row in story.rows if row.n % every == 0])
        expected = answers(state_of(story.rows))
        assert answers(warm) == expected
        assert answers(cold) == expected
        assert fields_of(cold) == fields_of(warm)
        assert (
            [row.n for row in warm.commits]
            == [row.n for row in cold.commits]
            == [r.n for r in remaining_rows if r.kind == "commit"]
        )
        assert [row.n for row in warm.looks] == [row.n for row in cold.looks]


def test_a_slice_named_by_a_certificate_is_not_merged_into_a_run() -> None:
    story = Story()
    for _ in range(5):
        story.slice({0: 2})
    story.slice({0: 2}, lost=1)
    for _ in range(5):
        story.slice({0: 2})
    runs = extended((), runs_of(state_of(story.rows)))
    assert [(run.facts.seq, run.facts.last) for run in runs] == [(0, 0), (1, 5), (6, 6), (7, 11)]
    certificate = certify(
        "sums", (MoveFacts(epoch=1, from_epoch=None, at=Offsets()),), {1: tuple(r.facts for r in runs)}
    )
    assert any("slice 6: 2 records read, but 1 parsed" in problem for problem in certificate.problems)


def test_slices_with_a_gap_between_them_are_not_one_run() -> None:
    story = Story()
    story.slice({0: 2})
    story.position = {0: 5}
    story.slice({0: 2})
    story.slice({0: 2})
    runs = extended((), runs_of(state_of(story.rows)))
    assert [(run.facts.seq, run.facts.last) for run in runs] == [(0, 0), (1, 1), (2, 3)]


def test_a_rolled_up_ledger_does_not_grow_with_history() -> None:
    sizes = []
    for slices in (500, 2000):
        story = Story()
        story.do(("resume", 0, 0))
        at = []
        for number in range(slices):
            story.slice({0: 3})
            if number % 100 == 99:
                story.maintain(5, 0)
                at.append(story.n)
        warm, _, remaining_rows = replayed(story.rows, at)
        sizes.append((len(remaining_rows), len(warm.commits), len(_to_record(warm.rolled)["detail"]) // 100))  # type: ignore[arg-type]
    assert sizes[0] == sizes[1]


def test_facts_of_a_chained_epoch_continue_after_the_roll_up() -> None:
    rows = [
        LedgerRow(
            n=n + 1,
            kind="commit",
            seq=n,
            writer="me",
            at=BEGIN,
            rows_read=3 * (n > 0),
            rows_parsed=3 * (n > 0),
            code="c",
            ranges=(OffsetRange(topic="own", partition=0, start=3 * max(0, n - 1), end=3 * n),),
            detail={
                "roots": {"pos": {"0": 2 * n}},
                "sent": {"mine": {"0": 7 * n}},
                "final": {"mine": {"time": "window_end", "ms": 1_000 * n}},
            },
        )
        for n in range(RECENT + 30)
    ]
    warm, cold, _ = replayed(rows, [RECENT + 25])
    whole = slice_facts(rows)
    assert warm.rolled is not None
    assert extended((), runs_of(cold)) == extended((), runs_of(state_of(rows)))
    assert certify("a", (), {1: tuple(r.facts for r in runs_of(cold))}).at == certify("a", (), {1: whole}).at
    before = rollup.sent_before(cold)
    assert [one.standing for one in before] == [rows[24].standing, rows[1].standing]
    assert [one.final for one in before] == [{"mine": Final(time="window_end", ms=1_000 * n)} for n in (24, 1)]

    stands = [Offsets({"pos": {0: 18}, "other": {0: 5}})]  # of a reader that stands still, as of the ninth slice
    again = rolled_up(state_of(rows), writer="me", code="c", at=BEGIN, stands=stands)
    assert again is not None
    places = [one.standing for one in rollup.sent_before(replace(cold, rolled=again))]
    assert rows[9].standing in places and rows[1].standing in places and len(places) == 3


# Real ledgers


def written(path: Path, slices: int = 60) -> Ledger:
    ledger = Ledger(str(path / "ledger"))
    ledger.create()
    ledger.claim("me", "code-0", ledger.state())
    story = Story()
    story.do(("resume", 0, 0))
    for _ in range(slices):
        story.slice({0: 3})
    story.maintain(5, 0)
    append(ledger, story.rows)
    return ledger


def append(ledger: Ledger, rows: Sequence[LedgerRow]) -> None:
    ledger.state()
    ledger._log.append([_to_record(row) for row in rows])


def roll(ledger: Ledger, writer: str = "me") -> None:
    row = rolled_up(ledger.state(), writer=writer, code="code-0", at=BEGIN)
    assert row is not None
    ledger.roll_up(row)


def test_the_ledger_continues_after_a_roll_up_and_keeps_every_row_beside_it(tmp_path: Path) -> None:
    ledger = written(tmp_path)
    before, follower = ledger.rows(), Ledger(ledger.path)
    asks, late = answers(ledger.state()), Ledger(ledger.path)
    assert answers(follower.state()) == asks and is_due(ledger.state(), 51) and not is_due(ledger.state(), 52)
    roll(ledger)
    for one in (ledger, follower, Ledger(ledger.path), late):
        assert answers(one.state()) == asks
    assert len(ledger.rows()) < len(before) / 3 and not is_due(ledger.state(), 50)
    story = Story()
    story.seq, story.position, story.sends = 60, {0: 180}, "live"
    for _ in range(40):
        story.slice({0: 3})
    append(ledger, story.rows[1:])
    after = ledger.rows()
    roll(ledger)
    for one in (ledger, follower, Ledger(ledger.path)):
        state = one.state()
        assert (state.seq, state.slices, state.position) == (100, 100, Offsets({"pos": {0: 300}}))
    history = {row.n: row for piece in ledger.history() for row in piece}
    assert sum(len(piece) for piece in ledger.history()) == len(history) == max(history)
    assert [history[row.n] for row in (*before, *after) if row.kind != "rollup"] == [
        r for r in (*before, *after) if r.kind != "rollup"
    ]
    last = ledger.last_commit()
    assert last is not None and last.seq == 100
    assert ledger.seed() == next(row for row in before if row.kind == "commit")


def test_a_follower_that_missed_a_roll_up_starts_over(tmp_path: Path) -> None:
    ledger = written(tmp_path, 3)
    away = Ledger(ledger.path)
    assert away.state().seq == 3
    story = Story()
    story.seq, story.position, story.sends = 3, {0: 9}, "live"
    for _ in range(60):
        story.slice({0: 3})
    story.maintain(5, 0)
    append(ledger, story.rows[1:])
    roll(ledger)
    assert answers(away.state()) == answers(Ledger(ledger.path).state()) == answers(ledger.state())
    assert away.state().slices == 63


def test_a_roll_up_of_an_outdated_state_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    ledger = written(tmp_path)
    other = Ledger(ledger.path)
    stale = rolled_up(ledger.state(), writer="me", code="code-0", at=BEGIN)
    other.claim("another", "code-0", other.state())
    rows = ledger.rows()
    assert stale is not None
    with pytest.raises(StaleWriterError):
        ledger.roll_up(stale)
    ledger.state()
    state, log = other.state(), other._log
    log.replace(log.rows(), [_to_record(LedgerRow(kind="baseline", seq=60, writer="another", at=BEGIN))], 0)
    with pytest.raises(ConflictError):
        ledger._log.replace(ledger._log.rows(), [_to_record(stale)], stale.detail["upto"])
    assert Ledger(ledger.path).rows()[:-1] == rows
    assert state.claim is not None and Ledger(ledger.path).state().claim == state.claim


def test_either_a_roll_up_or_a_concurrent_append_is_refused(tmp_path: Path) -> None:
    ledger = written(tmp_path)
    twin = Ledger(ledger.path)
    row = rolled_up(twin.state(), writer="me", code="code-0", at=BEGIN)
    roll(ledger)
    with pytest.raises(ConflictError):
        twin._log.append([_to_record(LedgerRow(kind="plan", seq=61, writer="me", at=BEGIN))])
    assert row is not None
    with pytest.raises(ConflictError):
        twin._log.replace(twin._log.rows(), [_to_record(row)], row.detail["upto"])
    plan = LedgerRow(kind="plan", seq=61, writer="me", at=BEGIN)
    with pytest.raises(ConflictError):
        twin.append(plan)
    assert twin.append(plan).n == ledger.state().last
    state = Ledger(ledger.path).state()
    assert state.open_plan is not None and state.slices == 60


SCRIPT = """
import sys
from datetime import UTC, datetime
from kappa.record.ledger import Ledger
from kappa.record.ledger_state import stays
from kappa.record.rollup import rolled_up
ledger = Ledger(sys.argv[1])
ledger.roll_up(rolled_up(ledger.state(), writer="me", code="code-0", at=datetime(2026, 3, 1, tzinfo=UTC)))
"""


@pytest.mark.parametrize(("point", "is_rolled"), [("rollup.history", False), ("rollup", True)])
def test_a_process_killed_in_a_roll_up_leaves_the_ledger_old_or_rolled_up(
    tmp_path: Path, point: str, is_rolled: bool
) -> None:
    ledger = written(tmp_path)
    before, asks = len(ledger.rows()), answers(ledger.state())
    run_to_death("-c", SCRIPT, ledger.path, point=point, environ=os.environ)
    assert (len(ledger.rows()) < before) is is_rolled
    assert answers(ledger.state()) == answers(Ledger(ledger.path).state()) == asks
    if not is_rolled:  # the next driver does it again, and the file that nobody names is passed over
        roll(ledger)
        assert len(list(Path(f"{ledger.path}_history").iterdir())) == 2
    assert answers(ledger.state()) == asks
    numbers = [row.n for piece in ledger.history() for row in piece]
    assert sorted(numbers) == list(range(1, before + 2))
    assert all(a.n < b.n for a, b in pairwise(ledger.rows()))


def test_releases_of_rolled_up_slices_are_kept(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "ledger"))
    ledger.create()
    ledger.claim("driver", "c", ledger.state())
    end = Offsets({"pos": {0: 0, 1: 0}})
    for seq in range(RECENT + 5):
        ranges = end.span_to(end.with_("pos", 0, end["pos", 0] + 1))
        detail = releases_detail({"pos": {1: {seq // 3: 1_000 * seq}}} if seq else {})
        commit = LedgerRow(kind="commit", seq=seq, writer="driver", at=BEGIN, ranges=ranges, detail=detail)
        ledger.append(replace(commit, stream_times={"pos": {0: 1_000 * seq, 1: 1_000 * seq}}))
        end = ranges_end(ranges)
    last = RECENT + 4
    ledger.append(
        LedgerRow(
            kind="maintain", seq=last, writer="driver", at=BEGIN, detail={"readable_from": last, "savepoints": []}
        )
    )
    before = ledger.state()
    row = rolled_up(before, writer="driver", code="c", at=BEGIN)
    assert row is not None
    ledger.roll_up(row)
    for state in (ledger.state(), Ledger(ledger.path).state()):
        assert len(state.commits) < len(before.commits)
        assert state.released == before.released != {}
        assert state.releases[0][0] == before.commits[4].standing
    for state in (before, ledger.state(), Ledger(ledger.path).state()):
        assert state.effective_releases == {"pos": {1: {last // 3: 1_000 * last}}}, "later slices feel no other one"


def test_times_and_graces_come_from_the_code_of_a_commit() -> None:
    def times(grace_ms: int) -> dict[str, Any]:
        return {"pos": {"time": "at", "grace_ms": grace_ms}}

    windows = {"columns": {"id": "STRING"}, "required": ["id"], "key": ["id"], "made_by": "w", "times": times(10)}
    moves = {"columns": {"id": "STRING"}, "required": [], "key": [], "made_by": "", "times": {}}
    builder = StateBuilder()
    for n, row in enumerate(
        (
            LedgerRow(
                kind="commit", seq=0, writer="w", at=BEGIN, detail={"shapes": {"tables/w": windows, "outputs/m": moves}}
            ),
            LedgerRow(kind="commit", seq=1, writer="w", at=BEGIN),
            LedgerRow(
                kind="upgrade",
                seq=1,
                writer="w",
                at=BEGIN,
                detail={"at": {"pos": {"0": 7}}, "times": times(60), "floors": {"pos": {"0": {"7": 90}}}},
            ),
            LedgerRow(kind="commit", seq=2, writer="w", at=BEGIN),
        ),
        start=1,
    ):
        builder.add(replace(row, n=n))
    state = builder.state()
    assert [graces_of(state.shapes_at(seq)) for seq in (0, 1, 2)] == [{"pos": 10}, {"pos": 10}, {"pos": 60}]
    assert state.shapes["outputs/m"].times == {} and state.timings == {"pos": Timing(time="at", grace_ms=60)}
    assert state.floored == {"pos": {0: {7: 90}}}
