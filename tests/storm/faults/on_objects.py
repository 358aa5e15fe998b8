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
from tests.storm.arena import NODE_CPU, Arena, the_node
from tests.storm.faults.fault import Broken, Field, Inflict, NoVictim, takes_down
from tests.storm.view import holds
from tests.storm.wishes import RACK, RACKS

Json = dict[str, Any]
ELSEWHERE = "elsewhere"  # the name of another scheduler
NOT_FOUND = 404


def _allocatable(name: str, value: str) -> Json:
    return {"status": {"allocatable": {name: value}}}


TAINT: Json = {"key": "storm", "value": "yes", "effect": "NoSchedule"}
UNREACHABLE = [
    {"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")
]


def _delete_group(remade: bool, field: Field) -> Broken:
    gang = field.gang()
    field.arena.api.delete(POD_GROUPS, gang.wish.name, field.arena.namespace)
    title = f"PodGroup {gang.wish.name} deleted"
    if not remade:
        return Broken(title)
    return Broken(f"{title}, to be made again", partial(setattr, gang, "remade", True))


def _delete_pod(field: Field) -> Broken:
    name = field.member()["metadata"]["name"]
    field.arena.api.delete(PODS, name, field.arena.namespace)
    return Broken(f"pod {name} deleted")


def _delete_gang(field: Field) -> Broken:
    """Delete a gang with everything at once, as its owner does."""
    gang = field.gang()
    gang.leaving = True
    gang.to_create.clear()
    for resource in (JOBS, VOLCANO_JOBS):
        with suppress(ApiError):
            field.arena.api.delete(resource, gang.wish.name, field.arena.namespace)
    return Broken(f"gang {gang.wish.name} withdrawn by its owner")


def _fail_member(field: Field) -> Broken:
    name = field.member(running=True)["metadata"]["name"]
    field.arena.stage.kubelet.finish(field.arena.namespace, [name], "Failed")
    return Broken(f"pod {name} failed")


def _finish_member(field: Field) -> Broken:
    name = field.member(running=True)["metadata"]["name"]
    field.arena.stage.kubelet.finish(field.arena.namespace, [name])
    return Broken(f"pod {name} has done its work early")


# ---- nodes


def _delete_node(field: Field) -> Broken:
    """Delete a node with its pods, as the cluster's garbage collector would do a little later."""
    name = field.node()["metadata"]["name"]
    takes_down(field, name)
    field.arena.api.delete(NODES, name)
    return Broken(f"node {name} deleted", partial(_node_back, field.arena, name))


def _node_back(arena: Arena, name: str) -> bool:
    """Recreate a node once nothing is left on it."""
    if not _emptied(arena, name):
        return False
    if arena.api.find(NODES, name) is None:
        arena.api.create(NODES, the_node(int(name[1:])))
    arena.give_back([name])
    return True


def _emptied(arena: Arena, name: str) -> bool:
    """Delete what is left on a node; return whether nothing was."""
    remaining = [pod for pod in arena.view.pods() if pod["spec"].get("nodeName") == name]
    for each in remaining:
        _tolerantly(arena.api.delete, PODS, each["metadata"]["name"], arena.namespace, 0)
    return not remaining


def _fail_node(field: Field) -> Broken:
    """Make a node unreachable; when it returns, its pods have been deleted as by the node controllers."""
    name = field.node()["metadata"]["name"]
    takes_down(field, name)
    field.arena.api.patch(NODES, name, {"spec": {"taints": UNREACHABLE}})
    return Broken(f"node {name} fails", partial(_node_returns, field.arena, name))


def _node_returns(arena: Arena, name: str) -> bool:
    if not _emptied(arena, name):
        return False
    _restore_node(arena, name, {"spec": {"taints": None}}, "")
    return True


