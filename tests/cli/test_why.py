"""`muster why`: what it says of groups, pods and queues, with many rights and with few."""

import re

import pytest
import yaml

from extender.api.keys import GATE, QUEUE, QUEUE_UID
from extender.api.summaries import VERSION
from extender.cli.output import Json
from extender.cli.why.explanation import Statement, numbers
from extender.domain.model.reasons import REMEDIES, Reason
from tests.cli.api_proxy import ApiProxy
from tests.cli.cluster import Cluster, ago, unschedulable
from tests.pages.sample import SWEEP_WAITS, add_sample

COMMAND = "    kubectl "  # on its own line, which is not folded


@pytest.fixture
def sample(cluster: Cluster) -> Cluster:
    return add_sample(cluster)


def verdict(answer: str) -> str:
    """Return the second paragraph, unfolded."""
    return " ".join(answer.split("\n\n")[1].split())


def paragraph(answer: str, heading: str) -> list[str]:
    """Return the lines of the paragraph that begins with this heading."""
    found = [part for part in answer.split("\n\n") if part.startswith(heading)]
    return found[0].splitlines()[1:] if found else []


def helps(answer: str) -> str:
    return " ".join(" ".join(paragraph(answer, "What helps:")).split())


# ---- groups


def test_a_group_that_waits(sample: Cluster) -> None:
    assert (
        sample.output("why", "podgroup/sweep")
        == """\
podgroup/sweep in namespace team

Waiting for 30m: NoRoom
  The suitable nodes lack free capacity now.
  cpu: 8 needed, 2 left on suitable nodes; capacity for 1 of 4 members; position
  1 in queue research; it starts once other/report (3 pods) ends

Members: 4 needed, 4 there, 0 on nodes, 4 gated

Queue research: Open, uses 67% of what it deserves
  Weight 2; of its groups 2 Pending, 0 Inqueue, 1 Running
  RESOURCE   USES   DESERVES   AT MOST
  cpu        4      6          -

Ahead of it:
  queue/reports uses 150% of what it deserves (cpu 6 of 4): cpu 6
  podgroup/team/fit runs, 2 pods on nodes: cpu 4
  podgroup/other/report runs, needs 3 pods

What helps:
  Wait for running pods to end, or request less. Administrators can see on the
    debug pages what holds each node.
  Capacity above the shares of other queues is reclaimed for groups within the
    share of this queue: after 2m if little work is lost, after 15m at any loss,
    unless disruption budgets protect it (spec.preemption of the queues).
"""
    )


def test_the_remedy_shows_when_the_queue_reclaims(sample: Cluster) -> None:
    sample.queue("research", {"preemption": {"after": "0s", "atMost": "90s"}}, share=0.67)
    assert Statement("Reclaims", after="0s", most="90s") in sample.answer("podgroup/sweep").remedies


def test_no_reclaim_is_expected_from_a_queue_that_is_not_reclaimable(sample: Cluster) -> None:
    sample.queue("reports", {"reclaimable": False}, share=1.5)
    assert "Reclaims" not in [each.code for each in sample.answer("podgroup/sweep").remedies]
    assert sample.codes("queue/reports")[2][-1] == "KeepsAbove"


@pytest.mark.parametrize(
    "reserved",
    [
        "disruption budget other/p keeps other/report, so nothing is reclaimed for it",
        "queue research would hold cpu 32 > 24 that it deserves, so nothing is reclaimed for it",
    ],
)
def test_no_remedy_contradicts_the_message_of_a_group(sample: Cluster, reserved: str) -> None:
    sample.group("kept", queue="research", message=f"cpu: 8 needed, 2 left on suitable nodes; {reserved}")
    (_, denied) = sample.answer("podgroup/kept").remedies
    assert denied == Statement("Message", message=f"{reserved[0].upper()}{reserved[1:]}")


@pytest.mark.parametrize("phase", ["Inqueue", "Running", "Unknown", "Pending"])
def test_a_group_that_has_started_is_shown_in_its_queue_wherever_it_is_sent(
    cluster: Cluster, phase: str
) -> None:
    """Send the group to its new queue until its start, although its note still names another queue."""
    cluster.queue("a")
    cluster.queue("b")
    record = {"annotations": {QUEUE_UID: "uid-a/uid-g"}}
    cluster.gang("g", 2, node="n", phase=phase, reason="Scheduled", queue="b", more_metadata=record)
    counts, sent = ("b", False) if phase == "Pending" else ("a", True)
    answer = cluster.answer("podgroup/g")
    assert answer.queue
    assert answer.queue.name == counts
    assert (Statement("CountsElsewhere", asked="b", queue="a") in answer.notes) is sent
    assert f"Queue:     {counts}\n" in cluster.output("podgroup", "describe", "g")
    assert ("podgroup/team/g" in cluster.output("queue", "describe", "a")) is sent


