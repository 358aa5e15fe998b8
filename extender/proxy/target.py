"""Target of a request to the scheduler proxy: its meaning, whether a kube-scheduler may send it, and headers.

The proxy adds Muster's credentials, so the API server cannot tell who asks. Allowed are the rules of the
roles system:kube-scheduler and system:volume-scheduler, without those that bind, delete or create pods.

Reads have no list of kinds: a newer scheduler reads newer ones and does not start without them, and the API
server refuses what its role does not have. Secrets are refused here, since Muster's own role may have one.
"""

import hmac
import re
from enum import Enum
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qs, parse_qsl, urlencode

import msgspec
from aiohttp import hdrs, web
from multidict import CIMultiDict, CIMultiDictProxy

from extender.ports.connection import encode_answer

# No percent signs, empty segments or dots: the API server must read the same path.
_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._:~-]+)+/?")
_QUERY = re.compile(r"[!-\"$-~]*")  # visible ASCII without '#'
_ABSOLUTE = re.compile(r"https?://[^/?#]+")  # the form of clients that use Muster as a proxy

_READ = frozenset({"GET", "HEAD"})
_NOT_READ = frozenset({"secrets", "watch", "proxy"})  # the last two are deprecated path prefixes
_PAGES = frozenset({"version", "healthz", "livez", "readyz", "openapi"})  # besides /api and /apis
_CREATE = frozenset({"POST"})

# Allowed writes by group, then resource and subresource.
WRITES: dict[str, dict[str, frozenset[str]]] = {
    "": {
        "events": frozenset({"POST", "PUT", "PATCH"}),
        "pods/status": frozenset({"PATCH"}),
        "persistentvolumeclaims": frozenset({"PUT", "PATCH"}),  # volumes with late binding
        "persistentvolumes": frozenset({"PUT", "PATCH"}),
    },
    "events.k8s.io": {"events": frozenset({"POST", "PUT", "PATCH"})},
    "coordination.k8s.io": {
        "leases": frozenset({"POST", "PUT", "PATCH"}),
        "leasecandidates": frozenset({"POST", "PUT", "PATCH"}),
    },
    "resource.k8s.io": {
        # Created for extended resources that devices provide, and deleted if the pod is not bound after all.
        "resourceclaims": frozenset({"POST", "PUT", "PATCH", "DELETE"}),
        "resourceclaims/status": frozenset({"PUT", "PATCH"}),
    },
    "scheduling.k8s.io": {  # Kubernetes' own groups
        f"{plural}/status": frozenset({"PUT", "PATCH"}) for plural in ("podgroups", "compositepodgroups")
    },
    # Reviews: of the callers of the scheduler's own port, and of rights.
    "authentication.k8s.io": {"tokenreviews": _CREATE, "selfsubjectreviews": _CREATE},
    "authorization.k8s.io": {
        "subjectaccessreviews": _CREATE,
        "selfsubjectaccessreviews": _CREATE,
        "selfsubjectrulesreviews": _CREATE,
    },
}

_REASONS = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.REQUEST_TIMEOUT: "Timeout",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "RequestEntityTooLarge",
    HTTPStatus.TOO_MANY_REQUESTS: "TooManyRequests",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
}


class MalformedTarget(ValueError):
    """Error: no request target of the Kubernetes API."""


class RequestClass(Enum):
    """Class of a request. No class waits for the connections of another."""

    WATCHING = "watches: long-running"
    LEADING = "the scheduler's Lease, which expires after ten seconds"
    REPORTING = "Events, which are many and not urgent"
    SCHEDULING = "all other requests"


class ViewTarget(NamedTuple):
    """Target of a client's request to the API server."""

    method: str
    path: str  # such as /api/v1/pods
    query: str  # as it was sent, without the question mark

    @property
    def url(self) -> str:
        """Return path and query below the API server's URL."""
        return f"{self.path}?{self.query}" if self.query else self.path

    def parameter(self, name: str) -> str | None:
        """Return a parameter of the query, the first if there are several."""
        if name not in self.query:
            return None
        return parse_qs(self.query, keep_blank_values=True).get(name, [None])[0]

    def with_parameters(self, **changed: str | None) -> "ViewTarget":
        """Return the target with other parameters; None removes one."""
        pairs = parse_qsl(self.query, keep_blank_values=True)
        unchanged = [(name, value) for name, value in pairs if name not in changed]
        added = [(name, value) for name, value in changed.items() if value is not None]
        return self._replace(query=urlencode([*unchanged, *added]))

    @property
    def watches(self) -> bool:
        """Return whether the API server treats the request as a watch: any value but false means true."""
        watch = self.parameter("watch")
        return watch is not None and watch.lower() not in ("0", "false")

    @property
    def request_class(self) -> RequestClass:
        if self.watches:
            return RequestClass.WATCHING
        if self.path.startswith("/apis/coordination.k8s.io/"):
            return RequestClass.LEADING
        resource = read_resource(self.path)
        return RequestClass.REPORTING if resource and resource.name == "events" else RequestClass.SCHEDULING


