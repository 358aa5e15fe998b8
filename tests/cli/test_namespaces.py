"""`muster namespace adopt|release`, and what `muster why` says of pods there."""

import pytest

from extender.api.keys import MANAGED, QUEUE
from extender.apimachinery.kinds import NAMESPACES
from tests.cli.cluster import Cluster


@pytest.fixture
def town(cluster: Cluster) -> Cluster:
    cluster.queue("research", state="Open")
    cluster.namespace("team")
    return cluster


def labelled(cluster: Cluster) -> tuple[str | None, str | None]:
    """Return the label and the queue of the namespace."""
    found = cluster.store.get(NAMESPACES, "", "team") or {"metadata": {}}
    meta = found["metadata"]
    return (meta.get("labels") or {}).get(MANAGED), (meta.get("annotations") or {}).get(QUEUE)


def test_a_namespace_is_adopted_with_its_queue_and_released(town: Cluster) -> None:
    assert town.output("namespace", "adopt", "team", "--queue", "research") == "namespace/team adopted\n"
    assert labelled(town) == ("true", "research")
    assert town.output("namespace", "release", "team") == "namespace/team released\n"
    assert labelled(town) == (None, "research")


@pytest.mark.parametrize("dry_run", ["client", "server"])
def test_a_dry_run_changes_nothing(town: Cluster, dry_run: str) -> None:
    assert "dry run" in town.output("namespace", "adopt", "team", f"--dry-run={dry_run}")
    assert labelled(town) == (None, None)


@pytest.mark.parametrize("arguments", [("tema",), ("team", "--queue", "researhc")])
def test_a_missing_namespace_or_queue_is_named_and_nothing_changes(
    town: Cluster, arguments: tuple[str, ...]
) -> None:
    done = town.muster("namespace", "adopt", *arguments)
    assert done.exit_code == 1
    assert f"'{arguments[-1]}' not found" in done.stderr
    assert labelled(town) == (None, None)


@pytest.mark.parametrize("system", ["kube-system", "kube-muster"])
def test_a_namespace_of_the_system_is_not_adopted(town: Cluster, system: str) -> None:
    town.namespace(system)
    assert "its pods always stay" in town.refuses("namespace", "adopt", "team", system)
    assert labelled(town) == (None, None)


def test_a_pod_of_another_scheduler_learns_of_the_adoption(town: Cluster) -> None:
    town.pod("early", scheduler="default-scheduler")
    assert [each.code for each in town.answer("pod/early").sentence] == ["PodForeign"]
    town.output("namespace", "adopt", "team")
    assert [each.code for each in town.answer("pod/early").sentence] == ["PodNotAdopted"]
