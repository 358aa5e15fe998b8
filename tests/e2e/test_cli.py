"""The command line on a real API server: with a submitter's rights, and with an administrator's."""

import json
import os
import re
import subprocess
from functools import partial

import pytest

from tests.e2e.harness.access import ADMIN, SUBMITTER
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.objects import GROUP_NAME, binding
from tests.e2e.harness.objects import pod as built_pod
from tests.e2e.harness.resources import (
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    POD_GROUPS,
    QUEUES,
    Resource,
)
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.shell import PROGRAM, Shell
from tests.e2e.harness.stage import Json, Stage
from tests.e2e.harness.waiting import wait_for

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLUSTER_ROLE_BINDINGS = Resource(RBAC, "clusterrolebindings", namespaced=False)
Q = "queue.scheduling.volcano.sh"


@pytest.fixture
def admin(stage: Stage) -> Shell:
    return Shell(stage.cluster, ADMIN, stage.namespace)


@pytest.fixture
def submitter(stage: Stage) -> Shell:
    """Return the shell of a user with the role edit in the namespace of the test, and nothing else."""
    stage.grant_edit(SUBMITTER.name)
    shell = Shell(stage.cluster, SUBMITTER, stage.namespace)
    wait_for(lambda: shell("pg", "list").returncode == 0, what="the role is in force")
    return shell


# ---- the submitter


def test_a_submitter_reads_why_a_group_waits(
    stage: Stage, scheduler: KubeScheduler, submitter: Shell
) -> None:
    stage.nodes(1, cpu="4")
    stage.queue("q")
    stage.wait_phase(stage.gang("fit", 3, queue="q", gated=True))
    stage.gang("sweep", 2, queue="q", gated=True)
    stage.wait_reason("sweep", "NoRoom")
    found = submitter.json("why", "podgroup/sweep")
    assert (found["verdict"], found["reason"], "queue" in found) == ("Waiting", "NoRoom", False)
    assert [each["name"] for each in found["holders"]] == ["fit"]
    of_pod = submitter.json("why", "sweep-0")
    assert [of_pod[key] for key in ("verdict", "reason", "group")] == ["Waiting", "NoRoom", "sweep"]
    rows = submitter.output("podgroup", "get", "sweep", "fit").splitlines()[1:]
    assert [row.split()[:6] for row in rows] == [
        ["sweep", "q", "Pending", "2", "1", "NoRoom"],
        ["fit", "q", "Running", "3", "-", "-"],
    ]
    assert "sweep-0" in submitter.output("podgroup", "describe", "sweep")


def test_queues_take_a_binding_for_the_cluster(stage: Stage, submitter: Shell) -> None:
    stage.queue("q")
    refusal = submitter.refuses("queue", "list")
    assert "kube-muster-view" in refusal
    stage.api.create(CLUSTER_ROLE_BINDINGS, binding("kube-muster-view", SUBMITTER.name))
    stage.started.callback(stage.api.delete, CLUSTER_ROLE_BINDINGS, "submitter")
    wait_for(lambda: submitter("queue", "list").returncode == 0, what="the binding is in force")
    assert submitter.output("queue", "list", "-o", "name") == f"{Q}/q\n"
    assert submitter.output("queue", "get", "q").splitlines()[1].startswith("q ")
    assert submitter.output("why", "queue/q").startswith("queue/q\n\nOpen\n")
    assert submitter.refuses("queue", "create", "mine").startswith("Error: not allowed: ")


def test_only_an_administrator_can_check(submitter: Shell) -> None:
    done = submitter("check", "-o", "json", "-n", "kube-muster")
    assert done.returncode == 3
    states = {each["subject"]: each["state"] for each in json.loads(done.stdout)}
    assert states["kinds"] == states["rights"] == "unseen"


# ---- workloads, pods that do not count, and commands that help


def test_a_workload_leads_to_its_group(stage: Stage, scheduler: KubeScheduler, submitter: Shell) -> None:
    stage.start_controller_manager()
    stage.group("train", 2)
    stage.group("web", 2)
    stage.api.create(JOBS, _job(stage, "train", {"parallelism": 2, "completions": 2}))
    labels = {"app": "web"}
    of_web = {"replicas": 2, "selector": {"matchLabels": labels}, "template": _template("web", labels)}
    stage.api.create(DEPLOYMENTS, _workload(stage, "apps/v1", "Deployment", "site", of_web))
    stage.api.create(JOBS, _job(stage, "later", {"suspend": True}))
    stage.wait_reason("train", "NeverFits")
    stage.wait_reason("web", "NeverFits")
    where = f"in namespace {stage.namespace}"
    output = submitter.output("why", "job/train")
    assert output.startswith(f"job/train {where}, of podgroup/train\n\nWaiting")
    assert "Members: 2 needed, 2 there" in output
    assert submitter.output("why", "deploy/site").startswith(f"deployment/site {where}, of podgroup/web\n")
    assert submitter.output("why", "train").startswith(f"podgroup/train {where}\n")
    assert submitter.output("why", "site").startswith(f"deployment/site {where}, of podgroup/web\n")
    later = submitter.json("why", "later")
    assert (later["verdict"], "PodGroup" in later["sentence"]) == ("NoPods", True)
    assert "did you mean podgroup/train" in submitter.refuses("why", "trian")
    assert "jobsets.jobset.x-k8s.io" in submitter.refuses("why", "jobset/train")


