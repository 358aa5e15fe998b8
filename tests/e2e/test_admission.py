"""Admission on a real API server: by Muster's webhooks, and by policies while Muster is down."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.api.keys import REQUIRED_TOPOLOGY
from extender.webhooks.certificates import Pair, make_pair
from tests.e2e.harness import manifests, objects, policies, webhooks
from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.client import STRATEGIC, Client
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import (
    DEPLOYMENTS,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    PLUGINS_POD_GROUPS,
    POD_GROUPS,
    PODS,
    QUEUES,
    REPLICA_SETS,
    RESOURCE_FLAVORS,
    SECRETS,
    Resource,
)
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError
from tests.e2e.harness.webhooks import POD_WEBHOOK, Port, configured, load, wait_in_force

Json = dict[str, Any]
PLUGINS = Path(__file__).parent / "data" / "scheduler-plugins-podgroups.yaml"
GROUP_NAME = "scheduling.k8s.io/group-name"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
SHORT_LIVED = "--webhook-lifetime=20s"


@pytest.fixture
def port() -> Port:
    return Port()


@pytest.fixture
def review(stage: Stage, muster_user: User, port: Port) -> Iterator[Muster]:
    """Yield Muster with a certificate of its own, and its webhooks in force."""
    with configured(stage.api, port, POD_WEBHOOK):
        muster = stage.start_muster(*port.flags("self-signed"), user=muster_user)
        wait_in_force(stage.api)
        yield muster


# ---- words for the tests


def refusal(action: Callable[[], object], status: int) -> str:
    """Return the refusal of an action that must be refused: the message, and the codes of its causes."""
    with pytest.raises(ApiError) as refused:
        action()
    assert refused.value.status == status, str(refused.value)
    return str(refused.value)


def job(stage: Stage, name: str, **annotations: str) -> Json:
    pod = objects.pod("template", namespace=stage.namespace)
    template = {
        "metadata": {"annotations": annotations},
        "spec": {**pod["spec"], "restartPolicy": "Never"},
    }
    metadata = {"name": name, "namespace": stage.namespace}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


def closed(stage: Stage, review: Muster, name: str) -> None:
    """Create a queue that Muster knows to be Closed."""
    stage.queue(name, state="Closed")
    wait_for(lambda: _states(review).get(name) == "Closed", what=f"{name} known as Closed")


def _states(review: Muster) -> dict[str, str]:
    return {each["name"]: each["state"] for each in review.debug("/debug/queues")}


def wait_known(stage: Stage, review: Muster, *names: str) -> None:
    wait_for(lambda: set(names) <= _states(review).keys(), what=f"{names} known")


# ---- each path


def test_queues_get_their_defaults(stage: Stage, review: Muster) -> None:
    bare = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "bare"}}
    made = stage.api.create(QUEUES, bare)
    assert (made["spec"]["weight"], made["spec"]["reclaimable"], made["spec"]["state"]) == (1, True, "Open")
    zero = stage.api.dry_run(QUEUES, objects.queue("zero", weight=0))
    assert zero["spec"]["weight"] == 1


def test_queues_are_reviewed_together_with_other_queues(stage: Stage, review: Muster) -> None:
    stage.queue("team", capability={"cpu": "4"}, deserved={"cpu": "4"})
    wait_known(stage, review, "team")
    child = partial(stage.queue, "child", parent="team")
    assert "CapabilityAboveAncestor" in refusal(partial(child, capability={"cpu": "5"}), 403)
    assert "ChildrenDeservedSum" in refusal(partial(child, deserved={"cpu": "5"}), 403)
    assert "ParentNotFound" in refusal(lambda: stage.queue("lost", parent="nowhere"), 403)
    child(capability={"cpu": "3"})
    wait_known(stage, review, "child")
    lowered = {"spec": {"capability": {"cpu": "2"}, "deserved": {"cpu": "2"}}}
    below = refusal(lambda: stage.api.patch(QUEUES, "team", lowered), 403)
    assert "CapabilityBelowDescendant" in below


def test_only_a_closed_queue_can_be_deleted(stage: Stage, review: Muster) -> None:
    stage.queue("open")
    closed(stage, review, "shut")
    assert "NotClosed" in refusal(lambda: stage.api.delete(QUEUES, "open"), 403)
    stage.api.delete(QUEUES, "shut")
    for name in ("default", "root"):  # which Muster makes itself; its views have them before they are made
        wait_for(partial(stage.api.find, QUEUES, name), what=f"queue {name} made")
        wait_known(stage, review, name)
        assert "ProtectedQueue" in refusal(partial(stage.api.delete, QUEUES, name), 403)
    assert "ProtectedQueue" in refusal(lambda: stage.api.delete_all(QUEUES), 403)


def test_a_group_with_an_unknown_level_is_refused(stage: Stage, review: Muster) -> None:
    stage.nodes(1, labels={"example.com/rack": "a"})
    wait_known(stage, review, "default")
    wait_for(lambda: review.debug("/debug/nodes"), what="node known")
    wrong = partial(stage.group, "g", 1, annotations={REQUIRED_TOPOLOGY: "example.com/racks"})
    assert "no topology has as a level and no node as a label" in refusal(wrong, 403)
    stage.group("g", 1, annotations={REQUIRED_TOPOLOGY: "example.com/rack"})


def test_a_resource_flavor_that_a_queue_names_is_not_deleted(stage: Stage, review: Muster) -> None:
    """Its labels and taints are validated by the schema, and the keys of labels by Muster."""
    head = {"apiVersion": "kube-muster.io/v1alpha1", "kind": "ResourceFlavor", "metadata": {"name": "h100"}}
    create = partial(stage.api.create, RESOURCE_FLAVORS)
    wrong = {**head, "spec": {"nodeTaints": [{"key": "a", "effect": "Never"}]}}
    assert "nodeTaints" in refusal(partial(create, wrong), 422)
    wrong = {**head, "spec": {"nodeLabels": {"a/b/c": "d"}}}
    assert "FlavorNotValid" in refusal(partial(create, wrong), 422)
    create({**head, "spec": {"nodeLabels": {"example.com/gpu": "h100"}}})
    stage.queue("team", flavors=[{"name": "h100", "resourceFlavor": "h100"}])
    wait_known(stage, review, "team")
    assert "FlavorInUse" in refusal(partial(stage.api.delete, RESOURCE_FLAVORS, "h100"), 403)
    assert "not both" in refusal(
        lambda: stage.queue("both", flavors=[{"name": "f", "resourceFlavor": "h100", "nodeLabels": {}}]), 422
    )
    stage.api.patch(QUEUES, "team", {"spec": {"flavors": None}})
    wait_for(lambda: "team" not in review.debug("/debug/flavors"), what="team known to name none")
    stage.api.delete(RESOURCE_FLAVORS, "h100")


def test_a_queue_with_plain_pods_is_emptied_and_deleted(stage: Stage, review: Muster) -> None:
    """Muster's own groups are reviewed like others': none is made while it would be refused."""
    stage.queue("team")
    pods = stage.pods("p", 2, queue="team", gated=True)
    for pod in pods:
        stage.wait_group(stage.own_group(pod), phase="Pending")
    done = Shell(stage.cluster, ADMIN)("queue", "delete", "team", "--cascade", "--timeout", "60s")
    assert done.returncode == 0, done.stderr
    assert f"{stage.namespace}/p-0" in done.stderr, "it names the pods that are left"
    stage.queue("team")
    for pod in pods:
        stage.wait_group(stage.own_group(pod), phase="Pending")


def test_groups_go_to_queues_that_are_there_and_open(stage: Stage, review: Muster) -> None:
    stage.queue("team")
    closed(stage, review, "shut")
    stage.group("a", 1, queue="team")
    assert "QueueNotOpen" in refusal(lambda: stage.group("b", 1, queue="shut"), 403)
    assert "QueueNotFound" in refusal(lambda: stage.group("b", 1, queue="nowhere"), 403)
    move = partial(stage.api.patch, POD_GROUPS, "a", {"spec": {"queue": "shut"}}, stage.namespace)
    assert "QueueNotOpen" in refusal(move, 403)
    both = {"highestTierAllowed": 1, "highestTierName": "rack"}
    assert "TopologyBothTiers" in refusal(lambda: stage.group("b", 1, networkTopology=both), 422)


def test_objects_written_one_right_after_the_other_are_accepted(stage: Stage, review: Muster) -> None:
    """A queue, one below it and a group in that, each right after the other: the watch lags behind."""

    def write(number: int) -> None:
        stage.queue(f"parent-{number}")
        stage.queue(f"child-{number}", parent=f"parent-{number}")
        stage.group(f"g-{number}", 1, queue=f"child-{number}")

    with ThreadPoolExecutor(4) as writers:
        list(writers.map(write, range(40)))


def test_one_file_holds_queues_and_their_groups(stage: Stage, review: Muster) -> None:
    """The second time the parent is raised, and at once the queue below it."""
    for cpu in ("2", "4"):
        _kubectl_apply(
            stage,
            objects.queue("team", capability={"cpu": cpu}),
            objects.queue("child", parent="team", capability={"cpu": cpu}),
            objects.pod_group("g", namespace=stage.namespace, min_member=1, queue="child"),
        )
    assert stage.api.get(QUEUES, "child")["spec"]["capability"] == {"cpu": "4"}


def test_a_gang_that_is_created_in_turn_is_taken_with_a_warning(stage: Stage, review: Muster) -> None:
    template = job(stage, "x")["spec"]["template"]
    template["metadata"]["labels"] = {"app": "x"}
    template["spec"]["restartPolicy"] = "Always"
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    meta = {"name": "x", "namespace": stage.namespace}
    whole = {"annotations": {"kube-muster.io/min-member": "all"}}
    database = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta | whole}
    database["spec"] = {**spec, "serviceName": "x"}
    assert "Parallel" in _kubectl_apply(stage, database)
    assert "Warning" not in _kubectl_apply(stage, database), "nothing of it has changed"


def _kubectl_apply(stage: Stage, *file: Json) -> str:
    """Return the warnings."""
    home = {"KUBECONFIG": str(stage.cluster.kubeconfig(ADMIN)), "HOME": str(stage.cluster.folder)}
    done = subprocess.run(
        [str(stage.cluster.binaries / "kubectl"), "apply", "-f", "-"],
        input="\n---\n".join(map(json.dumps, file)),
        env={**os.environ, **home},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_many_groups_for_a_queue_that_comes_pass_once_it_is_there(stage: Stage, review: Muster) -> None:
    """Refuse groups before the queue exists.

    The cached result of their look-up does not answer later ones.
    """
    group = objects.pod_group("late", namespace=stage.namespace, min_member=1, queue="late")
    for _ in range(5):
        with ThreadPoolExecutor(8) as writers:
            refusals = list(writers.map(lambda _: webhooks.refusal(stage.api, group), range(40)))
        assert all("QueueNotFound" in each for each in refusals)
        stage.queue("late")
        stage.api.dry_run(POD_GROUPS, group)
        stage.api.patch(QUEUES, "late", {"spec": {"state": "Closed"}})
        wait_for(lambda: _deletable(stage, "late"), what="the queue may be deleted")
        stage.api.delete(QUEUES, "late")
        wait_for(lambda: "late" not in _states(review), what="the queue is not known any more")


def test_a_group_gets_the_queue_of_its_namespace(stage: Stage, review: Muster) -> None:
    stage.queue("team")
    wait_known(stage, review, "team")
    stage.api.patch(NAMESPACES, stage.namespace, {"metadata": {"annotations": {QUEUE_NAME: "team"}}})
    shown = objects.pod_group("shown", namespace=stage.namespace, min_member=1, queue="default")
    wait_for(
        lambda: stage.api.dry_run(POD_GROUPS, shown)["spec"]["queue"] == "team", what="the namespace's queue"
    )


def test_jobs_are_reviewed_by_the_queue_of_their_pods(stage: Stage, review: Muster) -> None:
    stage.queue("team")
    stage.queue("parent")
    closed(stage, review, "shut")
    stage.queue("leaf", parent="parent")
    wait_known(stage, review, "team", "leaf")

    def create(queue: str) -> Callable[[], Json]:
        return partial(stage.api.dry_run, JOBS, job(stage, "j", **{QUEUE_NAME: queue}))

    create("team")()
    create("leaf")()
    shut = refusal(create("shut"), 403)
    assert "QueueNotOpen" in shut
    assert f"spec.template.metadata.annotations[{QUEUE_NAME}]: " in shut
    assert "QueueNotFound" in refusal(create("nowhere"), 403)
    assert "QueueNotLeaf" in refusal(create("parent"), 403)


def test_pods_of_groups_that_are_there_pass_a_closing_queue(stage: Stage, review: Muster) -> None:
    stage.queue("team")
    wait_known(stage, review, "team")
    stage.group("a", 1, queue="team")
    stage.api.patch(QUEUES, "team", {"spec": {"state": "Closed"}})
    wait_for(lambda: _states(review)["team"] == "Closing", what="team Closing")
    stage.pods("member", 1, group="a")
    assert "QueueNotOpen" in refusal(lambda: stage.pods("late", 1, queue="team"), 403)
    assert "QueueNotFound" in refusal(lambda: stage.pods("lost", 1, queue="nowhere"), 403)
    (moved,) = stage.pods("moved", 1, group="later")  # one with a group goes where that is
    annotations = {"metadata": {"annotations": {QUEUE_NAME: "team"}}}
    assert "QueueNotOpen" in refusal(lambda: stage.api.patch(PODS, moved, annotations, stage.namespace), 403)
    budget = {"volcano.sh/jdb-min-available": "120%"}
    assert "BudgetNotValid" in refusal(lambda: stage.pods("budget", 1, annotations=budget), 422)
    stage.pods("foreign", 1, queue="nowhere", scheduler="nobody")


def test_pods_get_their_gate_from_the_webhook(stage: Stage, review: Muster) -> None:
    (ours,) = stage.pods("ours", 1)
    (foreign,) = stage.pods("foreign", 1, scheduler="nobody")
    assert stage.pod(ours)["spec"]["schedulingGates"] == [{"name": objects.GATE}]
    assert not stage.pod(foreign)["spec"].get("schedulingGates")


def test_marks_come_with_the_gate_next_to_the_clusters_own_scheduler(
    stage: Stage, muster_user: User, port: Port
) -> None:
    with configured(stage.api, port, POD_WEBHOOK):
        flags = port.flags("self-signed")
        stage.start_muster(*flags, user=muster_user, scheduler_names=("default-scheduler", "muster"))
        wait_in_force(stage.api)
        (pod,) = stage.pods("p", 1, group="later", scheduler="default-scheduler")
        spec = stage.pod(pod)["spec"]
    marks = {"kube-muster.io/place": "1", "kube-muster.io/bind": "1"}
    resources = spec["containers"][0]["resources"]
    assert spec["schedulingGates"] == [{"name": objects.GATE}]
    assert marks.items() <= resources["requests"].items()
    assert marks.items() <= resources["limits"].items()
    assert resources["requests"]["cpu"] == "1"


# ---- who may use a queue


@pytest.fixture
def users(stage: Stage) -> Iterator[tuple[Client, Client]]:
    """Yield alice, who may use the queue `private`, and bob, who may not; both may edit."""
    written = [
        _role("e2e-edit", [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["create", "get"]}]),
        _role("e2e-use", [_may_use("private")]),
        _binding("e2e-edit", "alice", "bob"),
        _binding("e2e-use", "alice"),
    ]
    for each in written:
        manifests.apply_one(stage.api, each)
    with stage.api.acting_as("alice") as alice, stage.api.acting_as("bob") as bob:
        yield alice, bob
    manifests.remove(stage.api, written)


def _role(name: str, rules: list[Json]) -> Json:
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    return {**kind, "metadata": {"name": name}, "rules": rules}


def _may_use(queue: str) -> Json:
    return {
        "apiGroups": ["scheduling.volcano.sh"],
        "resources": ["queues"],
        "resourceNames": [queue],
        "verbs": ["use"],
    }


def _binding(role: str, *users: str) -> Json:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [
            {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"} for user in users
        ],
    }


def test_each_user_runs_no_more_at_once_than_the_limit_of_the_queue_for_users(
    stage: Stage, review: Muster, muster_user: User, users: tuple[Client, Client]
) -> None:
    stage.start_sidecar(review, user=muster_user)
    stage.nodes(1, cpu="8")
    stage.queue("q", limits={"perUser": {"groups": 1}})
    wait_known(stage, review, "q")
    alice, bob = users
    for user, name in ((alice, "first"), (alice, "second"), (bob, "other")):
        user.create(POD_GROUPS, objects.pod_group(name, namespace=stage.namespace, min_member=1, queue="q"))
    pods = {name: stage.pods(name, 1, group=name, gated=True) for name in ("first", "second", "other")}
    stage.wait_phase(pods["other"])
    running = stage.first_with_reason(("first", "second"), "Running")
    waiting = "second" if running == "first" else "first"
    stage.wait_reason(waiting, "QueueCeiling")
    assert "alice" in str(stage.pod_group(waiting)["status"]["conditions"])
    stage.finish(pods[running])
    stage.wait_phase(pods[waiting])


def test_a_restricted_queue_accepts_only_users_who_may_use_it(
    stage: Stage, review: Muster, users: tuple[Client, Client]
) -> None:
    alice, bob = users
    stage.queue("private", restricted=True)
    wait_known(stage, review, "private")
    group = objects.pod_group("g", namespace=stage.namespace, min_member=1, queue="private")
    pod = objects.pod("p", namespace=stage.namespace, queue="private")
    work = job(stage, "j", **{QUEUE_NAME: "private"})
    for resource, thing in ((POD_GROUPS, group), (PODS, pod), (JOBS, work)):
        wait_for(partial(_passes, alice, resource, thing), what="RBAC in force")
        assert "UseNotGranted" in refusal(partial(bob.dry_run, resource, thing), 403)
    stage.api.create(POD_GROUPS, group)
    review.wait_decision(stage.namespace, "g")
    joining = objects.pod("joining", namespace=stage.namespace, group="g")
    assert "UseNotGranted" in refusal(lambda: bob.dry_run(PODS, joining), 403)
    alice.dry_run(PODS, joining)


def _passes(client: Client, resource: Resource, thing: Json) -> bool:
    try:
        client.dry_run(resource, thing)
    except ApiError:
        return False
    return True


def test_pods_of_a_reviewed_job_are_admitted(
    stage: Stage, review: Muster, users: tuple[Client, Client]
) -> None:
    """The Job controller has itself no right to the queue."""
    alice, _ = users
    stage.queue("private", restricted=True)
    wait_known(stage, review, "private")
    wait_for(lambda: _passes(alice, JOBS, job(stage, "j", **{QUEUE_NAME: "private"})), what="RBAC in force")
    stage.start_controller_manager()
    alice.create(JOBS, job(stage, "j", **{QUEUE_NAME: "private"}))
    wait_for(lambda: stage.api.items(PODS, stage.namespace), what="the Job's pod")


def test_pods_of_a_controller_join_a_group_only_with_the_right(
    stage: Stage, review: Muster, users: tuple[Client, Client]
) -> None:
    """Bob may not use the queue. The pods of his ReplicaSet name Alice's group, which is there."""
    alice, bob = users
    stage.queue("private", restricted=True)
    wait_known(stage, review, "private")
    group = objects.pod_group("g", namespace=stage.namespace, min_member=1, queue="private")
    wait_for(partial(_passes, alice, POD_GROUPS, group), what="RBAC in force")
    alice.create(POD_GROUPS, group)
    stage.start_controller_manager()
    bob.create(REPLICA_SETS, _replica_set(stage, "joining", "g"))
    wait_for(lambda: "is restricted" in _failure(stage, "joining"), what="its pods are refused")
    assert stage.api.items(PODS, stage.namespace) == []


