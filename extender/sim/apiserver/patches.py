"""The forms of a patch. Each makes a new object and leaves the one given as it is.

JSON Patch is the library's. A strategic patch is
Kubernetes' own, and no library has it: it knows lists whose elements have a key, and merges those; all other
lists are replaced. Only lists that Muster, kubelets, schedulers and kubectl patch are known here.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import jsonpatch
import jsonpointer

from extender.api.merge_patch import merged
from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.status_errors import StatusError, bad_request, unsupported_patch

Patch = Callable[[Json], Json]

_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "schedulingGates": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "ownerReferences": "uid",
    "addresses": "type",
}
_DIRECTIVE = "$patch"


def patching(form: str, body: Any, strategic_known: bool) -> Patch:
    """What `body` does to an object. Raises StatusError for a form that is not known."""
    if form == "application/json-patch+json":
        if not isinstance(body, list):
            raise bad_request("error decoding patch: a JSON patch is a list of operations")
        return lambda target: json_patched(target, body)
    if not isinstance(body, dict):
        raise bad_request("error decoding patch: a patch of this form is an object")
    if form == "application/merge-patch+json":
        return lambda target: merged(target, body)
    if form == "application/strategic-merge-patch+json" and strategic_known:
        return lambda target: strategically_merged(target, body)
    raise unsupported_patch(strategic_known)


def strategically_merged(target: Any, patch: Json) -> Json:
    if patch.get(_DIRECTIVE) == "replace":
        return {name: deepcopy(value) for name, value in patch.items() if name != _DIRECTIVE}
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif not name.startswith("$"):  # $setElementOrder and its like say nothing that matters here
            result[name] = _strategic_value(name, result.get(name), value)
    return result


def _strategic_value(name: str, before: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return strategically_merged(before, value)
    if isinstance(value, list) and name in _KEYS:
        return _merged_by_key(_KEYS[name], before or [], value)
    return deepcopy(value)


def _merged_by_key(key: str, before: list[Json], patch: list[Json]) -> list[Json]:
    if {_DIRECTIVE: "replace"} in patch:
        return [deepcopy(item) for item in patch if _DIRECTIVE not in item]
    items = {item.get(key): item for item in before}
    for item in patch:
        if item.get(_DIRECTIVE) == "delete":
            items.pop(item.get(key), None)
        else:
            items[item.get(key)] = strategically_merged(items.get(item.get(key)), item)
    return list(items.values())


# ---- RFC 6902


def json_patched(target: Json, operations: list[Json]) -> Json:
    """Raises StatusError 422 for a patch that does not apply, or is none."""
    try:
        patched: Json = jsonpatch.apply_patch(target, operations)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError) as fault:
        raise StatusError(422, "Invalid", f"the patch does not apply: {operations}: {fault}") from fault
    return patched