def _job(stage: Stage, group: str, spec: Json) -> Json:
    template = _template(group, {})
    template["spec"]["restartPolicy"] = "Never"
    return _workload(stage, "batch/v1", "Job", group, {**spec, "template": template})


def _workload(stage: Stage, api_version: str, kind: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, "namespace": stage.namespace}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _template(group: str, labels: dict[str, str]) -> Json:
    made = built_pod("template", namespace="", group=group, labels=labels, gated=True)
    return {
        "metadata": {name: made["metadata"][name] for name in ("labels", "annotations")},
        "spec": made["spec"],
    }


def test_pods_that_do_not_count_are_named_and_put_right(
    stage: Stage, scheduler: KubeScheduler, submitter: Shell
) -> None:
    stage.group("train", 3)
    stage.pods("train", 2, group="train", gated=True)
    stage.pods("other", 1, group="train", scheduler="default-scheduler")
    stage.pods("slip", 1, group="trian", gated=True)
    stage.wait_reason("train", "NotEnoughMembers")
    output = submitter.json("why", "podgroup/train")
    causes = {each["pods"][0]: each["cause"] for each in output["uncounted"]}
    assert causes.keys() == {"other-0", "slip-0"}
    assert ("default-scheduler" in causes["other-0"], "trian" in causes["slip-0"]) == (True, True)
    assert output["members"]["there"] == 2
    assert "did you mean train?" in submitter.output("why", "slip-0")
    (command,) = output["commands"]
    assert command["allowed"]
    submitter.runs(command["line"])
    stage.wait_reason("train", "NeverFits")
    assert "uncounted" not in submitter.json("why", "podgroup/train")


def test_a_command_is_suggested_only_to_users_who_may_run_it(
    stage: Stage, scheduler: KubeScheduler, submitter: Shell, admin: Shell
) -> None:
    stage.gang("a", 2, queue="gone", gated=True)
    stage.wait_reason("a", "QueueNotFound")
    for shell, allowed in ((submitter, False), (admin, True)):
        (command,) = shell.json("why", "a")["commands"]
        assert (command["right"], command["allowed"]) == ("create queues", allowed)
    admin.runs(command["line"])
    stage.wait_reason("a", "NeverFits")
    fewer = submitter.json("why", "a").get("commands", [])
    assert fewer == [], "no command makes a node"


# ---- the administrator


def test_a_queue_is_made_changed_and_shown(stage: Stage, admin: Shell) -> None:
    flags = ("--weight", "3", "--capability", "cpu=8,memory=16Gi", "--dequeue-strategy", "fifo")
    for dry in ("client", "server"):
        assert admin.output("queue", "create", "a", *flags, f"--dry-run={dry}").startswith(f"{Q}/a created (")
    assert stage.api.items(QUEUES) == []
    assert admin.output("queue", "create", "a", *flags) == f"{Q}/a created\n"
    assert admin.output("queue", "update", "--name", "a", "--capability", "memory-") == f"{Q}/a updated\n"
    spec = stage.api.get(QUEUES, "a")["spec"]
    assert (spec["weight"], spec["capability"], spec["dequeueStrategy"]) == (3, {"cpu": "8"}, "fifo")
    assert admin.json("queue", "get", "a")["spec"] == spec
    assert re.search(r"^Capability: +cpu 8$", admin.output("queue", "describe", "a"), re.MULTILINE)


def test_a_refusal_by_the_schema_has_its_message(stage: Stage, admin: Shell) -> None:
    refusal = admin.refuses("queue", "create", "a", "--capability", "cpu=4", "--deserved", "cpu=8")
    assert refusal.startswith("Error: the API server refuses: ")
    assert "must not be above its capability" in refusal
    admin.output("queue", "create", "b")
    assert admin.refuses("queue", "create", "b").endswith('"b" already exists\n')
    assert "there are: b" in admin.refuses("queue", "update", "bb", "--weight", "2")