def _replica_set(stage: Stage, name: str, group: str) -> Json:
    pod = objects.pod("template", namespace=stage.namespace, group=group, labels={"app": name})
    del pod["spec"]["terminationGracePeriodSeconds"]
    template = {"metadata": {key: pod["metadata"][key] for key in ("labels", "annotations")}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": stage.namespace},
        "spec": {**spec, "template": {**template, "spec": pod["spec"]}},
    }


def _failure(stage: Stage, name: str) -> str:
    found = stage.api.get(REPLICA_SETS, name, stage.namespace).get("status", {}).get("conditions", [])
    return next((each["message"] for each in found if each["type"] == "ReplicaFailure"), "")


def test_a_group_of_a_restricted_queue_comes_before_its_pods(
    stage: Stage, review: Muster, users: tuple[Client, Client]
) -> None:
    alice, bob = users
    stage.queue("private", restricted=True)
    wait_known(stage, review, "private")
    early = objects.pod("early", namespace=stage.namespace, group="g")
    wait_for(partial(_passes, bob, PODS, early), what="RBAC in force")
    bob.create(PODS, early)
    group = objects.pod_group("g", namespace=stage.namespace, min_member=1, queue="private")
    wait_for(lambda: "PodsNotJudged" in webhooks.refusal(alice, group), what="the pod known")
    stage.delete_pods(["early"])
    wait_for(partial(_passes, alice, POD_GROUPS, group), what="the group passes")


