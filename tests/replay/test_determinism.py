"""The verdict of two runs over one range, and the slices of the second."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.errors import UsageError
from kappa.offsets.vector import Offsets
from kappa.replay.proof.determinism import Determinism, Twice, other_size
from kappa.replay.proof.verdict import DiffReport
from kappa.replay.request import FromMarker, ReplayRequest
from kappa.replay.starts import ToEarliest
from kappa_web.pages.difference import file as html

SAME = Twice(name="rewards", kind="table", rows=3, rows_again=3, hash="ab", hash_again="ab")
OTHER = Twice(
    name="moves",
    kind="output",
    rows=3,
    rows_again=4,
    hash="ab",
    hash_again="cd",
    columns=("total",),
    samples=({"record": "pos[0] at 7"},),
)
BOTH = Determinism(slice_records=500, slice_records_again=333, slices=2, slices_again=3, members=(SAME, OTHER))


@pytest.mark.parametrize(
    ("size", "offsets", "other"),
    [
        (500_000, 10_000_000, 333_333),
        (500_000, 12, 4),
        (500_000, 2, 1),
        (5, 11, 3),
        (3, 100, 2),
        (2, 100, 1),
        (1, 100, 2),
        (1, 0, 2),
        (9, 0, 1),
    ],
)
def test_a_second_run_has_other_slices(size: int, offsets: int, other: int) -> None:
    assert other_size(size, offsets) == other


@given(st.integers(1, 10**9), st.integers(0, 10**12))
def test_a_second_run_never_has_slices_of_equal_or_zero_size(size: int, offsets: int) -> None:
    assert other_size(size, offsets) >= 1
    assert other_size(size, offsets) != size


@given(st.integers(2, 10**6), st.integers(3, 10**6))
def test_a_second_run_over_three_offsets_has_at_least_three_slices(size: int, offsets: int) -> None:
    assert -(-offsets // other_size(size, offsets)) >= min(3, offsets) - (offsets == 4)


def test_differences_are_named_with_column_sample_and_rows() -> None:
    assert not BOTH.is_same
    assert BOTH.failures == (
        "determinism: output moves: differs in total (3 and 4 rows), for example at record=pos[0] at 7",
    )
    assert replace(BOTH, members=(SAME,)).failures == ()
    assert "DIFFERS" in BOTH.summary and "at most 333" in BOTH.summary
    assert replace(OTHER, hash_again="ab").is_same is False
    assert replace(OTHER, rows_again=3).is_same is False


def test_determinism_decides_the_verdict_and_is_shown_in_every_format() -> None:
    report = DiffReport(
        topology="a.b", live_epoch=1, live_seq=1, candidate_epoch=2, candidate_seq=1, at=Offsets(), determinism=BOTH
    )
    assert (report.verdict, replace(report, determinism=replace(BOTH, members=(SAME,))).verdict) == ("failed", "same")
    assert DiffReport.from_json(report.to_json()) == report
    for text in ("\n".join(report.render()), html(report)):
        for words in ("in 3 of at most 333", "output moves", "pos[0] at 7", "DIFFERS", "rewards"):
            assert words in text, words


def test_a_determinism_request_survives_json_and_others_keep_their_id() -> None:
    request = ReplayRequest(topology="a.b", start=ToEarliest(), reason="r", actor="a", determinism=True)
    assert ReplayRequest.from_dict(request.as_dict()) == request
    assert "determinism" not in replace(request, determinism=False).as_dict()


def test_a_rebuild_has_nothing_to_compute_twice() -> None:
    with pytest.raises(UsageError, match="rebuild"):
        ReplayRequest(topology="a.b", start=FromMarker(), reason="r", actor="a", determinism=True)
