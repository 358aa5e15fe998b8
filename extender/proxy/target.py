"""Target of a request to the scheduler proxy: its parts, its headers, and whether a scheduler may send it.

The proxy adds Muster's credentials, so the API server cannot know which client sends a request. The proxy
therefore allows only requests that the roles system:kube-scheduler and system:volume-scheduler allow, without
the rights to bind, delete or create pods.

The proxy does not limit reads to known kinds, because a newer scheduler reads newer kinds and does not start
without them. The API server refuses kinds that Muster's role does not include. The proxy refuses Secrets,
because Muster's role may include Secrets.
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

# No percent signs, empty segments or dot segments, so that the API server reads the same path.
_PATH_RE = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._:~-]+)+/?")
_QUERY_RE = re.compile(r"[!-\"$-~]*")  # visible ASCII characters except '#'
_URL_START = re.compile(r"https?://[^/?#]+")  # beginning of the URL if a client uses Muster as an HTTP proxy

_READ_METHODS = frozenset({"GET", "HEAD"})
_REFUSED_KINDS = frozenset({"secrets", "watch", "proxy"})  # watch and proxy are deprecated path prefixes
_OTHER_ROOTS = frozenset({"version", "healthz", "livez", "readyz", "openapi"})  # pages besides /api and /apis
_CREATION = frozenset({"POST"})

# Allowed methods of writes, by API group, then by resource and subresource.
ALLOWED_WRITES: dict[str, dict[str, frozenset[str]]] = {
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
        # Claims for extended resources that devices provide; deleted if the pod is not bound after all.
        "resourceclaims": frozenset({"POST", "PUT", "PATCH", "DELETE"}),
        "resourceclaims/status": frozenset({"PUT", "PATCH"}),
    },
    "scheduling.k8s.io": {  # groups of pods in Kubernetes' own API
        f"{plural}/status": frozenset({"PUT", "PATCH"}) for plural in ("podgroups", "compositepodgroups")
    },
    # Reviews of the callers of the scheduler's own port, and of their rights.
    "authentication.k8s.io": {"tokenreviews": _CREATION, "selfsubjectreviews": _CREATION},
    "authorization.k8s.io": {
        "subjectaccessreviews": _CREATION,
        "selfsubjectaccessreviews": _CREATION,
        "selfsubjectrulesreviews": _CREATION,
    },
}

_REASON_BY_CODE = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.REQUEST_TIMEOUT: "Timeout",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "RequestEntityTooLarge",
    HTTPStatus.TOO_MANY_REQUESTS: "TooManyRequests",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
}


class MalformedTarget(ValueError):
    """Error: the request has no target of the Kubernetes API."""


class RequestClass(Enum):
    """Class of a request. A request never waits for connections of another class."""

    WATCHING = "watches: long-running"
    LEADING = "the scheduler's Lease, which expires after ten seconds"
    REPORTING = "Events, which are many and not urgent"
    SCHEDULING = "all other requests"


class ApiTarget(NamedTuple):
    """Target of a client's request to the API server."""

    method: str
    path: str  # such as /api/v1/pods
    query: str  # the query as it was sent, without the question mark

    @property
    def url(self) -> str:
        """Return path and query, to be appended to the API server's URL."""
        return f"{self.path}?{self.query}" if self.query else self.path

    def parameter(self, name: str) -> str | None:
        """Return a parameter of the query; the first value if there are several."""
        if name not in self.query:
            return None
        return parse_qs(self.query, keep_blank_values=True).get(name, [None])[0]

    def with_parameters(self, **changes: str | None) -> "ApiTarget":
        """Return the target with changed parameters; None removes a parameter."""
        pairs = parse_qsl(self.query, keep_blank_values=True)
        other_pairs = [(name, value) for name, value in pairs if name not in changes]
        new_pairs = [(name, value) for name, value in changes.items() if value is not None]
        return self._replace(query=urlencode([*other_pairs, *new_pairs]))

    @property
    def is_watch(self) -> bool:
        """Return whether the API server treats the request as a watch. Any value but false means true."""
        watch = self.parameter("watch")
        return watch is not None and watch.lower() not in ("0", "false")

    @property
    def request_class(self) -> RequestClass:
        if self.is_watch:
            return RequestClass.WATCHING
        if self.path.startswith("/apis/coordination.k8s.io/"):
            return RequestClass.LEADING
        resource = read_resource(self.path)
        return RequestClass.REPORTING if resource and resource.name == "events" else RequestClass.SCHEDULING


def read_target(method: str, url: str, secret: str) -> ApiTarget | None:
    """Return the target of a request; None if the first segment of the path is not the secret.

    Raises:
        MalformedTarget: The path or the query is invalid.
    """
    if url_start := _URL_START.match(url):
        url = url[url_start.end() :]
    path, _, query = url.partition("?")
    first_segment, _, api_path = path.removeprefix("/").partition("/")
    if not hmac.compare_digest(first_segment.encode(), secret.encode()):
        return None
    if not _PATH_RE.fullmatch(f"/{api_path}") or not _QUERY_RE.fullmatch(query):
        raise MalformedTarget("the request target is no path of the Kubernetes API")
    return ApiTarget(method, f"/{api_path}", query)


