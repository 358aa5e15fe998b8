"""The simulated kubelets: pods run for their declared time, and end when they are deleted."""

from collections.abc import Iterator

import pytest

from extender.apimachinery.kinds import PODS
from extender.apimachinery.service import Service
from extender.files.offspring import DEADLINE_KEY
from extender.sim.kubelets import FAIL, RUN_SECONDS, Kubelets, PodEnding, ending_of
from tests.clock import Clock
from tests.e2e.harness.waiting import wait_for
from tests.rows import each_of
from tests.sim.requests import Json, pod


@pytest.fixture
def kubelets(service: Service, clock: Clock) -> Iterator[Kubelets]:
    kubelets = Kubelets(service, speed=10.0, clock=clock)
    kubelets.start()
    yield kubelets
    kubelets.stop()


def place(service: Service, **annotations: str) -> None:
    service.create(
        PODS, "", pod("a", annotations=annotations, nodeName="n0", terminationGracePeriodSeconds=30)
    )


def pod_a(service: Service) -> Json | None:
    return service.store.get(PODS, "default", "a")


def in_phase(service: Service, phase: str) -> bool:
    pod = pod_a(service)
    return pod is not None and pod["status"]["phase"] == phase


def test_a_bound_pod_runs_and_stays(service: Service, kubelets: Kubelets) -> None:
    place(service)
    wait_for(lambda: in_phase(service, "Running"))
    pod = pod_a(service)
    assert pod is not None
    assert pod["status"]["containerStatuses"][0]["state"]["running"]
    wait_for(lambda: not kubelets.busy)


def test_a_pod_without_a_node_has_no_kubelet(service: Service, kubelets: Kubelets) -> None:
    service.create(PODS, "", pod("a"))
    wait_for(lambda: not kubelets.busy)
    assert in_phase(service, "Pending")


@pytest.mark.parametrize(("annotations", "end"), [({}, "Succeeded"), ({FAIL: "true"}, "Failed")])
def test_a_pod_ends_when_its_run_time_is_over(
    service: Service, kubelets: Kubelets, clock: Clock, annotations: dict[str, str], end: str
) -> None:
    place(service, **{RUN_SECONDS: "50", **annotations})
    wait_for(lambda: in_phase(service, "Running"))
    clock.now += 4.9
    assert kubelets.busy
    clock.now += 0.1
    wait_for(lambda: in_phase(service, end))
    wait_for(lambda: not kubelets.busy)


def test_a_running_pod_fails_by_annotation(service: Service, kubelets: Kubelets) -> None:
    place(service)
    wait_for(lambda: in_phase(service, "Running"))

    def finish(pod: Json) -> Json:
        return {**pod, "metadata": {**pod["metadata"], "annotations": {FAIL: "true"}}}

    service.amend(PODS, "default", "a", finish)
    wait_for(lambda: in_phase(service, "Failed"))


def test_a_deletion_is_confirmed(service: Service, kubelets: Kubelets) -> None:
    place(service)
    wait_for(lambda: in_phase(service, "Running"))
    service.delete(PODS, "default", "a", {})
    wait_for(lambda: pod_a(service) is None)


def test_a_deleted_pod_has_no_end_to_wait_for(service: Service, kubelets: Kubelets) -> None:
    place(service, **{RUN_SECONDS: "5000"})
    wait_for(lambda: in_phase(service, "Running"))
    service.delete(PODS, "default", "a", {})
    wait_for(lambda: not kubelets.busy)


@each_of(("1.5", 1.5), ("0", 0.0), ("-1", None), ("soon", None), ("inf", None))
def test_a_malformed_run_time_means_without_end(written: str, seconds: float | None) -> None:
    ending = ending_of(pod("a", annotations={RUN_SECONDS: written}))
    assert (ending.seconds if ending else None) == seconds


@each_of(
    ({}, {}, PodEnding(7.0, False)),
    ({RUN_SECONDS: "50"}, {"activeDeadlineSeconds": 60}, PodEnding(50.0, False)),
    ({RUN_SECONDS: "50"}, {"activeDeadlineSeconds": 40}, PodEnding(40.0, True, "DeadlineExceeded")),
    ({RUN_SECONDS: "50", DEADLINE_KEY: "30"}, {}, PodEnding(30.0, True, "DeadlineExceeded")),
    ({FAIL: "true"}, {"activeDeadlineSeconds": 40}, PodEnding(0.0, True)),
)
def test_a_pod_that_runs_for_too_long_fails(
    annotations: dict[str, str], spec: Json, ending: PodEnding
) -> None:
    assert ending_of(pod("a", annotations=annotations, **spec), run_seconds=7.0) == ending
