"""Use of restricted queues with the tenants' own credentials, also where no review is answered."""

import ssl
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest

from extender.api.keys import AUTHOR, LOCAL_QUEUE, MAY_USE, SUBMITTER
from extender.webhooks.certificates import make_pair
from tests.e2e.harness import manifests, objects
from tests.e2e.harness.access import CALLERS_CA, User
from tests.e2e.harness.client import Client, refusal
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.jobs import job
from tests.e2e.harness.jobset import JOB_SET, JOB_SETS, job_set
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.objects import QUEUE_NAME
from tests.e2e.harness.resources import (
    CRON_JOBS,
    DEPLOYMENTS,
    JOBS,
    LOCAL_QUEUES,
    POD_GROUPS,
    PODS,
    REPLICA_SETS,
    VOLCANO_CRON_JOBS,
    VOLCANO_JOBS,
)
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.volcano_jobs import VERSION, VolcanoJobs, installed, task
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError
from tests.e2e.harness.webhooks import Port, configured, wait_in_force

pytestmark = pytest.mark.usefixtures("job_rights")

Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
FORGED_USE_WARNING = (
    "the annotation kube-muster.io/may-use says that its author may use queue vip, which is not so"
)


class Tenants(NamedTuple):
    """Tenants with all rights in the namespace; Alice may use the queue `vip`, Bob may not."""

    alice: Client
    bob: Client


def _grant(kind: str, name: str, users: tuple[str, ...], rule: Json, namespace: str = "") -> list[Json]:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    head = {"apiVersion": f"{RBAC}/v1", "metadata": meta}
    subjects = [{"apiGroup": RBAC, "kind": "User", "name": user} for user in users]
    reference = {"apiGroup": RBAC, "kind": kind, "name": name}
    return [
        {**head, "kind": kind, "rules": [rule]},
        {**head, "kind": f"{kind}Binding", "roleRef": reference, "subjects": subjects},
    ]


@pytest.fixture
def tenants(stage: Stage) -> Iterator[Tenants]:
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    use = {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "verbs": ["use"]}
    written = [
        *_grant("Role", "tenants", ("alice", "bob"), everything, stage.namespace),
        *_grant("ClusterRole", "e2e-vip", ("alice",), {**use, "resourceNames": ["vip"]}),
    ]
    for each in written:
        manifests.apply_one(stage.api, each)
    with stage.api.acting_as("alice") as alice, stage.api.acting_as("bob") as bob:
        recorded = objects.pod("shown", namespace=stage.namespace, annotations={MAY_USE: "vip/Pod"})
        wait_for(lambda: not refusal(partial(alice.dry_run, PODS, recorded)), what="RBAC in force")
        wait_for(
            lambda: FORGED_USE_WARNING in refusal(partial(bob.dry_run, PODS, recorded)), what="the policy"
        )
        yield Tenants(alice, bob)
    manifests.remove(stage.api, written)


def _begin(stage: Stage, user: User, *flags: str) -> Muster:
    muster = stage.start_muster(*flags, user=user)
    stage.start_sidecar(muster, user=user)
    stage.start_controller_manager()
    stage.nodes(2, cpu="4")
    stage.queue("vip", restricted=True)
    return muster


@pytest.fixture
def unreviewed(stage: Stage, muster_user: User, tmp_path: Path) -> Muster:
    """Start Muster with checks of users and without reviews, as if each review had been lost."""
    pair = make_pair(["127.0.0.1"], 3600, time.time())
    for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (tmp_path / name).write_bytes(content)
    return _begin(stage, muster_user, *Port().flags("files", f"--webhook-folder={tmp_path}"))


@pytest.fixture
def port() -> Port:
    return Port()


@pytest.fixture
def volcano_kinds(stage: Stage) -> Iterator[None]:
    with installed(stage.api):
        yield


@pytest.fixture
def review(stage: Stage, muster_user: User, port: Port) -> Iterator[Muster]:
    """Yield a Muster that answers only the API server, which shows a certificate."""
    callers = f"--webhook-client-ca={stage.cluster.folder / CALLERS_CA}"
    with configured(stage.api, port):
        muster = _begin(stage, muster_user, "--volcano-jobs=on", *port.flags("self-signed", callers))
        wait_in_force(stage.api)
        yield muster


def _podgroup(stage: Stage, name: str) -> str:
    return f"podgroup-{stage.api.get(JOBS, name, stage.namespace)['metadata']['uid']}"


