"""Environments in the lake: what is read where the lake does not answer, or has something else under a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kappa.environments import files
from kappa.environments.environment import Environment
from kappa.errors import LakeUnreachableError
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
