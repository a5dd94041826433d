"""A few random histories on S3 with a store that is unreliable; a hundred are part of ``make soak``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.s3_histories import played
from support.s3_proxy import Proxy

from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1400)]


@pytest.mark.parametrize("seed", [2, 5])
def test_the_tables_of_a_random_history_on_s3_match_plain_python(
    proxy: Proxy, kafka: Broker, tmp_path: Path, case: Callable[[str, str], None], seed: int
) -> None:
    for kind, name in played(proxy, kafka.bootstrap_servers, tmp_path, [seed]):
        case(kind, name)