def _suspended(stage: Stage, name: str, queue: str | None = "vip") -> Json:
    """Return a suspended Job; the queue is named on the Job itself, not on its pods."""
    named = {QUEUE_NAME: queue} if queue else {}
    return job(name, namespace=stage.namespace, suspend=True, annotations=named)


def _running(stage: Stage, name: str) -> Json:
    """Return a Job that is not suspended; the queue is named on the Job itself."""
    return job(name, namespace=stage.namespace, annotations={QUEUE_NAME: "vip"})


def test_an_object_without_a_review_waits_until_a_user_with_the_right_updates_it(
    stage: Stage, unreviewed: Muster, tenants: Tenants
) -> None:
    alice, bob = tenants
    bob.create(JOBS, _suspended(stage, "j"))
    bob.create(JOBS, _running(stage, "runs"))
    bob.create(JOBS, _suspended(stage, "moved", None))
    bob.patch(JOBS, "moved", {"metadata": {"annotations": {QUEUE_NAME: "vip"}}}, stage.namespace)
    bob.create(POD_GROUPS, objects.pod_group("g", namespace=stage.namespace, min_member=1, queue="vip"))
    bob.create(PODS, objects.pod("member", namespace=stage.namespace, group="g"))
    bob.create(PODS, objects.pod("plain", namespace=stage.namespace, queue="vip"))
    bob.create(LOCAL_QUEUES, objects.local_queue("door", namespace=stage.namespace, queue="vip"))
    led = objects.pod_group("led", namespace=stage.namespace, min_member=1, labels={LOCAL_QUEUE: "door"})
    bob.create(POD_GROUPS, led)
    bob.create(PODS, objects.pod("follows", namespace=stage.namespace, group="led"))
    # The annotations of a template were never checked: pods that carry them are refused.
    forged = job("forged", namespace=stage.namespace, queue="vip")
    forged["spec"]["template"]["metadata"]["annotations"][MAY_USE] = "vip/Pod"
    bob.create(JOBS, forged)
    of_jobs = [_podgroup(stage, name) for name in ("j", "moved", "runs")]
    units = [*of_jobs, "g", "led", stage.own_group("plain")]
    for name in units:
        stage.wait_group(name)
        stage.wait_reason(name, "QueueNotAllowed")
    assert stage.bound(["member", "plain", "follows"]) == {}
    stage.jobs.wait_pods("forged", 0)
    vouched = ((JOBS, "j", "Job"), (POD_GROUPS, "g", "PodGroup"), (PODS, "plain", "Pod"))
    for resource, name, kind in vouched:
        record = {"metadata": {"annotations": {MAY_USE: f"vip/{kind}"}}}
        assert FORGED_USE_WARNING in refusal(partial(bob.patch, resource, name, record, stage.namespace))
        alice.patch(resource, name, record, stage.namespace)
    stage.jobs.wait_pods("j", 1, "Running")
    stage.wait_phase(["member", "plain"])
    for name in (_podgroup(stage, "moved"), "led"):
        assert stage.reason(name) == "QueueNotAllowed"


def test_reviews_record_the_users_rights(stage: Stage, review: Muster, port: Port, tenants: Tenants) -> None:
    alice, bob = tenants

    def group(name: str) -> Json:
        return objects.pod_group(name, namespace=stage.namespace, min_member=1, queue="vip")

    wait_for(
        lambda: "UseNotGranted" in refusal(partial(bob.dry_run, POD_GROUPS, group("g"))), what="vip known"
    )
    alice.create(POD_GROUPS, group("g"))
    alice.create(PODS, objects.pod("member", namespace=stage.namespace, group="g"))
    alice.create(PODS, objects.pod("plain", namespace=stage.namespace, queue="vip"))
    alice.create(JOBS, _suspended(stage, "j"))
    alice.create(JOBS, job("runs", namespace=stage.namespace, queue="vip"))
    alice.create(JOBS, _running(stage, "owns"))
    stage.wait_phase(["member", "plain"])
    for name in ("j", "runs", "owns"):
        stage.jobs.wait_pods(name, 1, "Running")
    joining = objects.pod("joining", namespace=stage.namespace)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "owns", "controller": True}
    joining["metadata"]["ownerReferences"] = [
        {**owner, "uid": stage.api.get(JOBS, "owns", stage.namespace)["metadata"]["uid"]}
    ]
    theirs = ((JOBS, _suspended(stage, "theirs")), (JOBS, _running(stage, "theirs")), (PODS, joining))
    for resource, obj in theirs:
        assert "UseNotGranted" in refusal(partial(bob.dry_run, resource, obj))
    bob.create(JOBS, _suspended(stage, "theirs", None))
    bob.patch(JOBS, "theirs", {"metadata": {"annotations": {QUEUE_NAME: "vip"}}}, stage.namespace)
    stage.wait_group(_podgroup(stage, "theirs"))
    stage.wait_reason(_podgroup(stage, "theirs"), "QueueNotAllowed")
    # Nearly as large as the API server takes it; what it sends for review is escaped, and six times as large.
    large = objects.pod("large", namespace=stage.namespace, queue="vip")
    large["spec"]["containers"][0]["args"] = ["<" * 480_000] * 3
    assert "UseNotGranted" in refusal(partial(bob.dry_run, PODS, large))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(OSError, match=r"(?i)certificate|reset|closed|aborted|EOF"):
        urlopen(port.url("/podgroups/validate"), b"{}", timeout=10, context=context)


