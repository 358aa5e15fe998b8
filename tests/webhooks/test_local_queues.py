"""References to LocalQueues, and who may lead a namespace into a queue."""

from typing import Any

import pytest

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.cluster import Namespace
from extender.api.objects.pods import LabelSelector
from extender.api.objects.queues import LocalQueue, LocalQueueSpec
from extender.domain.model.records import Uid
from tests.domain.builders import NAMESPACE, group, queue
from tests.domain.builders import pod as domain_pod
from tests.webhooks.bench import ALICE, Bench, Json, job, pod, pod_group

VOLCANO = {"group": "batch.volcano.sh", "kind": "Job"}
TEAM_SELECTOR = LabelSelector(match_labels={"team": "ai"})


def local(to: str, name: str = "lq") -> LocalQueue:
    return LocalQueue(Meta(name=name, namespace=NAMESPACE, uid=f"uid-{name}"), LocalQueueSpec(to))


def written(to: str) -> Json:
    return {"metadata": {"name": "lq"}, "spec": {"queue": to}}


def labelled(thing: Json, name: str = "lq", key: str = keys.LOCAL_QUEUE) -> Json:
    return {**thing, "metadata": {**thing["metadata"], "labels": {key: name}}}


def labelled_job() -> Json:
    return {"metadata": {"name": "j"}, "spec": {"template": labelled(pod())}}


KINDS: list[Any] = [
    pytest.param("/podgroups/validate", labelled(pod_group("default")), {}, id="PodGroup"),
    pytest.param("/pods/validate", labelled(pod()), {}, id="pod"),
    pytest.param("/jobs/validate", labelled_job(), {}, id="Job"),
    pytest.param(
        "/jobs/validate", labelled({"metadata": {"name": "v"}, "spec": {}}), {"kind": VOLCANO}, id="vcjob"
    ),
    pytest.param(
        "/other-podgroups/validate", labelled({"metadata": {"name": "g"}, "spec": {}}), {}, id="native"
    ),
]
every_kind = pytest.mark.parametrize(("path", "thing", "more"), KINDS)


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.ledger.intake.set_queue(queue("open"))
    bench.ledger.intake.set_queue(queue("shut", spec_state="Closed"))
    bench.ledger.intake.set_queue(queue("private", restricted=True))
    bench.ledger.intake.set_queue(queue("chosen", namespace_selector=TEAM_SELECTOR))
    return bench


@every_kind
@pytest.mark.parametrize(
    ("to", "faults"),
    [
        ("open", []),
        ("shut", ["QueueNotOpen"]),
        ("nowhere", ["QueueNotFound"]),
        ("private", ["UseNotGranted"]),
        ("chosen", ["NamespaceNotAllowed"]),
    ],
)
def test_objects_are_reviewed_by_the_queue_of_their_local_queue(
    path: str, thing: Json, more: Json, to: str, faults: list[str], bench: Bench
) -> None:
    bench.ledger.intake.set_local_queue(local(to))
    assert bench.faults(path, thing, **more) == faults


@every_kind
def test_an_object_may_be_created_before_its_local_queue(
    path: str, thing: Json, more: Json, bench: Bench
) -> None:
    assert bench.faults(path, thing, **more) == []
    assert set(bench.looked_up) == {f"{NAMESPACE}/lq"}
    assert bench.queues_looked_up == []


@every_kind
def test_a_new_local_queue_counts_at_once(path: str, thing: Json, more: Json, bench: Bench) -> None:
    bench.newest_local_queues[f"{NAMESPACE}/lq"] = local("private")
    assert bench.faults(path, thing, **more) == ["UseNotGranted"]


def test_a_newly_labelled_namespace_is_admitted_at_once(bench: Bench) -> None:
    bench.newest["chosen"] = queue("chosen", namespace_selector=TEAM_SELECTOR)
    assert bench.faults("/podgroups/validate", pod_group("chosen")) == ["NamespaceNotAllowed"]
    bench.newest_namespaces[NAMESPACE] = Namespace(Meta(name=NAMESPACE, labels={"team": "ai"}))
    assert bench.faults("/podgroups/validate", pod_group("chosen")) == []
    assert bench.faults("/jobs/validate", job("chosen")) == []


