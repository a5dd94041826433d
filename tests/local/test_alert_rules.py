"""The rules of docker/prometheus: they compare what a driver exports, and name a page that says what to do."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from support.promtool import RULES, check

from kappa.driver.metrics import STATES, Metrics
from kappa.offsets.vector import Offsets
from kappa.topology import Append, Source, Topology
from kappa_local.airflow import REPOSITORY

ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}
PAGE = (REPOSITORY / "docs" / "metrics.md").read_text()


@pytest.fixture(scope="module")
def exported() -> set[str]:
    """Names of everything that a driver exports."""
    topology = Topology(
        name="a.b",
        version="1",
        sources=[Source(topic="in", schema="a STRING")],
        outputs=[Append(name="rows", schema="a STRING")],
        step=lambda slice: {},
    )
    none = Offsets({"in": {0: 0}})
    families = Metrics(topology, 1, bound={}, start=none, end=none).registry.collect()
    return {f"{family.name}_total" if family.type == "counter" else family.name for family in families}


def test_prometheus_accepts_the_rules() -> None:
    assert f"{len(ALERTS)} rules found" in check("check", "rules", RULES)


@pytest.mark.parametrize("name", ALERTS)
def test_a_rule_compares_what_a_driver_exports(name: str, exported: set[str]) -> None:
    expression = ALERTS[name]["expr"]
    assert set(re.findall(r"\bkappa_\w+", expression)) <= exported
    assert set(re.findall(r'state="(\w+)"', expression)) <= set(STATES)


@pytest.mark.parametrize("name", ALERTS)
def test_a_rule_says_how_urgent_it_is_and_where_the_remedy_is(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("page", "ticket")
    file, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (REPOSITORY / file).read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_page_has_every_alert_and_every_metric_and_no_other(exported: set[str]) -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert {row for row in rows if row.startswith("Kappa")} == set(ALERTS)
    assert {row for row in rows if row.startswith("kappa_")} == exported