@pytest.fixture
def jobset_rights(cluster: ControlPlane) -> Iterator[None]:
    with manifests.applied(cluster.admin, "jobs/jobset/rbac.yaml"):
        yield


@pytest.fixture
def jobsets(stage: Stage, jobset_rights: None) -> None:
    """Start the JobSet controller, so that the kind is served before Muster looks for it."""
    stage.start_operator(JOB_SET)


@pytest.mark.jobset
def test_jobs_of_operators_are_reviewed_by_their_author(
    stage: Stage, jobsets: None, review: Muster, tenants: Tenants
) -> None:
    alice, bob = tenants

    def made(name: str, suspend: bool = True) -> Json:
        return job_set(name, namespace=stage.namespace, suspend=suspend, annotations={QUEUE_NAME: "vip"})

    group = objects.pod_group("g", namespace=stage.namespace, min_member=1, queue="vip")
    wait_for(lambda: "UseNotGranted" in refusal(partial(bob.dry_run, POD_GROUPS, group)), what="vip known")
    for suspend in (True, False):
        name = "waits" if suspend else "runs"
        theirs = f"podgroup-{bob.create(JOB_SETS, made(f'{name}-bob', suspend))['metadata']['uid']}"
        alice.create(JOB_SETS, made(name, suspend))
        stage.jobs.wait_pods(f"{name}-workers-0", 1, "Running")
        stage.wait_group(theirs)
        stage.wait_reason(theirs, "QueueNotAllowed")


@pytest.mark.usefixtures("volcano_kinds", "review")
def test_muster_makes_the_pods_of_volcano_jobs_by_the_rights_of_their_authors(
    stage: Stage, tenants: Tenants
) -> None:
    alices, bobs = (VolcanoJobs(each, stage.namespace, stage.kubelet) for each in tenants)
    with pytest.raises(ApiError, match="UseNotGranted"):
        bobs.create("bobs", queue="vip")
    alices.create("alices", queue="vip")
    alices.wait_pods("alices", 2, "Running")


@pytest.mark.usefixtures("volcano_kinds", "review")
def test_cron_jobs_of_volcano_pass_the_rights_of_their_authors_on(stage: Stage, tenants: Tenants) -> None:
    alice, bob = tenants
    alices, bobs = (VolcanoJobs(each, stage.namespace, stage.kubelet) for each in tenants)
    alices.create_cron("alices", queue="vip")
    bobs.create_cron("bobs", queue="vip")
    alices.wait_pods(alices.made_by_cron("alices"), 2, "Running")
    waits = bobs.group(bobs.made_by_cron("bobs"))
    stage.wait_group(waits)
    stage.wait_reason(waits, "QueueNotAllowed")
    # Nor may he say so himself, change what Alice's makes, or make it in its name.
    record = {"metadata": {"annotations": {MAY_USE: "vip/CronJob"}}}
    assert FORGED_USE_WARNING in refusal(
        partial(bob.patch, VOLCANO_CRON_JOBS, "bobs", record, stage.namespace)
    )
    changed = {"spec": {"jobTemplate": {"spec": {"maxRetry": 7}}}}
    assert FORGED_USE_WARNING in refusal(
        partial(bob.patch, VOLCANO_CRON_JOBS, "alices", changed, stage.namespace)
    )
    alice.patch(VOLCANO_CRON_JOBS, "alices", changed, stage.namespace)
    cron = alice.get(VOLCANO_CRON_JOBS, "alices", stage.namespace)["metadata"]
    assert cron["annotations"][MAY_USE] == "vip/CronJob"
    owner = {"apiVersion": VERSION, "kind": "CronJob", "name": cron["name"], "uid": cron["uid"]}
    meta: Json = {"name": "forged", "namespace": stage.namespace, "annotations": {MAY_USE: "vip/Job"}}
    meta |= {"ownerReferences": [{**owner, "controller": True}]}
    forged = {
        "apiVersion": VERSION,
        "kind": "Job",
        "metadata": meta,
        "spec": {"queue": "vip", "tasks": [task()]},
    }
    assert FORGED_USE_WARNING in refusal(partial(bob.dry_run, VOLCANO_JOBS, forged))


