"""Rights of Muster's account: those that its roles grant, and those that its requests needed."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.e2e.harness import manifests
from tests.e2e.harness.client import Client
from tests.e2e.harness.fault_proxy import Call

Json = dict[str, Any]
OWN, WEBHOOKS = "rbac.yaml", "webhooks/rbac.yaml"
VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
FORBIDDEN = 403


class Need(NamedTuple):
    """Right that a request needs."""

    verb: str
    resource: str
    group: str
    name: str


class Right(NamedTuple):
    """Right to one verb on one resource, such as patch pods/status; of one object or of all."""

    verb: str
    resource: str
    group: str
    name: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.verb, self._qualified, self.name)))

    @property
    def _qualified(self) -> str:
        """Return the resource, with its group if it is ambiguous: three groups have podgroups."""
        is_ambiguous = self.resource == "podgroups" and self.group != "scheduling.volcano.sh"
        return f"{self.resource}.{self.group}" if is_ambiguous else self.resource

    def covers(self, need: Need) -> bool:
        return self[:3] == need[:3] and self.name in ("", need.name)


def roles(*files: str) -> list[Json]:
    """Return the roles that these files bind to Muster's account."""
    documents = list(manifests.documents(*files))
    bound = {
        (document["roleRef"]["kind"], document["roleRef"]["name"])
        for document in documents
        if document["kind"].endswith("Binding")
    }
    return [document for document in documents if (document["kind"], document["metadata"]["name"]) in bound]


def granted(file: str) -> list[Right]:
    return sorted({right for role in roles(file) for rule in role["rules"] for right in _rights(rule)})


def is_served(client: Client, right: Right) -> bool:
    """Return whether the API server serves the resource of a right."""
    if not right.group:
        return True
    groups = client.request("GET", "/apis")["groups"]
    versions = [
        version["groupVersion"]
        for group in groups
        if group["name"] == right.group
        for version in group["versions"]
    ]
    lists = [client.request("GET", f"/apis/{version}") for version in versions]
    return right.resource in {resource["name"] for served in lists for resource in served["resources"]}


def used(calls: Iterable[Call], rights: Iterable[Right]) -> set[Right]:
    """Return the rights that at least one call needed."""
    needs = {need for call in tuple(calls) for need in needed(call)}  # a copy, since calls continue
    return {right for right in rights if any(right.covers(need) for need in needs)}


def refused(calls: Iterable[Call]) -> set[Need]:
    return {need for call in tuple(calls) if call.status == FORBIDDEN for need in needed(call)}


def needed(call: Call) -> Iterator[Need]:
    """Yield the rights that a request needs: none for discovery, which all users may read.

    For an access review, these are the right to create it and the reviewed right.
    """
    url = urlsplit(call.path)
    match url.path.strip("/").split("/"):
        case ["api", _, *rest]:
            group = ""
        case ["apis", group, _, *rest]:
            pass
        case _:
            return
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    if not rest:
        return
    resource, name, sub = [*rest, "", ""][:3]
    watching = parse_qs(url.query).get("watch", ["0"])[0] not in ("0", "false")
    collection_verb = "watch" if watching else "list"
    reading = "get" if name else collection_verb
    yield Need(VERBS.get(call.method, reading), f"{resource}/{sub}" if sub else resource, group, name)
    if resource == "subjectaccessreviews":
        yield _reviewed_right(json.loads(call.body)["spec"]["resourceAttributes"])


def _reviewed_right(attributes: Json) -> Need:
    return Need(*(attributes.get(key, "") for key in ("verb", "resource", "group", "name")))


@contextmanager
def without_right(client: Client, right: Right) -> Iterator[None]:
    """Remove a right from the roles, and restore it when the context ends."""
    all_roles = roles(OWN, WEBHOOKS)
    for role in all_roles:
        rules = [part for rule in role["rules"] for part in _without(rule, right)]
        _write(client, {**role, "rules": rules})
    try:
        yield
    finally:
        for role in all_roles:
            _write(client, role)


def _without(rule: Json, right: Right) -> Iterator[Json]:
    """Yield the parts of a rule without a right, each with one of the remaining rights."""
    for other in _rights(rule):
        if other != right:
            part: Json = {"apiGroups": [other.group], "resources": [other.resource], "verbs": [other.verb]}
            yield part | ({"resourceNames": [other.name]} if other.name else {})


def _rights(rule: Json) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for name in rule.get("resourceNames", [""]):
                yield from (Right(verb, resource, group, name) for verb in rule["verbs"])


def _write(client: Client, role: Json) -> None:
    metadata = role["metadata"]
    resource = manifests.resource_of(client, role)
    client.patch(resource, metadata["name"], {"rules": role["rules"]}, metadata.get("namespace", ""))