def test_a_record_of_a_missing_queue_or_for_another_group_does_not_count(cluster: Cluster) -> None:
    cluster.queue("b")
    for name, record in (("g", "uid-a/uid-g"), ("copy", "uid-b/uid-g")):
        meta = {"annotations": {QUEUE_UID: record}}
        cluster.gang(name, 2, node="n", phase="Running", queue="b", more_metadata=meta)
        answer = cluster.answer(f"podgroup/{name}")
        assert answer.queue
        assert (answer.queue.name, answer.notes) == ("b", [])


def test_a_group_as_json_and_yaml(sample: Cluster) -> None:
    explanation = sample.json("why", "podgroup/sweep")
    assert explanation == yaml.safe_load(sample.output("why", "podgroup/sweep", "-o", "yaml"))
    names = ("kind", "namespace", "name", "verdict", "reason", "detail")
    assert {name: explanation[name] for name in names} == {
        "kind": "PodGroup",
        "namespace": "team",
        "name": "sweep",
        "verdict": "Waiting",
        "reason": "NoRoom",
        "detail": SWEEP_WAITS,
    }
    counts = {"needed": 4, "there": 4, "placed": 0, "gated": 4}
    assert explanation["members"] == {**counts, "succeeded": 0, "failed": 0}
    assert (explanation["queue"]["name"], explanation["queue"]["share"]) == ("research", 0.667)
    assert [each["name"] for each in explanation["holders"]] == ["reports", "fit", "report"]
    assert explanation["holders"][1]["holds"] == {"cpu": "4"}
    assert explanation["form"] == VERSION


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_has_a_sentence_and_a_remedy(cluster: Cluster, reason: Reason) -> None:
    cluster.group("g", reason=reason, message="the numbers")
    answer = cluster.output("why", "podgroup/g")
    assert verdict(answer).startswith(f"Waiting for 30m: {reason} ")
    assert verdict(answer).endswith(". the numbers")
    assert helps(answer).startswith(REMEDIES[reason].replace("`", ""))
    assert max(len(line) for line in answer.splitlines() if not line.startswith(COMMAND)) <= 80


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        ({"phase": ""}, ("Unknown", "", ["GroupUnknown"])),
        ({"phase": "Inqueue", "reason": "Starting"}, ("Starting", "", ["GroupStarting"])),
        (
            {"phase": "Inqueue", "reason": "RefusedByScheduler"},
            ("Starting", "RefusedByScheduler", ["PartlyStarting", "Reason"]),
        ),
        ({"phase": "Running", "reason": "Running"}, ("Running", "", ["GroupRunning"])),
        ({"phase": "Running", "reason": "NoRoom"}, ("Running", "NoRoom", ["PartlyRunning", "Reason"])),
        ({"phase": "Completed", "reason": "Running"}, ("Ended", "", ["GroupEnded"])),
        ({"reason": "not of Muster"}, ("Waiting", "not of Muster", ["Reason"])),
    ],
)
def test_the_state_of_a_group(cluster: Cluster, status: Json, answer: tuple[str, str, list[str]]) -> None:
    cluster.group("g", **status)
    assert cluster.codes("podgroup/g") == answer


def test_braces_that_tenants_write_are_no_fields(cluster: Cluster) -> None:
    cluster.group("g", reason="{code}", message="{numbers} {0}")
    assert "{code}\n  {code}\n  {numbers} {0}\n" in cluster.output("why", "pg/g")


def test_an_unscheduled_group_leads_to_the_check(cluster: Cluster) -> None:
    cluster.group("g", "")
    answer = cluster.answer("podgroup/g")
    assert [offer.code for offer in (*answer.remedies, *answer.commands)] == ["GroupUnknown", "CheckMuster"]


def test_a_group_whose_members_have_all_ended(cluster: Cluster) -> None:
    cluster.group("g", "Running", "Running")
    cluster.pod("a", "g", node="n", status={"phase": "Succeeded"})
    cluster.pod("b", "g", node="n", status={"phase": "Failed"})
    answer = cluster.answer("podgroup/g")
    assert answer.sentence == [Statement("MembersEnded", succeeded=1, failed=1)]
    assert answer.verdict == "Ended"
    assert "Members: 2 needed, 0 there, 0 on nodes, 1 succeeded, 1 failed" in cluster.output("why", "pg/g")


# ---- who is ahead


def ahead(cluster: Cluster, group: str = "g") -> list[str]:
    return [line.strip() for line in paragraph(cluster.output("why", f"podgroup/{group}"), "Ahead of it:")]


def test_for_queue_ceiling_the_groups_of_the_same_queue_are_ahead(cluster: Cluster) -> None:
    cluster.gang("mate", 1, node="n", phase="Running", reason="Running", queue="q")
    cluster.gang("gone", 1, phase="Running", reason="Running", queue="q")
    cluster.group("stranger", "Running", "Running", queue="r")
    cluster.group("g", reason="QueueCeiling", queue="q")
    (mate,) = cluster.answer("podgroup/g").holders
    assert (mate.code, mate.holder.name, mate.pods) == ("HoldsOnNodes", "mate", "1 pod")


