"""The options that say where to begin."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.testing

from kappa.cli.starts import group_start, replay_start
from kappa.errors import UsageError
from kappa.offsets.vector import Offsets
from kappa.replay.starts import (
    ByDuration,
    FromSavepoint,
    ShiftBy,
    Start,
    ToCurrent,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
)


def started(*words: str, of: Any = replay_start) -> Any:
    """What a command with these options was called with."""
    calls: list[Any] = []
    app = typer.Typer()

    @app.command()
    @of
    def command(start: Start, name: str = "x") -> None:
        """Take a start."""
        calls.append((start, name))

    result = typer.testing.CliRunner().invoke(app, list(words))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return calls[0]


@pytest.mark.parametrize(
    ("words", "start"),
    [
        ([], ToEarliest()),
        (["--to-earliest"], ToEarliest()),
        (["--to-latest"], ToLatest()),
        (["--to-datetime", "2026-03-01T02:00+02:00"], ToDatetime(at=datetime(2026, 3, 1, tzinfo=UTC))),
        (["--by-duration", "P7D"], ByDuration(duration=timedelta(days=7))),
        (["--shift-by", "-1000"], ShiftBy(by=-1000)),
        (["--shift-by", "0"], ShiftBy(by=0)),
        (
            ["--to-offset", "pos:0=1200", "--to-offset", "pos=500"],
            ToOffset(offsets=Offsets({"pos": {0: 1200}}), topics={"pos": 500}),
        ),
        (["--from-savepoint", "17"], FromSavepoint(seq=17)),
        (["--from-savepoint", "sale"], FromSavepoint(name="sale")),
        (["--from-savepoint", "2026-03-01T00:00Z"], FromSavepoint(at=datetime(2026, 3, 1, tzinfo=UTC))),
    ],
)
def test_each_option_is_a_start(words: list[str], start: Start) -> None:
    assert started("--name", "y", *words) == (start, "y")


def test_a_file_is_read_and_its_name_kept(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("pos,0,1200\n")
    assert started("--from-file", str(file))[0] == ToOffset(offsets=Offsets({"pos": {0: 1200}}), file=str(file))
    file.write_text("\ufeffpos,0,1200\r\n", encoding="utf-8")
    assert started("--from-file", str(file))[0] == ToOffset(offsets=Offsets({"pos": {0: 1200}}), file=str(file))
    file.write_text("pos,0\n")
    with pytest.raises(UsageError, match=re.escape(f"Line 1 of {file} is 'pos,0'")):
        started("--from-file", str(file))
    with pytest.raises(UsageError, match="cannot be read"):
        started("--from-file", str(tmp_path / "none.csv"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to-earliest", "--shift-by", "0"], "--to-earliest and --shift-by exclude each other"),
        (["--to-datetime", "yesterday"], "is not a time"),
        (["--to-datetime", "2026-03-01"], "has no zone"),
        (["--by-duration", "7d"], "is not a duration"),
        (["--shift-by", "back"], "is not a number of offsets"),
        (["--to-offset", "pos"], "names no offset"),
    ],
)
def test_options_that_say_too_much_or_nothing_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        started(*words)


def test_a_group_can_stay_where_it_is_and_has_no_default() -> None:
    assert started("--to-current", of=group_start)[0] == ToCurrent()
    assert started(of=group_start)[0] is None
