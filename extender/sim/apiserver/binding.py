"""Placing a pod on a node: once, on the pod that was meant, and not behind its gates."""

from extender.sim.apiserver.conditions import condition, set_condition
from extender.sim.apiserver.kinds import PODS, Json
from extender.sim.apiserver.status_errors import StatusError, conflict


def node_of(binding: Json) -> str:
    """Raises StatusError."""
    node: str = (binding.get("target") or {}).get("name", "")
    if not node:
        raise StatusError(500, "", "target.name: Required value")
    return node


def bound(pod: Json, node: str, uid: str | None) -> Json:
    """The pod on that node. `uid`: of the pod that was meant. Raises StatusError."""
    _check(pod, uid)
    status = {key: value for key, value in pod["status"].items() if key != "nominatedNodeName"}
    set_condition(status, condition("PodScheduled", "True", ""))
    spec = {**pod["spec"], "nodeName": node}
    return {**pod, "metadata": {**pod["metadata"]}, "spec": spec, "status": status}


def _check(pod: Json, uid: str | None) -> None:
    meta, spec = pod["metadata"], pod["spec"]
    if uid not in (None, "", meta["uid"]):
        raise conflict(PODS, meta["name"], "the UID in the binding is not that of the pod")
    if "deletionTimestamp" in meta:
        raise conflict(PODS, meta["name"], f"pod {meta['name']} is being deleted, cannot be assigned")
    if spec.get("nodeName"):
        message = f'pod {meta["name"]} is already assigned to node "{spec["nodeName"]}"'
        raise conflict(PODS, meta["name"], message)
    if spec.get("schedulingGates"):
        raise conflict(PODS, meta["name"], f"pod {meta['name']} has non-empty .spec.schedulingGates")