def test_above_the_share_those_with_a_claim_are_ahead(cluster: Cluster) -> None:
    cluster.queue("q", deserved={"cpu": "2"}, allocated={"cpu": "2"}, share=1.0, pending=1)
    cluster.queue("r", deserved={"cpu": "4"}, allocated={"cpu": "1"}, share=0.25, pending=2)
    cluster.queue("idle", share=0.0)
    cluster.group("g", reason="QueueShare", queue="q")
    claim = "queue/r 2 of its groups wait, uses 25% of what it deserves (cpu 1 of 4)"
    assert ahead(cluster) == [claim]


HOLDER = {"kind": "PodGroup", "namespace": "team", "name": "head"}


@pytest.mark.parametrize(
    ("reason", "message", "waiting"),
    [
        ("BehindOthers", "team/older goes first", {"position": 2, "ahead": ["team/head"]}),
        ("Reserved", "team/older: nodes a, b", {"holders": [HOLDER]}),
    ],
)
def test_those_that_the_status_names_are_ahead(
    cluster: Cluster, reason: str, message: str, waiting: Json
) -> None:
    cluster.group("older", queue="q", days=9)
    cluster.group("head", queue="q", message="cpu: 4 > 2", days=8)
    cluster.group("g", reason=reason, message=message, queue="q", days=7, more={"waiting": waiting})
    assert ahead(cluster) == ["podgroup/team/head waits: NoRoom (cpu: 4 > 2)"]


def test_behind_unnamed_groups_the_older_ones_are_ahead(cluster: Cluster) -> None:
    cluster.group("unseen", "", queue="q", days=9)
    cluster.group("runs", "Running", "Running", queue="q", days=8)
    cluster.group("g", reason="BehindOthers", queue="q", days=7)
    cluster.group("younger", queue="q", days=6)
    assert ahead(cluster) == ["podgroup/team/unseen waits, not looked at yet"]


def test_while_the_window_is_full_those_that_start_are_ahead(cluster: Cluster) -> None:
    cluster.group("starts", "Inqueue", "Starting", namespace="other", min_member=7)
    cluster.group("runs", "Running", "Running", namespace="other")
    cluster.group("g", reason="WindowFull")
    assert ahead(cluster) == ["podgroup/other/starts starts, needs 7 pods"]


def test_only_the_first_of_many_groups_ahead_are_named(cluster: Cluster) -> None:
    for number in range(9):
        cluster.group(f"h{number}", "Running", "Running", namespace="other", min_member=1)
    cluster.group("g")
    assert ahead(cluster)[-2:] == ["podgroup/other/h5 runs, needs 1 pod", "and 3 more"]


@pytest.mark.parametrize("reason", ["NeverFits", "NotEnoughMembers", "InvalidSpec", "BackingOff"])
def test_no_group_is_ahead_of_one_that_others_do_not_block(sample: Cluster, reason: str) -> None:
    sample.group("g", reason=reason)
    assert ahead(sample) == []


# ---- pods


def test_a_pod_waits_with_its_group(sample: Cluster) -> None:
    of_pod, of_group = (
        sample.output("why", target).split("\n\n") for target in ("sweep-0", "podgroup/sweep")
    )
    assert sample.codes("sweep-0") == ("Waiting", "NoRoom", ["PodInGroup", "Reason"])
    assert (sample.answer("sweep-0").group, of_pod[2:]) == ("sweep", of_group[2:])


ENDING = {"deletionTimestamp": ago(minutes=1)}
CEILING = unschedulable("0/1 nodes are available: 1 muster: QueueCeiling: the queue has …")
NO_MAGIC = unschedulable("0/1 nodes are available: 1 node(s) had no magic.")


@pytest.mark.parametrize(
    ("pod", "verdict", "reason", "codes"),
    [
        ({"node": "n0"}, "Placed", "", ["PodRuns"]),
        ({"node": "n0", "status": {"phase": "Pending"}}, "Placed", "", ["PodPlaced"]),
        ({"node": "n0", "status": {"phase": "Failed"}}, "Ended", "", ["PodFailed"]),
        ({"status": {"phase": "Succeeded"}}, "Ended", "", ["PodSucceeded"]),
        ({"node": "n0", "metadata": ENDING}, "Ending", "", ["PodEndingOnNode"]),
        ({"metadata": ENDING}, "Ending", "", ["PodEnding"]),
        ({"gates": [GATE, "example.com/quota"]}, "Waiting", "", ["PodGatedByOthers"]),
        ({"scheduler": "default-scheduler"}, "NotOurs", "", ["PodForeign"]),
        ({"scheduler": "other", "status": NO_MAGIC}, "NotOurs", "", ["PodForeign"]),
        ({"gates": [GATE], "scheduler": "default-scheduler"}, "Waiting", "", ["Alone", "Gated"]),
        ({}, "Unknown", "", ["Alone", "NothingSays"]),
        ({"status": CEILING}, "Waiting", "QueueCeiling", ["Alone", "Reason"]),
        ({"status": NO_MAGIC}, "Waiting", "RefusedByScheduler", ["Alone", "Reason"]),
    ],
)
def test_a_pod_without_a_group(
    cluster: Cluster, pod: Json, verdict: str, reason: str, codes: list[str]
) -> None:
    cluster.pod("p", **pod)
    assert cluster.codes("p") == (verdict, reason, codes)
    words = numbers(NO_MAGIC["conditions"][0]["message"] if pod.get("status") is NO_MAGIC else "")
    assert cluster.answer("p").detail == words


