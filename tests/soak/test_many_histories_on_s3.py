"""A hundred random histories on S3 with a store that is unreliable, different ones each day, as those on a disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.histories import DAY
from support.s3_histories import played
from support.s3_proxy import Proxy

from kappa.kafka.broker import Broker

pytestmark = pytest.mark.soak

IN_ONE_PROCESS = 5


@pytest.mark.parametrize("first", range(DAY * 1000, DAY * 1000 + 100, IN_ONE_PROCESS))
def test_tables_match_plain_python_after_random_histories_on_s3(
    proxy: Proxy, kafka: Broker, tmp_path: Path, case: Callable[[str], None], first: int
) -> None:
    for kind, name in played(proxy, kafka.bootstrap_servers, tmp_path, range(first, first + IN_ONE_PROCESS)):
        case(f"{kind}: {name}")
