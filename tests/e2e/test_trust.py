"""Forged input of tenants: marks on PodGroups, priorities, and node names of pods."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from extender.api.keys import (
    AUTHOR,
    GROUP_ANNOTATION,
    GROUP_LABEL,
    LOCAL_QUEUE,
    PREEMPTABLE,
    QUEUE,
    QUEUE_UID,
    STOOD_WHOLE,
    SUBMITTER,
)
from tests.e2e.harness import manifests, objects, policies
from tests.e2e.harness.access import User
from tests.e2e.harness.client import Client, refusal
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import (
    BUDGETS,
    CLUSTER_ROLES,
    DEPLOYMENTS,
    JOBS,
    LOCAL_QUEUES,
    POD_GROUPS,
    PODS,
    QUEUES,
)
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

Json = dict[str, Any]
NO_QUEUE = "00000000-0000-0000-0000-000000000000"
Move = Callable[[Stage, Client], None]


@pytest.fixture
def in_force(stage: Stage) -> Iterator[None]:
    with policies.in_force(stage.api, stage.namespace):
        yield


def forged_condition(group: Json, message: str = "") -> Json:
    conditions = group.get("status", {}).get("conditions", [])
    forged = {"type": STOOD_WHOLE, "status": "True", "reason": "AllMembersStarted", "message": message}
    return {"status": {"conditions": [*(c for c in conditions if c["type"] != STOOD_WHOLE), forged]}}


# ---- marks


def test_only_muster_writes_its_records_on_groups(
    stage: Stage, scheduler: KubeScheduler, tenant: Client
) -> None:
    stage.nodes(1, cpu="4")
    stage.queue("q")
    gang = stage.gang("whole", 2, queue="q", gated=True)
    stage.wait_phase(gang)
    wait_for(
        lambda: _is_recorded(stage, "whole"), what="Muster records that the group ran fully, and its queue"
    )
    real = next(c for c in stage.pod_group("whole")["status"]["conditions"] if c["type"] == STOOD_WHOLE)
    forged = stage.group("forged", 9)
    uid = forged["metadata"]["uid"]
    message = real["message"].replace(stage.pod_group("whole")["metadata"]["uid"], uid)

    def patch(name: str, body: Json) -> str:
        return refusal(lambda: tenant.patch(POD_GROUPS, name, body, stage.namespace))

    for body in (
        forged_condition(forged, message),
        {"metadata": {"annotations": {QUEUE_UID: f"{NO_QUEUE}/{uid}"}}},
        {"metadata": {"annotations": {"kube-muster.io/stood-whole": f"9/{uid}"}}},
        {"metadata": {"annotations": {"kube-muster.io/admitted": uid}}},
    ):
        assert "are written only by Muster" in patch("forged", body)
    assert patch("forged", {"spec": {"minMember": 8}, "metadata": {"labels": {"a": "b"}}}) == ""
    assert patch("forged", {"status": {"phase": "Inqueue"}}) == ""
    assert patch("whole", {"metadata": {"annotations": {QUEUE_UID: None}}}) == ""
    wait_for(lambda: _is_recorded(stage, "whole"), what="Muster notes it again")
    copy = {**stage.pod_group("whole")}
    reserved = {key: copy["metadata"][key] for key in ("namespace", "annotations")}
    copy["metadata"] = {**reserved, "name": "copy"}
    assert refusal(lambda: tenant.create(POD_GROUPS, copy)) == ""


def test_the_author_of_a_group_cannot_be_forged(stage: Stage, tenant: Client) -> None:
    """Accept only the true author when a group is created, and no change afterwards."""

    def made(name: str, user: str) -> Json:
        group = objects.pod_group(name, namespace=stage.namespace, min_member=1)
        return {**group, "metadata": {**group["metadata"], "annotations": {SUBMITTER: user}}}

    def output(user: str | None) -> Json:
        return {"metadata": {"annotations": {SUBMITTER: user}}}

    words = "says who made the group"
    assert words in refusal(lambda: tenant.create(POD_GROUPS, made("forged", "alice")))
    tenant.create(POD_GROUPS, made("own", "mallory"))
    for user in ("alice", None):
        change = partial(tenant.patch, POD_GROUPS, "own", output(user), stage.namespace)
        assert words in refusal(change)
    tenant.patch(POD_GROUPS, "own", {"spec": {"minMember": 2}}, stage.namespace)
    assert stage.pod_group("own")["metadata"]["annotations"][SUBMITTER] == "mallory"


def test_the_author_of_a_pod_or_a_job_cannot_be_forged(stage: Stage, tenant: Client) -> None:
    def made(author: str) -> Json:
        return objects.pod("p", namespace=stage.namespace, scheduler="none", annotations={AUTHOR: author})

    words = "says who made the object"
    assert words in refusal(lambda: tenant.create(PODS, made("Pod/alice")))
    assert words in refusal(lambda: stage.api.create(PODS, made("Pod/alice"))), (
        "operators may have all rights"
    )
    assert refusal(partial(tenant.dry_run, PODS, made("Job/alice"))) == ""  # a copy, which does not count
    tenant.create(PODS, made("Pod/mallory"))
    for author in ("Pod/alice", None):
        body = {"metadata": {"annotations": {AUTHOR: author}}}
        assert words in refusal(partial(tenant.patch, PODS, "p", body, stage.namespace))
    tenant.patch(PODS, "p", {"metadata": {"labels": {"a": "b"}}}, stage.namespace)
    meta = {"name": "j", "namespace": stage.namespace, "annotations": {AUTHOR: "Job/alice"}}
    template = {"spec": {**made("")["spec"], "restartPolicy": "Never"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}}
    assert words in refusal(lambda: tenant.create(JOBS, job))
    meta["annotations"] = {AUTHOR: "Job/mallory"}
    assert refusal(lambda: tenant.create(JOBS, job)) == ""


def test_the_author_of_a_deployment_cannot_be_forged(stage: Stage, tenant: Client) -> None:
    """A user may also be noted later, if none was when it was made, and then for good."""
    meta: Json = {"name": "d", "namespace": stage.namespace, "annotations": {AUTHOR: "Deployment/alice"}}
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "c"}]}}
    made = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta,
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": template},
    }
    words = "says who made the object"
    assert words in refusal(lambda: tenant.create(DEPLOYMENTS, made))
    del meta["annotations"]
    tenant.create(DEPLOYMENTS, made)

    def patch(author: str | None) -> str:
        body = {"metadata": {"annotations": {AUTHOR: author}}}
        return refusal(partial(tenant.patch, DEPLOYMENTS, "d", body, stage.namespace))

    assert words in patch("Deployment/alice")
    assert patch("ReplicaSet/alice") == ""  # which does not count
    assert patch("Deployment/mallory") == ""
    assert words in patch("Deployment/alice")
    assert words in patch("ReplicaSet/alice")
    assert words in patch(None)


def test_a_binding_by_a_tenant_records_no_queue(stage: Stage, tenant: Client) -> None:
    """Ignore annotations of a tenant's binding, which would count the pod in another tenant's queue.

    The roles that users usually have bind no pods.
    """
    for role in ("edit", "admin"):
        rules = stage.api.get(CLUSTER_ROLES, f"system:aggregate-to-{role}")["rules"]
        made = {what for rule in rules if {"*", "create"} & {*rule["verbs"]} for what in rule["resources"]}
        assert "pods" in made if role == "edit" else "roles" in made
        assert not made & {"*", "bindings", "pods/binding", "pods/*"}
    stage.nodes(1)
    queue = stage.queue("victim")["metadata"]["uid"]
    pod = tenant.create(PODS, objects.pod("p", namespace=stage.namespace, scheduler="none"))
    record = {QUEUE_UID: f"{queue}/{pod['metadata']['uid']}"}

    def bind(path: str, annotations: Json) -> str:
        target = {"apiVersion": "v1", "kind": "Node", "name": "n0"}
        meta = {"name": "p", "namespace": stage.namespace, "annotations": annotations}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        return refusal(lambda: tenant.request("POST", f"/api/v1/namespaces/{stage.namespace}/{path}", body))

    for path in ("pods/p/binding", "bindings"):
        assert "noted only by Muster (kube-muster.io/queue-uid)" in bind(path, record)
    assert bind("pods/p/binding", {}) == ""
    assert QUEUE_UID not in stage.pod("p")["metadata"].get("annotations", {})


def _is_recorded(stage: Stage, name: str) -> bool:
    found = stage.pod_group(name)
    conditions = {each["type"]: each for each in found.get("status", {}).get("conditions", [])}
    recorded = QUEUE_UID in found["metadata"].get("annotations", {})
    return recorded and conditions.get(STOOD_WHOLE, {}).get("status") == "True"


def test_a_forged_record_deletes_nothing_without_the_policy(
    stage: Stage, muster_user: User, tenant: Client
) -> None:
    """A queue that Muster saw itself takes its groups along; one that a note merely names does not."""
    written = list(manifests.documents("marks.yaml"))
    manifests.remove(stage.api, written)
    try:
        group = stage.group("forged", 1)
        body = {"metadata": {"annotations": {QUEUE_UID: f"{NO_QUEUE}/{group['metadata']['uid']}"}}}
        wait_for(
            lambda: not refusal(lambda: tenant.patch(POD_GROUPS, "forged", body, stage.namespace)),
            what="the policy out of force",
        )
        muster = stage.start_muster(user=muster_user)
        wait_for(lambda: "they are not trusted" in muster.readyz(), what="Muster knows it")
        stage.queue("going")
        stage.group("orphan", 1, queue="going")
        wait_for(lambda: QUEUE_UID in _annotations(stage, "orphan"), what="the queue is noted")
        stage.api.delete(QUEUES, "going")
        wait_for(lambda: stage.api.find(POD_GROUPS, "orphan", stage.namespace) is None, what="it is gone")
        assert stage.api.find(POD_GROUPS, "forged", stage.namespace) is not None
    finally:
        manifests.install(stage.api, written)


def _annotations(stage: Stage, group: str) -> Json:
    found: Json = stage.pod_group(group)["metadata"].get("annotations", {})
    return found


def test_a_forged_phase_does_not_bring_a_group_into_a_closed_queue(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, tenant: Client
) -> None:
    """Know a group that came in time by its mark after a restart, whatever its status says."""
    stage.nodes(1, cpu="3")
    stage.queue("q")
    early = stage.gang("early", 3, queue="q", gated=True)
    stage.wait_phase(early)
    waiting = stage.gang("waiting", 2, queue="q", gated=True)
    stage.wait_reason("waiting", "NoRoom")
    stage.set_queue_state("q", "Closed")
    late = stage.gang("late", 1, queue="q", gated=True)
    stage.wait_reason("late", "QueueNotOpen")
    muster.stop()
    scheduled = {"type": "Scheduled", "status": "True", "reason": "Running", "message": ""}
    for name, status in (
        ("late", {"phase": "Running", "conditions": [scheduled]}),
        ("waiting", {"phase": "Pending", "conditions": []}),
    ):
        tenant.patch(POD_GROUPS, name, {"status": status}, stage.namespace)
    muster.start()
    stage.finish(early)
    stage.wait_phase(waiting)
    stage.wait_reason("late", "QueueNotOpen")
    assert stage.bound(late) == {}


# ---- ceilings


def _sent(stage: Stage, tenant: Client) -> None:
    """Check that the policy refuses by the status; where that is forged first, the group counts as before."""
    refused = refusal(lambda: tenant.patch(POD_GROUPS, "g", {"spec": {"queue": "small"}}, stage.namespace))
    assert "the group runs and keeps its queue" in refused

    def sent() -> bool:
        tenant.patch(POD_GROUPS, "g", {"status": {"phase": "Pending"}}, stage.namespace)
        return not refusal(
            lambda: tenant.patch(POD_GROUPS, "g", {"spec": {"queue": "small"}}, stage.namespace)
        )

    wait_for(sent, what="a forged phase")


def _made_again(stage: Stage, tenant: Client) -> None:
    tenant.delete(POD_GROUPS, "g", stage.namespace)
    tenant.create(POD_GROUPS, objects.pod_group("g", namespace=stage.namespace, min_member=2, queue="small"))


def _renamed(stage: Stage, tenant: Client) -> None:
    def change(**fields: Any) -> str:
        return refusal(lambda: tenant.patch(PODS, "g-0", {"metadata": fields}, stage.namespace))

    for key, value in ((GROUP_ANNOTATION, "other"), (GROUP_ANNOTATION, None), (QUEUE_UID, None)):
        assert "the pod has started" in change(annotations={key: value})
    assert change(labels={"a": "b"}) == ""


def _through_a_door(stage: Stage, tenant: Client) -> None:
    tenant.patch(LOCAL_QUEUES, "door", {"spec": {"queue": "small"}}, stage.namespace)


@pytest.mark.parametrize("move", [_sent, _made_again, _renamed, _through_a_door])
def test_no_group_leaves_the_queue_in_which_it_runs(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, tenant: Client, in_force: None, move: Move
) -> None:
    """`large` holds its 2 cpus, and `small` none of its 1, also after a restart of Muster."""
    stage.nodes(1, cpu="8")
    stage.queue("large", capability={"cpu": "2"})
    stage.queue("small", capability={"cpu": "1"})
    stage.api.create(LOCAL_QUEUES, objects.local_queue("door", namespace=stage.namespace, queue="large"))
    door = {"queue": "", "labels": {"kube-muster.io/local-queue": "door"}}
    stage.group("g", 2, **(door if move is _through_a_door else {"queue": "large"}))
    started = stage.pods("g", 2, group="g", gated=True)
    stage.wait_phase(started)
    wait_for(lambda: _is_recorded(stage, "g"), what="Muster records that it ran fully")
    move(stage, tenant)
    next_one = stage.gang("next", 1, queue="large", gated=True)
    for _ in range(2):
        stage.wait_reason("next", "QueueCeiling")
        states = {each["name"]: each for each in muster.debug("/debug/queues")}
        assert states["large"]["allocated"]["cpu"] == 2000
        assert "cpu" not in states["small"]["allocated"]
        muster.kill()
        muster.start()
        muster.wait_decision(stage.namespace, "next", verdict="Waiting")
    assert stage.bound(next_one) == {}
    stage.finish(started)
    stage.wait_phase(next_one)


# ---- borrowed capacity


@pytest.fixture
def borrowers(stage: Stage, scheduler: KubeScheduler, tenant: Client) -> Iterator[list[str]]:
    """Start the tenant's pods of queue `rich` on all four nodes; `poor` deserves two, and wants them next."""
    stage.nodes(4, cpu="2")
    stage.queue("rich", preemption={"honour": []})
    stage.queue("poor")
    reported: Json = {"group": "rich", "cpu": "2", "gated": True, "annotations": {PREEMPTABLE: "false"}}
    stage.group("rich", 1, queue="rich")
    pods = stage.pods(
        "rich", 4, labels={"guarded": "yes"}, terminationGracePeriodSeconds=2_000_000_000, **reported
    )
    stage.wait_phase(pods)
    yield pods
    for name in pods:  # or the namespace would stay
        with suppress(ApiError):
            stage.api.patch(PODS, name, {"metadata": {"finalizers": None}}, stage.namespace)