def test_a_pod_of_those_that_start_one_by_one_waits_for_no_others(cluster: Cluster) -> None:
    cluster.group("g", min_member=1)
    cluster.pod("p", "g", gates=[GATE])
    assert cluster.codes("p") == ("Waiting", "NoRoom", ["PodForItself", "Reason"])


def test_the_reason_of_a_pod_without_a_group_is_in_its_events(cluster: Cluster) -> None:
    cluster.pod("p", gates=[GATE])
    cluster.event("p", "NeverFits", "the group is too large for this cluster: cpu: 9 of 8", minutes=20)
    cluster.event("p", "NoRoom", "the suitable nodes lack capacity: cpu: 8 needed", minutes=3)
    cluster.event("p", "Pulling", "an image: busybox", minutes=1)
    cluster.event(
        "other", "QueueCeiling", "the queue has reached its capability, or a limit on what may run", minutes=1
    )
    assert cluster.codes("p") == ("Waiting", "NoRoom", ["Alone", "Reason"])
    assert cluster.answer("p").detail == numbers("cpu: 8 needed")


def test_a_pod_of_a_group_of_another_project_is_not_without_one(cluster: Cluster, proxy: ApiProxy) -> None:
    proxy.workload("scheduling.x-k8s.io/v1alpha1", "PodGroup", "g")
    cluster.pod("p", gates=[GATE], metadata={"labels": {"scheduling.x-k8s.io/pod-group": "g"}})
    assert cluster.codes("p") == ("Waiting", "", ["InOtherGroup", "Gated"])
    assert cluster.answer("p").sentence[0].project == "scheduler-plugins"
    cluster.event("p", "NoRoom", "the suitable nodes lack capacity: cpu: 8 needed", minutes=3)
    assert cluster.codes("p") == ("Waiting", "NoRoom", ["InOtherGroup", "Reason"])


def test_a_pod_of_a_native_group_has_the_figures_of_its_group(cluster: Cluster, proxy: ApiProxy) -> None:
    proxy.workload(
        "scheduling.k8s.io/v1beta1",
        "PodGroup",
        "g",
        spec={"schedulingPolicy": {"gang": {"minCount": 3}}},
        status={
            "conditions": [
                {
                    "type": "PodGroupInitiallyScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "NotEnoughMembers: fewer pods exist than the group needs to start",
                }
            ]
        },
        annotations={QUEUE: "research"},
    )
    cluster.queue("research", {"weight": 2}, state="Open")
    for number in range(2):
        cluster.pod(f"g-{number}", gates=[GATE], spec={"schedulingGroup": {"podGroupName": "g"}})
    text = "fewer pods exist than the group needs to start: 2 of 3 members"
    cluster.event("g", "NotEnoughMembers", text, minutes=3, kind="PodGroup")
    answer = cluster.json("why", "pod/g-1")
    assert (answer["reason"], answer["detail"]) == ("NotEnoughMembers", "2 of 3 members")
    assert (answer["members"]["needed"], answer["members"]["there"]) == (3, 2)
    assert answer["queue"]["name"] == "research"
    (help,) = answer["remedies"]
    assert "minCount" in help
    assert [command["line"] for command in answer["commands"]] == [
        "kubectl -n team patch podgroup.scheduling.k8s.io g --type merge -p"
        """ '{"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}'"""
    ]


def test_a_group_of_kubernetes_1_36_keeps_its_number(cluster: Cluster, proxy: ApiProxy) -> None:
    gang = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    proxy.workload("scheduling.k8s.io/v1alpha2", "PodGroup", "g", spec=gang)
    cluster.pod("g-0", gates=[GATE], spec={"schedulingGroup": {"podGroupName": "g"}})
    text = "fewer pods exist than the group needs to start: 1 of 3 members"
    cluster.event("g", "NotEnoughMembers", text, minutes=3, kind="PodGroup")
    answer = cluster.json("why", "pod/g-0")
    assert (answer["reason"], answer["members"]["needed"], answer.get("commands")) == (
        "NotEnoughMembers",
        3,
        None,
    )


