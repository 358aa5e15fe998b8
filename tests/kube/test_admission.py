"""The webhooks' requests: access reviews, the Secret, the CA bundles; and how their answers are read."""

import base64

import pytest

from extender.domain.admission.access import Subject
from extender.kube.access import AdmissionApi
from extender.kube.connection import Connection
from extender.kube.errors import Ambiguous, Conflict, NotFound
from extender.kube.resources import VALIDATING_WEBHOOKS
from tests.kube.server import Reply, Server, status

SECRET = b'{"metadata": {"name": "c", "namespace": "ns", "resourceVersion": "5"}, "data": {"old": "b2xk"}}'
CONFIGURATION = b"""{"metadata": {"name": "m", "resourceVersion": "7"}, "webhooks": [
    {"name": "a", "clientConfig": {"caBundle": "Q0E="}}, {"name": "b", "clientConfig": {}}]}"""


@pytest.fixture
def api(connection: Connection) -> AdmissionApi:
    return AdmissionApi(connection)


@pytest.mark.parametrize("allowed", [True, False])
def test_an_access_review_has_all_that_is_known_of_the_user(
    allowed: bool, api: AdmissionApi, server: Server
) -> None:
    server.script.append(Reply(201, b'{"status": {"allowed": %s}}' % str(allowed).lower().encode()))
    who = Subject("alice", "u-1", ("dev", "ops"), (("scopes", ("x", "y")),))
    assert api.may_use(who, "team") is allowed
    (request,) = server.requests
    assert request.path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert request.json["spec"] == {
        "user": "alice",
        "uid": "u-1",
        "groups": ["dev", "ops"],
        "extra": {"scopes": ["x", "y"]},
        "resourceAttributes": {
            "verb": "use",
            "group": "scheduling.volcano.sh",
            "resource": "queues",
            "name": "team",
        },
    }


def test_a_secret_is_replaced_at_the_version_read(api: AdmissionApi, server: Server) -> None:
    server.script.extend([Reply(200, SECRET), Reply(), status(409, "Conflict")])
    secret = api.secret("ns", "c")
    assert secret.data == {"old": b"old"}
    api.replace_secret(secret, {"new": b"new"})
    patch = server.requests[1].json
    assert patch == {"metadata": {"resourceVersion": "5"}, "data": {"old": None, "new": "bmV3"}}
    with pytest.raises(Conflict):
        api.replace_secret(secret, {})


def test_a_secret_is_created_with_its_type(api: AdmissionApi, server: Server) -> None:
    server.script.append(Reply(201))
    api.create_secret("ns", "c", {"tls.crt": b"x"})
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/api/v1/namespaces/ns/secrets")
    assert (request.json["type"], request.json["data"]) == ("kubernetes.io/tls", {"tls.crt": "eA=="})


def test_every_webhook_gets_the_bundle(api: AdmissionApi, server: Server) -> None:
    server.script.extend([Reply(200, CONFIGURATION), Reply()])
    found = api.webhook_configuration(VALIDATING_WEBHOOKS, "m")
    assert [webhook.client_config.ca_bundle for webhook in found.webhooks] == [b"CA", b""]
    api.trust(VALIDATING_WEBHOOKS, found, b"new CA")
    trusted = {"caBundle": base64.b64encode(b"new CA").decode()}
    assert server.requests[1].json == {
        "metadata": {"resourceVersion": "7"},
        "webhooks": [{"name": "a", "clientConfig": trusted}, {"name": "b", "clientConfig": trusted}],
    }
    assert server.requests[1].headers["content-type"] == "application/strategic-merge-patch+json"


def test_an_answer_of_another_kind_is_refused(api: AdmissionApi, server: Server) -> None:
    server.script.append(Reply(200, b'{"metadata": 1}'))
    with pytest.raises(Ambiguous):
        api.secret("ns", "c")


def test_a_queue_is_read_without_a_cache(api: AdmissionApi, server: Server) -> None:
    server.script.append(Reply(200, b'{"metadata": {"name": "q"}, "spec": {"restricted": true}}'))
    assert api.queue("q").spec.restricted
    (request,) = server.requests
    assert request.path == "/apis/scheduling.volcano.sh/v1beta1/queues/q"


@pytest.mark.parametrize("name", ["default/status", "../q", "..", ".", "a%2Fb"])
def test_an_invalid_queue_name_is_not_sent(api: AdmissionApi, server: Server, name: str) -> None:
    """The API server answers `default/status` with the queue `default`."""
    with pytest.raises(NotFound):
        api.queue(name)
    assert not server.requests