class PathResource(NamedTuple):
    """Resource that a path names."""

    group: str  # API group; empty for the core group
    name: str  # for example pods, or pods/status
    object: str  # name of the object; empty for all objects


@lru_cache(256)  # Events of a namespace have the same path
def read_resource(path: str) -> PathResource | None:
    """Return the resource of a path; None for paths of discovery, health and version."""
    root, *after_root = path.strip("/").split("/")
    prefix_length = {"api": 1, "apis": 2}.get(root, len(after_root))  # for version, or group and version
    if len(after_root) <= prefix_length:
        return None
    group = after_root[0] if root == "apis" else ""
    segments = after_root[prefix_length:]
    # namespaces/NAME/RESOURCE: the third segment is the resource, or a subresource of the namespace itself.
    if segments[0] == "namespaces" and len(segments) > 2 and segments[2] not in ("status", "finalize"):
        segments = segments[2:]
    object_name, *subresource = segments[1:] or [""]
    return PathResource(group, "/".join([segments[0], *subresource]), object_name)


def is_allowed(method: str, path: str) -> bool:
    """Return whether a kube-scheduler may send a request."""
    resource = read_resource(path)
    if resource is None:
        return method in _READ_METHODS and path.split("/")[1] in {"api", "apis", *_OTHER_ROOTS}
    if method in _READ_METHODS:
        kind, _, subresource = resource.name.partition("/")
        return kind not in _REFUSED_KINDS and subresource in ("", "status")
    is_of_one_object = method == "POST" or bool(resource.object)  # writes to a whole collection are refused
    return is_of_one_object and method in ALLOWED_WRITES.get(resource.group, {}).get(resource.name, ())


def refusal(code: HTTPStatus, message: str) -> web.Response:
    """Return an answer that refuses a request, in the form of Kubernetes."""
    status: dict[str, object] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASON_BY_CODE.get(code, ""),
        "code": code.value,
    }
    headers = {hdrs.CONTENT_TYPE: "application/json", hdrs.SERVER: "muster"}
    if code is HTTPStatus.TOO_MANY_REQUESTS:
        headers[hdrs.RETRY_AFTER] = "1"  # seconds
    return web.Response(status=code, headers=headers, body=msgspec.json.encode(status))


def encoded_refusal(answer: web.Response) -> bytes:
    """Return the bytes of a refusal, with its head."""
    assert isinstance(answer.body, bytes)
    return encode_answer(answer.status, answer.reason, answer.headers.items(), answer.body)


def unreachable_response(reason: str) -> web.Response:
    """Return the answer to a client while the API server does not answer.

    client-go repeats the request, and its reflector keeps its version. After any other answer, the reflector
    would read everything again, except after a refused connection (reflector.go).
    """
    return refusal(HTTPStatus.TOO_MANY_REQUESTS, f"the API server cannot be reached: {reason}")


def too_many_response(may_repeat: bool) -> web.Response:
    """Return the answer to an Event for which no connection is free.

    client-go repeats only requests whose answer has Retry-After, and drops other requests (`recordEvent` in
    its event_broadcaster.go).
    """
    answer = refusal(HTTPStatus.TOO_MANY_REQUESTS, "more Events than the API server takes at once")
    if not may_repeat:
        del answer.headers[hdrs.RETRY_AFTER]
    return answer


# Headers that are not passed on. All other headers pass unchanged, even repeated headers.
_HOP_HEADERS = frozenset(
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
# The API server gets Muster's credentials instead of the client's. aiohttp writes Host. A compressed answer
# could not be changed, and costs time on loopback.
_UNSENT_HEADERS = _HOP_HEADERS | {"host", "authorization", "accept-encoding", "expect", "cookie"}
_IDENTITY_PREFIXES = ("impersonate-", "x-remote-")  # headers that name another user


def headers_for_upstream(headers: CIMultiDictProxy[str], authorization: str) -> CIMultiDict[str]:
    """Return the headers of a client's request, with Muster's credentials instead of the client's."""
    dropped_names = _UNSENT_HEADERS | _hop_headers(headers)
    sent_headers = CIMultiDict[str]()
    for name, value in headers.items():
        lower_name = name.lower()
        if lower_name not in dropped_names and not lower_name.startswith(_IDENTITY_PREFIXES):
            sent_headers.add(name, value)
    if authorization:
        sent_headers[hdrs.AUTHORIZATION] = authorization
    return sent_headers


def headers_for_client(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """Return the headers of the API server's answer that are passed on to the client."""
    dropped = _HOP_HEADERS | _hop_headers(headers)
    passed = CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped)
    passed.setdefault(hdrs.SERVER, "muster")  # otherwise aiohttp would add its own name
    return passed


def _hop_headers(headers: CIMultiDictProxy[str]) -> frozenset[str]:
    """Return the names of hop-by-hop headers in the header Connection."""
    lines = headers.getall(hdrs.CONNECTION, ())
    return frozenset(name.strip().lower() for line in lines for name in line.split(","))