def test_a_pod_without_a_group_stands_in_its_own_queue_or_its_namespaces(sample: Cluster) -> None:
    sample.namespace("team", queue="reports")
    sample.pod("p")
    sample.pod("r", metadata={"labels": {"scheduling.volcano.sh/queue-name": "research"}})
    assert "Queue reports: Open" in sample.output("why", "p")
    assert "Queue research: Open" in sample.output("why", "pod/r")


def test_a_pod_that_names_no_queue_stands_in_that_of_its_namespaces_quota(sample: Cluster) -> None:
    source, entering = "ElasticQuotaTree/kube-system/tree", ",".join(["a", "team", *"bcdefghijk"])
    notes = {"kube-muster.io/quota-source": source, "kube-muster.io/quota-namespaces": entering}
    sample.queue("leaf", metadata={"annotations": notes})
    sample.pod("p")
    assert "Queue leaf: Open" in sample.output("why", "p")
    output = sample.output("queue", "describe", "leaf")
    assert f"Made from:    {source}" in output
    assert "Namespaces:   a, team, b, c, d, e, f, g, h, i and 2 more" in output


def test_an_object_with_a_local_queue_is_shown_in_its_queue(sample: Cluster) -> None:
    sample.local_queue("door", "reports")
    labels = {"labels": {"kube-muster.io/local-queue": "door"}}
    sample.pod("p", metadata=labels)
    sample.group("g", queue="default", more_metadata=labels)
    for target in ("p", "podgroup/g"):
        assert "Queue reports: Open" in sample.output("why", target)


@pytest.mark.parametrize("label", ["kube-muster.io/local-queue", "kueue.x-k8s.io/queue-name"])
def test_a_local_queue_that_is_missing_is_named(sample: Cluster, label: str) -> None:
    detail = "LocalQueue team/door does not exist"
    sample.group("g", reason="QueueNotFound", message=detail, more_metadata={"labels": {label: "door"}})
    answer = sample.answer("podgroup/g")
    assert (answer.reason, answer.detail, answer.commands) == ("QueueNotFound", numbers(detail), [])
    assert "LocalQueue" in answer.remedies[0].remedy


def test_a_marked_pod_of_the_default_scheduler_is_ours(cluster: Cluster) -> None:
    flagged = {"containers": [{"resources": {"requests": {"kube-muster.io/place": "1"}}}]}
    cluster.pod("p", scheduler="default-scheduler", spec=flagged)
    assert cluster.codes("p") == ("Unknown", "", ["Alone", "NothingSays"])


@pytest.mark.parametrize("group", ["", "podgroup-uid-p"])
def test_a_pod_without_a_podgroup_in_a_queue_that_is_not_open(cluster: Cluster, group: str) -> None:
    cluster.queue("shut", state="Closing")
    cluster.pod("p", group, gates=[GATE], metadata={"labels": {QUEUE: "shut"}})
    answer = cluster.answer("p")
    assert cluster.codes("p") == ("Waiting", "QueueNotOpen", ["OwnGroup" if group else "Alone", "Reason"])
    assert answer.detail == Statement("QueueIsNotOpen", queue="shut", state="Closing")
    assert [(offer.code, offer.queue) for offer in answer.commands] == [("OpenQueue", "shut")]


def test_a_pod_without_a_podgroup_in_a_queue_that_does_not_exist(cluster: Cluster) -> None:
    cluster.queue("other")
    cluster.pod("p", gates=[GATE], metadata={"labels": {QUEUE: "gone"}})
    assert cluster.codes("p") == ("Waiting", "QueueNotFound", ["Alone", "Reason"])


def test_a_pod_of_another_scheduler_that_names_a_group(cluster: Cluster) -> None:
    cluster.pod("p", "g", scheduler="default-scheduler")
    cluster.group("g")
    assert cluster.answer("p").sentence == [
        Statement("PodForeign", scheduler="default-scheduler", likeliest="muster"),
        Statement("GroupNotKept", group="g"),
    ]


def test_a_gated_pod_whose_group_does_not_exist(cluster: Cluster) -> None:
    cluster.pod("p", "g", gates=[GATE])
    answer = cluster.answer("p")
    assert cluster.codes("p") == ("Waiting", "GroupNotFound", ["NoGroup", "GatedUntilGroup"])
    assert [offer.code for offer in answer.commands] == ["CreateGroup"]
    assert [remedy.code for remedy in answer.remedies] == ["Reason"]


