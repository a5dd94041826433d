"""The rules of docker/prometheus: they compare what a driver exports, and name a page that says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.environments import ROOT
from support.measured_driver import AT, UP, MeasuredDriver, measured
from support.promtool import RULES, Case, assert_firing, check

from kappa import clock
from kappa.monitoring.metrics import STATES, Metrics
from kappa.offsets.vector import Offsets

ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}
PAGE = (ROOT / "docs" / "metrics.md").read_text()


@pytest.fixture(scope="module")
def exported() -> set[str]:
    """Names of everything that a driver exports."""
    none = Offsets({"in": {0: 0}})
    families = Metrics(measured(), 1, bound={}, start=none, end=none).registry.collect()
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
    headings = re.findall(r"^#+ (.+)$", (ROOT / file).read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_page_has_every_alert_and_every_metric_and_no_other(exported: set[str]) -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert {row for row in rows if row.startswith("Kappa")} == set(ALERTS)
    assert {row for row in rows if row.startswith("kappa_")} == exported


def stuck(driver: MeasuredDriver) -> None:
    driver.state = "stuck"


def slow(driver: MeasuredDriver) -> None:
    driver.state = "slow"


def behind(driver: MeasuredDriver, seconds: int) -> None:
    """The oldest commit that readers by path miss is of as many seconds ago."""
    driver.metrics.published("output", "rows", clock.now() - timedelta(seconds=seconds))


#: Alert -> what happens, one step after the other, and for how many minutes each lasts.
CAUSES: dict[str, list[tuple[int, Callable[[MeasuredDriver], object]]]] = {
    "KappaDriverStuck": [(1, stuck)],
    "KappaDriverSlow": [(6, slow)],
    "KappaSliceFails": [(1, lambda driver: driver.metrics.failed("failure", 2))],
    "KappaLagGrows": [(5, lambda driver: driver.metrics.lag(10_001)), (5, lambda driver: driver.metrics.lag(10_002))],
    "KappaLagUnknown": [(6, lambda driver: driver.metrics.lag(None))],
    "KappaReplayStands": [(35, lambda driver: driver.commit(2, 500))],
    "KappaDeadLetters": [(2, lambda driver: driver.commit(2, 1000, rows_read=100, rows_dead=2))],
    "KappaLateRecords": [(2, lambda driver: driver.commit(2, 1000, rows_read=100, rows_late=6))],
    "KappaFrontierHeld": [(16, lambda driver: driver.commit(2, 1000, (1_000, 3_602_000)))],
    "KappaPublishedBehind": [(1, lambda driver: behind(driver, 431))],
    "KappaUnmeasured": [(2, lambda driver: driver.metrics.unmeasured())],
}


def test_each_alert_fires_on_its_cause_and_none_does_before(tmp_path: Path) -> None:
    cases = []
    for alert, steps in CAUSES.items():
        driver = MeasuredDriver()
        looks = [(15, driver.samples())]
        for minutes, happens in steps:
            happens(driver)
            looks.append((minutes, driver.samples()))
        cases.append(Case(alert=alert, looks=looks, labels={**AT, "job": "kappa"}, routed=AT))
    healthy = (15, MeasuredDriver().samples())
    gone = [healthy, (3, {UP: 0.0})]
    cases.append(Case(alert="KappaDriverGone", looks=gone, labels={**AT, "job": "kappa"}, routed=AT))
    cases.append(Case(alert="KappaNoDriver", looks=[healthy, (12, {})], labels={**AT, "job": "kappa"}))
    assert {case.alert for case in cases} == set(ALERTS)
    assert_firing(tmp_path, cases)


@pytest.mark.parametrize(
    ("alert", "almost"),
    [
        ("KappaSliceFails", lambda driver: driver.metrics.failed("failure", 1)),
        ("KappaLagGrows", lambda driver: driver.metrics.lag(10_000)),
        ("KappaDeadLetters", lambda driver: driver.commit(2, 1000, rows_read=100, rows_dead=1)),
        ("KappaLateRecords", lambda driver: driver.commit(2, 1000, rows_read=100, rows_late=5)),
        ("KappaFrontierHeld", lambda driver: driver.commit(2, 1000, (1_000, 3_601_000))),
        ("KappaReplayStands", lambda driver: driver.commit(2, 1000)),
        ("KappaPublishedBehind", lambda driver: behind(driver, 429)),
    ],
)
def test_an_alert_stays_quiet_at_its_threshold(
    alert: str, almost: Callable[[MeasuredDriver], object], tmp_path: Path
) -> None:
    driver = MeasuredDriver()
    before = driver.samples()
    almost(driver)
    case = Case(alert=alert, looks=[(5, before), (40, driver.samples())], labels={**AT, "job": "kappa"})
    with pytest.raises(AssertionError, match="got: nil"):
        assert_firing(tmp_path, [case])
