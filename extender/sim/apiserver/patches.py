"""The forms of a patch. Each makes a new object and leaves the one given as it is.

Who owns which field is not kept: what is applied is merged, as by somebody who may have everything.

A strategic patch knows lists whose elements have a key, and merges those; all other lists are replaced. Only
the lists that are patched by Muster, kubelets, schedulers and kubectl are known here.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.refusals import Refusal, bad_request, unsupported

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


def patching(content_type: str, body: Any, strategic_known: bool) -> Patch:
    """What `body` does to an object. Raises Refusal for a form that is not known."""
    form = content_type.partition(";")[0].strip()
    if form == "application/json-patch+json" and isinstance(body, list):
        return lambda target: json_patched(target, body)
    if not isinstance(body, dict):
        raise bad_request("a patch of this form is an object")
    if form in ("application/merge-patch+json", "application/apply-patch+yaml"):
        return lambda target: merged(target, body)
    if form == "application/strategic-merge-patch+json" and strategic_known:
        return lambda target: strategically_merged(target, body)
    raise unsupported(form)


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects are merged, everything else is replaced."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


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
    document: Json = deepcopy(target)
    for operation in operations:
        try:
            _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as fault:
            raise Refusal(422, "Invalid", f"the patch does not apply: {operation}: {fault}") from fault
    return document


def _operate(document: Json, operation: Json) -> None:
    path = operation["path"]
    match operation["op"]:
        case "add":
            _add(document, path, operation["value"])
        case "replace":
            _take(document, path)
            _add(document, path, operation["value"])
        case "remove":
            _take(document, path)
        case "test":
            parent, last = _locate(document, path)
            if parent[last] != operation["value"]:
                raise ValueError("the test failed")
        case "move" | "copy" as how:
            parent, last = _locate(document, operation["from"])
            value = _take(document, operation["from"]) if how == "move" else deepcopy(parent[last])
            _add(document, path, value)
        case other:
            raise ValueError(f"no such operation: {other}")


def _add(document: Json, path: str, value: Any) -> None:
    parent, last = _locate(document, path)
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else last, value)
    else:
        parent[last] = value


def _take(document: Json, path: str) -> Any:
    parent, last = _locate(document, path)
    return parent.pop(last)


def _locate(document: Json, path: str) -> tuple[Any, Any]:
    """What holds the value at `path`, and under which name or number."""
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])
    holder: Any = document
    for part in parents:
        holder = holder[int(part) if isinstance(holder, list) else part]
    return holder, int(last) if isinstance(holder, list) and last != "-" else last