def test_borrowed_capacity_is_reclaimed_whatever_its_holders_write(
    stage: Stage, muster: Muster, borrowers: list[str], tenant: Client
) -> None:
    """A disruption budget, the word of the pods, a finalizer, and two billion seconds of grace."""
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"guarded": "yes"}}}
    tenant.create(BUDGETS, {**kind, "metadata": {"name": "all", "namespace": stage.namespace}, "spec": spec})
    for name in borrowers:
        tenant.patch(PODS, name, {"metadata": {"finalizers": ["example.com/keep"]}}, stage.namespace)
    with manifests.applied(stage.api, "overruling/rbac.yaml"):
        poor = stage.gang("poor", 2, cpu="2", queue="poor", gated=True)
        stage.wait_phase(poor)
    assert sorted(map(str, map(stage.phases, ([name] for name in borrowers)))) == sorted(
        ["{'Failed'}", "{'Failed'}", "{'Running'}", "{'Running'}"]
    )
    assert muster.metric("muster_evictions_total", outcome="done", cause="Reclaim") == 2


def test_borrowed_capacity_is_reclaimed_in_time_although_its_pods_are_deleted_slowly(
    stage: Stage, muster: Muster, borrowers: list[str], tenant: Client
) -> None:
    stage.kubelet.off()
    for name in borrowers:
        tenant.delete(PODS, name, stage.namespace, grace=2_000_000_000)
    poor = stage.gang("poor", 2, cpu="2", queue="poor", gated=True)

    def grace() -> set[int]:
        return {each["metadata"]["deletionGracePeriodSeconds"] for each in map(stage.pod, borrowers)}

    assert grace() != {240}
    wait_for(lambda: grace() == {240}, what="no more than their queue gives them")
    stage.kubelet.on()
    stage.wait_phase(poor)


