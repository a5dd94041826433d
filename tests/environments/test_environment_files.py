"""Environments in the lake: what is read where the lake does not answer, or has something else under a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kappa.environments import files
from kappa.environments.environment import Environment
from kappa.errors import LakeUnreachableError, LedgerError
from kappa.names import environment_file
from kappa.store.local import LocalStore

OLD = Environment(python="3.11.7", distributions={"pricing": "1.0"})
NEW = Environment(python="3.11.7", distributions={"pricing": "2.0"})


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """A lake with both."""
    for environment in (OLD, NEW):
        files.store(str(tmp_path), environment)
    return str(tmp_path)


def test_a_description_says_how_the_environments_differ(lake: str) -> None:
    assert files.described(lake, NEW.id, OLD.id).endswith(": pricing was 1.0, and is 2.0 now")


@pytest.mark.parametrize("error", [LakeUnreachableError("It does not answer."), OSError("I/O error")])
def test_a_description_needs_no_answer_of_the_lake(
    lake: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def get(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(LocalStore, "get", get)
    text = f"environment {NEW.id[:12]} instead of its own, {OLD.id[:12]}, of which the lake does not say"
    assert files.described(lake, NEW.id, OLD.id).startswith(text)


@pytest.mark.parametrize("content", ["{", NEW.to_json()])
def test_what_is_not_the_environment_of_its_name_is_refused_and_written_again(tmp_path: Path, content: str) -> None:
    lake, path = str(tmp_path), Path(environment_file(str(tmp_path), OLD.id))
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(LedgerError, match=r"was cut short or altered\. .*: kappa start <topology>$"):
        files.load(lake, OLD.id)
    files.store(lake, OLD)
    assert files.load(lake, OLD.id) == OLD


def test_one_of_newer_code_is_left_as_it_is(tmp_path: Path) -> None:
    path = Path(environment_file(str(tmp_path), OLD.id))
    path.parent.mkdir(parents=True)
    path.write_text('{"format": 99}')
    files.store(str(tmp_path), OLD)
    assert path.read_text() == '{"format": 99}'
