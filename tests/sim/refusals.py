"""Table of refusals: objects that a Kubernetes API server refuses, and the fields that it names."""

from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from extender.apimachinery.kinds import KIND_BY_NAME, ResourceKind

Json = dict[str, Any]


class Refusal(NamedTuple):
    """Refusal of an object.

    `original`: the object without the refused change. `fields`: those that the refusal names, none for an
    unreadable body.
    """

    name: str
    kind: ResourceKind
    original: Json
    body: Json
    fields: frozenset[str]

    def path(self, namespace: str) -> str:
        namespace_part = f"/namespaces/{namespace}" if self.kind.namespaced else ""
        return f"{self.kind.root}{namespace_part}/{self.kind.plural}"


def refusals() -> list[Refusal]:
    table = yaml.load(Path(__file__).with_name("refusals.yaml").read_text(), yaml.CSafeLoader)
    all_refusals = []
    for base, title, changes, fields in table["refused"]:
        obj = table["objects"][base]
        body = deepcopy(obj)
        for path, value in changes.items():
            _put(body, path.split("."), value)
        kind = KIND_BY_NAME[body["apiVersion"], body["kind"]]
        all_refusals.append(Refusal(f"{base}: {title}", kind, obj, body, frozenset(fields)))
    return all_refusals


def named_in(status: Json) -> frozenset[str]:
    """Return the fields in a Status."""
    causes = (status.get("details") or {}).get("causes") or ()
    return frozenset(cause["field"] for cause in causes if cause["field"] != "<nil>")


def _put(obj: Any, path: list[str], value: Any) -> None:
    *parents, last = path
    for name in parents:
        obj = obj[int(name)] if isinstance(obj, list) else obj.setdefault(name, {})
    if value is None:
        del obj[last]
    else:
        obj[last] = value
