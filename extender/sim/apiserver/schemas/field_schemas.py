"""What a schema says of one value: which fields it has, and whose the entries of its lists are.

Lists are atomic, one value as a whole, unless the schema names the fields that tell their items apart, or
calls the list a set. Objects are told apart by their fields unless the schema calls them atomic. Of what no
schema describes the value itself tells as much.
"""

import json
from functools import cache
from typing import Any

from extender.sim.apiserver.kinds import Json, ResourceKind
from extender.sim.apiserver.schemas.published import REFERENCE, definitions, name_of


class FieldSchema:
    """The schema of one value. `published`: what is published of it, empty where nothing is."""

    def __init__(self, published: Json) -> None:
        name = _referred(published)
        self.published = _resolved(published, name)
        self.type_name = name.rpartition(".")[2]  # empty for what has no name of its own
        self._fields: dict[str, FieldSchema] = {}

    def field(self, name: str) -> "FieldSchema":
        """Of a field of an object, or of a value of a map."""
        if name not in self._fields:
            more = self.published.get("additionalProperties")
            rest = more if isinstance(more, dict) else {}
            self._fields[name] = FieldSchema(self.published.get("properties", {}).get(name, rest))
        return self._fields[name]

    @property
    def items(self) -> "FieldSchema":
        if "[]" not in self._fields:
            self._fields["[]"] = FieldSchema(self.published.get("items", {}))
        return self._fields["[]"]

    def knows(self, name: str) -> bool:
        """Whether an object may have this field. What no schema describes may have any."""
        described = self.published.get("properties", {})
        open_ended = not described or "additionalProperties" in self.published or self.keeps_unknown
        return open_ended or name in described

    @property
    def keeps_unknown(self) -> bool:
        return bool(self.published.get("x-kubernetes-preserve-unknown-fields"))

    @property
    def list_keys(self) -> tuple[str, ...]:
        """The fields that tell the items of a list apart; none where it has no such items."""
        if self.published.get("x-kubernetes-list-type") != "map":
            return ()
        return tuple(self.published.get("x-kubernetes-list-map-keys", ()))

    @property
    def is_set(self) -> bool:
        return bool(self.published.get("x-kubernetes-list-type") == "set")

    def splits(self, value: Any) -> bool:
        """Whether parts of this value may belong to different writers."""
        if isinstance(value, dict):
            return self.published.get("x-kubernetes-map-type") != "atomic"
        return isinstance(value, list) and (bool(self.list_keys) or self.is_set)

    def key_of(self, item: Any) -> str:
        """What names an item of a list: its own value in a set, the fields that are its key otherwise."""
        if self.is_set:
            return "v:" + _compact(item)
        properties = self.items.published.get("properties", {})
        absent = {key: properties.get(key, {}).get("default") for key in self.list_keys}
        return "k:" + _compact({key: item.get(key, absent[key]) for key in self.list_keys})


@cache
def schema_of(kind: ResourceKind) -> FieldSchema:
    return FieldSchema(definitions()[name_of(kind)])


def _referred(published: Json) -> str:
    """The name of the schema that it refers to: such a reference stands alone, or in an allOf."""
    referred = [*published.get("allOf", ()), published]
    name: str = next((each["$ref"] for each in referred if "$ref" in each), "")
    return name.removeprefix(REFERENCE)


def _resolved(published: Json, name: str) -> Json:
    """With what it refers to, beside a default and a description of its own."""
    own = {key: value for key, value in published.items() if key != "allOf"}
    return {**definitions()[name], **own} if name else own


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
