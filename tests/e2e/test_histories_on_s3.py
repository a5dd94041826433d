"""A few random histories on S3 with a store that is unreliable; a hundred are part of ``make soak``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.s3_histories import histories, weather
from support.s3_options import write_options
from support.s3_proxy import Proxy

from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1400)]


@pytest.mark.parametrize("seed", [2, 5])
def test_the_tables_of_a_random_history_on_s3_match_plain_python(
    proxy: Proxy, kafka: Broker, tmp_path: Path, case: Callable[[str, str], None], seed: int
) -> None:
    file = write_options(proxy.server, tmp_path / "lake.properties")
    environ = {
        "KAPPA_HOME": str(tmp_path / "home"),
        "KAPPA_LAKE": f"{proxy.server.url}/lakes",
        "KAPPA_LAKE_CLIENT_FILE": str(file),
    }
    with weather(proxy, seed) as faults:
        for line in histories(tmp_path / "histories", kafka.bootstrap_servers, environ, [seed]):
            case("history on S3", line)
    assert faults.total() > 20
    for name, count in faults.items():
        case("S3 fault", f"{name}: {count}")
