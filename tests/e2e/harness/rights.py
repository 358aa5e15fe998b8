"""Rights of Muster's account: the rights that its roles grant, and the rights that its requests need."""

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
    """Right that a request needs. An empty name means a request without an object, such as a list."""

    verb: str
    resource: str
    group: str
    name: str


class Right(NamedTuple):
    """Right to one verb on one resource, such as patch pods/status.

    An empty name means all objects of the resource.
    """

    verb: str
    resource: str
    group: str
    name: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.verb, self._qualified_resource, self.name)))

    @property
    def _qualified_resource(self) -> str:
        """Return the resource, followed by its API group if the name is ambiguous.

        Three API groups have the resource podgroups.
        """
        is_ambiguous = self.resource == "podgroups" and self.group != "scheduling.volcano.sh"
        return f"{self.resource}.{self.group}" if is_ambiguous else self.resource

    def covers(self, need: Need) -> bool:
        return self[:3] == need[:3] and self.name in ("", need.name)


def roles(*files: str) -> list[Json]:
    """Return the roles of these files that the files also bind to Muster's account."""
    documents = list(manifests.documents(*files))
    bound_roles = {
        (document["roleRef"]["kind"], document["roleRef"]["name"])
        for document in documents
        if document["kind"].endswith("Binding")
    }
    return [
        document for document in documents if (document["kind"], document["metadata"]["name"]) in bound_roles
    ]


def granted(file: str) -> list[Right]:
    """Return the rights that the roles of a file grant, sorted and without duplicates."""
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
    resource_lists = [client.request("GET", f"/apis/{version}") for version in versions]
    return right.resource in {
        resource["name"] for listed in resource_lists for resource in listed["resources"]
    }


def used(calls: Iterable[Call], rights: Iterable[Right]) -> set[Right]:
    """Return the given rights that at least one call needed."""
    # The tuple is a copy, since further calls may arrive.
    needs = {need for call in tuple(calls) for need in needed(call)}
    return {right for right in rights if any(right.covers(need) for need in needs)}


def refused(calls: Iterable[Call]) -> set[Need]:
    """Return the rights of all calls that the API server answered with 403 Forbidden."""
    return {need for call in tuple(calls) if call.status == FORBIDDEN for need in needed(call)}


def needed(call: Call) -> Iterator[Need]:
    """Yield the rights that a request needs.

    - A discovery request needs no right, since all users may read discovery.
    - An access review needs the right to create the review. The reviewed right is yielded, too.
    """
    url = urlsplit(call.path)
    match url.path.strip("/").split("/"):
        case ["api", _, *segments]:
            group = ""
        case ["apis", group, _, *segments]:
            pass
        case _:
            return
    if segments[:1] == ["namespaces"] and len(segments) > 2:
        segments = segments[2:]
    if not segments:
        return
    resource, name, sub = [*segments, "", ""][:3]
    is_watch = parse_qs(url.query).get("watch", ["0"])[0] not in ("0", "false")
    collection_verb = "watch" if is_watch else "list"
    read_verb = "get" if name else collection_verb
    yield Need(VERBS.get(call.method, read_verb), f"{resource}/{sub}" if sub else resource, group, name)
    if resource == "subjectaccessreviews":
        yield _reviewed_right(json.loads(call.body)["spec"]["resourceAttributes"])


def _reviewed_right(attributes: Json) -> Need:
    return Need(*(attributes.get(key, "") for key in ("verb", "resource", "group", "name")))


@contextmanager
def without_right(client: Client, right: Right) -> Iterator[None]:
    """Remove a right from the roles while the context lasts, and restore the roles afterwards."""
    all_roles = roles(OWN, WEBHOOKS)
    for role in all_roles:
        rules = [part for rule in role["rules"] for part in _rules_without(rule, right)]
        _write_rules(client, {**role, "rules": rules})
    try:
        yield
    finally:
        for role in all_roles:
            _write_rules(client, role)


def _rules_without(rule: Json, right: Right) -> Iterator[Json]:
    """Yield a rule for each right that a rule grants, except the given right."""
    for remaining_right in _rights(rule):
        if remaining_right != right:
            single_rule: Json = {
                "apiGroups": [remaining_right.group],
                "resources": [remaining_right.resource],
                "verbs": [remaining_right.verb],
            }
            yield single_rule | ({"resourceNames": [remaining_right.name]} if remaining_right.name else {})


def _rights(rule: Json) -> Iterator[Right]:
    """Yield each right that a rule grants, one for each combination of group, resource, name and verb."""
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for name in rule.get("resourceNames", [""]):
                yield from (Right(verb, resource, group, name) for verb in rule["verbs"])


def _write_rules(client: Client, role: Json) -> None:
    metadata = role["metadata"]
    resource = manifests.resource_of(client, role)
    client.patch(resource, metadata["name"], {"rules": role["rules"]}, metadata.get("namespace", ""))