def test_groups_of_scheduler_plugins_name_queues_that_take_them(
    stage: Stage, review: Muster, users: tuple[Client, Client]
) -> None:
    alice, bob = users
    written = manifests.install(stage.api, list(yaml.safe_load_all(PLUGINS.read_text())))
    try:
        stage.queue("private", restricted=True)
        closed(stage, review, "shut")
        wait_known(stage, review, "private")
        wait_for(partial(_passes, alice, PLUGINS_POD_GROUPS, _plugins_group(stage, "private")), what="RBAC")
        message = refusal(partial(bob.dry_run, PLUGINS_POD_GROUPS, _plugins_group(stage, "private")), 403)
        assert "UseNotGranted" in message
        message = refusal(partial(alice.dry_run, PLUGINS_POD_GROUPS, _plugins_group(stage, "shut")), 403)
        assert "QueueNotOpen" in message
        stage.api.create(PLUGINS_POD_GROUPS, _plugins_group(stage, ""))
        moved = {"metadata": {"annotations": {QUEUE_NAME: "shut"}}}
        move = partial(stage.api.patch, PLUGINS_POD_GROUPS, "g", moved, stage.namespace)
        assert "QueueNotOpen" in refusal(move, 403)
    finally:
        stage.api.delete_all(PLUGINS_POD_GROUPS, stage.namespace)
        manifests.remove(stage.api, written)