def test_groups_that_are_deleted_after_evictions_are_soon_given_nothing(
    stage: Stage, muster: Muster, borrowers: list[str], tenant: Client
) -> None:
    """Reclaim capacity four times for groups that are deleted before they have it; then no more.

    This holds after a restart of Muster, too. Evicted pods come again.
    """
    stage.api.patch(QUEUES, "rich", {"spec": {"preemption": {"honour": ["PodDisruptionBudgets"]}}})
    there = set(borrowers)

    def came(turn: int) -> str:
        name = f"thief{turn}"
        tenant.create(
            POD_GROUPS, objects.pod_group(name, namespace=stage.namespace, min_member=2, queue="poor")
        )
        for number in range(2):
            new_pod = objects.pod(
                f"{name}-{number}", namespace=stage.namespace, group=name, cpu="2", gated=True
            )
            tenant.create(PODS, new_pod)
        return name

    for turn in range(4):
        stage.kubelet.off()
        name = came(turn)
        going = wait_for(partial(_both_going, stage, there), what="capacity is reclaimed")
        tenant.delete(POD_GROUPS, name, stage.namespace)
        for number in range(2):
            tenant.delete(PODS, f"{name}-{number}", stage.namespace, grace=0)
        stage.kubelet.on()
        stage.wait_phase(going, "Gone")
        slow: Json = {"group": "rich", "cpu": "2", "gated": True, "terminationGracePeriodSeconds": 600}
        again = stage.pods("rich", len(going), first=10 * (turn + 1), **slow)
        stage.wait_phase(again)
        there = there - set(going) | set(again)
    last = came(4)
    for _ in range(2):
        whose = f"groups of namespace {stage.namespace} in queue poor"
        reported = f"queue rich lost capacity to {whose} in vain, and"
        wait_for(partial(_is_reported, stage, muster, last, reported), what="it is reported")
        assert not any(_is_going(stage, each) for each in there)
        wait_for(lambda: _in_vain(stage, "poor") == [3], what="its status remembers it")
        muster.kill()
        muster.start()


