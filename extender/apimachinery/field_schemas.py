"""Schemas of the served kinds: the fields of a value, and the keys that identify the items of a list.

- Kubernetes' kinds have the schemas of a real API server (kubernetes.json, written by tools/schemas.py).
- Muster's kinds have the schemas of its CRDs.
- The schemas of operators' kinds allow all fields.

A list is atomic (it has one owner as a whole), unless its schema names key fields or calls the list a set.
An object is split into its fields, unless its schema calls it atomic. A value without a schema is split
by its JSON type.
"""

from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import msgspec

from extender.apimachinery.kinds import SERVED_KINDS, UNSHIPPED_KINDS, Json, ResourceKind
from extender.shipped import CRDS, read

KUBERNETES = Path(__file__).parent / "schemas" / "kubernetes.json"
OPENAPI_PATH = "/openapi/v3"
REF_PREFIX = "#/components/schemas/"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


@cache
def definitions() -> dict[str, Json]:
    """Return all schemas by name, such as io.k8s.api.core.v1.Pod."""
    schemas: dict[str, Json] = msgspec.json.decode(KUBERNETES.read_bytes())
    for crd in _crds():
        schemas |= _crd_schemas(crd)
    for kind in UNSHIPPED_KINDS:  # stands for a CRD that allows all fields
        text = {"type": "string"}
        any_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        properties = {"apiVersion": text, "kind": text, "spec": any_object, "status": any_object}
        schema = {"type": "object", "properties": properties}
        version = {"name": kind.version, "schema": {"openAPIV3Schema": schema}}
        spec = {"group": kind.group, "names": {"kind": kind.name}, "versions": [version]}
        schemas |= _crd_schemas({"spec": spec})
    return schemas


@cache
def _crds() -> list[Json]:
    return read(CRDS)


def printer_columns(kind: ResourceKind) -> list[Json]:
    """Return the columns that kubectl prints for a kind; empty if Muster has no CRD for the kind."""
    for spec in (crd["spec"] for crd in _crds()):
        if (spec["group"], spec["names"]["kind"]) == (kind.group, kind.name):
            versions = {version["name"]: version for version in spec["versions"]}
            return list(versions.get(kind.version, {}).get("additionalPrinterColumns", ()))
    return []


@cache
def name_of(kind: ResourceKind) -> str:
    """Return the name of the kind's schema."""
    named = [{"group": kind.group, "version": kind.version, "kind": kind.name}]
    schemas = definitions().items()
    return next(name for name, schema in schemas if schema.get("x-kubernetes-group-version-kind") == named)


def with_referenced_schemas(names: Iterable[str]) -> dict[str, Json]:
    """Return the schemas of these names, and all schemas that they refer to."""
    stack, schemas = list(names), dict[str, Json]()
    while stack:
        name = stack.pop()
        if name not in schemas:
            schemas[name] = definitions()[name]
            stack += referenced_names(schemas[name])
    return schemas


def referenced_names(schema: Any) -> Iterator[str]:
    """Yield the names of the schemas that a schema refers to."""
    if isinstance(schema, list):
        for item in schema:
            yield from referenced_names(item)
    elif isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix(REF_PREFIX)
        for value in schema.values():
            yield from referenced_names(value)


@cache
def openapi_document(path: str) -> Json | None:
    """Return the OpenAPI document at a path; None if the path has none.

    The document is the index, or the document of one group and version.
    """
    if path == OPENAPI_PATH:
        roots = {kind.root.strip("/") for kind in SERVED_KINDS}
        return {"paths": {root: {"serverRelativeURL": f"{OPENAPI_PATH}/{root}"} for root in sorted(roots)}}
    served_kinds = [kind for kind in SERVED_KINDS if path == f"{OPENAPI_PATH}{kind.root}"]
    if not served_kinds:
        return None
    paths: Json = {}  # clients read here whether the server validates fields
    for kind in served_kinds:
        scope = "/namespaces/{namespace}" if kind.namespaced else ""
        named = {"group": kind.group, "version": kind.version, "kind": kind.name}
        parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
        patch = {"x-kubernetes-group-version-kind": named, "parameters": [parameter], "responses": {}}
        paths[f"{kind.root}{scope}/{kind.plural}/{{name}}"] = {"patch": patch}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Muster's embedded cluster", "version": "v1"},
        "paths": paths,
        "components": {"schemas": with_referenced_schemas(map(name_of, served_kinds))},
    }


