"""The Helm chart is what the manifests make it, and its values are those that the templates ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from extender import __version__
from extender.api.configuration import Configuration
from tools import chart

TEMPLATES = sorted((chart.CHART / "templates").rglob("*.*"))


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((chart.CHART / "values.yaml").read_text())
    return found


def paths(value: Any, above: str = "") -> Iterator[str]:
    """Yield the paths of all values, such as `image.tag`, and of their parents."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield above + key
            yield from paths(each, f"{above}{key}.")


def used_values() -> set[str]:
    text = "\n".join(path.read_text() for path in TEMPLATES)
    return set(re.findall(r"\.Values\.([a-zA-Z.]+[a-zA-Z])", text))


def test_every_made_file_is_what_its_manifest_makes_it() -> None:
    assert chart.differing_files() == [], "run: make chart"


def test_a_manifest_that_lost_a_place_for_a_value_is_reported() -> None:
    with pytest.raises(chart.ChangesMismatch, match=r"sidecar/deployment\.yaml: lacks .*--scheduler-name"):
        chart.template("sidecar/deployment.yaml", "kind: Deployment\n")


def test_an_unknown_folder_is_reported() -> None:
    with pytest.raises(chart.ChangesMismatch, match="manifests/new: WHEN"):
        chart.template("new/thing.yaml", "kind: Thing\n")


def test_the_braces_of_others_are_left_to_them() -> None:
    made = chart.template("rbac.yaml", "summary: Of {{ $labels.pod }}.\n")
    assert made.endswith('summary: Of {{ "{{" }} $labels.pod }}.\n')


def test_templates_ask_for_values_that_are_there() -> None:
    assert used_values() <= set(paths(values()))


def test_a_value_that_is_mistyped_would_be_refused() -> None:
    """The schema names every value, and allows no others."""
    schema = json.loads((chart.CHART / "values.schema.json").read_text())
    described = set(described_paths(schema)) - {"global"}  # that one is Helm's
    free = ("resources", "labels")
    assert described == {path for path in paths(values()) if not {*free} & {*path.split(".")[:-1]}}


def described_paths(schema: dict[str, Any], above: str = "") -> Iterator[str]:
    for key, each in schema.get("properties", {}).items():
        yield above + key
        yield from described_paths(each, f"{above}{key}.")


def test_every_value_is_asked_for() -> None:
    leaves = set(paths(values()))
    unused = {
        leaf
        for leaf in leaves
        if not any(leaf.startswith(name) or name.startswith(leaf) for name in used_values())
    }
    assert unused == set()


def test_the_chart_has_this_version() -> None:
    described = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
    assert described["version"] == described["appVersion"] == __version__


def test_the_default_names_are_those_of_muster() -> None:
    assert values()["schedulerNames"] == list(Configuration().scheduler_names)
