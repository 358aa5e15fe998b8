"""The note of who may use a restricted queue, on whatever names one."""

import pytest

from extender.api.keys import AUTHOR, LOCAL_QUEUE, MAY_USE, QUEUE, SUBMITTER
from extender.api.objects.base import Meta
from extender.api.objects.queues import LocalQueue, LocalQueueSpec
from tests.domain.builders import NAMESPACE, group, queue
from tests.webhooks.bench import ALICE, CONTROLLER, MUSTER, Bench, Json, job, owned, pod, pod_group

POD = {"group": "", "version": "v1", "kind": "Pod"}
GROUP = {"group": "scheduling.volcano.sh", "kind": "PodGroup"}
PLUGINS = {"group": "scheduling.x-k8s.io", "version": "v1alpha1", "kind": "PodGroup"}
BATCH = {"group": "batch", "version": "v1", "kind": "Job"}
JOB_SET = {"group": "jobset.x-k8s.io", "version": "v1alpha2", "kind": "JobSet"}
VOLCANO = {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"}
CRON_JOB = {**VOLCANO, "kind": "CronJob"}
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:default"


def named(name: str = QUEUE, value: str = "vip", place: str = "annotations") -> Json:
    return {"metadata": {"name": "x", place: {name: value}}, "spec": {}}


def in_template(value: str) -> Json:
    """Return a JobSet whose pods name a queue."""
    template = {"spec": {"template": pod(value)}}
    return {"metadata": {"name": "x"}, "spec": {"replicatedJobs": [{"name": "w", "template": template}]}}


def cron_job(**template: Json) -> Json:
    return {"metadata": {"name": "x"}, "spec": {"jobTemplate": template}}


@pytest.fixture
def bench() -> Bench:
    new_bench = Bench()
    new_bench.ledger.intake.set_queue(queue("vip", restricted=True))
    new_bench.ledger.intake.set_queue(queue("open"))
    door = Meta(name="lq", namespace=NAMESPACE, uid="uid-lq")
    new_bench.ledger.intake.set_local_queue(LocalQueue(door, LocalQueueSpec("vip")))
    new_bench.roles.granted = {("alice", "vip")}
    return new_bench


def recorded(bench: Bench, thing: Json, kind: Json, operation: str = "CREATE", **more: Json) -> str:
    answer = bench.ask("/use/mutate", thing, operation, kind=kind, **more)
    assert answer["allowed"]
    return annotations(bench, answer).get(MAY_USE, "")


def annotations(bench: Bench, answer: Json) -> dict[str, str]:
    """Return the annotations that an answer adds."""
    found: dict[str, str] = {}
    for patch in bench.decoded(answer) or ():
        key = patch["path"].rpartition("/")[2].replace("~1", "/")
        found |= patch["value"] if isinstance(patch["value"], dict) else {key: patch["value"]}
    return found


@pytest.mark.parametrize(
    ("thing", "kind", "record"),
    [
        (pod_group("vip"), GROUP, "vip/PodGroup"),
        (pod_group("open"), GROUP, ""),
        (named(), PLUGINS, "vip/PodGroup"),
        (named(LOCAL_QUEUE, "lq", "labels"), GROUP, "vip/PodGroup"),
        (pod("vip"), POD, "vip/Pod"),
        (pod("open"), POD, ""),
        (pod("vip", scheduler="other"), POD, ""),
        (job("vip"), BATCH, "vip/Job"),
        ({**named(), "spec": job()["spec"]}, BATCH, "vip/Job"),
        (named(), JOB_SET, "vip/JobSet"),
        (named(LOCAL_QUEUE, "lq", "labels"), JOB_SET, "vip/JobSet"),
        (in_template("vip"), JOB_SET, "vip/JobSet"),
        ({**in_template("vip"), "spec": {"replicatedJobs": "bad"}}, JOB_SET, ""),
        (named(value="not-there"), JOB_SET, ""),
        ({"metadata": {"name": "x"}, "spec": {"queue": "vip"}}, VOLCANO, "vip/Job"),
        (named(), VOLCANO, ""),  # whose spec alone names its queue
        (cron_job(spec={"queue": "vip"}), CRON_JOB, "vip/CronJob"),
        (cron_job(spec={"queue": "open"}), CRON_JOB, ""),
        (cron_job(metadata={"labels": {LOCAL_QUEUE: "lq"}}), CRON_JOB, "vip/CronJob"),
        (cron_job(metadata={"annotations": {QUEUE: "vip"}}), CRON_JOB, ""),
        ({**cron_job(), **named(LOCAL_QUEUE, "lq", "labels")}, CRON_JOB, ""),  # its Jobs do not name it
    ],
)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_the_right_of_the_user_is_recorded(
    thing: Json, kind: Json, record: str, operation: str, bench: Bench
) -> None:
    assert recorded(bench, thing, kind, operation) == record
    bench.roles.granted = set()
    answer = bench.ask("/use/mutate", thing, operation, kind=kind)
    assert answer["allowed"]
    assert MAY_USE not in annotations(bench, answer)
    assert bool(answer.get("warnings")) is bool(record)


def test_rights_of_muster_and_controllers_are_not_recorded(bench: Bench) -> None:
    bench.roles.granted = {(str(user["username"]), "vip") for user in (MUSTER, CONTROLLER)}
    assert recorded(bench, pod_group("vip"), GROUP, userInfo=MUSTER) == ""
    assert recorded(bench, owned(pod("vip"), "Job", "j"), POD, userInfo=CONTROLLER) == ""
    assert recorded(bench, owned(pod("vip"), "ReplicaSet", "r"), POD, userInfo=CONTROLLER) == ""
    bench.roles.granted = {(ACCOUNT, "vip")}
    assert recorded(bench, owned(pod("vip"), "ReplicaSet", "r"), POD, userInfo=CONTROLLER) == "vip/Pod"
    assert recorded(bench, job("vip"), BATCH, userInfo=ALICE) == "vip/Job"
    assert recorded(bench, pod_group("vip"), GROUP) == ""


def test_a_job_of_a_cron_job_is_not_reviewed_by_the_right_of_muster(bench: Bench) -> None:
    """It waits where its CronJob has no note."""
    made = {"metadata": {"name": "x"}, "spec": {"queue": "vip", "tasks": [{"replicas": 1}]}}
    assert bench.faults("/jobs/validate", made, kind=VOLCANO, userInfo=MUSTER) == []
    bench.roles.granted = set()
    assert bench.faults("/jobs/validate", made, kind=VOLCANO) == ["UseNotGranted"]


def test_an_existing_record_stays(bench: Bench) -> None:
    new_group = pod_group("vip")
    new_group["metadata"]["annotations"] = {MAY_USE: "vip/PodGroup"}
    assert recorded(bench, new_group, GROUP) == ""
    new_group["metadata"]["annotations"] = {MAY_USE: "other/PodGroup"}
    assert recorded(bench, new_group, GROUP) == "vip/PodGroup"


def test_a_job_is_refused_for_the_queue_that_it_names_itself(bench: Bench) -> None:
    work = {**named(), "spec": job("open")["spec"]}
    assert bench.faults("/jobs/validate", work, kind=BATCH) == []
    bench.roles.granted = set()
    assert bench.faults("/jobs/validate", work, kind=BATCH) == ["UseNotGranted"]
    assert bench.faults("/jobs/validate", owned(work, "JobSet", "s"), kind=BATCH) == [], (
        "it is part of another"
    )


def test_children_of_an_allowed_job_are_not_reviewed_again(bench: Bench) -> None:
    operator = {"username": "system:serviceaccount:jobset-system:controller"}
    neighbour = {"username": f"system:serviceaccount:{NAMESPACE}:builder"}
    bench.ledger.intake.review_users()
    bench.ledger.intake.trust_uses(True)
    unit = "podgroup-s"

    def faults(user: Json, owner: str = "s") -> list[str]:
        things = (("/pods/validate", pod(group=unit), POD), ("/jobs/validate", job(group=unit), BATCH))
        made = [(path, owned(thing, "JobSet", owner), kind) for path, thing, kind in things]
        found = [bench.faults(path, thing, kind=kind, userInfo=user) for path, thing, kind in made]
        assert found[0] == found[1]
        return found[0]

    bench.ledger.intake.set_group(group(unit, 1, queue="vip"))
    assert faults(operator) == ["UseNotGranted"]
    bench.ledger.intake.set_group(group(unit, 1, queue="vip", annotations={MAY_USE: "vip/PodGroup"}))
    assert faults(operator) == []
    assert faults(operator, "another") == ["UseNotGranted"], "of a job that names the group of another"
    bench.roles.granted = set()
    for user in (neighbour, CONTROLLER, ALICE):
        assert faults(user) == ["UseNotGranted"]


def test_muster_makes_the_pods_of_a_volcano_job_whose_author_may_use_its_queue(bench: Bench) -> None:
    bench.ledger.intake.review_users()
    bench.ledger.intake.trust_uses(True)
    reference = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "controller": True}

    def faults(user: Json, uid: str = "s") -> list[str]:
        new_pod = pod(group="j-s")
        new_pod["metadata"]["ownerReferences"] = [{**reference, "uid": uid}]
        return bench.faults("/pods/validate", new_pod, kind=POD, userInfo=user)

    bench.ledger.intake.set_group(group("j-s", 1, queue="vip"))
    assert faults(MUSTER) == ["UseNotGranted"]
    bench.ledger.intake.set_group(group("j-s", 1, queue="vip", annotations={MAY_USE: "vip/PodGroup"}))
    assert faults(MUSTER) == []
    assert faults(MUSTER, "another") == ["UseNotGranted"]
    bench.roles.granted = set()
    assert faults(ALICE) == ["UseNotGranted"]


