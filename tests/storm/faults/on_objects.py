"""Faults of objects: changes by people and other programs, at any time."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from extender.api.keys import DEFAULT_QUEUE
from tests.e2e.harness import objects
from tests.e2e.harness.amounts import amounts, requests
from tests.e2e.harness.resources import JOBS, NODES, POD_GROUPS, PODS, QUEUES, VOLCANO_JOBS
from tests.e2e.harness.watch import ApiError
from tests.storm.faults.fault import FaultContext, Inflict, InflictedFault, NoVictim, mark_down
from tests.storm.gang_specs import RACK, RACKS
from tests.storm.storm_cluster import NODE_CPU, StormCluster, new_node
from tests.storm.view import holds_capacity

Json = dict[str, Any]
ELSEWHERE = "elsewhere"  # the name of another scheduler
NOT_FOUND = 404


def _allocatable(name: str, value: str) -> Json:
    return {"status": {"allocatable": {name: value}}}


TAINT: Json = {"key": "storm", "value": "yes", "effect": "NoSchedule"}
UNREACHABLE = [
    {"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")
]


def _delete_group(context: FaultContext, recreated: bool) -> InflictedFault:
    gang = context.gang()
    context.storm_cluster.api.delete(POD_GROUPS, gang.spec.name, context.storm_cluster.namespace)
    title = f"PodGroup {gang.spec.name} deleted"
    if not recreated:
        return InflictedFault(title)
    return InflictedFault(f"{title}, to be made again", partial(setattr, gang, "needs_group", True))


def _delete_pod(context: FaultContext) -> InflictedFault:
    name = context.member()["metadata"]["name"]
    context.storm_cluster.api.delete(PODS, name, context.storm_cluster.namespace)
    return InflictedFault(f"pod {name} deleted")


def _delete_gang(context: FaultContext) -> InflictedFault:
    """Delete a gang with everything at once, as its owner does."""
    gang = context.gang()
    gang.leaving = True
    gang.to_create.clear()
    for resource in (JOBS, VOLCANO_JOBS):
        with suppress(ApiError):
            context.storm_cluster.api.delete(resource, gang.spec.name, context.storm_cluster.namespace)
    return InflictedFault(f"gang {gang.spec.name} withdrawn by its owner")


def _fail_member(context: FaultContext) -> InflictedFault:
    name = context.member(running=True)["metadata"]["name"]
    context.storm_cluster.stage.kubelet.finish(context.storm_cluster.namespace, [name], "Failed")
    return InflictedFault(f"pod {name} failed")


def _finish_member(context: FaultContext) -> InflictedFault:
    name = context.member(running=True)["metadata"]["name"]
    context.storm_cluster.stage.kubelet.finish(context.storm_cluster.namespace, [name])
    return InflictedFault(f"pod {name} has done its work early")


# ---- nodes


def _delete_node(context: FaultContext) -> InflictedFault:
    """Delete a node with its pods, as the cluster's garbage collector would do a little later."""
    name = context.node()["metadata"]["name"]
    mark_down(context, name)
    context.storm_cluster.api.delete(NODES, name)
    return InflictedFault(f"node {name} deleted", partial(_recreate_node, context.storm_cluster, name))


def _recreate_node(storm_cluster: StormCluster, name: str) -> bool:
    """Recreate a node once it has no pods."""
    if not _delete_pods_of_node(storm_cluster, name):
        return False
    if storm_cluster.api.find(NODES, name) is None:
        storm_cluster.api.create(NODES, new_node(int(name[1:])))
    storm_cluster.mark_up([name])
    return True


def _delete_pods_of_node(storm_cluster: StormCluster, name: str) -> bool:
    """Delete the remaining pods of a node; return whether there were none."""
    remaining = [pod for pod in storm_cluster.view.pods() if pod["spec"].get("nodeName") == name]
    for pod in remaining:
        _ignoring_missing(storm_cluster.api.delete, PODS, pod["metadata"]["name"], storm_cluster.namespace, 0)
    return not remaining


def _fail_node(context: FaultContext) -> InflictedFault:
    """Make a node unreachable; when it returns, its pods have been deleted as by the node controllers."""
    name = context.node()["metadata"]["name"]
    mark_down(context, name)
    context.storm_cluster.api.patch(NODES, name, {"spec": {"taints": UNREACHABLE}})
    return InflictedFault(f"node {name} fails", partial(_return_node, context.storm_cluster, name))


def _return_node(storm_cluster: StormCluster, name: str) -> bool:
    if not _delete_pods_of_node(storm_cluster, name):
        return False
    _restore_node(storm_cluster, name, {"spec": {"taints": None}}, subresource="")
    return True


def _relabel_node(context: FaultContext) -> InflictedFault:
    """Move a node to another rack, where it stays."""
    node = context.node()
    name, before = node["metadata"]["name"], node["metadata"]["labels"].get(RACK)
    rack = context.choose([other_rack for other_rack in RACKS if other_rack != before])
    context.storm_cluster.api.patch(NODES, name, {"metadata": {"labels": {RACK: rack}}})
    return InflictedFault(f"node {name} moves from rack {before} to {rack}")


