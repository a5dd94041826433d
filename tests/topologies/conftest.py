"""Slices of a few records, as a driver runs them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def tuned(small_slices: None) -> None:
    """Every topology here: each slice takes a fraction of the time."""
