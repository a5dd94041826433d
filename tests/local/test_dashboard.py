"""The dashboard for Grafana: each query reads what a driver exports, and Prometheus gets rows for each."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.environments import ROOT
from support.measured_driver import AT, UP, MeasuredDriver
from support.metrics import Samples
from support.promql import Selector, expression
from support.promtool import check, series

from kappa.monitoring.metrics import LINES, STATES

DASHBOARD = json.loads((ROOT / "docker" / "prometheus" / "grafana-dashboard.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES: dict[str, dict[str, Any]] = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
#: Metrics that no panel shows, each with the reason.
EXCEPTIONS: dict[str, str] = {}
#: Labels with fixed words.
WORDS = {"state": STATES, "line": LINES, "kind": ("failure", "wait", "table", "output"), "job": ("kappa",)}
#: Panels of Grafana itself, which need no plugin.
CORE = {"bargauge", "stat", "state-timeline", "timeseries"}


def queries() -> Iterator[tuple[str, str, str]]:
    """Title of a panel, with expression and legend of each of its queries."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]


def expressions() -> list[str]:
    """Each expression once."""
    return list(dict.fromkeys(query for _, query, _ in queries()))


def selectors() -> list[Selector]:
    """Everything that the panels read."""
    return [one for query in expressions() for one in expression(query).selectors]


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """Each series that a driver exports, by name, with its labels; and that of Prometheus about its target."""
    labels: dict[str, set[str]] = defaultdict(set)
    for family in MeasuredDriver().metrics.registry.collect():
        for sample in family.samples:
            labels[sample.name] |= set(sample.labels)
    return {**labels, "up": {*AT, "job", "instance"}}


def test_each_query_reads_series_labels_and_words_that_a_driver_exports(exported: dict[str, set[str]]) -> None:
    for one in selectors():
        assert one.name in exported, one
        for label, operator, value in one.matchers:
            assert label in exported[one.name], (one, label)
            assert operator == "=~" or value in WORDS[label], (one, label)
    for query in expressions():
        readable = set[str]().union(*(exported[one.name] for one in expression(query).selectors))
        assert {label for labels in expression(query).lists for label in labels} <= readable, query


def test_each_query_is_filtered_by_owner_topology_and_epoch() -> None:
    for one in selectors():
        assert {(label, "=~", f"${label}") for label in ("owner", "topology", "epoch")} <= set(one.matchers), one


def test_each_metric_is_on_the_dashboard_or_an_exception() -> None:
    names = {one.name for one in selectors()}
    for family in MeasuredDriver().metrics.registry.collect():
        series_of = {sample.name for sample in family.samples if not sample.name.endswith("_created")}
        assert bool(series_of & names) != (family.name in EXCEPTIONS), family.name


def test_the_variables_are_labels_and_each_narrows_the_next(exported: dict[str, set[str]]) -> None:
    assert list(VARIABLES) == ["datasource", "owner", "topology", "epoch"]
    assert VARIABLES["datasource"]["type"] == "datasource" and VARIABLES["datasource"]["query"] == "prometheus"
    before: list[str] = []
    for name in ("owner", "topology", "epoch"):
        query = VARIABLES[name]["query"]["query"]
        match = re.fullmatch(r"label_values\((\w+(?:\{.*\})?), (\w+)\)", query)
        assert match is not None and match[2] == name and VARIABLES[name]["definition"] == query
        (one,) = expression(match[1]).selectors
        assert name in exported[one.name]
        assert one.matchers == tuple((label, "=~", f"${label}") for label in before)
        assert VARIABLES[name]["allValue"] == ".*", "a series without an owner matches too"
        before.append(name)
    used = set(re.findall(r"\$\{?(\w+)", json.dumps([PANELS, DASHBOARD["templating"]])))
    assert used - {"__all", "__rate_interval"} == set(VARIABLES)


def test_the_panels_are_grafanas_own_on_one_data_source_and_do_not_overlap() -> None:
    assert DASHBOARD["schemaVersion"] == 41 and DASHBOARD["uid"] and "__inputs" not in DASHBOARD
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    source = {"type": "prometheus", "uid": "${datasource}"}
    places = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24 and not places & cells, panel["title"]
        places |= cells
    for panel in PANELS:
        assert panel["type"] in CORE and panel["description"], panel["title"]
        assert [one["refId"] for one in panel["targets"]] == [chr(65 + n) for n in range(len(panel["targets"]))]
        assert all(one["datasource"] == source for one in [panel, *panel["targets"]]), panel["title"]


def growing(samples: Samples, labels: dict[str, str]) -> Iterator[dict[str, str]]:
    """Series that grow by a little each minute, as Prometheus' tool takes them."""
    for key, value in samples.items():
        step = 0 if key[0] in ("kappa_is_live", "kappa_driver_state", "up") else 0.01
        yield {"series": series(key, labels), "values": f"{value}+{step}x30"}


def test_prometheus_has_rows_for_each_query_with_each_label_of_its_legend(tmp_path: Path) -> None:
    live, candidate = MeasuredDriver(), MeasuredDriver(2, "held")
    candidate.commit(2, 500)
    inputs = [
        one
        for driver in (live, candidate)
        for one in growing(driver.samples() | {UP: 0}, {**driver.at, "job": "kappa", "instance": "127.0.0.1:9464"})
    ]
    tests = []
    for _, query, legend in queries():
        plain = re.sub(r"\$(owner|topology|epoch)", ".*", query).replace("$__rate_interval", "5m")
        tests.append((f"count({plain}) > bool 0", "{}"))
        for label in re.findall(r"{{(\w+)}}", legend):
            # Of all rows, those in which the label has a value, and those in which it has none.
            marked = f'label_replace(group by ({label}) ({plain}), "has", "yes", "{label}", ".+")'
            tests.append((f"count by (has) ({marked}) > bool 0", '{has="yes"}'))
    cases = [
        {"expr": query, "eval_time": "20m", "exp_samples": [{"labels": labels, "value": 1}]} for query, labels in tests
    ]
    file = tmp_path / "dashboard-test.yaml"
    file.write_text(yaml.safe_dump({"tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": cases}]}))
    check("test", "rules", file)


def test_a_part_that_is_not_promql_is_refused() -> None:
    with pytest.raises(ValueError, match="no token of PromQL at '"):
        expression("rate(kappa_records_total[5m]) ? 1")


def test_the_states_of_the_first_panel_are_those_of_a_driver() -> None:
    (mapping,) = PANELS[0]["fieldConfig"]["defaults"]["mappings"]
    assert [mapping["options"][str(number)]["text"] for number in range(len(STATES))] == list(STATES)
    factors = re.findall(r'(\d)? ?\*? ?kappa_driver_state\{[^}]*state="(\w+)"', PANELS[0]["targets"][0]["expr"])
    assert [(int(factor or 1), state) for factor, state in factors] == list(enumerate(STATES))[1:]
