"""``kappa sql``: tables of several topologies in one query, as a table, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.live_lake import live_lake
from typer.testing import CliRunner, Result

from kappa import serving
from kappa.cli import app
from kappa.errors import UnknownTableError, UsageError

REWARDS = "SELECT CustomerCardNo, TotalLoyaltyPoints FROM retail.loyalty.rewards ORDER BY 1"
MANY = "SELECT value AS n FROM generate_series(1, 100000)"


@pytest.fixture(autouse=True)
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live_lake(tmp_path, monkeypatch)


def sql(*words: str) -> Result:
    return CliRunner().invoke(app, ["sql", *words])


def test_rows_are_shown_with_the_epochs_and_slices_that_they_are_of() -> None:
    lines = sql(REWARDS).output.splitlines()
    assert [line.split() for line in lines[1:3]] == [["c1", "2.0000"], ["c2", "3.0000"]]
    assert lines[3:] == ["retail.loyalty: epoch 1, slice 2", "2 rows shown"]


def test_json_has_the_snapshots_and_each_value_in_its_json_form() -> None:
    answer = json.loads(sql(REWARDS, "--json", "--seq", "retail.loyalty=1").output, parse_float=str)
    assert answer == {
        "snapshots": {"retail.loyalty": {"epoch": 1, "seq": 1, "position": {"pos": {"0": 1}}}},
        "rows": [{"CustomerCardNo": "c1", "TotalLoyaltyPoints": "2.0000"}],
    }
    assert json.loads(sql("SELECT 1 AS n WHERE 1 = 2", "--format", "json").output)["rows"] == []


def test_csv_has_nested_values_as_json() -> None:
    query = 'SELECT \'a,"b\' AS "Größe", make_array(1, 2) AS items, NULL AS nothing, 1.5 AS n'
    rows = list(csv.reader(io.StringIO(sql(query, "--format", "csv").output)))
    assert rows == [["Größe", "items", "nothing", "n"], ['a,"b', "[1,2]", "", "1.5"]]


def test_csv_has_a_row_per_row_whatever_ends_a_line_in_a_text() -> None:
    ends = ("\r", "\n", "\r\n", "\x85", "\u2028")
    texts = ", ".join(f"'a{end}b'" for end in ends)
    output = sql(f"SELECT {texts}, 'c'", "--format", "csv").stdout_bytes.decode()
    assert list(csv.reader(io.StringIO(output, newline="")))[1:] == [[*(f"a{end}b" for end in ends), "c"]]


def test_csv_tells_an_empty_text_from_a_null_and_has_no_empty_line() -> None:
    assert sql("SELECT '' AS a, NULL AS b, 1 AS c", "--format", "csv").stdout == 'a,b,c\n"",,1\n'
    assert sql("SELECT NULL AS a", "--format", "csv").stdout == 'a\n""\n'


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ("to_timestamp_nanos('2026-03-01T12:00:00.123456789Z')", "2026-03-01T12:00:00.123456"),
        ("TIMESTAMP '2026-03-01 12:00:00' - TIMESTAMP '2026-03-01 11:58:29.5'", "PT90.5S"),
        ("INTERVAL '1 month 2 days'", "P1M2DT0S"),
        ("INTERVAL '1 year'", "P12M0DT0S"),
    ],
)
def test_times_durations_and_intervals_of_the_engine_are_written(value: str, form: str) -> None:
    for words in ((), ("--json",), ("--format", "csv")):
        result = sql(f"SELECT {value} AS x", *words)
        assert result.exit_code == 0 and form in result.output, (result.output, result.exception)
    assert sql("SELECT now() AS t").exit_code == 0
    assert sql("SELECT 1 AS n", "--limit", "9" * 23).output.split()[:2] == ["n", "1"]


def test_a_table_ends_after_a_screenful_and_says_so() -> None:
    lines = sql(MANY).output.splitlines()
    assert len(lines) == 102 and lines[-1] == "100 rows shown, and there are more: use --limit, or --format csv for all"
    assert sql(MANY, "--limit", "2").output.split()[:3] == ["n", "1", "2"]
    assert sql(MANY, "--format", "csv", "--limit", "2").output.split() == ["n", "1", "2"]
    assert len(json.loads(sql(MANY, "--json", "--limit", "8193").output)["rows"]) == 8193
    assert sql(MANY, "--limit", "0").output.splitlines()[0] == "n"


def test_csv_and_json_hold_one_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    output, held = io.StringIO(), []
    real = serving.answer

    def watched(*arguments: Any, **named: Any) -> Any:
        answer = real(*arguments, **named)

        def batches() -> Any:
            for batch in answer.batches:
                held.append(output.tell())
                yield batch

        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(answer.batches.schema, batches())
        return serving.Answer(snapshots=answer.snapshots, batches=reader)

    monkeypatch.setattr(serving, "answer", watched)
    for words in (("--format", "csv"), ("--json",)):
        output.seek(0)
        held.clear()
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", output)
            app(["sql", MANY, *words], standalone_mode=False)
        assert len(held) > 5 and all(before < after for before, after in pairwise(held))


@pytest.mark.parametrize("value", ["retail.loyalty", "=1", "retail.loyalty=", "retail.loyalty=-1", "retail.loyalty=x"])
@pytest.mark.parametrize("option", ["--seq", "--epoch"])
def test_a_number_without_its_topology_is_refused(option: str, value: str) -> None:
    result = sql(REWARDS, option, value)
    assert isinstance(result.exception, UsageError), result.exception
    assert str(result.exception).endswith(f"{option} retail.loyalty=7")


def test_what_cannot_be_written_or_read_is_an_error_in_words() -> None:
    twice = sql("SELECT a.*, b.* FROM retail.loyalty.rewards a JOIN retail.loyalty.rewards b ON true", "--json")
    assert isinstance(twice.exception, UsageError) and "several columns named CustomerCardNo" in str(twice.exception)
    assert isinstance(sql(REWARDS, "--json", "--format", "csv").exception, UsageError)
    assert isinstance(sql("SELECT 1 FROM retail.loyalty.reward").exception, UnknownTableError)
    assert isinstance(sql("DROP TABLE retail.loyalty.rewards").exception, UsageError)
