"""LeaderWorkerSets with their real controller: each of their groups is in one rack."""

from collections import Counter
from typing import Any

import pytest

from extender.api.keys import REQUIRED_TOPOLOGY, SLICE_TOPOLOGY
from tests.e2e.harness.access import User
from tests.e2e.harness.lws import LEADER_WORKER_SETS, LWS, leader_worker_set
from tests.e2e.harness.resources import PODS
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.lws

RACK = "example.com/rack"
INDEX = "leaderworkerset.sigs.k8s.io/group-index"
SIZE = 3
Json = dict[str, Any]


@pytest.mark.parametrize("annotation", [REQUIRED_TOPOLOGY, SLICE_TOPOLOGY])
def test_each_group_is_in_one_rack_also_after_it_lost_a_pod(
    stage: Stage, muster_user: User, annotation: str
) -> None:
    """Racks a and b have capacity for a group each; three more nodes are in as many racks."""
    for rack, nodes in (("a", SIZE), ("b", SIZE), ("c", 1), ("d", 1), ("e", 1)):
        stage.nodes(nodes, prefix=rack, cpu="2", labels={RACK: rack})
    stage.start_controller_manager()
    stage.start_operator(LWS)
    stage.start_sidecar(stage.start_muster(user=muster_user), user=muster_user)
    made = leader_worker_set(
        "serve", namespace=stage.namespace, replicas=2, size=SIZE, cpu="2", annotations={annotation: RACK}
    )
    stage.api.create(LEADER_WORKER_SETS, made)
    one_rack_each(stage)
    lost = group(stage, "0")[1]["metadata"]
    stage.delete_pods([lost["name"]])
    wait_for(lambda: lost["uid"] not in uids(stage, "0"), what="the lost pod is gone")
    one_rack_each(stage)


def group(stage: Stage, index: str) -> list[Json]:
    """Return the pods of a group, the leader first."""
    pods = stage.api.items(PODS, stage.namespace, labelSelector=f"{INDEX}={index}")
    return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))


def uids(stage: Stage, index: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in group(stage, index)}


def one_rack_each(stage: Stage) -> None:
    """Wait until both groups run, in one rack each."""

    def racks() -> list[Counter[str]]:
        running = [
            [
                each
                for each in group(stage, n)
                if each["status"].get("phase") == "Running" and not leaves(each)
            ]
            for n in "01"
        ]
        return [Counter(pod["spec"]["nodeName"][0] for pod in pods) for pods in running]

    wait_for(lambda: sorted(map(dict, racks()), key=str) == [{"a": SIZE}, {"b": SIZE}], what="a rack each")


def leaves(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]