def _plugins_group(stage: Stage, queue: str) -> Json:
    annotations = {QUEUE_NAME: queue} if queue else {}
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": stage.namespace, "annotations": annotations},
        "spec": {"minMember": 1},
    }


def test_a_pod_grows_within_its_queue_and_those_above_it(stage: Stage, review: Muster) -> None:
    """Resize within 2 of 8 cpus for `team`, 3 for `faculty` with two queues below, 1 borrowed for `guest`.

    `guest` deserves 2 itself.
    """
    stage.nodes(1, cpu="8")
    stage.queue("team", capability={"cpu": "2"})
    stage.queue("faculty", capability={"cpu": "3"})
    stage.queue("lab", parent="faculty")
    stage.queue("other", parent="faculty")
    stage.queue("guest", deserved={"cpu": "2"}, borrowingLimit={"cpu": "1"})
    for queue in ("team", "lab", "other", "guest"):
        wait_known(stage, review, queue)
        (pod,) = stage.pods(queue, 1, queue=queue, nodeName="n0")
        stage.wait_phase([pod])
        _show_amounts(stage, pod)
    for queue, cpu in (("team", 1000), ("faculty", 2000), ("guest", 1000)):
        wait_for(partial(_holds, review, queue, cpu), what=f"what {queue} holds")

    def resize(pod: str, cpu: str) -> Json:
        asked = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}
        return stage.api.patch(PODS, pod, asked, stage.namespace, "resize", content=STRATEGIC)

    for pod, least, most, held in (
        ("team-0", "3", "2", "queue 'team' holds 1 of 2"),
        ("lab-0", "3", "2", "queue 'faculty' holds 2 of 3"),
        ("guest-0", "4", "3", "queue 'guest' holds 1 of 3"),
    ):
        assert held in refusal(partial(resize, pod, least), 403)
        assert resize(pod, most)["spec"]["containers"][0]["resources"]["requests"]["cpu"] == most