def _is_reported(stage: Stage, muster: Muster, group: str, reported: str) -> bool:
    decided = muster.decision(stage.namespace, group)
    return decided.get("verdict") == "Waiting" and decided.get("spared", "").startswith(reported)


def _in_vain(stage: Stage, queue: str) -> list[int]:
    status = stage.api.get(QUEUES, queue).get("status", {})
    return [each.get("inVain", 0) for each in status.get("reclaimed", ())]


def _both_going(stage: Stage, pods: Iterable[str]) -> list[str]:
    going = [name for name in pods if _is_going(stage, name)]
    return going if len(going) == 2 else []


def _is_going(stage: Stage, pod: str) -> bool:
    return "deletionTimestamp" in stage.pod(pod)["metadata"]


# ---- priorities


def test_a_group_with_a_system_class_overtakes_no_group(stage: Stage, scheduler: KubeScheduler) -> None:
    first = stage.gang("first", 1, gated=True)
    stage.group("second", 1, priorityClassName="system-node-critical")
    second = stage.pods("second", 1, group="second", gated=True)
    for name in ("first", "second"):
        stage.wait_reason(name, "NeverFits", "NoRoom")
    stage.nodes(1, cpu="1")
    stage.wait_phase(first)
    assert stage.reason("second") != "Running"
    assert stage.bound(second) == {}


