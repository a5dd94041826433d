"""A hundred random histories on S3 with a store that is unreliable, different ones each day, as those on a disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.histories import DAY
from support.s3_histories import played
from support.s3_proxy import Proxy
from support.s3_server import S3Server, s3_server

from kappa.kafka.broker import Broker

pytestmark = pytest.mark.soak

IN_ONE_PROCESS = 5


@pytest.fixture(scope="session")
def s3_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server that people run in production, in the place of moto."""
    with s3_server(tmp_path_factory.mktemp("s3"), kind="versitygw") as server:
        yield server


@pytest.mark.parametrize("first", range(DAY * 1000, DAY * 1000 + 100, IN_ONE_PROCESS))
def test_tables_match_plain_python_after_random_histories_on_s3(
    proxy: Proxy, kafka: Broker, tmp_path: Path, case: Callable[[str], None], first: int
) -> None:
    for kind, name in played(proxy, kafka.bootstrap_servers, tmp_path, range(first, first + IN_ONE_PROCESS)):
        case(f"{kind}: {name}")