def _show_amounts(stage: Stage, pod: str) -> None:
    """Show amounts as kubelets that can resize do: elsewhere the API server accepts no resize."""
    running = stage.pod(pod)["status"]["containerStatuses"]
    shown = [{**each, "resources": {"requests": {"cpu": "1"}}} for each in running]
    stage.api.patch(PODS, pod, {"status": {"containerStatuses": shown}}, stage.namespace, "status")


def _holds(review: Muster, queue: str, cpu: int) -> bool:
    found = next(each for each in review.debug("/debug/queues") if each["name"] == queue)
    return bool(found["allocated"].get("cpu") == cpu)


def test_a_job_without_a_queue_is_taken_while_default_is_closed(stage: Stage, review: Muster) -> None:
    wait_for(lambda: stage.api.find(QUEUES, "default"), what="default is made")
    stage.api.patch(QUEUES, "default", {"spec": {"state": "Closed"}})
    wait_for(lambda: _states(review).get("default") == "Closed", what="default known as Closed")
    stage.api.dry_run(JOBS, job(stage, "j"))
    named = partial(stage.api.dry_run, JOBS, job(stage, "j", **{QUEUE_NAME: "default"}))
    assert "QueueNotOpen" in refusal(named, 403)


# ---- certificates


def test_the_certificate_is_renewed_under_load(stage: Stage, muster_user: User, port: Port) -> None:
    """Two replicas with one Secret; the API server calls one of them."""
    with configured(stage.api, port):
        stage.start_muster(*port.flags("self-signed", SHORT_LIVED), user=muster_user)
        stage.start_muster(*Port().flags("self-signed", SHORT_LIVED), user=muster_user)
        wait_in_force(stage.api)
        with load(stage.api) as refusals:
            for _ in range(2):
                served = _stored(stage)["tls.crt"]
                wait_for(partial(_renewed, stage, served), what="renewed")
        assert refusals == []