@pytest.mark.parametrize(
    ("phase", "reason", "kind", "name"),
    [
        ("Inqueue", "NotEnoughMembers", "Job", "train"),
        ("Inqueue", "Starting", "Job", "train"),
        ("Inqueue", "NotEnoughMembers", "JobSet", "train-workers-1"),
    ],
)
def test_a_group_of_a_controller_whose_pods_are_refused_says_so(
    cluster: Cluster, phase: str, reason: str, kind: str, name: str
) -> None:
    version = {"Job": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2"}[kind]
    owner = {"apiVersion": version, "kind": kind, "name": "train", "uid": "uid-train", "controller": True}
    cluster.group(
        "podgroup-uid-train", phase, reason, min_member=3, more_metadata={"ownerReferences": [owner]}
    )
    message = 'Error creating: pods "train-x7k2p" is forbidden: exceeded quota: q, requested: pods=1'
    cluster.event(name, "FailedCreate", message, minutes=3, kind="Job")
    cluster.event("train-of-others", "FailedCreate", "Error creating: no", minutes=2, kind=kind)
    answer = cluster.answer("podgroup/podgroup-uid-train")
    refused = Statement("PodsRefused", made=0, needed=3, refusal="exceeded quota: q, requested: pods=1")
    assert (answer.sentence[-1], answer.remedies) == (refused, [refused])


def test_a_group_that_muster_made_is_shown_as_its_owner(cluster: Cluster) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True}
    meta = {"ownerReferences": [owner]}
    cluster.queue("q")
    cluster.group("podgroup-uid-train", "Pending", "NoRoom", queue="q", more_metadata=meta)
    waiting = {"position": 2, "ahead": ["team/podgroup-uid-train"]}
    cluster.group("late", "Pending", "BehindOthers", queue="q", more={"waiting": waiting})
    assert "\n  job/team/train waits: NoRoom" in cluster.output("why", "podgroup/late")
    described = cluster.output("queue", "describe", "q")
    assert "\n  job/team/train: NoRoom" in described
    assert "podgroup-uid-train" not in described


def test_a_group_that_lacks_members_waits_although_it_is_inqueue(cluster: Cluster) -> None:
    cluster.group("g", "Inqueue", "NotEnoughMembers", min_member=3)
    cluster.group("late", "Pending", "NoRoom", min_member=3)
    assert cluster.codes("podgroup/g") == ("Waiting", "NotEnoughMembers", ["Reason"])
    assert cluster.answer("podgroup/late").holders == []


GATED = {"gates": [GATE]}
STARTING, RUNNING = ("Inqueue", "Starting"), ("Running", "Running")


@pytest.mark.parametrize(
    ("group", "pod", "verdict", "reason", "codes"),
    [
        (STARTING, GATED, "Starting", "", ["PodUngated"]),
        (STARTING, {}, "Starting", "", ["PodToBind"]),
        (STARTING, {"status": {"nominatedNodeName": "n1"}}, "Starting", "", ["PodToBind", "PodNominated"]),
        (("Running", "QueueShare"), GATED, "Waiting", "QueueShare", ["PodMissing", "Reason"]),
        (RUNNING, {"status": NO_MAGIC}, "Waiting", "RefusedByScheduler", ["PodMissing", "Reason"]),
        (RUNNING, {}, "Waiting", "", ["PodFollows"]),
        (("",), {}, "Unknown", "", ["AboutGroup", "GroupUnknown"]),
    ],
)
def test_a_pod_whose_group_starts_runs_without_it_or_is_not_scheduled(
    cluster: Cluster, group: tuple[str, ...], pod: Json, verdict: str, reason: str, codes: list[str]
) -> None:
    cluster.group("g", *group)
    cluster.pod("p", "g", **pod)
    assert cluster.codes("p") == (verdict, reason, codes)


# ---- queues


def test_a_queue_below_its_share_with_groups_that_wait(sample: Cluster) -> None:
    answer = sample.answer("queue/research")
    assert sample.codes("queue/research") == ("Open", "", ["QueueOpen", "QueueUses", "HasClaim"])
    assert [(each.holder.name, each.code) for each in answer.waiting] == [
        ("sweep", "WaitsWithNumbers"),
        ("train", "WaitsWithNumbers"),
    ]
    assert [(each.holder.name, each.code) for each in answer.holders] == [("reports", "Uses")]
    assert [remedy.code for remedy in answer.remedies] == ["ReasonOfGroups"]
    parts = [part.splitlines() for part in sample.output("why", "queue/research").split("\n\n")]
    assert [part[0].strip() for part in parts] == [
        "queue/research",
        "Open",
        "Weight 2; of its groups 2 Pending, 0 Inqueue, 1 Running",
        "Groups that wait in it:",
        "Queues above their share:",
        "What helps:",
    ]
    assert parts[2][2].split() == ["cpu", "4", "6", "-"]


def test_a_queue_above_its_share(sample: Cluster) -> None:
    assert sample.codes("queue/reports") == ("Open", "", ["QueueOpen", "QueueUses", "BorrowsAbove"])
    of_cpu = Statement("ShareOfResource", used="150%", flavor="", resource="cpu", held="6", deserved="4")
    assert sample.answer("queue/reports").sentence[1].share == of_cpu


