"""``kappa ui``: a process of its own, on loopback, for this host alone."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from support.web_site import Site
from typer.testing import CliRunner

from kappa.cli import app
from kappa.offsets.vector import Offsets
from kappa_web.lake import Lake, Staleness

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker


def answer_of(url: str, **headers: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_a_server_answers_for_a_topology_that_runs_elsewhere(url: str) -> None:
    status, body = answer_of(f"{url}/tables/sums/sums/b/1")
    assert (status, json.loads(body)["row"]["total"]) == (200, 6)
    assert json.loads(answer_of(f"{url}/metadata/sums")[1])["writer"]["state"] == "never"


def test_a_request_under_another_sites_name_is_refused(url: str) -> None:
    assert answer_of(f"{url}/tables/sums/sums/b/1", Host="evil.example")[0] == 400


@pytest.mark.parametrize("command", ["ui", "registry"])
@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_no_host_has_is_refused(command: str, port: str) -> None:
    assert CliRunner().invoke(app, [command, "--port", port]).exit_code == 2


def test_a_server_is_bound_to_loopback(url: str) -> None:
    assert url.startswith("http://127.0.0.1:")


@pytest.mark.broker
def test_an_answer_says_how_many_offsets_the_log_is_ahead(kafka: Broker, topic: TopicFactory, site: Site) -> None:
    name = topic()
    lake = Lake(replace(site.config, bootstrap_servers=kafka.bootstrap_servers))
    view = lake.view("sums")
    behind, level = (
        replace(view, snapshot=replace(view.snapshot, position=Offsets({name: {0: offset}}))) for offset in (3, 5)
    )
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(5):
        producer.produce(name, str(number).encode(), partition=0)
    assert producer.flush(30) == 0
    staleness = lake.staleness(behind)
    assert staleness.offsets == 2
    assert staleness.seconds > 0
    assert lake.staleness(level) == Staleness(offsets=0, seconds=0.0)
