"""Groups, Jobs and pods: defaults, the queues they go to, and who may use those."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from extender.api.keys import CHECKPOINT, MANAGED, RUN_TIME
from extender.api.objects.base import Meta, OwnerReference
from extender.api.objects.cluster import Namespace
from extender.domain.model.records import Uid
from extender.domain.scheduling.decide import decide
from extender.webhooks.lookups import REVIEW_TIMEOUT
from tests.domain import builders
from tests.domain.builders import NAMESPACE, group, queue
from tests.rows import each_of
from tests.webhooks.bench import BATCH, CONTROLLER, MUSTER, VOLCANO, Bench, job, owned, pod, pod_group

Json = dict[str, Any]
QUEUE = "scheduling.volcano.sh/queue-name"
SUBMITTER = "kube-muster.io/submitter"
GATE = {"name": "kube-muster.io/admission"}
MARKERS = {"kube-muster.io/place": "1", "kube-muster.io/bind": "1"}


@pytest.fixture
def bench() -> Bench:
    new_bench = Bench()
    for name in ("open", "root", "parent"):
        new_bench.ledger.intake.set_queue(queue(name))
    for name in ("shut", "closing"):
        new_bench.ledger.intake.set_queue(queue(name, spec_state="Closed"))
    new_bench.ledger.intake.set_queue(queue("leaf", parent="parent"))
    new_bench.ledger.intake.set_group(group("there", 1, queue="closing"))
    new_bench.ledger.intake.set_group(group("podgroup-owner", 1, queue="closing"))
    new_bench.ledger.snapshot()
    return new_bench


def annotate(bench: Bench, value: str) -> None:
    bench.ledger.intake.set_namespace(Namespace(Meta(name=NAMESPACE, annotations={QUEUE: value})))


# ---- what is filled in


def test_a_queue_gets_its_defaults(bench: Bench) -> None:
    all_three = [
        {"op": "add", "path": "/spec/reclaimable", "value": True},
        {"op": "add", "path": "/spec/weight", "value": 1},
        {"op": "add", "path": "/spec/state", "value": "Open"},
    ]
    assert bench.patch("/queues/mutate", {"metadata": {"name": "q"}, "spec": {}}) == all_three
    assert bench.patch("/queues/mutate", {"metadata": {"name": "q"}, "spec": {"weight": 0}}) == all_three
    full = {"metadata": {"name": "q"}, "spec": {"weight": 3, "reclaimable": False, "state": "Closed"}}
    assert bench.patch("/queues/mutate", full) == []


@each_of(
    ("Closed", {}, "Closed"),
    ("Open", {}, "Open"),
    ("Closing", {}, "Open"),  # then refused: it is no state that a queue can be made with
    ("Closed", {"volcano.sh/closed-by-parent": "true"}, "Open"),
)
def test_a_queue_begins_in_the_state_that_vcctl_writes(
    stored: str, annotations: dict[str, str], state: str, *, bench: Bench
) -> None:
    spec = {"weight": 1, "reclaimable": True}
    thing = {
        "metadata": {"name": "q", "annotations": annotations},
        "spec": spec,
        "status": {"state": stored},
    }
    assert bench.patch("/queues/mutate", thing) == [{"op": "add", "path": "/spec/state", "value": state}]


def test_a_path_begins_with_root(bench: Bench) -> None:
    given = {"volcano.sh/hierarchy": "a/b", "volcano.sh/hierarchy-weights": "2/3"}
    thing = {
        "metadata": {"name": "q", "annotations": given},
        "spec": {"weight": 1, "reclaimable": True, "state": "Open"},
    }
    assert bench.patch("/queues/mutate", thing) == [
        {"op": "add", "path": "/metadata/annotations/volcano.sh~1hierarchy", "value": "root/a/b"},
        {"op": "add", "path": "/metadata/annotations/volcano.sh~1hierarchy-weights", "value": "1/2/3"},
    ]
    given["volcano.sh/hierarchy"] = "root/a"
    assert bench.patch("/queues/mutate", thing) == []


def test_the_queue_of_the_namespace_takes_precedence_over_default(bench: Bench) -> None:
    by_alice = {"op": "add", "path": "/metadata/annotations", "value": {SUBMITTER: "alice"}}
    assert bench.patch("/podgroups/mutate", pod_group("default")) == [by_alice]
    annotate(bench, "open")
    assert bench.patch("/podgroups/mutate", pod_group("default")) == [
        by_alice,
        {"op": "add", "path": "/spec/queue", "value": "open"},
    ]
    assert bench.patch("/podgroups/mutate", pod_group("shut")) == [by_alice]


def test_a_queue_that_is_being_deleted_accepts_nothing(bench: Bench) -> None:
    going = queue("open")
    meta = replace(going.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    bench.ledger.intake.set_queue(replace(going, metadata=meta))
    answer = bench.ask("/podgroups/validate", pod_group("open"))
    assert "is being deleted and takes no new work: name another queue" in answer["status"]["message"]


def test_the_author_of_a_group_is_recorded_over_any_given_one(bench: Bench) -> None:
    def recorded(reason: str, user: str) -> list[Json]:
        group = pod_group("default")
        group["metadata"]["annotations"] = {"a": "b", **({SUBMITTER: reason} if reason else {})}
        answer = bench.ask("/podgroups/mutate", group, userInfo={"username": user})
        return json.loads(base64.b64decode(answer["patch"])) if "patch" in answer else []

    path = "/metadata/annotations/kube-muster.io~1submitter"
    assert recorded("", "bob") == recorded("alice", "bob") == [{"op": "add", "path": path, "value": "bob"}]
    assert recorded("bob", "bob") == []
    assert recorded("", "system:serviceaccount:kube-muster:muster") == [], "of pods that others made"


@pytest.mark.parametrize(
    ("user", "is_noted"),
    [
        ("bob", True),  # anybody can write an owner
        (f"system:serviceaccount:{NAMESPACE}:default", True),  # which pods of tenants have
        ("system:serviceaccount:operators:spark", False),
        ("system:kube-controller-manager", False),
    ],
)
def test_a_group_that_an_operator_makes_for_a_job_names_no_user(
    user: str, is_noted: bool, bench: Bench
) -> None:
    made = owned(pod_group("open"), "SparkApplication", "s")
    copied = {**made, "metadata": {**made["metadata"], "annotations": {SUBMITTER: "alice"}}}
    of_owner = user if is_noted else None
    for each, recorded in ((pod_group("open"), user), (made, of_owner), (copied, of_owner or "")):
        answer = bench.ask("/podgroups/mutate", each, userInfo={"username": user})
        values = [patch["value"] for patch in bench.decoded(answer)]
        assert values in ([] if recorded is None else [recorded], [{SUBMITTER: recorded}])


def test_a_pod_of_ours_gets_the_gate(bench: Bench) -> None:
    new = {"op": "add", "path": "/spec/schedulingGates", "value": [GATE]}
    more = {"op": "add", "path": "/spec/schedulingGates/-", "value": GATE}
    assert bench.patch("/pods/mutate", pod()) == [new]
    assert bench.patch("/pods/mutate", pod(schedulingGates=[{"name": "x"}])) == [more]
    assert bench.patch("/pods/mutate", pod(schedulingGates=[GATE])) == []
    for passed in (pod(scheduler="other"), pod(nodeName="n")):
        assert bench.patch("/pods/mutate", passed) == []
    of_daemonset = owned(pod(), "DaemonSet", "d")
    assert bench.patch("/pods/mutate", of_daemonset) == [new], "anybody can write an owner"
    controller = {"username": "system:serviceaccount:kube-system:daemon-set-controller"}
    assert "patch" not in bench.ask("/pods/mutate", of_daemonset, userInfo=controller)


def test_the_marker_resource_does_not_change_the_requests() -> None:
    bench = Bench(("default-scheduler",))
    assert bench.patch("/pods/mutate", pod(scheduler="default-scheduler")) == []
    _, markers = bench.patch("/pods/mutate", pod(group="g", scheduler="default-scheduler"))
    assert markers == {
        "op": "add",
        "path": "/spec/containers/0/resources",
        "value": {"requests": {"cpu": "1", **MARKERS}, "limits": MARKERS},
    }
    annotate(bench, "open")
    assert len(bench.patch("/pods/mutate", pod(scheduler="default-scheduler"))) == 2


# ---- where it goes


@each_of(
    (pod_group("open"), []),
    (pod_group(""), []),
    (pod_group("default"), []),
    (pod_group("shut"), ["QueueNotOpen"]),
    (pod_group("closing"), ["QueueNotOpen"]),
    (pod_group("nowhere"), ["QueueNotFound"]),
    (pod_group("parent"), []),
    (
        pod_group("nowhere", networkTopology={"highestTierAllowed": 0, "highestTierName": "rack"}),
        ["QueueNotFound", "TopologyBothTiers"],
    ),
    (
        pod_group(
            "open",
            subGroupPolicy=[{"networkTopology": {"highestTierAllowed": 1, "highestTierName": "rack"}}],
        ),
        ["TopologyBothTiers"],
    ),
)
def test_groups(thing: Json, expected: list[str], *, bench: Bench) -> None:
    assert bench.faults("/podgroups/validate", thing) == expected


@each_of(("/podgroups/validate", pod_group), ("/pods/validate", pod), ("/jobs/validate", job))
def test_an_object_is_reviewed_again_when_its_queue_changes(
    path: str, made: Callable[[str], Json], *, bench: Bench
) -> None:
    def ask(before: str) -> list[str]:
        return bench.faults(path, made("shut"), "UPDATE", oldObject=made(before), kind=BATCH)

    assert ask("shut") == []
    assert ask("open") == ["QueueNotOpen"]


@each_of(
    (pod("open"), []),
    (pod(), []),
    (pod("shut"), ["QueueNotOpen"]),
    (pod("nowhere"), ["QueueNotFound"]),
    (pod("nowhere", scheduler="other"), []),
    (pod("nowhere", group="there"), []),
    (pod(group="later"), []),
    (pod("shut", group="later"), ["QueueNotOpen"]),
    (owned(pod(), "ReplicaSet", "owner"), []),
    (owned(pod("closing"), "ReplicaSet", "owner"), []),
    (owned(pod("shut"), "ReplicaSet", "owner"), ["QueueNotOpen"]),
    (owned(pod("shut"), "ReplicaSet", "stranger"), ["QueueNotOpen"]),
)
def test_pods(thing: Json, expected: list[str], *, bench: Bench) -> None:
    assert bench.faults("/pods/validate", thing) == expected


@each_of(
    ({"min-available": "3"}, []),
    ({"max-unavailable": "99%"}, []),
    ({"min-available": "0"}, ["BudgetNotValid"]),
    ({"min-available": "-1"}, ["BudgetNotValid"]),
    ({"min-available": "0%"}, ["BudgetNotValid"]),
    ({"min-available": "100%"}, ["BudgetNotValid"]),
    ({"min-available": "half"}, ["BudgetNotValid"]),
    ({"min-available": "1", "max-unavailable": "1"}, ["BudgetTwice"]),
)
def test_budgets(budgets: dict[str, str], expected: list[str], *, bench: Bench) -> None:
    new_pod = pod("open")
    new_pod["metadata"]["annotations"] |= {f"volcano.sh/jdb-{key}": value for key, value in budgets.items()}
    assert bench.faults("/pods/validate", new_pod) == expected


def test_a_namespace_names_the_queue_of_its_pods(bench: Bench) -> None:
    annotate(bench, "shut")
    answer = bench.ask("/pods/validate", pod())
    assert answer["status"]["message"].startswith(
        f"the namespace's annotation {QUEUE} or its quota: queue 'shut' is Closed"
    )


@each_of(
    ("open", []),
    ("leaf", []),
    ("shut", ["QueueNotOpen"]),
    ("nowhere", ["QueueNotFound"]),
    ("root", ["QueueIsRoot"]),
    ("parent", ["QueueNotLeaf"]),
)
def test_jobs_of_both_kinds(name: str, expected: list[str], *, bench: Bench) -> None:
    volcano = {"metadata": {"name": "j"}, "spec": {"queue": name, "schedulerName": "muster"}}
    assert bench.faults("/jobs/validate", job(name), kind=BATCH) == expected
    assert bench.faults("/jobs/validate", volcano, kind=VOLCANO) == expected


@each_of(
    ({"minAvailable": 3, "tasks": [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 1}]}, []),
    ({"minAvailable": 3}, []),  # its own controller refuses it
    ({"minAvailable": 4, "tasks": [{"name": "a", "replicas": 3}]}, ["MinAvailableAboveReplicas"]),
    ({"minAvailable": 1, "tasks": [{"replicas": -1}]}, ["NegativeReplicas"]),
    ({"tasks": [{"name": "a"}, {"name": "a"}]}, ["DuplicateTaskName"]),
    ({"tasks": [{}, {}]}, []),  # Volcano names them
    ({"tasks": [{"name": "a", "dependsOn": {"name": ["b"]}}]}, ["DependsOnInvalid"]),
    ({"tasks": [{"name": "a", "dependsOn": {"name": ["b"]}}, {"name": "b"}]}, []),
)
def test_an_impossible_gang_of_a_volcano_job_is_refused(
    spec: Json, expected: list[str], *, bench: Bench
) -> None:
    thing = {"metadata": {"name": "j"}, "spec": {"queue": "open", "schedulerName": "muster", **spec}}
    assert bench.faults("/jobs/validate", thing, kind=VOLCANO) == expected
    assert bench.faults("/jobs/validate", thing, "UPDATE", kind=VOLCANO) == []


@pytest.fixture
def runner(bench: Bench) -> Bench:
    """Return a bench that runs Volcano Jobs."""
    bench.runs_volcano_jobs = True
    bench.ledger.intake.set_queue(queue("default"))
    bench.ledger.snapshot()
    return bench


def volcano_job(**spec: Any) -> Json:
    return {"metadata": {"name": "j"}, "spec": {"tasks": [{"replicas": 2}], **spec}}


def test_a_volcano_job_is_reviewed_as_a_whole_where_muster_runs_it(bench: Bench) -> None:
    bad = volcano_job(queue="shut", schedulerName="muster", policies=[{"action": "AbortJob"}])
    moved = volcano_job(queue="open", schedulerName="muster")
    for runs, new, changed in ((False, [], []), (True, ["PolicyNeither"], ["JobImmutable", "JobImmutable"])):
        bench.runs_volcano_jobs = runs
        assert bench.faults("/jobs/validate", bad, kind=VOLCANO) == [*new, "QueueNotOpen"]
        assert bench.faults("/jobs/validate", moved, "UPDATE", oldObject=bad, kind=VOLCANO) == changed
        assert bench.faults("/jobs/validate", bad, "UPDATE", oldObject=bad, kind=VOLCANO) == []


def test_a_volcano_job_gets_its_defaults(runner: Bench) -> None:
    new_job = volcano_job(
        tasks=[{"name": "a", "replicas": 2, "minAvailable": 1}, {"replicas": 3}], plugins={"mpi": []}
    )
    assert runner.patch("/jobs/mutate", new_job) == [
        {"op": "add", "path": "/spec/schedulerName", "value": "muster"},
        {"op": "add", "path": "/spec/maxRetry", "value": 3},
        {"op": "add", "path": "/spec/minAvailable", "value": 4},
        {"op": "add", "path": "/spec/tasks/1/name", "value": "default1"},
        {"op": "add", "path": "/spec/plugins/svc", "value": []},
        {"op": "add", "path": "/spec/plugins/ssh", "value": []},
        {"op": "add", "path": "/spec/queue", "value": "default"},
    ]
    whole = volcano_job(
        queue="open",
        schedulerName="volcano",
        maxRetry=1,
        minAvailable=1,
        tasks=[{"name": "a", "replicas": 1}],
    )
    assert runner.patch("/jobs/mutate", whole) == []
    assert runner.patch("/jobs/mutate", {"metadata": {"name": "j"}}) == []  # it has nowhere to put them
    runner.runs_volcano_jobs = False
    assert runner.patch("/jobs/mutate", new_job) == []


@pytest.mark.parametrize(
    ("state", "namespace", "label", "given", "filled"),
    [
        ("Open", "", "", "", "default"),
        ("Closed", "", "", "", ""),  # a job that names no queue is taken, and waits
        ("Open", "leaf", "", "", "leaf"),
        ("Open", "leaf", "", "default", "leaf"),  # as a schema fills it in
        ("Open", "leaf", "", "open", ""),
        ("Open", "leaf", "mine", "", ""),  # the LocalQueue may lead elsewhere tomorrow
    ],
)
def test_a_volcano_job_without_a_queue_gets_the_default(
    runner: Bench, state: str, namespace: str, label: str, given: str, filled: str
) -> None:
    runner.ledger.intake.set_queue(queue("default", spec_state=state))
    if namespace:
        annotate(runner, namespace)
    new_job = volcano_job(
        queue=given, schedulerName="muster", maxRetry=3, minAvailable=2, tasks=[{"name": "a"}]
    )
    new_job["metadata"]["labels"] = {"kube-muster.io/local-queue": label} if label else {}
    values = [each["value"] for each in runner.patch("/jobs/mutate", new_job)]
    assert values == ([filled] if filled else [])


def test_jobs_of_other_schedulers_pass(bench: Bench) -> None:
    volcano = {"metadata": {"name": "j"}, "spec": {"queue": "nowhere", "schedulerName": "volcano"}}
    assert bench.faults("/jobs/validate", volcano, kind=VOLCANO) == []
    foreign = {"metadata": {"name": "j"}, "spec": {"template": pod("nowhere", scheduler="other")}}
    assert bench.faults("/jobs/validate", foreign, kind=BATCH) == []


# ---- while the watch lags


def test_a_new_queue_is_looked_up(bench: Bench) -> None:
    bench.newest["new"] = queue("new")
    for path, thing in (
        ("/podgroups/validate", pod_group("new")),
        ("/pods/validate", pod("new")),
        ("/jobs/validate", job("new")),
    ):
        assert bench.faults(path, thing, kind=BATCH) == []
    bench.newest["new"] = queue("new", spec_state="Closed")
    assert bench.faults("/pods/validate", pod("new")) == ["QueueNotOpen"]


def test_a_newly_opened_queue_accepts_objects(bench: Bench) -> None:
    bench.newest["shut"] = queue("shut", spec_state="Open")
    assert bench.faults("/podgroups/validate", pod_group("shut")) == []


def test_a_failed_look_up_is_retried_by_the_client(bench: Bench) -> None:
    bench.away = True
    answer = bench.ask("/podgroups/validate", pod_group("new"))
    assert answer["status"]["code"] == 503
    assert "the API server is away): try again" in answer["status"]["message"]


def test_nothing_is_looked_up_for_objects_that_pass(bench: Bench) -> None:
    assert bench.faults("/podgroups/validate", pod_group("open")) == []
    assert bench.looked_up == []


def test_new_parents_are_looked_up(bench: Bench) -> None:
    bench.newest |= {"top": queue("top", capability={"cpu": "2"}), "middle": queue("middle", parent="top")}
    child = {"metadata": {"name": "child"}, "spec": {"parent": "middle", "capability": {"cpu": "3"}}}
    assert bench.faults("/queues/validate", child) == ["CapabilityAboveAncestor"]
    child["spec"] = {"parent": "middle", "capability": {"cpu": "2"}}
    assert bench.faults("/queues/validate", child) == []


def test_a_parent_with_a_newly_raised_ceiling_accepts_more(bench: Bench) -> None:
    bench.ledger.intake.set_queue(queue("team", capability={"cpu": "2"}))
    child = {"metadata": {"name": "child"}, "spec": {"parent": "team", "capability": {"cpu": "3"}}}
    assert bench.faults("/queues/validate", child) == ["CapabilityAboveAncestor"]
    bench.newest["team"] = queue("team", capability={"cpu": "3"})
    assert bench.faults("/queues/validate", child) == []


def test_each_queue_is_looked_up_once_for_a_review(bench: Bench) -> None:
    bench.newest["new"] = queue("new")
    bench.faults("/podgroups/validate", pod_group("new"))
    assert bench.looked_up == ["new"]


def test_a_review_that_took_too_long_must_be_retried(bench: Bench) -> None:
    bench.slow = True
    answer = bench.ask("/queues/validate", {"metadata": {"name": "c"}, "spec": {"parent": "new"}})
    assert answer["status"]["code"] == 503
    assert f"it took longer than {REVIEW_TIMEOUT} s" in answer["status"]["message"]


def test_a_new_queue_is_restricted_from_its_creation(bench: Bench) -> None:
    bench.newest["new"] = queue("new", restricted=True)
    assert bench.faults("/podgroups/validate", pod_group("new")) == ["UseNotGranted"]


# ---- the right to use a queue


@pytest.fixture
def private(bench: Bench) -> Bench:
    bench.ledger.intake.set_queue(queue("private", restricted=True))
    bench.ledger.intake.set_group(group("secret", 1, queue="private"))
    bench.ledger.intake.set_group(group("podgroup-secret", 1, queue="private"))
    return bench


def granted(bench: Bench, *users: str) -> Bench:
    bench.roles.granted = {(user, "private") for user in users}
    return bench


ACCOUNT = f"system:serviceaccount:{NAMESPACE}:default"


@pytest.mark.parametrize(
    ("path", "thing"),
    [
        ("/podgroups/validate", pod_group("private")),
        ("/jobs/validate", job("private")),
        ("/jobs/validate", job(group="secret")),
        ("/pods/validate", pod("private")),
        ("/pods/validate", pod(group="secret")),
        ("/pods/validate", owned(pod("private"), "Job", "forged")),
    ],
)
def test_a_restricted_queue_asks_for_the_right(path: str, thing: Json, private: Bench) -> None:
    assert private.faults(path, thing, kind=BATCH) == ["UseNotGranted"]
    assert granted(private, "alice").faults(path, thing, kind=BATCH) == []


def test_the_refusal_names_the_user_and_the_right(private: Bench) -> None:
    message = private.ask("/pods/validate", pod("private"))["status"]["message"]
    assert message == (
        f"metadata.annotations[{QUEUE}]: queue 'private' is restricted and neither 'alice' nor '{ACCOUNT}' "
        "may use it: grant the verb use on queues.scheduling.volcano.sh 'private' by RBAC, "
        "or name another queue"
    )


def test_the_account_of_the_pods_is_enough_for_pods_and_jobs(private: Bench) -> None:
    granted(private, ACCOUNT)
    assert private.faults("/pods/validate", pod("private")) == []
    assert private.faults("/jobs/validate", job("private"), kind=BATCH) == []
    assert private.faults("/podgroups/validate", pod_group("private")) == ["UseNotGranted"]


def test_a_volcano_job_needs_the_right_of_its_user_under_any_controller(private: Bench) -> None:
    granted(private, ACCOUNT)
    for runs in (False, True):
        private.runs_volcano_jobs = runs
        new_job = volcano_job(queue="private", schedulerName="muster")
        assert private.faults("/jobs/validate", new_job, kind=VOLCANO) == ["UseNotGranted"]
    granted(private, "alice")
    assert private.faults("/jobs/validate", new_job, kind=VOLCANO) == []


def test_children_of_a_reviewed_object_pass(private: Bench) -> None:
    made = owned(pod("private"), "Job", "j")
    assert private.faults("/pods/validate", made, userInfo=CONTROLLER) == []
    assert private.roles.asked == []


@pytest.mark.parametrize(
    "deployed",
    [
        owned(pod("private"), "ReplicaSet", "r"),
        owned(pod(group="secret"), "ReplicaSet", "r"),
        owned(pod(group="secret"), "StatefulSet", "s"),
        owned(pod("private"), "ReplicaSet", "secret"),
    ],
)
def test_children_of_other_objects_need_the_right_of_their_account(deployed: Json, private: Bench) -> None:
    """A user who may create a Deployment may write any group into it, even an existing one."""
    assert private.faults("/pods/validate", deployed, userInfo=CONTROLLER) == ["UseNotGranted"]
    granted(private, str(CONTROLLER["username"]))  # its own rights do not count
    assert private.faults("/pods/validate", deployed, userInfo=CONTROLLER) == ["UseNotGranted"]
    assert granted(private, ACCOUNT).faults("/pods/validate", deployed, userInfo=CONTROLLER) == []


def test_a_job_of_a_cronjob_needs_the_right_of_its_account(private: Bench) -> None:
    granted(private, str(CONTROLLER["username"]))
    made: Json = {"kind": BATCH, "userInfo": CONTROLLER}
    assert private.faults("/jobs/validate", job("private"), **made) == ["UseNotGranted"]
    assert granted(private, ACCOUNT).faults("/jobs/validate", job("private"), **made) == []


def test_a_group_of_a_restricted_queue_comes_before_its_pods(private: Bench) -> None:
    granted(private, "alice")
    private.ledger.pods.set_pod(builders.pod("early", "g"))
    answer = private.ask("/podgroups/validate", pod_group("private"))
    assert "pods that named this group before it existed are waiting (1)" in answer["status"]["message"]
    assert private.faults("/podgroups/validate", pod_group("open")) == []
    private.ledger.pods.drop(Uid("uid-early"))
    assert private.faults("/podgroups/validate", pod_group("private")) == []


@pytest.mark.parametrize("group", ["scheduling.x-k8s.io", "scheduling.k8s.io"])
@pytest.mark.parametrize("place", ["annotations", "labels"])
def test_groups_of_other_kinds_name_their_queue_themselves(place: str, group: str, private: Bench) -> None:
    kind = {"group": group, "kind": "PodGroup"}

    def ask(name: str, **more: Any) -> list[str]:
        thing = {"metadata": {"name": "g", place: {QUEUE: name}}, "spec": {"minMember": 1}}
        return private.faults("/other-podgroups/validate", thing, kind=kind, **more)

    assert ask("private") == ["UseNotGranted"]
    assert [ask(name) for name in ("open", "shut", "nowhere")] == [[], ["QueueNotOpen"], ["QueueNotFound"]]
    before = {"metadata": {"name": "g"}}
    assert ask("private", operation="UPDATE", oldObject=before) == ["UseNotGranted"]
    granted(private, "alice")
    assert ask("private") == []


def test_groups_of_other_kinds_pass_with_the_same_queue_or_none(private: Bench) -> None:
    path, plain = "/other-podgroups/validate", {"metadata": {"name": "g"}}
    named = {"metadata": {"name": "g", "annotations": {QUEUE: "private"}}}
    private.ledger.intake.set_queue(queue("default", spec_state="Closed"))
    assert private.faults(path, plain) == []
    assert private.faults(path, named, "UPDATE", oldObject=named) == []
    annotate(private, "private")
    assert private.faults(path, plain) == ["UseNotGranted"]


# ---- growing in place


def resized(bench: Bench, to: str, name: str = "open", node: str = "n", **more: Any) -> list[str]:
    before, now = pod(name, nodeName=node), pod(name, nodeName=node)
    now["spec"]["containers"][0]["resources"]["requests"]["cpu"] = to
    asked = {"oldObject": before, "subResource": "resize", **more}
    return bench.faults("/pods/validate", now, "UPDATE", **asked)


def test_a_pod_grows_within_the_capability_of_its_queue(bench: Bench) -> None:
    bench.ledger.intake.set_queue(queue("open", capability={"cpu": "3"}))
    bench.ledger.pods.set_pod(builders.pod("p", queue="open", on="n"))
    bench.ledger.snapshot()
    assert resized(bench, "3") == []
    assert resized(bench, "4") == ["ResizeAboveCeiling"]
    assert resized(bench, "500m") == []
    assert resized(bench, "4", node="") == []
    bench.newest["open"] = queue("open", capability={"cpu": "4"})
    assert resized(bench, "4") == []


def test_a_pod_grows_below_the_ceilings_of_all_queues_above_its_own(bench: Bench) -> None:
    """Capability and borrowing limit are in the ceilings that were decided; what nodes offer is none."""
    bench.ledger.intake.set_queue(queue("lab", parent="faculty"))
    bench.ledger.intake.set_queue(queue("faculty", capability={"cpu": "3"}))
    bench.ledger.intake.set_queue(queue("guest", deserved={"cpu": "2"}, borrowing_limit={"cpu": "1"}))
    bench.ledger.intake.set_node(builders.node("n", cpu="8"))
    for name in ("lab", "guest", "open"):
        bench.ledger.pods.set_pod(builders.pod(name, queue=name, on="n"))
    bench.ledger.publish(decide(bench.ledger.snapshot()))
    assert resized(bench, "3", "lab") == []
    assert resized(bench, "4", "lab") == ["ResizeAboveCeiling"]
    assert resized(bench, "3", "guest") == []
    assert resized(bench, "4", "guest") == ["ResizeAboveCeiling"]
    assert resized(bench, "64", "open") == []


def test_growing_a_pod_of_a_restricted_queue_needs_the_right(private: Bench) -> None:
    assert resized(private, "2", "private") == ["UseNotGranted"]
    assert resized(private, "1", "private") == []
    assert resized(granted(private, "alice"), "2", "private") == []


# ---- jobs that name no queue


def test_a_job_without_a_queue_is_accepted_while_default_is_closed(bench: Bench) -> None:
    bench.ledger.intake.set_queue(queue("default", spec_state="Closed"))
    unnamed = {"metadata": {"name": "j"}, "spec": {"schedulerName": "muster"}}
    assert bench.faults("/jobs/validate", job(), kind=BATCH) == []
    assert bench.faults("/jobs/validate", unnamed, kind=VOLCANO) == []
    assert bench.faults("/jobs/validate", job("default"), kind=BATCH) == ["QueueNotOpen"]
    unnamed["spec"]["queue"] = "default"
    assert bench.faults("/jobs/validate", unnamed, kind=VOLCANO) == ["QueueNotOpen"]
    annotate(bench, "shut")
    assert bench.faults("/jobs/validate", job(), kind=BATCH) == ["QueueNotOpen"]


def test_a_job_that_names_no_queue_needs_the_right_to_a_restricted_default(bench: Bench) -> None:
    bench.ledger.intake.set_queue(queue("default", restricted=True))
    assert bench.faults("/jobs/validate", job(), kind=BATCH) == ["UseNotGranted"]


def test_unrestricted_queues_cause_no_access_review(private: Bench) -> None:
    private.roles.granted = None
    assert private.faults("/pods/validate", pod("open")) == []
    assert private.faults("/pods/validate", pod("private")) == ["NotNow"]


# ---- jobs that wait in a queue which is not there


def test_the_group_that_muster_makes_of_a_job_may_wait_for_its_queue(bench: Bench) -> None:
    assert bench.faults("/podgroups/validate", pod_group("mistyped")) == ["QueueNotFound"]
    assert bench.faults("/podgroups/validate", pod_group("mistyped"), userInfo=MUSTER) == []
    assert bench.faults("/podgroups/validate", pod_group("shut"), userInfo=MUSTER) == ["QueueNotOpen"]


SIDECAR_NAMES, EXTENDED_NAMES = ("muster", "volcano"), ("muster", "volcano", "default-scheduler")


@each_of(
    (SIDECAR_NAMES, "true", pod(scheduler="default-scheduler"), "muster"),
    (SIDECAR_NAMES, "true", pod(scheduler=""), "muster"),
    (SIDECAR_NAMES, "false", pod(scheduler="default-scheduler"), ""),
    (SIDECAR_NAMES, "true", pod(scheduler="other"), ""),
    (SIDECAR_NAMES, "true", pod(scheduler="default-scheduler", nodeName="n"), ""),
    (EXTENDED_NAMES, "true", pod(scheduler="default-scheduler", queue="open"), ""),  # it is Muster's as it is
)
def test_pods_of_adopted_namespaces_get_musters_scheduler(
    schedulers: tuple[str, ...], managed: str, thing: Json, scheduler: str
) -> None:
    bench = Bench(schedulers)
    bench.ledger.intake.set_namespace(Namespace(Meta(NAMESPACE, labels={MANAGED: managed})))
    named = {"op": "add", "path": "/spec/schedulerName", "value": scheduler}
    assert (named in bench.patch("/pods/mutate", thing)) is bool(scheduler)
    thing["metadata"]["annotations"][MANAGED] = "false"
    assert named not in bench.patch("/pods/mutate", thing)


@each_of(
    ("open", "", []),
    ("shut", "", ["QueueNotOpen"]),
    ("mistyped", "", ["QueueNotFound"]),
    ("shut", "open", []),  # its template is nearer to its pods
)
def test_the_pods_of_a_running_job_go_to_its_queue(
    queue: str, of_template: str, faults: list[str], *, bench: Bench
) -> None:
    thing = {**job(of_template), "metadata": {"name": "j", "annotations": {QUEUE: queue}}}
    assert bench.faults("/jobs/validate", thing, kind=BATCH) == faults


@each_of(
    ({}, []),  # of the owner above it nothing is known yet: the group waits for it
    ({QUEUE: "open"}, []),
    ({QUEUE: "shut"}, ["QueueNotOpen"]),
)
def test_a_pod_goes_to_the_queue_of_its_owners(
    annotations: dict[str, str], faults: list[str], *, bench: Bench
) -> None:
    annotate(bench, "open" if annotations else "shut")
    above = [OwnerReference("apps/v1", "Deployment", "web", "uid-web", True)]
    made = Meta("web-1", NAMESPACE, "uid-web-1", owner_references=above)
    bench.ledger.intake.set_ancestor("ReplicaSet", made)
    if annotations:
        web = Meta("web", NAMESPACE, "uid-web", annotations=annotations)
        bench.ledger.intake.set_ancestor("Deployment", web)
    bench.ledger.intake.expect_ancestors(lambda kind: kind == "apps/v1/Deployment")
    assert bench.faults("/pods/validate", owned(pod(), "ReplicaSet", "uid-web-1")) == faults


@pytest.mark.parametrize(
    ("queue", "warned"),
    [("open", []), ("mistyped", ["there is no queue 'mistyped'"]), ("shut", ["is Closed"])],
)
def test_the_queue_of_a_job_is_reviewed_on_the_job(bench: Bench, queue: str, warned: list[str]) -> None:
    thing = {**job(), "metadata": {"name": "j", "annotations": {QUEUE: queue}}}
    thing["spec"] = {**thing["spec"], "suspend": True}
    answer = bench.ask("/jobs/validate", thing, kind=BATCH)
    assert answer["allowed"]
    warnings = answer.get("warnings", [])
    assert len(warnings) == len(warned)
    assert all(words in warning for words, warning in zip(warned, warnings, strict=True))


@pytest.mark.parametrize("key", [CHECKPOINT, RUN_TIME])
@pytest.mark.parametrize("group", ["", "g", "podgroup-u"])
def test_a_field_of_a_job_that_its_pods_do_not_get_warns(bench: Bench, group: str, key: str) -> None:
    """An admitted job names the group that Muster makes of it."""
    new_job = job("open", group)
    new_job["metadata"] = {"name": "a", "namespace": "team", "uid": "u", "annotations": {key: "10m"}}
    reported = bench.ask("/jobs/validate", new_job, kind=BATCH).get("warnings", [])
    assert ["pods of PodGroup g do not have it" in each for each in reported] == [True] * (group == "g")


@pytest.mark.parametrize(
    ("written", "is_read"), [("10m", True), ("2026-01-31T08:00:00Z", True), ("soon", False)]
)
@pytest.mark.parametrize(
    ("path", "thing", "more"),
    [
        ("/podgroups/validate", {"spec": {"minMember": 1}}, {}),
        ("/jobs/validate", job(), {"kind": BATCH}),
        ("/pods/validate", {"spec": {"containers": [{}]}}, {}),
    ],
    ids=["group", "job", "pod"],
)
def test_a_checkpoint_that_cannot_be_read_warns(
    bench: Bench, path: str, thing: Json, more: Json, written: str, is_read: bool
) -> None:
    meta = {"name": "a", "namespace": "team", "annotations": {CHECKPOINT: written}}
    answer = bench.ask(path, {**thing, "metadata": meta}, **more)
    assert answer["allowed"]
    assert [CHECKPOINT in warning for warning in answer.get("warnings", [])] == ([] if is_read else [True])
