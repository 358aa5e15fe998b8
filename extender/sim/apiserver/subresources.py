"""The parts of an object that have a path of their own: status, scale, and the binding of a pod."""

from extender.sim.apiserver.errors import conflict, invalid, wrong
from extender.sim.apiserver.kinds import PODS, SCALE, Json, ResourceKind
from extender.sim.apiserver.objects import condition, named_by, other_name, set_condition
from extender.sim.apiserver.patches import Patch
from extender.sim.apiserver.validation.schemas import read


def merged_parts(kind: ResourceKind, before: Json, wanted: Json, subresource: str) -> Json:
    """Status is written through its subresource and nowhere else, where a kind has one."""
    if subresource == "status":
        kept = {"managedFields": wanted["metadata"].get("managedFields")}
        meta = {**before["metadata"], **named_by(wanted), **{k: v for k, v in kept.items() if v}}
        return {**before, "metadata": meta, "status": wanted.get("status") or {}}
    after = {**wanted, "apiVersion": kind.api_version, "kind": kind.name}
    after["metadata"] = {**wanted.get("metadata", {})}
    if kind.status:
        after.pop("status", None)
        after |= {"status": before["status"]} if "status" in before else {}
    return after


def bound(pod: Json, node: str, binding: Json) -> Json:
    """The pod on that node, with the annotations of the `binding`, if it is the one meant (by UID), unbound
    and without gates. Raises StatusError."""
    meta, spec, uid = pod["metadata"], pod["spec"], binding.get("uid")
    notes = {**(meta.get("annotations") or {}), **(binding.get("annotations") or {})}
    if uid not in (None, "", meta["uid"]):
        raise conflict(PODS, meta["name"], "the UID in the binding is not that of the pod")
    if "deletionTimestamp" in meta:
        raise conflict(PODS, meta["name"], f"pod {meta['name']} is being deleted, cannot be assigned")
    if spec.get("nodeName"):
        message = f'pod {meta["name"]} is already assigned to node "{spec["nodeName"]}"'
        raise conflict(PODS, meta["name"], message)
    if spec.get("schedulingGates"):
        raise conflict(PODS, meta["name"], f"pod {meta['name']} has non-empty .spec.schedulingGates")
    status = {key: value for key, value in pod["status"].items() if key != "nominatedNodeName"}
    set_condition(status, condition("PodScheduled", "True", ""))
    meta = {**meta, "annotations": notes} if notes else {**meta}
    return {**pod, "metadata": meta, "spec": {**spec, "nodeName": node}, "status": status}


def scale_of(obj: Json) -> Json:
    meta, status = obj["metadata"], obj.get("status") or {}
    identity = "name", "namespace", "uid", "resourceVersion", "creationTimestamp"
    wanted = obj["spec"].get("replicas", 1)
    return {
        "kind": SCALE.name,
        "apiVersion": SCALE.api_version,
        "metadata": {name: meta[name] for name in identity},
        "spec": {"replicas": wanted} if wanted else {},
        "status": {"replicas": status.get("replicas", 0), "selector": selector_text(obj)},
    }


def selector_text(obj: Json) -> str:
    """app=web,tier in (a,b)"""
    selector = obj["spec"].get("selector") or {}
    terms = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], ",".join(sorted(expression.get("values") or ()))
        shown = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
        terms.append(shown.get(expression["operator"], str(key)))
    return ",".join(sorted(terms))


def scaling(name: str, change: Patch, strict: bool) -> Patch:
    """What a change of its scale does to an object."""

    def scaled(before: Json) -> Json:
        wanted = read(SCALE, change(scale_of(before)), strict)
        meta = wanted["metadata"]
        if meta.get("name") != name:
            raise other_name(meta.get("name", ""), name)
        replicas = (wanted.get("spec") or {}).get("replicas", 0)
        if replicas < 0:
            message = "must be greater than or equal to 0"
            raise invalid(SCALE, name, [wrong("spec.replicas", replicas, message)])
        spec = {**before["spec"], "replicas": replicas}
        return {**before, "metadata": {**before["metadata"], **named_by(wanted)}, "spec": spec}

    return scaled