def test_only_a_closed_queue_is_deleted(stage: Stage, muster: Muster, admin: Shell) -> None:
    stage.queue("a")
    refusal = admin.refuses("queue", "delete", "a")
    assert "Closed" in refusal
    admin.output("queue", "close", "a")
    assert stage.api.get(QUEUES, "a")["spec"]["state"] == "Closed"
    assert admin.output("queue", "open", "a", "--wait", "--timeout", "60s") == f"{Q}/a opened\n"
    admin.output("queue", "close", "a", "--wait", "--timeout", "60s")
    assert admin.output("queue", "delete", "a") == f"{Q}/a deleted\n"
    assert stage.api.find(QUEUES, "a") is None


def test_a_cascade_empties_a_queue(stage: Stage, muster: Muster, admin: Shell) -> None:
    stage.queue("a")
    stage.group("g0", 1, queue="a")
    stage.group("g1", 1, queue="a")
    stage.wait_reason("g1", "NotEnoughMembers")
    wait_for(lambda: "2 groups" in admin.refuses("queue", "delete", "a"), what="both groups counted")
    output = admin.output("queue", "delete", "a", "--cascade", "--timeout", "60s")
    assert output.endswith(f"{Q}/a deleted\n")
    assert f"podgroup.scheduling.volcano.sh/g0 deleted (namespace {stage.namespace})" in output
    assert stage.api.find(QUEUES, "a") is None


def test_a_cascade_leaves_pods_waiting_that_name_no_group(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, admin: Shell
) -> None:
    """Their groups are not made again while they are deleted, but once there is a queue to take them."""
    stage.queue("a")
    pods = stage.pods("p", 3, queue="a", gated=True)
    for pod in pods:
        stage.wait_group(stage.own_group(pod), phase="Pending")
        wait_for(partial(_names_its_group, stage, pod), what=f"{pod} bears the name of its group")
    done = admin("queue", "delete", "a", "--cascade", "--timeout", "60s")
    assert done.returncode == 0, done.stderr
    assert f"{stage.namespace}/p-0, " in done.stderr
    muster.wait_decision(stage.namespace, stage.own_group("p-0"), reason="QueueNotFound")
    assert admin.json("why", "p-0")["reason"] == "QueueNotFound"
    assert stage.api.items(POD_GROUPS, stage.namespace) == []
    stage.nodes(1, cpu="3")
    stage.queue("a")
    stage.wait_phase(pods)


def _names_its_group(stage: Stage, pod: str) -> bool:
    return GROUP_NAME in stage.pod(pod)["metadata"].get("annotations", {})


def test_a_cascade_waits_for_pods_on_nodes(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, admin: Shell
) -> None:
    stage.nodes(1)
    stage.queue("a")
    pods = stage.pods("p", 1, queue="a", gated=True)
    stage.wait_phase(pods)
    message = admin("queue", "delete", "a", "--cascade", "--timeout", "3s").stderr
    assert "Closing, 1 group" in message
    assert stage.phases(pods) == {"Running"}
    stage.delete_pods(pods)
    assert admin.output("queue", "delete", "a", "--cascade", "--timeout", "60s") == f"{Q}/a deleted\n"


def test_a_pod_in_a_closed_queue_waits_without_a_group_and_says_why(
    stage: Stage, muster: Muster, admin: Shell
) -> None:
    stage.queue("a", state="Closed")
    stage.pods("p", 1, queue="a", gated=True)
    muster.wait_decision(stage.namespace, stage.own_group("p-0"), reason="QueueNotOpen")
    assert admin.json("why", "p-0")["reason"] == "QueueNotOpen"
    wait_for(lambda: "QueueNotOpen" in _messages(stage, "p-0"), what="an event on the pod")
    assert stage.api.items(POD_GROUPS, stage.namespace) == []
    assert stage.api.get(QUEUES, "a")["status"]["state"] == "Closed"
    admin.output("queue", "open", "a", "--wait", "--timeout", "60s")
    stage.wait_group(stage.own_group("p-0"), phase="Pending")


def _messages(stage: Stage, pod: str) -> set[str]:
    """Return the reasons of the events on a pod."""
    about = f"involvedObject.kind=Pod,involvedObject.name={pod}"
    return {each["reason"] for each in stage.api.items(EVENTS, stage.namespace, fieldSelector=about)}


# ---- as a plugin


def test_kubectl_finds_its_plugin_and_completes_it(stage: Stage) -> None:
    stage.queue("research")
    environment = {
        **os.environ,
        "PATH": f"{PROGRAM.parent}:{stage.cluster.binaries}:{os.environ['PATH']}",
        "KUBECONFIG": str(stage.cluster.kubeconfig(ADMIN)),
        "HOME": str(stage.cluster.folder),
    }

    def kubectl(*arguments: str) -> str:
        command = [str(stage.cluster.binaries / "kubectl"), *arguments]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert kubectl("muster", "queue", "list", "-o", "name") == f"{Q}/research\n"
    assert kubectl("__complete", "muster", "queue", "describe", "re").splitlines()[0] == "research"