def _renewed(stage: Stage, served: str) -> bool:
    return _stored(stage)["tls.crt"] != served


def _stored(stage: Stage) -> dict[str, str]:
    data: dict[str, str] = stage.api.get(SECRETS, *webhooks.SECRET)["data"]
    return data


def test_certificate_files_are_replaced_under_load(
    stage: Stage, muster_user: User, port: Port, tmp_path: Path
) -> None:
    first, second = (make_pair(["127.0.0.1"], 3600, time.time()) for _ in range(2))
    _write(tmp_path, first)
    both = first.authority + second.authority
    with configured(stage.api, port, bundle=both):
        flags = port.flags("files", f"--webhook-folder={tmp_path}")
        muster = stage.start_muster(*flags, user=muster_user)
        wait_in_force(stage.api)
        with load(stage.api) as refusals:
            _write(tmp_path, second)
            wait_for(lambda: _times_read(muster) == 2, what="the second certificate read")
            answered = muster.metric("muster_reviews_total", outcome="allowed")
            wait_for(
                lambda: muster.metric("muster_reviews_total", outcome="allowed") > answered + 20,
                what="reviews with the second certificate",
            )
        assert refusals == []


def _times_read(muster: Muster) -> int:
    return muster.process.tail().count("certificate was read")


def _write(folder: Path, pair: Pair) -> None:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