# ---- policies of what an object says alone


def test_classes_of_kubernetes_are_refused(stage: Stage, tenant: Client, in_force: None) -> None:
    def group(priority: str) -> Json:
        new_group = objects.pod_group("g", namespace=stage.namespace, min_member=1)
        return {**new_group, "spec": {**new_group["spec"], "priorityClassName": priority}}

    for name in ("system-node-critical", "system-cluster-critical"):
        message = refusal(partial(tenant.dry_run, POD_GROUPS, group(name)))
        assert f"spec.priorityClassName: invalid value {name}" in message
        assert refusal(partial(stage.api.dry_run, POD_GROUPS, group(name))) == ""
    assert refusal(lambda: tenant.dry_run(POD_GROUPS, group("high"))) == ""


def test_a_pod_of_a_group_chooses_no_node(stage: Stage, tenant: Client, in_force: None) -> None:
    stage.nodes(1)

    def pod(**options: Any) -> Json:
        return objects.pod("p", namespace=stage.namespace, **options)

    message = refusal(lambda: tenant.dry_run(PODS, pod(group="g", nodeName="n0")))
    assert "spec.nodeName: invalid value n0: must be empty for a pod of a queue or a group" in message
    everybodys = {"scheduler": "default-scheduler", "nodeName": "n0"}
    assert "spec.nodeName" in refusal(lambda: tenant.dry_run(PODS, pod(queue="q", **everybodys)))
    assert refusal(lambda: tenant.dry_run(PODS, pod(group="g"))) == ""
    assert refusal(lambda: tenant.dry_run(PODS, pod(**everybodys))) == ""