def test_a_queue_above_its_share_of_a_flavor(cluster: Cluster) -> None:
    used = [{"name": "spot", "allocated": {"cpu": "6"}, "deserved": {"cpu": "4"}}]
    cluster.queue("q", state="Open", share=1.5, deserved={"cpu": "8"}, allocated={"cpu": "6"}, flavors=used)
    of_spot = Statement("ShareOfFlavor", used="150%", flavor="spot", resource="cpu", held="6", deserved="4")
    assert cluster.answer("queue/q").sentence[1].share == of_spot


def test_a_queue_that_is_closing_says_how_to_open_it(cluster: Cluster) -> None:
    cluster.queue("q", state="Closing", share=0.0, pending=1, running=2)
    answer = cluster.answer("queue/q")
    assert cluster.codes("queue/q") == ("Closing", "", ["QueueClosing", "QueueUses", "HasClaim"])
    assert answer.sentence[0].left == 3
    assert [(offer.code, offer.queue) for offer in answer.commands] == [("OpenQueue", "q")]


def test_a_queue_that_is_being_deleted_is_not_to_be_opened(cluster: Cluster) -> None:
    cluster.queue("q", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, state="Closing", share=0.0)
    cluster.pod("p", gates=[GATE], metadata={"labels": {QUEUE: "q"}})
    answer, waits = cluster.answer("queue/q"), cluster.answer("p")
    assert [statement.code for statement in answer.sentence] == ["QueueDeleted", "QueueClosing", "QueueUses"]
    assert waits.detail == Statement("QueueIsDeleted", queue="q", state="Closing")
    assert (answer.commands, answer.remedies, waits.commands) == ([], [], [])


@pytest.mark.parametrize("kind", ["Valid", "FlavorNotFound", "GuaranteeUnmet"])
def test_a_condition_of_a_queue_is_a_statement(cluster: Cluster, kind: str) -> None:
    says = "nodes offer less nvidia.com/gpu than it deserves"
    cluster.queue("q", state="Open", conditions=[{"type": kind, "status": "True", "message": says}])
    assert Statement(f"Queue{kind}", message=says) in cluster.answer("queue/q").sentence


def test_a_queue_that_is_held_says_how_to_resume_it(cluster: Cluster) -> None:
    cluster.queue("q", {"stopPolicy": "Hold"}, state="Open", share=0.5, pending=1)
    answer = cluster.answer("queue/q")
    assert cluster.codes("queue/q") == ("Open", "", ["QueueStopped", "QueueUses"])
    assert [(offer.code, offer.queue) for offer in answer.commands] == [("ResumeQueue", "q")]


def test_a_queue_closed_by_its_parent_names_the_parent(cluster: Cluster) -> None:
    message = "queue team above it is closed; this queue opens when that one does"
    condition = {"type": "Open", "status": "False", "reason": "ParentClosed", "message": message}
    cluster.queue("team", {"parent": "all"}, state="Closed")
    cluster.queue("q", {"parent": "team"}, state="Closed", share=0.0, conditions=[condition])
    answer = cluster.answer("queue/q")
    assert [remedy.message for remedy in answer.remedies] == [message[0].upper() + message[1:]]
    assert [(offer.code, offer.queue) for offer in answer.commands] == [("OpenQueue", "team")]


def test_a_queue_of_which_muster_has_written_nothing(cluster: Cluster) -> None:
    cluster.queue("q", {"state": "Closed"})
    assert cluster.codes("queue.scheduling.volcano.sh/q") == ("Closed", "", ["QueueClosed", "ShareUnknown"])


# ---- rights


def test_without_the_right_to_see_queues_the_rest_is_shown(sample: Cluster) -> None:
    sample.lock(("queues", ""))
    answer = sample.answer("podgroup/sweep")
    assert (answer.verdict, answer.reason, answer.queue) == ("Waiting", "NoRoom", None)
    holders = [(each.holder.name, each.code) for each in answer.holders]
    assert holders == [("fit", "HoldsOnNodes"), ("report", "Holds")]
    assert answer.notes == [Statement("InQueue", queue="research"), Statement("QueuesNotShown")]


def test_why_works_with_rights_in_one_namespace(sample: Cluster) -> None:
    sample.lock(("queues", ""), ("podgroups", ""), ("namespaces", ""))
    answer = sample.answer("sweep-1")
    assert [each.holder.name for each in answer.holders] == ["fit"]
    assert Statement("OtherGroupsNotShown") in answer.notes


def test_without_the_right_to_list_pods_members_are_not_counted(sample: Cluster) -> None:
    sample.lock(("pods", "team"))
    answer = sample.answer("podgroup/sweep")
    assert answer.members is None
    assert [each.code for each in answer.holders if each.holder.name == "fit"] == ["Holds"]
    assert Statement("PodsNotShown") in answer.notes


def test_the_queue_of_the_namespace_needs_no_right_to_list_namespaces(sample: Cluster) -> None:
    sample.namespace("team", queue="reports")
    sample.group("g", queue="default")
    sample.lock(("namespaces", ""))
    assert "Queue reports: Open" in sample.output("why", "podgroup/g")


# ---- mistakes


