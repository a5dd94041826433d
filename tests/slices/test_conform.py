"""What a step returns, against what its topology declares."""

from __future__ import annotations

from typing import Any

import pytest

from kappa.errors import TopologyError
from kappa.slices.rows.effects import conform
from kappa.topology import Append


def test_an_effect_that_is_not_a_frame_is_refused_with_name_and_type() -> None:
    effect: Any = ["no frame"]
    message = r"Effect 'moves' of 'a\.b' is a list; the step has to return a DataFrame for it"
    with pytest.raises(TopologyError, match=message):
        conform(effect, Append(name="moves", schema="id STRING"), "a.b")
