"""The record that fails alone: found by bisection, or by trying one after the other, without an engine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kappa.errors import LedgerError, TopologyError
from kappa.offsets.vector import OffsetRange
from kappa.slices.probing import Refusal, failing, failing_alone, named_by
from kappa.spark.error_classes import error_class


def span(start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(topic="pos", partition=partition, start=start, end=end)


class Tried:
    """A step that fails at some offsets, and says how often it was called."""

    def __init__(self, bad: dict[tuple[int, int], str], *, together: set[int] | None = None) -> None:
        self._bad, self._together = bad, together or {-1}
        self.calls = 0

    def __call__(self, ranges: Sequence[OffsetRange]) -> str | None:
        self.calls += 1
        places = [(item.partition, offset) for item in ranges for offset in range(item.start, item.end)]
        if self._together <= {offset for _, offset in places}:
            return "TOGETHER"
        return next((self._bad[place] for place in places if place in self._bad), None)


@pytest.mark.parametrize("bad", [(0, 5), (0, 36), (1, 3), (1, 4), (2, 0)])
def test_a_single_failing_record_is_found_by_bisection(bad: tuple[int, int]) -> None:
    tried = Tried({bad: "BAD"})
    failure = failing_alone(tried, [span(5, 37), span(3, 5, 1), span(7, 7, 3), span(0, 1, 2)])
    assert failure == (span(bad[1], bad[1] + 1, bad[0]), "BAD")
    assert tried.calls <= 14


def test_records_that_fail_only_together_are_not_reported_as_one() -> None:
    assert failing_alone(Tried({}, together={2, 6}), [span(0, 8)]) is None
    assert failing_alone(Tried({}), [span(0, 8)]) is None
    assert failing_alone(Tried({}), [span(3, 3)]) is None


@pytest.mark.parametrize(
    "bad", [set(), {0}, {99}, set(range(100)), set(range(0, 100, 2)), set(range(40, 60)), {3, 4, 90}]
)
def test_a_listing_has_each_failing_record_with_its_error_class(bad: set[int]) -> None:
    tried = Tried({(0, offset): "BAD" if offset % 5 else "OTHER" for offset in bad})
    assert list(failing(tried, span(0, 100), "BAD")) == sorted(offset for offset in bad if offset % 5)
    assert tried.calls <= 10 + 8 * len(bad)


def test_ten_thousand_failing_records_are_tried_once_each() -> None:
    tried = Tried({(0, offset): "BAD" for offset in range(1_000, 11_000)})
    assert list(failing(tried, span(0, 20_000), "BAD")) == list(range(1_000, 11_000))
    assert tried.calls < 10_100


def test_a_refusal_names_the_failure_and_the_command_to_set_it_aside() -> None:
    one = Refusal(topic="pos", partition=3, offset=17, error="DIVIDE_BY_ZERO", cause="state")
    text = one.described("a.b", " --epoch 2")
    assert "pos[3] at offset 17, which alone fails with DIVIDE_BY_ZERO, and not with empty tables" in text
    assert text.endswith("kappa set-aside a.b --epoch 2 --topic pos --partition 3 --offset 17 --reason '...' --execute")


def test_an_error_class_is_a_name_to_group_by() -> None:
    class PythonException(Exception):
        def getCondition(self) -> None:  # as PySpark has it
            return None

    class Divided(Exception):
        def getCondition(self) -> str:  # as PySpark has it
            return "DIVIDE_BY_ZERO"

    worker = 'Traceback (most recent call last):\n  File "x", line 1, in f\njson.JSONDecodeError: Expecting value\n'
    errors = [ValueError("v"), Divided("d"), PythonException(worker), TopologyError("t"), LedgerError("r", code="TOO")]
    assert [error_class(one) for one in errors] == [
        *("ValueError", "DIVIDE_BY_ZERO", "json.JSONDecodeError", "TopologyError", "TOO")
    ]


@pytest.mark.parametrize("data", [{"place": ("pos", 0, 7)}, {"origin": {"topic": "pos", "partition": 0, "offset": 7}}])
def test_a_record_named_by_an_error_counts_only_within_the_slice(data: dict[str, object]) -> None:
    error = LedgerError("refused", code="INVALID_RECORD", **data)
    refusal = named_by(error, [span(0, 3, 1), span(5, 8)])
    assert refusal == Refusal(topic="pos", partition=0, offset=7, error="INVALID_RECORD")
    assert "at offset 7, which is refused with INVALID_RECORD." in refusal.described("a.b")
    assert named_by(error, [span(8, 9)]) is None, "a window may be made of records of earlier slices"
    assert named_by(ValueError("v"), [span(0, 9)]) is None and named_by(None, [span(0, 9)]) is None
