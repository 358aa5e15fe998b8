"""The schemas of the kinds served: Kubernetes' own as a real API server publishes them, ours from their CRDs,
and open ones of operators' kinds.

kubernetes.json is written by tools/schemas.py. It is read when it is first asked for.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from extender.shipped import CRDS
from extender.sim.apiserver.kinds import UNSHIPPED_KINDS, Json, ResourceKind

KUBERNETES = Path(__file__).with_name("kubernetes.json")
REFERENCE = "#/components/schemas/"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


@cache
def definitions() -> dict[str, Json]:
    """Every schema by its name: io.k8s.api.core.v1.Pod, sh.volcano.scheduling.v1beta1.Queue."""
    known: dict[str, Json] = msgspec.json.decode(KUBERNETES.read_bytes())
    for path in CRDS:
        known |= _of_crd(yaml.load(path.read_text(encoding="utf-8"), _LOADER))
    for kind in UNSHIPPED_KINDS:
        known |= _of_crd(_stand_in(kind))
    return known


@cache
def name_of(kind: ResourceKind) -> str:
    """The name of the kind's schema."""
    return next(name for name, schema in definitions().items() if _is(kind, schema))


def with_referred(names: Iterable[str]) -> dict[str, Json]:
    """The schemas of these names, and of all that they refer to."""
    todo, found = list(names), dict[str, Json]()
    while todo:
        if (name := todo.pop()) not in found:
            found[name] = definitions()[name]
            todo += referred(found[name])
    return found


def referred(schema: Any) -> Iterator[str]:
    """The names of the schemas that this one refers to."""
    if isinstance(schema, list):
        for item in schema:
            yield from referred(item)
    elif isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix(REFERENCE)
        for value in schema.values():
            yield from referred(value)


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times as fast


def _of_crd(crd: Json) -> dict[str, Json]:
    """The versions that are served, with the metadata of every object, named as the API server names them."""
    spec = crd["spec"]
    kind = spec["names"]["kind"]
    group = ".".join(reversed(spec["group"].split(".")))
    return {
        f"{group}.{version['name']}.{kind}": _completed(
            version["schema"]["openAPIV3Schema"], spec["group"], version["name"], kind
        )
        for version in spec["versions"]
    }


def _stand_in(kind: ResourceKind) -> Json:
    """A CRD that takes everything: those of operators are not shipped here."""
    text = {"type": "string"}
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    properties = {"apiVersion": text, "kind": text, "spec": anything, "status": anything}
    schema = {"type": "object", "properties": properties}
    version = {"name": kind.version, "schema": {"openAPIV3Schema": schema}}
    return {"spec": {"group": kind.group, "names": {"kind": kind.name}, "versions": [version]}}


def _completed(schema: Json, group: str, version: str, kind: str) -> Json:
    named = {"group": group, "version": version, "kind": kind}
    metadata = {"allOf": [{"$ref": REFERENCE + OBJECT_META}]}
    properties = {**schema["properties"], "metadata": metadata}
    return {**schema, "properties": properties, "x-kubernetes-group-version-kind": [named]}


def _is(kind: ResourceKind, schema: Json) -> bool:
    named = {"group": kind.group, "version": kind.version, "kind": kind.name}
    return bool(schema.get("x-kubernetes-group-version-kind") == [named])