@pytest.mark.parametrize(
    ("thing", "kind", "record"),
    [
        (pod("open"), POD, "Pod/alice"),
        (job("open"), BATCH, "Job/alice"),
        (in_template("open"), JOB_SET, "JobSet/alice"),
        ({"metadata": {"name": "x"}, "spec": {"queue": "open"}}, VOLCANO, "Job/alice"),
        (job("vip"), BATCH, "Job/alice"),
        (pod_group("open"), GROUP, None),  # whose note is another one
        (pod("open", scheduler="other"), POD, None),
        (owned(pod("open"), "Job", "j"), POD, None),
    ],
)
def test_the_author_of_jobs_and_pods_is_recorded(
    thing: Json, kind: Json, record: str | None, bench: Bench
) -> None:
    forged = {
        **thing["metadata"],
        "annotations": {**thing["metadata"].get("annotations", {}), AUTHOR: "Job/bob"},
    }
    for each in (thing, {**thing, "metadata": forged}):
        answer = bench.ask("/use/mutate", each, kind=kind, userInfo=ALICE)
        assert annotations(bench, answer).get(AUTHOR) == record


DEPLOYMENT = {"group": "apps", "version": "v1", "kind": "Deployment"}
OPERATOR = {"username": "system:serviceaccount:operators:ray"}