# ---- without Muster


def test_policies_hold_while_muster_is_down(stage: Stage) -> None:
    with policies.in_force(stage.api, stage.namespace):
        stage.queue("open")
        assert "set its spec.state to Closed" in refusal(lambda: stage.api.delete(QUEUES, "open"), 422)
        stage.queue("default")
        assert "is never deleted" in refusal(lambda: stage.api.delete(QUEUES, "default"), 422)
        stage.queue("shut")
        stage.api.patch(QUEUES, "shut", {"status": {"state": "Closed"}}, sub="status")
        stage.api.delete(QUEUES, "shut")
        for spec, message in (
            ({"guarantee": {"resource": {"cpu": "1"}}}, "set deserved to the guarantee or more"),
            ({"parent": "q"}, "must be a queue other than this one"),
            ({"weight": 0}, "greater than or equal to 1"),
            ({"state": "Closing"}, "Unsupported value"),
        ):
            assert message in refusal(partial(stage.queue, "q", **spec), 422)
        hierarchy = {"volcano.sh/hierarchy": "root/a/b", "volcano.sh/hierarchy-weights": "1/-2/3"}
        queue = objects.queue("q")
        queue["metadata"]["annotations"] = hierarchy
        assert "must be numbers above 0" in refusal(lambda: stage.api.create(QUEUES, queue), 422)
        stage.queue("root", deserved={"cpu": "4"})
        grown = {"spec": {"deserved": {"cpu": "5"}}}
        assert "root is the whole cluster" in refusal(lambda: stage.api.patch(QUEUES, "root", grown), 422)
        both = {"highestTierAllowed": 1, "highestTierName": "rack"}
        assert "set only one of highestTierAllowed" in refusal(
            lambda: stage.group("g", 1, networkTopology=both), 422
        )


