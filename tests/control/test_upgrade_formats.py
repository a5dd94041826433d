"""An upgrade to a platform that is older than what the lake holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.live_lake import NAME, live_lake

from kappa.control import upgrade
from kappa.errors import NewerFormatError
from kappa.record import ledger


def test_an_upgrade_to_older_code_is_refused_when_the_ledger_has_a_newer_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = live_lake(tmp_path, monkeypatch)
    # This process is the older platform: it knows formats up to one less than that of rows that say nothing special.
    monkeypatch.setattr(ledger, "FORMAT", 0)

    with pytest.raises(NewerFormatError) as error:
        upgrade.propose(config, NAME, slices=0)

    assert f"older than the one that live epoch 1 of {NAME!r} runs" in str(error.value)
    assert str(error.value).endswith(f"Deploy the newer version, then: kappa upgrade {NAME}")
