"""A request, taken apart: which object or collection its path names, and what it asks for."""

from typing import Any, NamedTuple

from extender.sim.apiserver.kinds import BY_PATH, ResourceKind, subresources_of
from extender.sim.apiserver.options import LONGEST_MANAGER, Query
from extender.sim.apiserver.ownership.managers import UPDATE, Manager
from extender.sim.apiserver.status_errors import no_such_path


class RequestTarget(NamedTuple):
    kind: ResourceKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Request(NamedTuple):
    method: str
    target: RequestTarget
    query: Query
    content_type: str
    body: Any
    user_agent: str = ""

    @property
    def media_type(self) -> str:
        """Of the body, without parameters."""
        return self.content_type.partition(";")[0].strip()

    @property
    def dry(self) -> bool:
        return self.query.get("dryRun") == "All"

    @property
    def strict(self) -> bool:
        """Whether fields that the kind does not have are refused."""
        return self.query.get("fieldValidation") == "Strict"

    def manager(self, operation: str = UPDATE) -> Manager:
        """Who asks: what it calls itself as a field manager, or the first word of its User-Agent."""
        name = self.query.get("fieldManager") or self.user_agent.partition("/")[0][:LONGEST_MANAGER]
        return Manager(name, operation, self.target.kind.api_version, self.target.subresource)


def target_of(path: str) -> RequestTarget:
    """/api/v1/namespaces/team-a/pods/worker-0/binding, taken apart. Raises StatusError 404."""
    parts = path.strip("/").split("/")
    length = 2 if parts[0] == "api" else 3
    root, rest = "/" + "/".join(parts[:length]), parts[length:]
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    kind = BY_PATH.get((root, rest[0])) if rest else None
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        raise no_such_path()
    target = RequestTarget(kind, namespace, *rest[1:])
    if target.subresource and target.subresource not in subresources_of(kind):
        raise no_such_path()
    return target