def test_users_of_jobs_have_their_own_limits(stage: Stage, review: Muster, tenants: Tenants) -> None:
    """Jobs in one namespace, without PodGroups: neither user waits for the other."""
    stage.queue("shared", limits={"perUser": {"groups": 1}})
    for name, user in (("a1", tenants.alice), ("a2", tenants.alice), ("b1", tenants.bob)):
        user.create(JOBS, _suspended(stage, name, "shared"))
    assert stage.api.get(JOBS, "a1", stage.namespace)["metadata"]["annotations"][AUTHOR] == "Job/alice"
    for name in ("a1", "b1"):
        wait_for(partial(_has_started, stage, name), what=f"{name} starts")
    stage.wait_reason(_podgroup(stage, "a2"), "QueueCeiling")
    assert not _has_started(stage, "a2")


def _deployment(stage: Stage, name: str, **notes: str) -> Json:
    pod = objects.pod("", namespace=stage.namespace, queue="shared", labels={"app": name})
    meta = {"labels": pod["metadata"]["labels"], "annotations": pod["metadata"]["annotations"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": stage.namespace, "annotations": notes},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": meta, "spec": pod["spec"]},
        },
    }


def _group_of(stage: Stage, app: str) -> str | None:
    """Return the group of the pods of a Deployment, once its ReplicaSet is there."""
    found = stage.api.items(REPLICA_SETS, stage.namespace, labelSelector=f"app={app}")
    return f"podgroup-{found[0]['metadata']['uid']}" if found else None


def _wait_group(stage: Stage, name: str, waits: bool) -> None:
    """Wait until a group runs, or waits for the limit of its user."""
    stage.wait_group(name, **({} if waits else {"phase": "Running"}))
    if waits:
        stage.wait_reason(name, "QueueCeiling")


def test_users_of_deployments_have_their_own_limits(stage: Stage, review: Muster, tenants: Tenants) -> None:
    """Controllers make their ReplicaSets and pods, and copy the note of the author."""
    stage.queue("shared", limits={"perUser": {"groups": 1}})
    groups = {}
    for name, user in (("a1", tenants.alice), ("a2", tenants.alice), ("b1", tenants.bob)):
        user.create(DEPLOYMENTS, _deployment(stage, name))
        groups[name] = str(wait_for(partial(_group_of, stage, name), what=f"the ReplicaSet of {name}"))
        _wait_group(stage, groups[name], waits=name == "a2")
    for name, author in (("a1", "alice"), ("a2", "alice"), ("b1", "bob")):
        assert stage.pod_group(groups[name])["metadata"]["annotations"][SUBMITTER] == author


def test_jobs_of_a_cron_job_have_its_author_unless_a_user_makes_them(
    stage: Stage, review: Muster, tenants: Tenants
) -> None:
    alice, bob = tenants
    controller = "system:kube-controller-manager"
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    for each in _grant("Role", "controller", (controller,), everything, stage.namespace):
        manifests.apply_one(stage.api, each)
    stage.queue("shared", limits={"perUser": {"groups": 1}})
    template = _suspended(stage, "", "shared")
    meta = {"name": "nightly", "namespace": stage.namespace}
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": template["spec"]}}
    alice.create(CRON_JOBS, {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, "spec": spec})
    cron = alice.get(CRON_JOBS, "nightly", stage.namespace)["metadata"]
    assert cron["annotations"][AUTHOR] == "CronJob/alice"
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": cron["uid"]}
    with stage.api.acting_as(controller) as control:
        for name, user in (("run-1", control), ("run-2", control), ("by-hand", bob)):
            made = _suspended(stage, name, "shared")
            made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
            user.create(JOBS, made)
            _wait_group(stage, _podgroup(stage, name), waits=name == "run-2")
    for name, author in (("run-1", "alice"), ("run-2", "alice"), ("by-hand", "bob")):
        assert stage.pod_group(_podgroup(stage, name))["metadata"]["annotations"][SUBMITTER] == author


def _has_started(stage: Stage, name: str) -> bool:
    return not stage.api.get(JOBS, name, stage.namespace)["spec"]["suspend"]
