"""Alerts and dashboard ask for what Muster serves, and every alert has its line in the docs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.metrics import MetricWrapperBase

from extender.domain.model.reasons import Reason
from extender.telemetry import metrics
from tests.rows import each_of

ROOT = Path(__file__).parents[1]
MONITORING = ROOT / "manifests" / "monitoring"
PAGE = ROOT / "docs" / "how-to" / "monitoring.md"
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "summary": ("_sum", "_count"),
    "histogram": ("_bucket", "_sum", "_count"),
}
# What Prometheus adds to everything that it scrapes, and what it makes of a histogram.
ADDED = {"job", "pod", "le"}
Json = dict[str, Any]


def alerts() -> list[Json]:
    (group,) = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]["groups"]
    found: list[Json] = group["rules"]
    return found


def panels() -> list[Json]:
    found: list[Json] = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return found


def expressions() -> Iterator[str]:
    yield from (alert["expr"] for alert in alerts())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])


def series() -> dict[str, tuple[str, ...]]:
    """Return the labels of every series that Muster serves."""
    ours = [var for var in vars(metrics).values() if isinstance(var, MetricWrapperBase)]
    return {
        f"{our._name}{suffix}": tuple(our._labelnames) for our in ours for suffix in SUFFIXES[str(our._type)]
    }


each_expression = each_of(*dict.fromkeys(expressions()))


@each_expression
def test_metrics_that_are_asked_for_exist(expression: str) -> None:
    named = set(re.findall(r"\bmuster_\w+", expression))
    assert named <= series().keys()
    assert named or "up{" in expression


@each_expression
def test_labels_that_are_asked_for_exist(expression: str) -> None:
    known = {label for name in re.findall(r"\bmuster_\w+", expression) for label in series()[name]} | ADDED
    grouped = [
        name for names in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for name in names.split(",")
    ]
    matched = re.findall(r"(\w+)(?:=~|!~|!=|=)\"", expression)
    assert {name.strip() for name in (*grouped, *matched) if name.strip()} <= known


def documented(label: str, metric: str) -> set[str]:
    """Return the values that docs/reference/metrics.md gives for a label of a metric."""
    rows = (ROOT / "docs" / "reference" / "metrics.md").read_text().splitlines()
    (row,) = [row for row in rows if row.startswith(f"- `{label}` of `{metric}`: ")]
    return set(re.findall(r"`(\w+)`", row.partition(": ")[2]))


@each_expression
def test_reasons_that_are_asked_for_exist(expression: str) -> None:
    dropped = "muster_connections_dropped_total"
    known = documented("reason", dropped) if dropped in expression else {str(each) for each in Reason}
    for names in re.findall(r'reason=~?"([^"]*)"', expression):
        assert set(names.split("|")) <= known


@each_expression
def test_brackets_are_closed(expression: str) -> None:
    for opening, closing in ("()", "{}", "[]"):
        assert expression.count(opening) == expression.count(closing)


@each_of(*alerts())
def test_an_alert_says_what_is_wrong_and_where_to_read_on(alert: Json) -> None:
    assert re.fullmatch(r"Muster[A-Za-z]+", alert["alert"])
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    assert alert["annotations"]["summary"].endswith(".")
    page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    assert (ROOT / page, anchor) == (PAGE, "alerts")
    assert "\n## Alerts\n" in PAGE.read_text()


def test_every_alert_has_its_line_in_the_docs() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| .{40}", PAGE.read_text(), re.MULTILINE)
    assert rows == [(alert["alert"], alert["labels"]["severity"]) for alert in alerts()]


def test_values_in_a_summary_are_those_that_the_alert_has() -> None:
    for alert in alerts():
        for label in re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"]):
            grouped = re.search(r"^\w+ by \(([^)]*)\)", alert["expr"])
            assert (label in grouped[1]) if grouped else (not alert["expr"].startswith("sum("))


def test_panels_do_not_overlap_and_say_what_they_show() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in panels()}) == len(panels())
    assert len({panel["title"] for panel in panels()}) == len(panels())


def test_legends_name_labels_that_are_left() -> None:
    for panel in panels():
        for target in panel["targets"]:
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert label == "pod" or re.search(rf"by \([^)]*\b{label}\b", target["expr"]), target