def test_only_queues_and_groups_are_refused_while_muster_is_down(
    stage: Stage, review: Muster, job_rights: None
) -> None:
    """As docs/explanation/failures.md says."""
    stage.queue("q")
    stage.group("g", 1, queue="q")
    review.process.kill()
    space = stage.namespace
    local = objects.local_queue("l", namespace=space, queue="q")
    flavor = {"apiVersion": "kube-muster.io/v1alpha1", "kind": "ResourceFlavor", "metadata": {"name": "f"}}
    for refused in (
        lambda: stage.queue("other"),
        lambda: stage.api.patch(QUEUES, "q", {"spec": {"state": "Closed"}}),
        lambda: stage.group("other", 1, queue="q"),
        lambda: stage.api.patch(POD_GROUPS, "g", {"spec": {"queue": "other"}}, space),
        lambda: stage.api.create(LOCAL_QUEUES, local),
        lambda: stage.api.create(RESOURCE_FLAVORS, flavor),
    ):
        assert "failed calling webhook" in refusal(refused, 500)
    stage.api.create(JOBS, job(stage, "j", **{QUEUE_NAME: "q"}))
    stage.api.create(PODS, objects.pod("p", namespace=space, group="g"))
    template = objects.pod("", namespace=space, labels={"app": "web"})
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    meta = {"name": "d", "namespace": space}
    stage.api.create(
        DEPLOYMENTS, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
    )
    stage.api.patch(POD_GROUPS, "g", {"metadata": {"labels": {"a": "b"}}}, space)


def _deletable(stage: Stage, name: str) -> bool:
    try:
        stage.api.request("DELETE", f"{QUEUES.path(name=name)}?dryRun=All")
    except ApiError:
        return False
    return True