def _crd_schemas(crd: Json) -> dict[str, Json]:
    """Return the schemas of a CRD's versions, with the schema of metadata, by the API server's names."""
    spec = crd["spec"]
    kind = spec["names"]["kind"]
    group = ".".join(reversed(spec["group"].split(".")))
    schemas = {}
    for version in spec["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        group_version_kind = {"group": spec["group"], "version": version["name"], "kind": kind}
        metadata = {"allOf": [{"$ref": REF_PREFIX + OBJECT_META}]}
        schemas[f"{group}.{version['name']}.{kind}"] = {
            **schema,
            "properties": {**schema["properties"], "metadata": metadata},
            "x-kubernetes-group-version-kind": [group_version_kind],
        }
    return schemas


_compact = msgspec.json.Encoder(order="sorted").encode


class FieldSchema:
    """Schema of one value. `published` is the schema in JSON; it is empty if there is none."""

    def __init__(self, published: Json) -> None:
        references = [*published.get("allOf", ()), published]  # a $ref may be in allOf
        name = next((part["$ref"].removeprefix(REF_PREFIX) for part in references if "$ref" in part), "")
        other_fields = {key: value for key, value in published.items() if key != "allOf"}
        self.published = {**definitions()[name], **other_fields} if name else other_fields
        self.type_name = name.rpartition(".")[2]  # empty for an unnamed schema
        self.keeps_unknown = bool(self.published.get("x-kubernetes-preserve-unknown-fields"))
        kind_of_list = self.published.get("x-kubernetes-list-type")
        keys = self.published.get("x-kubernetes-list-map-keys") if kind_of_list == "map" else ()
        self.is_set = kind_of_list == "set"
        self.list_keys: tuple[str, ...] = tuple(keys or ())  # fields that identify the items of the list
        self._fields: dict[str, FieldSchema] = {}

    def field(self, name: str) -> "FieldSchema":
        """Return the schema of a field of an object, or of the values of a map."""
        properties = self.published.get("properties", {})
        field_key = name if name in properties else ""
        if field_key not in self._fields:
            additional = self.published.get("additionalProperties")
            values_of_map = additional if isinstance(additional, dict) else {}
            self._fields[field_key] = FieldSchema(properties.get(name, values_of_map))
        return self._fields[field_key]

    @cached_property
    def items(self) -> "FieldSchema":
        return FieldSchema(self.published.get("items", {}))

    def has_field(self, name: str) -> bool:
        """Return whether an object may have this field. An object without a schema may have any field."""
        properties = self.published.get("properties", {})
        open_ended = not properties or "additionalProperties" in self.published or self.keeps_unknown
        return open_ended or name in properties

    def splits(self, value: Any) -> bool:
        """Return whether the parts of a value may have different owners."""
        if isinstance(value, dict):
            return self.published.get("x-kubernetes-map-type") != "atomic"
        return isinstance(value, list) and (bool(self.list_keys) or self.is_set)

    def key_of(self, item: Any) -> str:
        """Return the key of a list item: its value if the list is a set, else its key fields."""
        if self.is_set:
            return f"v:{_compact(item).decode()}"
        properties = self.items.published.get("properties", {})
        defaults = {key: properties.get(key, {}).get("default") for key in self.list_keys}
        return f"k:{_compact({key: item.get(key, defaults[key]) for key in self.list_keys}).decode()}"


@cache
def schema_of(kind: ResourceKind) -> FieldSchema:
    return FieldSchema(definitions()[name_of(kind)])
