"""The subresource `scale`: how many pods a workload has and should have, in the same form for every kind."""

from extender.sim.apiserver.field_errors import wrong
from extender.sim.apiserver.kinds import SCALE, Json
from extender.sim.apiserver.patches import Patch
from extender.sim.apiserver.same_object import named_by
from extender.sim.apiserver.status_errors import bad_request, invalid
from extender.sim.apiserver.validation.forms import read

_OF_OBJECT = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(obj: Json) -> Json:
    meta, status = obj["metadata"], obj.get("status") or {}
    wanted = obj["spec"].get("replicas", 1)
    return {
        "kind": SCALE.name,
        "apiVersion": SCALE.api_version,
        "metadata": {name: meta[name] for name in _OF_OBJECT},
        "spec": {"replicas": wanted} if wanted else {},
        "status": {"replicas": status.get("replicas", 0), "selector": selector_text(obj)},
    }


def selector_text(obj: Json) -> str:
    """app=web,tier in (a,b)"""
    selector = obj["spec"].get("selector") or {}
    equal = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    return ",".join(sorted([*equal, *map(_expression, selector.get("matchExpressions") or ())]))


def _expression(each: Json) -> str:
    key, values = each["key"], ",".join(sorted(each.get("values") or ()))
    shown = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
    return shown.get(each["operator"], str(key))


def scaling(name: str, change: Patch, strict: bool) -> Patch:
    """What a change of its scale does to an object."""

    def scaled(before: Json) -> Json:
        wanted = read(SCALE, change(scale_of(before)), strict)
        meta = wanted["metadata"]
        if meta.get("name") != name:
            message = (
                f"the name of the object ({meta.get('name', '')}) does not match the name on the URL ({name})"
            )
            raise bad_request(message)
        replicas = (wanted.get("spec") or {}).get("replicas", 0)
        if replicas < 0:
            message = "must be greater than or equal to 0"
            raise invalid(SCALE, name, [wrong("spec.replicas", replicas, message)])
        spec = {**before["spec"], "replicas": replicas}
        return {**before, "metadata": {**before["metadata"], **named_by(wanted)}, "spec": spec}

    return scaled
