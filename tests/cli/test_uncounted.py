"""`muster why`: pods that were meant for a group and are no members of it, each with its cause."""

from typing import Any

import pytest

from extender.api.keys import GATE, GROUP_ANNOTATION
from extender.cli.output import Json
from extender.cli.why.explanation import MemberCounts, Statement
from tests.cli.api_proxy import ApiProxy
from tests.cli.cluster import Cluster


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """Return a cluster with a group `train` that needs four members and has one."""
    cluster.group("train", reason="NotEnoughMembers", min_member=4)
    cluster.pod("train-0", "train", gates=[GATE])
    return cluster


def cause(cluster: Cluster) -> Statement:
    (each,) = cluster.answer("podgroup/train").uncounted
    assert each.pods == ["stray"]
    return each.cause


def of_namespace(name: str) -> Json:
    return {"namespace": name, "annotations": {GROUP_ANNOTATION: "train"}}


def wrong(key: str, place: str = "annotations") -> Json:
    return {"annotations": {}, place: {key: "train"}}


OTHER_SCHEDULER = Statement("WrongScheduler", scheduler="default-scheduler", ours="muster")
VOLCANOS = "scheduling.volcano.sh/group-name"


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        ({"group": "train", "scheduler": "default-scheduler"}, OTHER_SCHEDULER),
        ({"group": "train", "scheduler": "default-scheduler", "node": "n0"}, OTHER_SCHEDULER),
        ({"group": "train", "gates": [GATE, "a.b/c"]}, Statement("OtherGates", gates="a.b/c")),
        ({"group": "trian"}, Statement("NoSuchGroup", group="trian")),
        ({"metadata": of_namespace("other")}, Statement("OtherNamespace", namespace="other")),
        (
            {"metadata": wrong("scheduling.k8s.io/groupname")},
            Statement("WrongKey", key="annotation scheduling.k8s.io/groupname"),
        ),
        ({"metadata": wrong(VOLCANOS)}, Statement("WrongKey", key=f"annotation {VOLCANOS}")),
        (
            {"metadata": wrong(GROUP_ANNOTATION, "labels")},
            Statement("WrongKey", key=f"label {GROUP_ANNOTATION}"),
        ),
        (
            {"metadata": wrong("pod-group", "labels"), "node": "n0"},
            Statement("WrongKey", key="label pod-group"),
        ),
    ],
)
def test_a_pod_that_does_not_count_is_named_with_its_cause(
    cluster: Cluster, pod: dict[str, Any], why: Statement
) -> None:
    cluster.pod("stray", **pod)
    assert cause(cluster) == why
    members = cluster.answer("podgroup/train").members
    assert members
    assert members.there == 1


@pytest.mark.parametrize(
    "pod",
    [
        {"group": "train", "gates": [GATE]},
        {"group": "other"},  # its own group
        {"group": "zebra"},  # like nothing here
        {"metadata": {"labels": {"app": "train", "batch.kubernetes.io/job-name": "train"}}},
        {"group": "trian", "status": {"phase": "Succeeded"}},
        {"metadata": {"namespace": "home", "annotations": {GROUP_ANNOTATION: "train"}}},
    ],
)
def test_other_pods_are_left_alone(cluster: Cluster, pod: dict[str, Any]) -> None:
    cluster.group("other")
    cluster.group("train", namespace="home")
    cluster.pod("p", **pod)
    assert cluster.answer("podgroup/train").uncounted == []


def test_a_scheduler_name_that_muster_has_taken_pods_of_is_its_own(cluster: Cluster) -> None:
    cluster.pod("ours", "train", gates=[GATE], scheduler="batch")
    cluster.pod("started", "train", scheduler="batch")
    assert cluster.answer("podgroup/train").uncounted == []


def test_a_group_that_has_its_members_is_not_searched_for_others(cluster: Cluster) -> None:
    cluster.group("train", reason="NoRoom")
    cluster.pod("stray", "trian")
    assert cluster.answer("podgroup/train").uncounted == []


def test_uncounted_pods_are_shown_with_their_number(cluster: Cluster, proxy: ApiProxy) -> None:
    for name in ("a", "b", "c"):
        cluster.pod(name, "trian", gates=[GATE])
    cluster.pod("d", "train", scheduler="default-scheduler")
    shown = cluster.output("why", "podgroup/train")
    uncounted = shown.split("Pods that do not count:\n")[1].splitlines()
    assert [line.partition(": ")[0] for line in uncounted[:3]] == ["  pod/a and 2 more", "  pod/d", ""]
    answer = cluster.answer("podgroup/train")
    assert answer.members == MemberCounts(4, 1, 0, 1, 0, 0)
    assert [remedy.code for remedy in answer.remedies] == ["NoSuchGroup", "WrongScheduler", "Reason"]
    assert [(offer.code, offer.pods) for offer in answer.commands] == [("AnnotatePods", "a b c")]


def test_many_pods_are_not_named_in_one_command(cluster: Cluster, proxy: ApiProxy) -> None:
    for number in range(9):
        cluster.pod(f"p{number}", "trian", gates=[GATE])
    assert cluster.answer("podgroup/train").uncounted[0].cause == Statement("NoSuchGroup", group="trian")
    shown = cluster.output("why", "podgroup/train")
    assert "pod/p0 and 8 more: " in shown
    assert "annotate" not in shown


def test_a_pod_that_names_its_group_wrongly_says_so_itself(cluster: Cluster) -> None:
    cluster.pod("stray", metadata=wrong("scheduling.k8s.io/groupname"))
    named = Statement("NamesGroupBy", group="train", key="annotation scheduling.k8s.io/groupname")
    assert named in cluster.answer("stray").notes


def test_a_scheduler_name_with_a_slip_is_put_right(cluster: Cluster) -> None:
    cluster.pod("stray", "train", scheduler="volcno")
    assert cluster.answer("stray").sentence[0].likeliest == "volcano"


def test_without_rights_to_other_namespaces_the_rest_is_found(cluster: Cluster) -> None:
    cluster.lock(("pods", ""), ("podgroups", ""))
    cluster.pod("stray", "trian")
    assert cause(cluster) == Statement("NoSuchGroup", group="trian")
