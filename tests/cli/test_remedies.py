"""Remedies: for each reason the commands that fit it, and whether the user may run them."""

import json

import pytest

from extender.api.keys import GATE, LOCAL_QUEUE
from extender.cli.output import Json
from extender.cli.why.explanation import Statement
from extender.domain.model.reasons import Reason
from tests.cli.api_proxy import ApiProxy
from tests.cli.cluster import Cluster

GROUP = "podgroup.scheduling.volcano.sh g"
PATCH_GROUP = f"kubectl -n team patch {GROUP} --type merge -p "

WAITING: Json = {
    Reason.NEVER_FITS: {"capability": [{"queue": "research", "resource": "cpu", "amount": "7500m"}]},
    Reason.QUEUE_CEILING: {"capability": [{"queue": "lab", "resource": "memory", "amount": "3221225472"}]},
    Reason.BEHIND_OTHERS: {"ahead": ["other/head", "other/next"]},
}

# For each reason: the numbers of the case, and the commands, each with what it is for and the right it takes.
# The group g needs 4 and has 2 members; its queue research has weight 2 and a capability of 6 cpu.
TABLE: dict[Reason, tuple[str, list[tuple[str, str, str]]]] = {
    Reason.GROUP_NOT_FOUND: ("PodGroup team/g does not exist", []),  # of a pod, not of a group: see below
    Reason.QUEUE_NOT_FOUND: (
        "queue researhc does not exist",
        [
            (
                "name the queue research",
                PATCH_GROUP + """'{"spec": {"queue": "research"}}'""",
                "patch podgroups in team",
            ),
            ("create it", "muster queue create researhc", "create queues"),
        ],
    ),
    Reason.INVALID_SPEC: (
        "spec.minMember: invalid value -1",
        [("correct it", f"kubectl -n team edit {GROUP}", "patch podgroups in team")],
    ),
    Reason.TOO_COMPLEX: ("pod g-0 has 300 host ports: must be at most 256", []),
    Reason.QUEUE_NOT_OPEN: (
        "queue research is Closed, because queue lab above it is closed",
        [("open queue research", "muster queue open research", "patch queues research")],
    ),
    Reason.NAMESPACE_NOT_ALLOWED: (
        "spec.namespaceSelector of queue research does not select namespace team",
        [
            (
                "let the queue accept the namespace",
                "kubectl label namespace team field=ai",
                "patch namespaces team",
            )
        ],
    ),
    Reason.QUEUE_NOT_ALLOWED: (
        "queue research is restricted, and no record says that the group's author may use it",
        [
            (
                "record that you may use it",
                f"kubectl -n team annotate {GROUP} kube-muster.io/may-use=research/PodGroup",
                "use queues research",
            )
        ],
    ),
    Reason.QUEUE_STOPPED: (
        "spec.stopPolicy of queue research is Hold",
        [("let it admit groups again", "muster queue resume research", "patch queues research")],
    ),
    Reason.HELD: ("", [("let it start", "muster resume g -n team", "patch podgroups in team")]),
    Reason.START_TIMED_OUT: (
        "its pods did not all run in time 3 times in a row",
        [
            ("see what failed", "muster podgroup describe g -n team", "list events in team"),
            ("let it start", "muster resume g -n team", "patch podgroups in team"),
        ],
    ),
    Reason.NOT_ENOUGH_MEMBERS: (
        "2 of 4 members exist",
        [
            (
                "start with the existing 2 pods",
                PATCH_GROUP + """'{"spec": {"minMember": 2}}'""",
                "patch podgroups in team",
            )
        ],
    ),
    Reason.NEVER_FITS: (
        "too large for the ceiling of queue research: cpu: 0 + 7.5 > 6, memory: 0 + 2Gi > 1Gi",
        [
            (
                "raise the capability of queue research",
                "muster queue update research --capability cpu=7.5",
                "patch queues research",
            )
        ],
    ),
    Reason.QUEUE_CEILING: (
        "queue research: cpu: 4 + 4 > 6",
        [
            (
                "raise the capability of queue lab",
                "muster queue update lab --capability memory=3Gi",
                "patch queues lab",
            )
        ],
    ),
    Reason.QUEUE_SHARE: (
        "queue lab has a claim",
        [("give it a larger share", "muster queue update research --weight 4", "patch queues research")],
    ),
    Reason.BEHIND_OTHERS: (
        "other/head goes first in queue research",
        [
            (
                "see what the first one waits for",
                "muster why podgroup/head -n other",
                "get podgroups in other",
            ),
            (
                "let groups overtake",
                "muster queue update research --dequeue-strategy traverse",
                "patch queues research",
            ),
        ],
    ),
    Reason.NO_ROOM: ("cpu: 8 needed, 2 left", []),
    Reason.FRAGMENTED: ("capacity for 1 of 4", []),
    Reason.NO_DOMAIN: ("rack=a has the most free capacity, for 1 of 4 members", []),
    Reason.RESERVED: ("", []),
    Reason.RECLAIMING: ("", []),
    Reason.BACKING_OFF: (
        "a member was refused",
        [("see what failed", "muster podgroup describe g -n team", "list events in team")],
    ),
    Reason.WINDOW_FULL: ("4 members to start, window 2", []),
    Reason.TOO_LARGE_FOR_WINDOW: ("4 members, window 2", []),
    Reason.REFUSED_BY_SCHEDULER: (
        "no magic",
        [("read the scheduler's message", "kubectl -n team describe pod g-0", "list events in team")],
    ),
    Reason.NOT_READY: (
        "",
        [("check that Muster works", "muster check", "list deployments in kube-muster")],
    ),
}