@pytest.mark.parametrize(
    ("user", "has_owner", "author"),
    [
        (ALICE, False, "alice"),
        (ALICE, True, "alice"),  # anybody can write an owner
        ({"username": ACCOUNT}, True, ACCOUNT),
        (OPERATOR, False, OPERATOR["username"]),
        (OPERATOR, True, None),
        (CONTROLLER, True, None),
    ],
)
def test_children_of_an_owner_have_its_author(
    user: Json, has_owner: bool, author: str | None, bench: Bench
) -> None:
    thing = named() if not has_owner else owned(named(), "Kind", "above")
    answer = bench.ask("/authors/mutate", thing, kind=DEPLOYMENT, userInfo=user)
    assert annotations(bench, answer).get(AUTHOR) == (author and f"Deployment/{author}")
    assert MAY_USE not in annotations(bench, answer)
    group = {"metadata": thing["metadata"]}
    answer = bench.ask("/use/mutate", group, kind=PLUGINS, userInfo=user)
    assert annotations(bench, answer).get(SUBMITTER) == author


@pytest.mark.parametrize(
    ("user", "author"),
    [
        (ALICE, "Deployment/alice"),
        (OPERATOR, None),
        (CONTROLLER, None),
        ({"username": "system:kube-controller-manager"}, None),
        ({"username": "a" * 1025}, None),
    ],
)
def test_the_first_user_who_changes_an_object_without_an_author_counts(
    user: Json, author: str | None, bench: Bench
) -> None:
    answer = bench.ask(
        "/authors/mutate", named(), "UPDATE", kind=DEPLOYMENT, userInfo=user, oldObject=named()
    )
    assert annotations(bench, answer).get(AUTHOR) == author


def test_an_update_keeps_the_author(bench: Bench) -> None:
    before = job("open")
    before = {**before, "metadata": {"name": "x", "annotations": {AUTHOR: "Job/bob"}}}
    answer = bench.ask("/use/mutate", job("open"), "UPDATE", kind=BATCH, userInfo=ALICE, oldObject=before)
    assert annotations(bench, answer)[AUTHOR] == "Job/bob"
