"""The rights of Muster's account: those that its roles grant, and those that its requests needed."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.e2e.harness import manifests
from tests.e2e.harness.client import Client
from tests.e2e.harness.fault_proxy import Call

Json = dict[str, Any]
VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
FORBIDDEN = 403


class Need(NamedTuple):
    """What one request asks of RBAC."""

    verb: str
    resource: str
    group: str
    name: str


class Right(NamedTuple):
    """One verb on one resource of a group, such as patch pods/status; of all names unless some are given."""

    verb: str
    resource: str
    group: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.verb, self._qualified, *self.names))

    @property
    def _qualified(self) -> str:
        """Three kinds are called podgroups."""
        others = self.resource == "podgroups" and self.group != "scheduling.volcano.sh"
        return f"{self.resource}.{self.group}" if others else self.resource

    def covers(self, need: Need) -> bool:
        return self[:3] == need[:3] and (not self.names or need.name in self.names)


def roles() -> list[Json]:
    """The roles that rbac.yaml binds to Muster's account."""
    found = list(manifests.documents("rbac.yaml"))
    bound = {
        (each["roleRef"]["kind"], each["roleRef"]["name"])
        for each in found
        if each["kind"].endswith("Binding")
    }
    return [each for each in found if (each["kind"], each["metadata"]["name"]) in bound]


def granted() -> list[Right]:
    return sorted({right for role in roles() for rule in role["rules"] for right in _rights(rule)})


def usable(client: Client) -> set[Right]:
    """Those on what the API server has."""
    return {right for right in granted() if is_served(client, right)}


def is_served(client: Client, right: Right) -> bool:
    """Kubernetes' own PodGroups, for one, are alpha and off by default."""
    if not right.group:
        return True
    groups = client.request("GET", "/apis")["groups"]
    versions = [
        each["groupVersion"] for group in groups if group["name"] == right.group for each in group["versions"]
    ]
    served = [each for v in versions for each in client.request("GET", f"/apis/{v}")["resources"]]
    return right.resource in {each["name"] for each in served}


def used(calls: Iterable[Call]) -> set[Right]:
    needs = {need for each in calls if (need := needed(each))}
    return {right for right in granted() if any(right.covers(need) for need in needs)}


def refused(calls: Iterable[Call]) -> set[Need]:
    return {need for each in calls if each.status == FORBIDDEN and (need := needed(each))}


def needed(call: Call) -> Need | None:
    """What a request asks of RBAC; nothing for discovery, which everybody may read."""
    url = urlsplit(call.path)
    match url.path.strip("/").split("/"):
        case ["api", _, *rest]:
            group = ""
        case ["apis", group, _, *rest]:
            pass
        case _:
            return None
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    if not rest:
        return None
    resource, name, sub = [*rest, "", ""][:3]
    watching = parse_qs(url.query).get("watch", ["0"])[0] not in ("0", "false")
    reading = "get" if name else "watch" if watching else "list"
    return Need(VERBS.get(call.method, reading), f"{resource}/{sub}" if sub else resource, group, name)


@contextmanager
def taken_away(client: Client, right: Right) -> Iterator[None]:
    """The roles as they are, but for this right."""
    for role in roles():
        _write(client, {**role, "rules": [part for rule in role["rules"] for part in _without(rule, right)]})
    try:
        yield
    finally:
        for role in roles():
            _write(client, role)


def _without(rule: Json, right: Right) -> Iterator[Json]:
    """A rule in as many parts as it has resources and verbs."""
    for resource in rule["resources"]:
        for verb in rule["verbs"]:
            part = {**rule, "resources": [resource], "verbs": [verb]}
            if right not in _rights(part):
                yield part


def _rights(rule: Json) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            names = tuple(rule.get("resourceNames", ()))
            yield from (Right(verb, resource, group, names) for verb in rule["verbs"])


def _write(client: Client, role: Json) -> None:
    metadata = role["metadata"]
    resource = manifests.resource_of(client, role)
    client.patch(resource, metadata["name"], {"rules": role["rules"]}, metadata.get("namespace", ""))