def test_the_message_says_what_to_do(bench: Bench) -> None:
    answer = bench.ask("/podgroups/validate", pod_group("chosen"))
    assert answer["status"]["message"] == (
        "spec.queue: queue 'chosen' takes no work of namespace 'team': name another queue, or label the "
        "namespace as spec.namespaceSelector of the queue asks"
    )


def test_a_changed_label_is_reviewed_like_a_changed_queue(bench: Bench) -> None:
    bench.ledger.intake.set_local_queue(local("open"))
    bench.ledger.intake.set_local_queue(local("private", "secret"))
    before, now = labelled(pod_group()), labelled(pod_group(), "secret")
    assert bench.faults("/podgroups/validate", now, "UPDATE", oldObject=before) == ["UseNotGranted"]
    assert bench.faults("/podgroups/validate", before, "UPDATE", oldObject=before) == []


def test_a_group_with_a_label_does_not_get_the_queue_of_its_namespace(bench: Bench) -> None:
    bench.ledger.intake.set_namespace(Namespace(Meta(name=NAMESPACE, annotations={keys.QUEUE: "open"})))
    named = [
        each
        for each in bench.patch("/podgroups/mutate", labelled(pod_group()))
        if each["path"] == "/spec/queue"
    ]
    assert named == []
    assert {"op": "add", "path": "/spec/queue", "value": "open"} in bench.patch(
        "/podgroups/mutate", pod_group()
    )


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_a_local_queue_of_a_restricted_queue_needs_the_right_to_use_it(operation: str, bench: Bench) -> None:
    more = {"oldObject": written("open")} if operation == "UPDATE" else {}
    assert bench.faults("/localqueues/validate", written("private"), operation, **more) == ["UseNotGranted"]
    assert bench.faults("/localqueues/validate", written("open"), operation, **more) == []
    assert bench.faults("/localqueues/validate", written("later"), operation, **more) == []
    bench.roles.granted = {(ALICE["username"], "private")}  # type: ignore[arg-type]
    assert bench.faults("/localqueues/validate", written("private"), operation, **more) == []


def test_a_local_queue_of_a_restricted_queue_may_be_stopped_by_anybody_who_may_write_it(bench: Bench) -> None:
    stopped = {**written("private"), "spec": {"queue": "private", "stopPolicy": "Hold"}}
    assert bench.faults("/localqueues/validate", stopped, "UPDATE", oldObject=written("private")) == []


def test_a_running_group_moves_to_no_other_queue(bench: Bench) -> None:
    """Ignore the queue, its label, and another group of its name for a running group."""
    bench.ledger.intake.set_queue(queue("other"))
    bench.ledger.intake.set_local_queue(local("other"))
    bench.ledger.intake.set_group(group("g", 1, "open"))
    bench.ledger.pods.set_pod(domain_pod("g-0", "g", on="n"))
    bench.ledger.snapshot()
    path, before, moved = "/podgroups/validate", pod_group("open"), ["GroupHasStarted"]
    assert bench.faults(path, pod_group("other"), "UPDATE", oldObject=before) == moved
    assert bench.faults(path, labelled(pod_group()), "UPDATE", oldObject=before) == moved
    assert bench.faults(path, pod_group("other")) == moved
    assert bench.faults(path, labelled(pod_group())) == [], "its LocalQueue may lead elsewhere by now"
    assert bench.faults(path, pod_group("open")) == []
    other = {"metadata": {"name": "g", "annotations": {keys.QUEUE: "other"}}, "spec": {}}
    assert bench.faults("/other-podgroups/validate", other) == moved
    bench.ledger.pods.drop(Uid("uid-g-0"))
    bench.ledger.snapshot()
    assert bench.faults(path, pod_group("other"), "UPDATE", oldObject=before) == []
