"""Environments in the lake: what is read where the lake does not answer, or has something else under a name."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from kappa.environments import files
from kappa.environments.environment import Environment
from kappa.errors import LakeUnreachableError, LedgerError
from kappa.names import EpochPaths
from kappa.store.local import LocalStore

OLD = Environment(python="3.11.7", distributions={"pricing": "1.0"})
NEW = Environment(python="3.11.7", distributions={"pricing": "2.0"})


@pytest.fixture
def paths(tmp_path: Path) -> EpochPaths:
    """An epoch without any, in a lake of its own: a process remembers files by path, and pytest uses folders again."""
    return EpochPaths(lake=str(tmp_path / uuid4().hex), topology="a.described", epoch=1)


@pytest.fixture
def both(paths: EpochPaths) -> EpochPaths:
    """An epoch with both."""
    for environment in (OLD, NEW):
        files.store(paths, environment)
    return paths


def test_a_description_says_how_the_environments_differ(both: EpochPaths) -> None:
    assert files.described(both, NEW.id, OLD.id).endswith(": pricing was 1.0, and is 2.0 now")


@pytest.mark.parametrize("error", [LakeUnreachableError("It does not answer."), OSError("I/O error")])
def test_a_description_needs_no_answer_of_the_lake(
    both: EpochPaths, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def get(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(LocalStore, "get", get)
    text = f"environment {NEW.id[:12]} instead of its own, {OLD.id[:12]}, of which the lake does not say"
    assert files.described(both, NEW.id, OLD.id).startswith(text)


@pytest.mark.parametrize("content", ["{", NEW.to_json()])
def test_what_is_not_the_environment_of_its_name_is_refused_and_written_again(paths: EpochPaths, content: str) -> None:
    path = Path(paths.environment(OLD.id))
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(LedgerError, match=r"was cut short or altered\. .*: kappa start <topology>$"):
        files.load(paths, OLD.id)
    files.store(paths, OLD)
    assert files.load(paths, OLD.id) == OLD


def test_one_of_newer_code_is_left_as_it_is(paths: EpochPaths) -> None:
    path = Path(paths.environment(OLD.id))
    path.parent.mkdir(parents=True)
    path.write_text('{"format": 99}')
    files.store(paths, OLD)
    assert path.read_text() == '{"format": 99}'


def test_an_environment_goes_with_its_epoch(paths: EpochPaths) -> None:
    lake = Path(paths.lake)
    Path(paths.root).parent.mkdir(parents=True)
    before = sorted(lake.rglob("*"))
    files.store(paths, OLD)
    LocalStore().delete_folder(paths.root)
    assert sorted(lake.rglob("*")) == before
