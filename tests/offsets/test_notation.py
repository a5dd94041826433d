"""How people write times, durations and offsets."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.errors import UsageError
from kappa.offsets import notation
from kappa.offsets.vector import Offsets


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("P7D", 7 * 86400),
        ("PT6H", 6 * 3600),
        ("P1DT12H30M5S", 86400 + 12 * 3600 + 30 * 60 + 5),
        ("P2W", 14 * 86400),
        ("PT0.5S", 0.5),
    ],
)
def test_a_duration_is_written_in_iso_8601(text: str, seconds: float) -> None:
    assert notation.parsed_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "7D", "P1M", "P1Y", "-P1D", "PT6h", "P7D ", "P٧D", "P" + "9" * 30 + "D"]
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        notation.parsed_duration(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-12:00"])
def test_a_time_that_utc_has_no_year_for_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is beyond the years 1 to 9999"):
        notation.parsed_time(text)
    with pytest.raises(UsageError, match="is beyond the years 1 to 9999"):
        notation.local_time(text, "Europe/Berlin")


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=10_000)))
def test_a_duration_survives_its_text(duration: timedelta) -> None:
    assert notation.parsed_duration(notation.duration_text(duration)) == duration


def test_offsets_are_named_by_partition_or_by_topic() -> None:
    assert notation.parsed_offsets(["pos:0=1200", "pos=500", "a.b-c_d:12=0"]) == (
        Offsets({"pos": {0: 1200}, "a.b-c_d": {12: 0}}),
        {"pos": 500},
    )


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["pos"], "'pos' names no offset"),
        (["pos:=1"], "names no offset"),
        (["pos:x=1"], "names no offset"),
        (["pos=1.5"], "names no offset"),
        (["=1"], "names no offset"),
        (["pos:0=-1"], "offset -1 is negative"),
        (["pos=1", "pos=2"], "all partitions of 'pos' were given 1 before"),
        (["pos:0=1", "pos:0=1"], r"pos\[0\] was given 1 before"),
    ],
)
def test_offsets_that_are_malformed_or_named_twice_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        notation.parsed_offsets(texts)


def test_a_file_of_kafkas_tools_is_read_and_written() -> None:
    offsets = Offsets({"pos": {0: 1200, 1: 5}, "other": {0: 0}})
    text = notation.offsets_to_csv(offsets)
    assert text == "other,0,0\npos,0,1200\npos,1,5\n"
    assert notation.offsets_from_csv(text, "f.csv") == offsets
    assert notation.offsets_from_csv('\r\n"pos", 0 , 7\r\n\r\n', "f.csv") == Offsets({"pos": {0: 7}})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("pos,1", "three values"),
        ("pos,1,2,3", "three values"),
        ("TOPIC,PARTITION,OFFSET", "as numbers"),
        ("pos,-1,2", "as numbers"),
        ("pos,1,two", "as numbers"),
        (",1,2", "TOPIC,PARTITION,OFFSET"),
        ('"pos,1,2', "TOPIC,PARTITION,OFFSET"),
        ("pos,1,-2", "offset -2 is negative"),
        ("pos,0,9", r"pos\[0\] was given 5 before"),
    ],
)
def test_a_malformed_line_is_refused_with_its_number_and_content(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        notation.offsets_from_csv(f"pos,0,5\n\n{line}\n", "f.csv")
    assert str(caught.value).startswith(f"Line 3 of f.csv is {line!r}: ")


def test_a_file_without_offsets_is_refused() -> None:
    with pytest.raises(UsageError, match=r"f\.csv names no offset"):
        notation.offsets_from_csv("\n", "f.csv")


@pytest.mark.parametrize(
    ("texts", "partitions"),
    [(["pos"], {"pos": None}), (["pos:2,0", "b"], {"pos": (0, 2), "b": None}), (["pos:1"], {"pos": (1,)})],
)
def test_partitions_are_selected_as_kafkas_tools_do(texts: list[str], partitions: dict[str, Any]) -> None:
    assert notation.parsed_partitions(texts) == partitions


@pytest.mark.parametrize(
    "texts", [[""], ["pos:"], ["pos:a"], ["pos:0,,1"], ["pos:" + "9" * 5000], [":0"], ["pos", "pos:1"]]
)
def test_a_malformed_selection_is_refused(texts: list[str]) -> None:
    with pytest.raises(UsageError):
        notation.parsed_partitions(texts)


def test_a_savepoint_is_a_number_a_name_or_a_time() -> None:
    assert notation.parsed_savepoint("17") == {"seq": 17}
    assert notation.parsed_savepoint("before-the-sale") == {"name": "before-the-sale"}
    assert set(notation.parsed_savepoint("2026-03-01T00:00Z")) == {"at"}
    with pytest.raises(UsageError, match="is not a time"):
        notation.parsed_savepoint("-1")


@pytest.mark.parametrize("text", ["", "17", "2026-03-01", "a b", "-a", "a" * 101])
def test_a_savepoints_name_is_neither_a_number_nor_a_time(text: str) -> None:
    assert notation.savepoint_name("a" * 100) == "a" * 100
    with pytest.raises(UsageError, match="cannot be called"):
        notation.savepoint_name(text)


@pytest.mark.parametrize(
    ("text", "zone", "utc"),
    [
        ("2026-03-29", "Europe/Berlin", "2026-03-28T23:00"),
        ("2026-03-30", "Europe/Berlin", "2026-03-29T22:00"),
        ("2026-10-26", "Europe/Berlin", "2026-10-25T23:00"),
        ("2018-11-04", "America/Sao_Paulo", "2018-11-04T03:00"),  # it began at one o'clock
        ("2023-04-28", "Africa/Cairo", "2023-04-27T22:00"),
        ("2011-12-30", "Pacific/Apia", "2011-12-30T10:00"),  # it was left out
        ("2006-10-29", "America/St_Johns", "2006-10-29T02:30"),  # it began, went back for an hour, and began
        ("1919-03-31", "America/Toronto", "1919-03-31T04:30"),  # the clock was put from 23:30 to 0:30
        ("2026-03-29T06:00", "Europe/Berlin", "2026-03-29T04:00"),
        ("2026-03-29 06:00", "Europe/Berlin", "2026-03-29T04:00"),
        ("2026-03-29T06:00:00Z", "Europe/Berlin", "2026-03-29T06:00"),
        ("2026-10-25T02:30:00+01:00", "Europe/Berlin", "2026-10-25T01:30"),
        ("2026-03-29", "UTC", "2026-03-29T00:00"),
    ],
)
def test_days_and_times_are_read_in_the_named_zone(text: str, zone: str, utc: str) -> None:
    assert notation.local_time(text, zone) == datetime.fromisoformat(f"{utc}:00+00:00")


@pytest.mark.parametrize(
    ("text", "zone", "message"),
    [
        ("2026-03-29", "Europe/Berln", "The zone 'Europe/Berln' is not a time zone .* 'Europe/Berlin'"),
        ("yesterday", "UTC", "'yesterday' is not a day or a time"),
        ("2026-02-30", "UTC", "is not a day or a time"),
        ("2026-03-29T02:30", "Europe/Berlin", r"showed 2026-03-29T02:30 never. .*01:30:00\+00:00 or .*00:30:00\+00:00"),
        ("2026-10-25T02:30", "Europe/Berlin", r"showed 2026-10-25T02:30 twice. .*00:30:00\+00:00 or .*01:30:00\+00:00"),
        ("0001-01-01", "Europe/Berlin", "beyond the years 1 to 9999"),
        ("9999-12-31T23:00", "America/New_York", "beyond the years 1 to 9999"),
    ],
)
def test_days_and_times_missing_in_a_zone_are_refused(text: str, zone: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        notation.local_time(text, zone)