def _change_node(
    title: str, change: Json, restoration: Json, sub: str, context: FaultContext
) -> InflictedFault:
    name = context.node()["metadata"]["name"]
    mark_down(context, name)
    context.storm_cluster.api.patch(NODES, name, change, sub=sub)
    return InflictedFault(
        f"node {name} {title}", partial(_restore_node, context.storm_cluster, name, restoration, sub)
    )


def _restore_node(storm_cluster: StormCluster, name: str, patch: Json, subresource: str) -> None:
    storm_cluster.api.patch(NODES, name, patch, sub=subresource)
    storm_cluster.mark_up([name])


def _lose_gpus(context: FaultContext) -> InflictedFault:
    """Remove GPUs below pods that use them.

    A node that is overcommitted in one resource still has capacity in others.
    """
    name = context.node(resource="example.com/gpu")["metadata"]["name"]
    mark_down(context, name)
    context.storm_cluster.api.patch(NODES, name, _allocatable("example.com/gpu", "0"), sub="status")
    restoration = _allocatable("example.com/gpu", "4")
    return InflictedFault(
        f"node {name} lost its GPUs",
        partial(_restore_node, context.storm_cluster, name, restoration, "status"),
    )


# ---- queues


def _change_queue(title: str, change: Json, context: FaultContext) -> InflictedFault:
    name = context.choose(
        [
            queue
            for queue in context.storm_cluster.queues
            if queue not in {DEFAULT_QUEUE, *context.storm_cluster.down}
        ]
    )
    mark_down(context, name)
    context.storm_cluster.api.patch(QUEUES, name, {"spec": change})
    return InflictedFault(f"queue {name} {title}", partial(_restore_queue, context.storm_cluster, name))


def _restore_queue(storm_cluster: StormCluster, name: str) -> None:
    spec = storm_cluster.spec_without_faults(name)
    storm_cluster.api.patch(QUEUES, name, {"spec": {"state": "Open", **spec}})
    storm_cluster.mark_up([name])


# ---- others


def _foreign_pods(context: FaultContext) -> InflictedFault:
    """Bind a few pods as another scheduler that sees bound pods only."""
    node = context.node()
    name, number = node["metadata"]["name"], context.rng.randint(1, 3)
    names = [f"foreign-{context.rng.getrandbits(32):x}" for _ in range(number)]
    placed = [pod_name for pod_name in names if _bind_foreign(context, pod_name, node)]
    if not placed:
        raise NoVictim
    return InflictedFault(
        f"{', '.join(placed)} bound to {name}", partial(_delete_foreign_pods, context.storm_cluster, names)
    )


def _bind_foreign(context: FaultContext, name: str, node: Json) -> bool:
    storm_cluster, node_name = context.storm_cluster, node["metadata"]["name"]
    new_pod = objects.pod(name, namespace=storm_cluster.namespace, scheduler=ELSEWHERE, cpu="1")
    held = [
        pod
        for pod in storm_cluster.view.pods()
        if pod["spec"].get("nodeName") == node_name and holds_capacity(pod)
    ]
    free = amounts(node["status"]["allocatable"])
    for pod in (*held, new_pod, new_pod):
        free.subtract(requests(pod))
    if min(free.values()) < 0:
        return False
    storm_cluster.api.create(PODS, new_pod)
    storm_cluster.api.bind(storm_cluster.namespace, name, node_name)
    return True


def _delete_foreign_pods(storm_cluster: StormCluster, names: list[str]) -> None:
    for name in names:
        _ignoring_missing(storm_cluster.api.delete, PODS, name, storm_cluster.namespace)


def _kubelets_off(context: FaultContext) -> InflictedFault:
    mark_down(context, "kubelets")
    context.storm_cluster.stage.kubelet.off()
    return InflictedFault(
        f"kubelets silent for {context.lasting:.1f} s", partial(_kubelets_on, context.storm_cluster)
    )


def _kubelets_on(storm_cluster: StormCluster) -> None:
    storm_cluster.stage.kubelet.on()
    storm_cluster.mark_up(["kubelets"])


def _ignoring_missing(call: Callable[..., object], *arguments: object) -> None:
    try:
        call(*arguments)
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise


FAULTS: dict[str, Inflict] = {
    "delete-group": partial(_delete_group, recreated=False),
    "delete-group-and-remake": partial(_delete_group, recreated=True),
    "delete-pod": _delete_pod,
    "delete-gang": _delete_gang,
    "fail-member": _fail_member,
    "finish-member": _finish_member,
    "delete-node": _delete_node,
    "fail-node": _fail_node,
    "relabel-node": _relabel_node,
    "cordon-node": partial(
        _change_node, "cordoned", {"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}}, ""
    ),
    "taint-node": partial(
        _change_node, "tainted", {"spec": {"taints": [TAINT]}}, {"spec": {"taints": None}}, ""
    ),
    "shrink-node": partial(
        _change_node, "shrunk to 2 cpu", _allocatable("cpu", "2"), _allocatable("cpu", NODE_CPU), "status"
    ),
    "lose-gpus": _lose_gpus,
    "close-queue": partial(_change_queue, "closed", {"state": "Closed"}),
    "cap-queue": partial(_change_queue, "capped to 10 cpu", {"capability": {"cpu": "10"}}),
    "reweigh-queue": partial(_change_queue, "of weight 9", {"weight": 9}),
    "foreign-pods": _foreign_pods,
    "kubelets-off": _kubelets_off,
}
