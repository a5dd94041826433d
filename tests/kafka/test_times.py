"""Answers about times, confirmed by reading a log that is in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kappa.kafka import offsets_for_times
from kappa.kafka.offsets_for_times import Confirmer
from kappa.offsets.vector import Offsets

AT = ("pos", 0)


class Message:
    """A record with an offset and a time."""

    def __init__(self, offset: int, time: int) -> None:
        self._offset, self._time = offset, time

    def topic(self) -> str:
        return AT[0]

    def partition(self) -> int:
        return AT[1]

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self._time


class Log:
    """Reads a list of times as a partition, one record per batch."""

    def __init__(self, log: list[int]) -> None:
        self.log = log

    def read(self, start: Offsets, end: Offsets) -> Iterator[list[Message]]:
        for offset in range(start.get(*AT) or 0, end.get(*AT) or 0):
            yield [Message(offset, self.log[offset])]

    def skip(self, *_: object) -> None:
        """The caller skips the rest of the partition."""


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(0, 11), st.data())
@settings(deadline=None)
def test_records_before_an_offset_do_not_count_and_reads_are_remembered(
    log: list[int], began: int, data: st.DataObject
) -> None:
    began = min(began, len(log) - 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offsets_for_times, "GRAIN", 1)
        patch.setattr(offsets_for_times, "Reader", lambda *_, **__: Log(log))
        confirmer = Confirmer("")
        for since in sorted(data.draw(st.lists(st.integers(began, len(log) - 1), min_size=1, max_size=4))):
            reached = max(log[began:since], default=0)
            for ms in data.draw(st.lists(st.integers(reached + 1, 11), max_size=4)):
                raw = next((offset for offset, at in enumerate(log) if at >= ms), None)
                answers = {} if raw is None else {AT: raw}
                end = Offsets({"pos": {0: len(log)}})
                first_records = confirmer.first_records(answers, end, ms, Offsets({"pos": {0: since}}))
                assert first_records.get(AT) == next((o for o, at in enumerate(log) if at >= ms and o >= since), None)
                assert confirmer.first_records(answers, end, ms).get(AT) == raw
