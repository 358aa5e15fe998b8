"""`muster namespace adopt|release`, and what `muster why` says of pods there."""

import pytest

from extender.api.keys import MANAGED, QUEUE
from extender.apimachinery.kinds import NAMESPACES
from tests.cli.cluster import Cluster


@pytest.fixture
def sample(cluster: Cluster) -> Cluster:
    cluster.queue("research", state="Open")
    cluster.namespace("team")
    return cluster


def labelled(cluster: Cluster) -> tuple[str | None, str | None]:
    """Return the label and the queue of the namespace."""
    found = cluster.store.get(NAMESPACES, "", "team") or {"metadata": {}}
    meta = found["metadata"]
    return (meta.get("labels") or {}).get(MANAGED), (meta.get("annotations") or {}).get(QUEUE)


def test_a_namespace_is_adopted_with_its_queue_and_released(sample: Cluster) -> None:
    assert sample.output("namespace", "adopt", "team", "--queue", "research") == "namespace/team adopted\n"
    assert labelled(sample) == ("true", "research")
    assert sample.output("namespace", "release", "team") == "namespace/team released\n"
    assert labelled(sample) == (None, "research")


@pytest.mark.parametrize("dry_run", ["client", "server"])
def test_a_dry_run_changes_nothing(sample: Cluster, dry_run: str) -> None:
    assert "dry run" in sample.output("namespace", "adopt", "team", f"--dry-run={dry_run}")
    assert labelled(sample) == (None, None)


@pytest.mark.parametrize("arguments", [("tema",), ("team", "--queue", "researhc")])
def test_a_missing_namespace_or_queue_is_named_and_nothing_changes(
    sample: Cluster, arguments: tuple[str, ...]
) -> None:
    done = sample.muster("namespace", "adopt", *arguments)
    assert done.exit_code == 1
    assert f"'{arguments[-1]}' not found" in done.stderr
    assert labelled(sample) == (None, None)


@pytest.mark.parametrize("system", ["kube-system", "kube-muster"])
def test_a_namespace_of_the_system_is_not_adopted(sample: Cluster, system: str) -> None:
    sample.namespace(system)
    assert "its pods always stay" in sample.refuses("namespace", "adopt", "team", system)
    assert labelled(sample) == (None, None)


def test_a_pod_of_another_scheduler_learns_of_the_adoption(sample: Cluster) -> None:
    sample.pod("early", scheduler="default-scheduler")
    assert [each.code for each in sample.answer("pod/early").sentence] == ["PodForeign"]
    sample.output("namespace", "adopt", "team")
    assert [each.code for each in sample.answer("pod/early").sentence] == ["PodNotAdopted"]
