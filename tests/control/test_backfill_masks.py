"""An interval is computed under the key by which its epoch masks values, or not at all."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support import epoch_record
from support.epoch_record import FIRST, empty_lake, empty_plan

from kappa import clock
from kappa.control.backfills import backfill_plan
from kappa.errors import KappaError, LedgerError
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.record import code
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.topology.masking import fingerprint

NAME = "a.masked"
KEY = "the key before the rotation"
TOPOLOGY = f"""
from kappa import Append, Source, Topology

masked = Topology(
    name="{NAME}",
    version="1",
    sources=[Source(topic="pos", schema="id STRING", sensitive=True)],
    outputs=[Append(name="moves", schema="id STRING")],
    step=lambda slice: {{"moves": slice["pos"]}},
)
"""


def test_a_backfill_under_another_mask_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, folder = empty_lake(tmp_path, monkeypatch), tmp_path / "topologies"
    folder.mkdir()
    (folder / "masked.py").write_text(TOPOLOGY)
    plan = empty_plan(NAME, 1, Offsets({"pos": {0: 0}}))
    planned = {"plan_id": plan.id, "plan": plan.to_json(), "start": plan.start.to_json()}
    events: dict[str, Any] = {"planned": planned, "moved": {"from": None, "at": {"pos": {"0": 0}}}}
    stored = code.store(config.lake, folder, NAME)
    epoch_record.tell(config, NAME, 1, *FIRST, by_event=events, code=stored, version="1")
    ledger = Ledger(EpochPaths(lake=config.lake, topology=NAME, epoch=1).ledger)
    ledger.create()
    ledger.claim("driver", stored, ledger.state())
    ledger.append(
        LedgerRow(kind="commit", seq=0, writer="driver", at=clock.now(), detail={"mask": fingerprint(KEY)}, code=stored)
    )
    no_spark: Any = None
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    for key, why in (("the key after the rotation", "masked under the key with fingerprint"), ("", "KAPPA_MASK_KEY")):
        with pytest.raises(KappaError, match=why) as error:
            backfill_plan.propose(replace(config, mask_key=key), no_spark, NAME, begin, begin + timedelta(days=1))
        assert isinstance(error.value, LedgerError) == bool(key)