def test_a_placed_pod_is_excused_by_no_forged_owner_and_joins_nothing_later(
    stage: Stage, tenant: Client, in_force: None
) -> None:
    stage.nodes(1)
    placed = objects.pod("placed", namespace=stage.namespace, scheduler="default-scheduler", nodeName="n0")
    of_daemonset = objects.pod("forged", namespace=stage.namespace, group="g", nodeName="n0")
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": NO_QUEUE, "controller": True}
    of_daemonset["metadata"]["ownerReferences"] = [owner]
    assert "spec.nodeName: invalid value n0" in refusal(partial(tenant.dry_run, PODS, of_daemonset))
    with stage.api.acting_as("system:serviceaccount:kube-system:daemon-set-controller") as controller:
        assert refusal(partial(controller.dry_run, PODS, of_daemonset)) == ""
    tenant.create(PODS, placed)
    for field, key in (
        ("annotations", QUEUE),
        ("annotations", GROUP_ANNOTATION),
        ("labels", QUEUE),
        ("labels", GROUP_LABEL),
        ("labels", LOCAL_QUEUE),
    ):
        body = {"metadata": {field: {key: "q"}}}
        joins = partial(tenant.patch, PODS, "placed", body, stage.namespace)
        assert "spec.nodeName: invalid value n0" in refusal(joins)
    tenant.patch(PODS, "placed", {"metadata": {"labels": {"a": "b"}}}, stage.namespace)
    stage.api.delete(PODS, "placed", stage.namespace)