@pytest.mark.parametrize("kind", ["pod", "podgroup", "queue"])
def test_a_target_that_does_not_exist_is_reported(cluster: Cluster, kind: str) -> None:
    assert cluster.misses("why", f"{kind}/nope") == ("nope", [])


@pytest.mark.parametrize("target", ["podgroup/", "podgroup/a/b", "job/", ""])
def test_an_invalid_target_is_refused(cluster: Cluster, target: str) -> None:
    message = f"{target!r}: must be NAME or KIND/NAME, such as podgroup/train"
    assert cluster.refuses("why", target, status=2).endswith(message)


@pytest.mark.parametrize("target", ["secret/x", "/x", "job.apps/x"])
def test_a_kind_that_owns_no_pods(cluster: Cluster, target: str) -> None:
    message = f"{target!r}: before the / must be pod, podgroup, queue, job, cronjob, deployment, "
    assert message in cluster.refuses("why", target, status=2)


@pytest.mark.parametrize(
    "target", ["podgroup.scheduling.volcano.sh/fit", "PodGroup/fit", "podgroups/fit", "pg/fit"]
)
def test_targets_are_named_as_kubectl_names_them(sample: Cluster, target: str) -> None:
    assert sample.output("why", target).startswith("podgroup/fit in namespace team\n")


def test_why_explains_a_group_of_another_namespace(sample: Cluster) -> None:
    assert "podgroup/report in namespace other" in sample.output("why", "pg/report", "-n", "other")


# ---- on a terminal


def test_a_terminal_gets_colours_and_its_own_width(sample: Cluster) -> None:
    shown = sample.on_a_terminal("why", "podgroup/sweep")
    assert "\x1b[33m\x1b[1mWaiting\x1b[0m for 30m: NoRoom\n" in shown
    plain = re.sub(r"\x1b\[\d+m", "", shown)
    assert max(map(len, plain.splitlines())) > 40
    folded = [line for line in plain.splitlines() if "   " not in line.strip() and "podgroup/" not in line]
    assert max(map(len, folded)) <= 50


def test_escape_sequences_of_tenants_do_not_reach_the_terminal(cluster: Cluster) -> None:
    cluster.group("g", message="\x1b[2Jdebug pages\x07\x9b1A\x1b[8m\u202e\u2066", queue="q\x1b]0;title\x07")
    shown = cluster.on_a_terminal("why", "podgroup/g")
    assert "[2Jdebug pages1A" in shown
    assert "\x1b[2J" not in shown
    assert not {"\x07", "\x9b", "\u202e", "\u2066"} & set(shown)
    assert "\x1b]" not in shown
    assert "\x1b[8m" not in shown, "what follows would be hidden"
    assert "]0;title" in cluster.on_a_terminal("podgroup", "describe", "g")


def test_a_name_of_a_tenant_forges_no_line_of_a_table(cluster: Cluster) -> None:
    """Keep the columns in place, whatever the name hides."""
    cluster.group("g", queue="q\nother   q   Running   1\u202e\u200b\x1b[32m")
    cluster.group("h", queue="q")
    forged = r"q\nother   q   Running   1\u202e\u200b\x1b[32m"
    head, *rows = cluster.on_a_terminal("podgroup", "list").splitlines()
    assert [row[head.index("QUEUE") : head.index("PHASE")].rstrip() for row in rows] == [forged, "q"]
    assert f"Queue:     {forged}\n" in cluster.on_a_terminal("podgroup", "describe", "g")


def test_a_terminal_that_wants_no_colours_gets_none(sample: Cluster) -> None:
    assert "\x1b" not in sample.on_a_terminal("why", "podgroup/sweep", NO_COLOR="1")


# ---- the expected start


def foretold(cluster: Cluster, estimate: Json) -> tuple[str, str]:
    """Return the text of `muster why` about a group, and its ESTIMATE in the wide table."""
    cluster.queue("research", state="Open")
    cluster.group("late", "Pending", "NoRoom", queue="research", more={"waiting": {"estimate": estimate}})
    answer = cluster.json("why", "podgroup/late")
    assert answer["estimate"] == estimate
    _, line = cluster.output("pg", "list", "-o", "wide").splitlines()
    return " ".join(cluster.output("why", "podgroup/late").split()), line.split()[7]


def test_the_expected_start_is_printed(cluster: Cluster) -> None:
    at, by = ago(hours=-30.5), ago(hours=-60.5)
    text, column = foretold(cluster, {"atP50": at, "atP90": by, "method": "Declared"})
    says = f"at about {at} (in 30h), by {by} with nine chances in ten: by the run times that are declared."
    assert f"It is expected to start {says}" in text
    assert column == "30h-2d12h"


def test_the_cause_of_an_unknown_start_is_printed(cluster: Cluster) -> None:
    unknown = "team/fit of queue research has no known end"
    text, column = foretold(cluster, {"unknownBecause": unknown})
    assert unknown in text
    assert column == "unknown"
