"""The schemas of several drivers, in one lake."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.avro import FakeRegistry, record

from kappa.slices.input.reader_schemas import Schemas

ORDER = record(("n", "int"))


@pytest.mark.parametrize("is_away", [True, False], ids=["away", "behind"])
def test_a_driver_takes_from_the_lake_what_another_one_looked_up_meanwhile(tmp_path: Path, is_away: bool) -> None:
    registry = FakeRegistry({})
    schemas = Schemas(str(tmp_path), registry)
    assert schemas.of("pos") == {}
    known = Schemas(str(tmp_path), FakeRegistry({1: ORDER})).look_up("pos", [1])
    registry.is_away = is_away

    assert schemas.look_up("pos", [1]) == known == schemas.of("pos")
