"""The observer reports violations: each test breaks one promise on purpose."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.e2e.harness import objects
from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.cleanup import clean
from tests.e2e.harness.client import Client
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.kubelet import Kubelet
from tests.e2e.harness.observer import Observer
from tests.e2e.harness.resources import NAMESPACES
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.nightly

SPACE = "observed"
IMPATIENT = 0.2


@pytest.fixture
def seeded(cluster: ControlPlane) -> Iterator[Stage]:
    """Yield a stage whose observer is for the test to ask, not for the fixture.

    These tests break promises.
    """
    if cluster.admin.find(NAMESPACES, SPACE) is None:
        cluster.admin.create(NAMESPACES, objects.namespace(SPACE))
    with Observer(cluster.admin, IMPATIENT) as observer, Kubelet(cluster.admin) as kubelet:
        stage = Stage(cluster, SPACE, kubelet, observer)
        with stage.started:
            yield stage
    clean(cluster.admin, SPACE)


def bind(stage: Stage, names: Sequence[str], node: str = "n0") -> None:
    for name in names:
        stage.api.bind(stage.namespace, name, node)


def outwait(stage: Stage) -> None:
    """Wait longer than the observer's deadline."""
    end = time.monotonic() + 2 * stage.observer.deadline
    wait_for(lambda: time.monotonic() > end)


def test_an_earlier_fault_is_found_when_all_clients_have_stopped(seeded: Stage) -> None:
    seeded.nodes(1, cpu="2")
    bind(seeded, seeded.pods("over", 2, cpu="1500m"))
    with pytest.raises(AssertionError, match="cpu 3 of 2"):
        seeded.observer.assert_clean(namespace=SPACE)


@pytest.mark.parametrize(
    ("capacity", "asked", "violation"),
    [
        ({"cpu": "2"}, {"cpu": "1500m"}, "cpu 3 of 2"),
        ({"memory": "1Gi"}, {"memory": "600Mi"}, "memory"),
        ({"pods": 1}, {}, "pods 2 of 1"),
        ({"example.com/gpu": "1"}, {"limits": {"example.com/gpu": "1"}}, "example.com/gpu 2 of 1"),
    ],
    ids=["cpu", "memory", "pods", "extended"],
)
def test_the_observer_sees_a_node_over_its_allocatable(
    seeded: Stage, capacity: dict[str, Any], asked: dict[str, Any], violation: str
) -> None:
    seeded.nodes(1, **capacity)
    bind(seeded, seeded.pods("over", 2, **asked))
    with pytest.raises(AssertionError, match=f"node n0 over its allocatable .*{violation}"):
        seeded.observer.assert_clean()


def test_the_observer_sees_a_gang_in_pieces(seeded: Stage) -> None:
    seeded.nodes(1)
    bind(seeded, seeded.gang("torn", 3)[:2])
    outwait(seeded)
    with pytest.raises(AssertionError, match=f"gang {SPACE}/torn "):
        seeded.observer.assert_clean()


def test_the_observer_remembers_pieces_that_were_completed_too_late(seeded: Stage) -> None:
    seeded.nodes(1)
    first, *rest = seeded.gang("late", 3)
    bind(seeded, [first])
    outwait(seeded)
    bind(seeded, rest)
    with pytest.raises(AssertionError, match=f"gang {SPACE}/late "):
        seeded.observer.assert_clean()


def test_the_observer_remembers_a_node_that_was_overcommitted_for_a_short_time(seeded: Stage) -> None:
    seeded.nodes(1, cpu="1")
    pods = seeded.pods("short", 2)
    bind(seeded, pods)
    seeded.delete_pods(pods)
    seeded.wait_phase(pods, "Gone")
    with pytest.raises(AssertionError, match="node n0 over"):
        seeded.observer.assert_clean()


def test_the_observer_finds_nothing_in_a_clean_run(stage: Stage) -> None:
    """Watch a full node, capacity used twice, a whole gang that shrinks, and one undone in time."""
    stage.nodes(1, cpu="3")
    whole = stage.gang("whole", 3)
    bind(stage, whole)
    stage.wait_phase(whole)
    stage.finish(whole[:1])
    stage.wait_phase(whole[:1], "Succeeded")
    undone = stage.gang("undone", 2)
    bind(stage, undone[:1])
    stage.delete_pods(undone)
    stage.wait_phase(undone, "Gone")
    stage.observer.assert_clean()


def test_the_observer_resumes_where_a_cut_watch_ended(seeded: Stage) -> None:
    """Check events that it missed as well, and lose none."""
    wire = seeded.start_wire()
    far = Client(seeded.cluster.access(ADMIN, wire.server))
    with far, Observer(far) as observer:
        seeded.nodes(1, cpu="1")
        wire.refuse()
        pods = seeded.pods("unseen", 2)
        bind(seeded, pods)
        seeded.delete_pods(pods)
        seeded.wait_phase(pods, "Gone")
        wire.restore()
        assert any("node n0 over" in violation for violation in observer.violations())
        assert observer.gaps() == []


def test_the_observer_reports_objects_that_a_restored_api_server_lost(seeded: Stage) -> None:
    seeded.nodes(1)
    seeded.cluster.restart_apiserver()
    wait_for(seeded.observer.gaps, what="the gap is reported")
    with pytest.raises(AssertionError, match="events lost: "):
        seeded.observer.assert_clean()
    seeded.observer.assert_clean(gaps_allowed=True)