@pytest.fixture
def case(proxy: ApiProxy, cluster: Cluster) -> Cluster:
    selector = {"matchLabels": {"field": "ai"}}
    spec = {"weight": 2, "capability": {"cpu": "6"}, "namespaceSelector": selector}
    cluster.queue("research", spec, state="Open")
    cluster.queue("lab", state="Closed")
    return cluster


def group(cluster: Cluster, reason: Reason) -> None:
    queue = "researhc" if reason is Reason.QUEUE_NOT_FOUND else "research"
    more = {"waiting": WAITING.get(reason, {})}
    cluster.group("g", reason=reason, message=TABLE[reason][0], min_member=4, queue=queue, more=more)
    cluster.pod("g-0", "g", gates=[GATE])
    cluster.pod("g-1", "g", gates=[GATE])


def answer(cluster: Cluster, target: str = "podgroup/g") -> Json:
    found: Json = cluster.json("why", target)
    return found


def test_the_table_has_each_reason() -> None:
    assert set(TABLE) == set(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_the_commands_of_a_reason(case: Cluster, reason: Reason) -> None:
    group(case, reason)
    found = answer(case).get("commands", [])
    assert [(each["purpose"], each["line"], each["right"]) for each in found] == TABLE[reason][1]
    assert all(each["allowed"] for each in found)


@pytest.mark.parametrize("reason", [reason for reason, (_, offers) in TABLE.items() if offers])
def test_without_the_right_it_names_the_administrator(case: Cluster, proxy: ApiProxy, reason: Reason) -> None:
    group(case, reason)
    _, offers = TABLE[reason]
    proxy.denied |= {(right.split()[0], right.split()[1]) for _, _, right in offers}
    shown = " ".join(case.output("why", "podgroup/g").split())
    for purpose, line, right in offers:
        assert f"To {purpose}, ask an administrator, for you may not {right}: {line}" in shown


def test_only_the_missing_right_is_missing(case: Cluster, proxy: ApiProxy) -> None:
    group(case, Reason.QUEUE_NOT_FOUND)
    proxy.denied.add(("create", "queues"))
    assert [each["allowed"] for each in answer(case)["commands"]] == [True, False]


def test_opening_a_queue_is_offered_to_those_with_the_right(case: Cluster, proxy: ApiProxy) -> None:
    (offered,) = answer(case, "queue/lab")["commands"]
    assert (offered["line"], offered["allowed"]) == ("muster queue open lab", True)
    proxy.denied.add(("patch", "queues"))
    assert [each["allowed"] for each in answer(case, "queue/lab")["commands"]] == [False]


def test_an_invalid_queue_is_corrected_itself(case: Cluster) -> None:
    condition = {
        "type": "Valid",
        "status": "False",
        "reason": "InvalidSpec",
        "message": "spec.weight: invalid value 0",
    }
    case.queue("research", conditions=[condition])
    group(case, Reason.INVALID_SPEC)
    (command,) = answer(case)["commands"]
    assert (command["purpose"], command["right"]) == ("correct the queue", "patch queues research")


def test_a_group_that_muster_made_is_not_to_be_changed(case: Cluster) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    case.group(
        "podgroup-u", reason="QueueNotFound", queue="researhc", more_metadata={"ownerReferences": [owner]}
    )
    commands = answer(case, "podgroup/podgroup-u")["commands"]
    assert [command["line"] for command in commands] == ["muster queue create researhc"]


def test_a_group_that_lacks_a_role_does_not_start_with_fewer(case: Cluster) -> None:
    group(case, Reason.NOT_ENOUGH_MEMBERS)
    case.group("g", reason="NotEnoughMembers", min_member=4, more_spec={"minTaskMember": {"worker": 4}})
    assert "commands" not in answer(case)


def test_a_pod_that_names_no_group_there_is(case: Cluster, proxy: ApiProxy) -> None:
    case.group("train")
    case.pod("a", "trian", gates=[GATE])
    case.pod("b", "trian", gates=[GATE])
    found = answer(case, "pod/a")
    assert (found["reason"], found["detail"]) == ("GroupNotFound", "did you mean train?")
    rename, create = found["commands"]
    assert rename["line"] == ("kubectl -n team annotate --overwrite pod a scheduling.k8s.io/group-name=train")
    body = json.loads(create["line"].split("'")[1])
    assert (body["metadata"], body["spec"]) == ({"name": "trian"}, {"minMember": 2})
    assert (rename["right"], create["right"]) == ("patch pods in team", "create podgroups in team")


def test_a_group_in_another_namespace_is_pointed_out(case: Cluster) -> None:
    case.group("train", namespace="other")
    case.pod("a", "train", gates=[GATE])
    assert case.answer("pod/a").detail == Statement("GroupElsewhere", namespace="other")


@pytest.mark.parametrize(
    "evil", ["q; reboot", "$(reboot)", "`reboot`", "q\nreboot", "q' 'reboot", "-q", "\x1b[2J"]
)
def test_text_from_tenants_reaches_no_shell(case: Cluster, proxy: ApiProxy, evil: str) -> None:
    """Quote names of a waiting group, of a pod, and of owner references."""
    waiting = {
        "ahead": [f"other/{evil}", f"{evil}/other"],
        "capability": [
            {"queue": evil, "resource": "cpu", "amount": "4"},
            {"queue": "research", "resource": evil, "amount": evil},
        ],
    }
    for reason in Reason:
        name = reason.lower()
        case.group(name, reason=reason, message=evil, min_member=4, queue=evil, more={"waiting": waiting})
        case.pod(f"{name}-0", name, gates=[GATE])
    case.pod("p", evil, gates=[GATE])
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": evil, "uid": "u", "controller": True}
    owned = {"ownerReferences": [owner]}
    case.group("podgroup-u", reason="StartTimedOut", more_metadata=owned)
    proxy.workload("batch/v1", "Job", "part", owner, spec={"suspend": True})
    targets = (
        *(f"podgroup/{reason.lower()}" for reason in Reason),
        "podgroup/podgroup-u",
        "pod/p",
        "job/part",
    )
    for target in targets:
        lines = [each["line"] for each in answer(case, target).get("commands", [])]
        assert not any(evil in line for line in lines), lines


def test_a_cluster_that_knows_no_rights_denies_none(cluster: Cluster) -> None:
    cluster.group("g", reason="QueueNotFound", queue="q")
    assert [each["allowed"] for each in answer(cluster)["commands"]] == [True]


def test_a_local_queue_that_is_stopped_is_resumed_itself(case: Cluster) -> None:
    detail = "spec.stopPolicy of LocalQueue team/door is Hold"
    case.local_queue("door", "research", stop_policy="Hold")
    named = {"labels": {LOCAL_QUEUE: "door"}}
    case.group("g", reason=Reason.QUEUE_STOPPED, message=detail, min_member=4, more_metadata=named)
    (command,) = answer(case)["commands"]
    patch = """'{"spec": {"stopPolicy": "None"}}'"""
    assert command["line"] == (
        f"kubectl -n team patch localqueues.kube-muster.io door --type merge -p {patch}"
    )
    assert command["right"] == "patch localqueues door in team"
