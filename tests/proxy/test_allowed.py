"""Allowed requests: those of a kube-scheduler, but none that bypasses Muster."""

import pytest

from extender.proxy.target import ApiTarget, PathResource, is_allowed, read_resource
from tests.rows import each_of

_NS = "/api/v1/namespaces/a"
_DRA = "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

ALLOWED = [
    ("GET", "/version"),
    ("GET", "/healthz"),
    ("GET", "/readyz/etcd"),
    ("GET", "/api"),
    ("GET", "/apis"),
    ("GET", "/apis/apps"),
    ("GET", "/apis/apps/v1"),
    ("GET", "/openapi/v3"),
    ("GET", "/api/v1/pods"),
    ("GET", "/api/v1/nodes"),
    ("GET", "/api/v1/nodes/n"),
    ("GET", "/api/v1/namespaces"),
    ("GET", "/api/v1/namespaces/a"),
    ("GET", f"{_NS}/pods/p"),
    ("GET", f"{_NS}/pods/p/status"),
    ("GET", f"{_NS}/configmaps"),
    ("GET", "/apis/storage.k8s.io/v1/csinodes"),
    ("GET", "/apis/of.a.newer.kubernetes/v1alpha1/things"),
    ("GET", "/apis/policy/v1/poddisruptionbudgets"),
    ("PATCH", f"{_NS}/pods/p/status"),
    ("POST", f"{_NS}/events"),
    ("PATCH", f"{_NS}/events/e"),
    ("POST", "/apis/events.k8s.io/v1/namespaces/a/events"),
    ("PATCH", "/apis/events.k8s.io/v1/namespaces/a/events/e"),
    ("POST", _LEASES),
    ("PUT", f"{_LEASES}/muster-scheduler"),
    ("PUT", f"{_NS}/persistentvolumeclaims/c"),
    ("PATCH", "/api/v1/persistentvolumes/v"),
    ("POST", _DRA),
    ("PATCH", f"{_DRA}/c"),
    ("PUT", f"{_DRA}/c/status"),
    ("DELETE", f"{_DRA}/c"),
    ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"),
    ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
    ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
]

REFUSED = [
    ("POST", f"{_NS}/pods"),
    ("POST", f"{_NS}/pods/p/binding"),
    ("POST", f"{_NS}/bindings"),
    ("POST", f"{_NS}/pods/p/eviction"),
    ("DELETE", f"{_NS}/pods/p"),
    ("DELETE", f"{_NS}/pods"),
    ("PATCH", f"{_NS}/pods/p"),
    ("PUT", f"{_NS}/pods/p"),
    ("PUT", f"{_NS}/pods/p/status"),
    ("PATCH", f"{_NS}/pods/p/ephemeralcontainers"),
    ("GET", f"{_NS}/pods/p/exec"),
    ("POST", f"{_NS}/pods/p/exec"),
    ("GET", f"{_NS}/pods/p/attach"),
    ("GET", f"{_NS}/pods/p/portforward"),
    ("GET", f"{_NS}/pods/p/log"),
    ("GET", f"{_NS}/pods/p/proxy"),
    ("GET", f"{_NS}/pods/p/proxy/status"),
    ("GET", f"{_NS}/services/s/proxy/metrics"),
    ("GET", "/api/v1/nodes/n/proxy/exec"),
    ("GET", "/api/v1/nodes/n/proxy"),
    ("GET", "/api/v1/secrets"),
    ("GET", f"{_NS}/secrets"),
    ("GET", f"{_NS}/secrets/s"),
    ("GET", "/api/v1/watch/secrets"),
    ("GET", "/api/v1/watch/pods"),
    ("GET", "/api/v1/watch/namespaces/a/secrets"),
    ("GET", "/api/v1/proxy/nodes/n"),
    ("POST", f"{_NS}/serviceaccounts/s/token"),
    ("DELETE", _LEASES),
    ("DELETE", f"{_LEASES}/muster-scheduler"),
    ("DELETE", _DRA),
    ("PUT", f"{_NS}/events"),
    ("PATCH", "/api/v1/nodes/n"),
    ("PATCH", "/api/v1/nodes/n/status"),
    ("POST", "/api/v1/namespaces"),
    ("PUT", "/api/v1/namespaces/a/finalize"),
    ("OPTIONS", "/api/v1/pods"),
    ("POST", "/apis"),
    ("GET", "/logs/kube-apiserver.log"),
    ("GET", "/debug/pprof/heap"),
    ("GET", "/metrics"),
    ("POST", "/apis/apps/v1/namespaces/a/events"),
    ("PATCH", "/apis/apps/v1/namespaces/a/deployments/d/scale"),
]


@each_of(*ALLOWED)
def test_requests_that_a_scheduler_may_send(method: str, path: str) -> None:
    assert is_allowed(method, path)


@each_of(*REFUSED)
def test_requests_that_no_client_may_send(method: str, path: str) -> None:
    assert not is_allowed(method, path)
    assert not is_allowed(method, f"{path}/")


@each_of(
    ("/api/v1/pods", PathResource("", "pods", "")),
    ("/api/v1/namespaces/a/pods/p/status", PathResource("", "pods/status", "p")),
    ("/api/v1/namespaces/a/status", PathResource("", "namespaces/status", "a")),
    ("/apis/apps/v1/namespaces/a/replicasets", PathResource("apps", "replicasets", "")),
    ("/apis/apps/v1", None),
    ("/api/v1", None),
    ("/version", None),
)
def test_a_path_is_read_as_the_api_server_reads_it(path: str, resource: PathResource | None) -> None:
    assert read_resource(path) == resource


@pytest.mark.parametrize(
    ("query", "watches"),
    [
        ("watch=true", True),
        ("watch=1", True),
        ("watch", True),
        ("a=b&watch=yes", True),
        ("watch=false", False),
        ("watch=0", False),
        ("watch=false&watch=true", False),
        ("allowWatchBookmarks=true", False),
        ("", False),
    ],
)
def test_a_query_says_whether_it_watches(query: str, watches: bool) -> None:
    assert ApiTarget("GET", "/api/v1/pods", query).is_watch == watches
