"""Requests of a merge and of readers, counted by a proxy: docs/cost.md has the numbers.

What is counted runs in a process of its own: `deltalake` holds Python's lock in some of its requests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.live_lake import NAME, fill, further_slices
from support.programs import python_path
from support.s3_lake import excess
from support.s3_options import config_on
from support.s3_proxy import Proxy, s3_proxy
from support.s3_server import S3Server, create_bucket

from kappa.store import options

MERGE = """
import sys
from support.live_lake import open_run
from kappa.config import Config
from kappa.slices.merging import merge_between

run = open_run(Config.from_env())
run.ledger.state()
print("ready", flush=True)
sys.stdin.readline()
assert merge_between(run, is_asked=True)
"""
SLICES = 25


@pytest.fixture(scope="module")
def s3(s3_process: S3Server) -> S3Server:
    """A bucket of these tests."""
    return create_bucket(s3_process, "counted")


@pytest.fixture(scope="module")
def proxy(s3: S3Server) -> Iterator[Proxy]:
    """A proxy in front of it."""
    with s3_proxy(s3) as listening:
        yield listening


@pytest.fixture(scope="module")
def environ(s3: S3Server, proxy: Proxy, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of processes that reach, through the proxy, a live epoch whose changes were never merged."""
    direct, proxied = (config_on(server, tmp_path_factory.mktemp("home")) for server in (s3, proxy.server))
    options.declare(direct.lake, direct.lake_client_file)
    fill(direct)
    further_slices(direct, SLICES - 2)
    return {**os.environ, **proxied.to_env(), "PYTHONPATH": python_path()}


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("a query", ("query", NAME, "rewards", "--limit", "5")),
        ("a query", ("sql", f"SELECT COUNT(*) FROM {NAME}.rewards")),
        ("a query", ("path", NAME, "rewards")),
        ("a query", ("tables", NAME)),
        ("a look at the status", ("status",)),
    ],
    ids=lambda value: value[0],
)
def test_a_command_that_reads_makes_no_more_requests_than_the_page_says(
    what: str, words: tuple[str, ...], environ: dict[str, str], proxy: Proxy
) -> None:
    since = len(proxy.requests)
    command = [sys.executable, "-m", "kappa", *words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert excess(proxy.counts(since), what) == {}


def test_a_merge_makes_no_more_requests_than_the_page_says(environ: dict[str, str], proxy: Proxy) -> None:
    command = [sys.executable, "-c", MERGE]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdin
        assert process.stdout.readline() == "ready\n"
        since = len(proxy.requests)
        process.stdin.write("\n")
        process.stdin.close()
    assert process.returncode == 0
    assert excess(proxy.counts(since), "a merge of 25 slices") == {}
