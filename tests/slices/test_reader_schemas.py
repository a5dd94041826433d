"""The schemas of several drivers, in one lake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.avro import FakeRegistry, record

from kappa.errors import SchemaRefusedError
from kappa.slices.input.reader_schemas import Schemas

ORDER, OTHER, OUT = (record(("n", kind)) for kind in ("int", "long", "string"))


@pytest.mark.parametrize("is_away", [True, False], ids=["away", "behind"])
def test_a_driver_takes_from_the_lake_what_another_one_looked_up_meanwhile(tmp_path: Path, is_away: bool) -> None:
    registry = FakeRegistry({})
    schemas = Schemas(str(tmp_path), registry)
    assert schemas.of("pos") == {}
    of_other = Schemas(str(tmp_path), FakeRegistry({1: ORDER})).look_up("pos", [1])
    registry.is_away = is_away

    assert schemas.look_up("pos", [1]) == of_other == schemas.of("pos")


def test_a_registry_that_lost_the_schema_of_a_topic_gets_it_again(tmp_path: Path) -> None:
    lake, text = str(tmp_path), json.dumps(OUT)
    assert Schemas(lake, FakeRegistry({1: ORDER})).id_of("out", text) == 2
    registry = FakeRegistry({4: OTHER})
    schemas = Schemas(lake, registry)
    assert schemas.id_of("out", text) == schemas.id_of("out", text) == 5
    assert Schemas(lake, registry).id_of("out", text) == 5
    assert schemas.look_up("out", [2, 5]).keys() == {2, 5}, "records that were sent before are still read"
    assert Schemas(lake, FakeRegistry({2: OUT, 5: OUT})).id_of("out", text) in (2, 5)


def test_an_id_that_a_new_registry_gives_to_another_schema_is_refused(tmp_path: Path) -> None:
    lake, text = str(tmp_path), json.dumps(OUT)
    Schemas(lake, FakeRegistry({1: ORDER})).look_up("out", [1])
    assert Schemas(lake, FakeRegistry({1: ORDER})).id_of("out", text) == 2
    with pytest.raises(SchemaRefusedError, match="Schema 1 in the schema registry is not the one"):
        Schemas(lake, FakeRegistry({})).id_of("out", text)