def _relabel_node(field: Field) -> Broken:
    """Move a node to another rack, where it stays."""
    node = field.node()
    name, before = node["metadata"]["name"], node["metadata"]["labels"].get(RACK)
    rack = field.one([each for each in RACKS if each != before])
    field.arena.api.patch(NODES, name, {"metadata": {"labels": {RACK: rack}}})
    return Broken(f"node {name} moves from rack {before} to {rack}")


def _change_node(title: str, change: Json, back: Json, sub: str, field: Field) -> Broken:
    name = field.node()["metadata"]["name"]
    takes_down(field, name)
    field.arena.api.patch(NODES, name, change, sub=sub)
    return Broken(f"node {name} {title}", partial(_restore_node, field.arena, name, back, sub))


def _restore_node(arena: Arena, name: str, back: Json, sub: str) -> None:
    arena.api.patch(NODES, name, back, sub=sub)
    arena.give_back([name])


def _lose_gpus(field: Field) -> Broken:
    """Remove GPUs below pods that use them.

    A node that is overcommitted in one resource still has capacity in others.
    """
    name = field.node(having="example.com/gpu")["metadata"]["name"]
    takes_down(field, name)
    field.arena.api.patch(NODES, name, _allocatable("example.com/gpu", "0"), sub="status")
    back = _allocatable("example.com/gpu", "4")
    return Broken(f"node {name} lost its GPUs", partial(_restore_node, field.arena, name, back, "status"))


# ---- queues


def _change_queue(title: str, change: Json, field: Field) -> Broken:
    name = field.one([each for each in field.arena.queues if each not in {DEFAULT_QUEUE, *field.arena.down}])
    takes_down(field, name)
    field.arena.api.patch(QUEUES, name, {"spec": change})
    return Broken(f"queue {name} {title}", partial(_restore_queue, field.arena, name))


def _restore_queue(arena: Arena, name: str) -> None:
    arena.api.patch(QUEUES, name, {"spec": {"state": "Open", **arena.usual(name)}})
    arena.give_back([name])


# ---- others


def _foreign_pods(field: Field) -> Broken:
    """Bind a few pods as another scheduler that sees bound pods only."""
    node = field.node()
    name, number = node["metadata"]["name"], field.rng.randint(1, 3)
    names = [f"foreign-{field.rng.getrandbits(32):x}" for _ in range(number)]
    placed = [each for each in names if _bind_foreign(field, each, node)]
    if not placed:
        raise NoVictim
    return Broken(f"{', '.join(placed)} bound to {name}", partial(_take_away, field.arena, names))


def _bind_foreign(field: Field, name: str, node: Json) -> bool:
    arena, node_name = field.arena, node["metadata"]["name"]
    pod_ = objects.pod(name, namespace=arena.namespace, scheduler=ELSEWHERE, cpu="1")
    held = [pod for pod in arena.view.pods() if pod["spec"].get("nodeName") == node_name and holds(pod)]
    free = amounts(node["status"]["allocatable"])
    for each in (*held, pod_, pod_):
        free.subtract(requests(each))
    if min(free.values()) < 0:
        return False
    arena.api.create(PODS, pod_)
    arena.api.bind(arena.namespace, name, node_name)
    return True


def _take_away(arena: Arena, names: list[str]) -> None:
    for name in names:
        _tolerantly(arena.api.delete, PODS, name, arena.namespace)


def _kubelets_off(field: Field) -> Broken:
    takes_down(field, "kubelets")
    field.arena.stage.kubelet.off()
    return Broken(f"kubelets silent for {field.lasting:.1f} s", partial(_kubelets_on, field.arena))


def _kubelets_on(arena: Arena) -> None:
    arena.stage.kubelet.on()
    arena.give_back(["kubelets"])


def _tolerantly(call: Callable[..., object], *arguments: object) -> None:
    try:
        call(*arguments)
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise


FAULTS: dict[str, Inflict] = {
    "delete-group": partial(_delete_group, False),
    "delete-group-and-remake": partial(_delete_group, True),
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