def read_target(method: str, url: str, secret: str) -> ViewTarget | None:
    """Return the target of a request; None if the first segment of its path is not the secret.

    Raises:
        MalformedTarget: The path or the query is invalid.
    """
    if host := _ABSOLUTE.match(url):
        url = url[host.end() :]
    path, _, query = url.partition("?")
    first, _, rest = path.removeprefix("/").partition("/")
    if not hmac.compare_digest(first.encode(), secret.encode()):
        return None
    if not _PATH.fullmatch(f"/{rest}") or not _QUERY.fullmatch(query):
        raise MalformedTarget("the request target is no path of the Kubernetes API")
    return ViewTarget(method, f"/{rest}", query)


class PathResource(NamedTuple):
    """Resource in a path."""

    group: str  # empty: core
    name: str  # such as pods, or pods/status
    object: str  # empty: all, of a namespace or everywhere


@lru_cache(256)  # Events of one namespace have the same path
def read_resource(path: str) -> PathResource | None:
    """Return the resource of a path; None for discovery, health and version."""
    root, *rest = path.strip("/").split("/")
    skipped = {"api": 1, "apis": 2}.get(root, len(rest))  # segments for the version, or for group and version
    if len(rest) <= skipped:
        return None
    group = rest[0] if root == "apis" else ""
    below = rest[skipped:]
    # namespaces/NAME/RESOURCE: below[2] is the resource, or a subresource of the namespace itself.
    if below[0] == "namespaces" and len(below) > 2 and below[2] not in ("status", "finalize"):
        below = below[2:]
    object_name, *subresource = below[1:] or [""]
    return PathResource(group, "/".join([below[0], *subresource]), object_name)


def is_allowed(method: str, path: str) -> bool:
    resource = read_resource(path)
    if resource is None:
        return method in _READ and path.split("/")[1] in {"api", "apis", *_PAGES}
    if method in _READ:
        kind, _, subresource = resource.name.partition("/")
        return kind not in _NOT_READ and subresource in ("", "status")
    is_of_one_object = method == "POST" or bool(resource.object)  # writes to whole collections are refused
    return is_of_one_object and method in WRITES.get(resource.group, {}).get(resource.name, ())


def refusal(code: HTTPStatus, message: str) -> web.Response:
    status: dict[str, object] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(code, ""),
        "code": code.value,
    }
    headers = {hdrs.CONTENT_TYPE: "application/json", hdrs.SERVER: "muster"}
    if code is HTTPStatus.TOO_MANY_REQUESTS:
        headers[hdrs.RETRY_AFTER] = "1"  # seconds
    return web.Response(status=code, headers=headers, body=msgspec.json.encode(status))


def in_bytes(answer: web.Response) -> bytes:
    """Return a refusal as it is written."""
    assert isinstance(answer.body, bytes)
    return encode_answer(answer.status, answer.reason, answer.headers.items(), answer.body)


def unreachable_response(reason: str) -> web.Response:
    """Return the refusal while the API server does not answer.

    client-go repeats the request, and its reflector keeps its version. For other answers, except for a
    refused connection, it would read everything again (reflector.go).
    """
    return refusal(HTTPStatus.TOO_MANY_REQUESTS, f"the API server cannot be reached: {reason}")


def too_many_response(may_repeat: bool) -> web.Response:
    """Return the refusal of an Event for which there is no connection.

    client-go repeats only requests with a Retry-After, and drops the others (`recordEvent` in its
    event_broadcaster.go).
    """
    answer = refusal(HTTPStatus.TOO_MANY_REQUESTS, "more Events than the API server takes at once")
    if not may_repeat:
        del answer.headers[hdrs.RETRY_AFTER]
    return answer


# Headers that are not passed on; all others pass unchanged, even repeated ones.
_HOP_BY_HOP = frozenset(
    [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
# The caller is Muster, so credentials of the client are dropped; aiohttp writes Host. Compressed answers
# could not be edited, and cost time on loopback.
_NOT_SENT = _HOP_BY_HOP | {"host", "authorization", "accept-encoding", "expect", "cookie"}
_IDENTITY_PREFIXES = ("impersonate-", "x-remote-")  # headers by which a client could act as another user


def for_upstream(headers: CIMultiDictProxy[str], authorization: str) -> CIMultiDict[str]:
    """Return the headers of a client's request with Muster's credentials instead of the client's."""
    dropped = _NOT_SENT | _hop_headers(headers)
    passed = CIMultiDict[str]()
    for name, value in headers.items():
        lower_name = name.lower()
        if lower_name not in dropped and not lower_name.startswith(_IDENTITY_PREFIXES):
            passed.add(name, value)
    if authorization:
        passed[hdrs.AUTHORIZATION] = authorization
    return passed


def for_client(answered: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """Return the headers of the API server's answer that the client gets."""
    dropped = _HOP_BY_HOP | _hop_headers(answered)
    passed = CIMultiDict((name, value) for name, value in answered.items() if name.lower() not in dropped)
    passed.setdefault(hdrs.SERVER, "muster")  # otherwise aiohttp adds its own name
    return passed


def _hop_headers(headers: CIMultiDictProxy[str]) -> frozenset[str]:
    """Return the hop-by-hop headers that Connection names."""
    lines = headers.getall(hdrs.CONNECTION, ())
    return frozenset(name.strip().lower() for line in lines for name in line.split(","))
