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


class Right(NamedTuple):
    """One verb on one resource of a group, such as patch pods/status."""

    verb: str
    resource: str
    group: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


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


def used(calls: Iterable[Call]) -> set[Right]:
    return {right for each in calls if (right := needed(each))}


def refused(calls: Iterable[Call]) -> set[Right]:
    return used(each for each in calls if each.status == FORBIDDEN)


def needed(call: Call) -> Right | None:
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
    return Right(VERBS.get(call.method, reading), f"{resource}/{sub}" if sub else resource, group)


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
    """A rule in as many parts as it has resources."""
    for resource in rule["resources"]:
        lost = right.verb if resource == right.resource and right.group in rule["apiGroups"] else None
        verbs = [verb for verb in rule["verbs"] if verb != lost]
        if verbs:
            yield {**rule, "resources": [resource], "verbs": verbs}


def _rights(rule: Json) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            yield from (Right(verb, resource, group) for verb in rule["verbs"])


def _write(client: Client, role: Json) -> None:
    metadata = role["metadata"]
    resource = manifests.resource_of(client, role)
    client.patch(resource, metadata["name"], {"rules": role["rules"]}, metadata.get("namespace", ""))
