"""The bodies of requests: whatever is in them, there is an answer."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.api.protobuf import KUBERNETES_PREFIX
from extender.apimachinery.errors import StatusError
from extender.kube.connection import Connection
from extender.kube.errors import Refused
from extender.sim.apiserver.server import parse_body
from tests.sim.requests import PODS, QUEUES, ask, create, get, pod

PROTOBUF = "application/vnd.kubernetes.protobuf"
NAMESPACES = "/api/v1/namespaces"
# What `kubectl create namespace foo` sends.
NAMESPACE = bytes.fromhex(
    "6b3873000a0f0a02763112094e616d657370616365121b0a130a03666f6f1200"
    "1a0022002a0032003800420012001a020a001a002200"
)


def test_a_namespace_in_protobuf(connection: Connection) -> None:
    connection.request("POST", NAMESPACES, body=NAMESPACE, content_type=PROTOBUF)
    assert get(connection, f"{NAMESPACES}/foo")["metadata"]["name"] == "foo"


def test_fields_of_an_embedded_message_are_decoded_into_the_object_around_it() -> None:
    """JSON has no name for the source of a volume."""
    source = _field(2, _field(1, b"Memory"))  # emptyDir, and its medium
    volume = _field(1, b"data") + _field(2, source)
    kind = _field(1, b"v1") + _field(2, b"Pod")
    body = KUBERNETES_PREFIX + _field(1, kind) + _field(2, _field(2, _field(1, volume)))
    assert parse_body(body, PROTOBUF)["spec"]["volumes"] == [
        {"name": "data", "emptyDir": {"medium": "Memory"}}
    ]


def _field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2, len(content))) + content


def test_a_pod_in_yaml(connection: Connection) -> None:
    text = b"kind: Pod\napiVersion: v1\nmetadata: {name: a, annotations: {day: 2026-01-01}}\n"
    spec = b"spec:\n  containers:\n  - {name: main, image: none}\n"
    number = text.replace(b"2026-01-01", b"1")
    with pytest.raises(Refused, match="annotations of type string"):
        connection.request("POST", PODS, body=number + spec, content_type="application/yaml")
    connection.request("POST", PODS, body=text + spec, content_type="application/yaml")
    assert get(connection, f"{PODS}/a")["metadata"]["annotations"] == {"day": "2026-01-01"}


@given(st.binary(max_size=60))
def test_any_protobuf_is_read_or_refused(data: bytes) -> None:
    for body in (data, KUBERNETES_PREFIX + data, NAMESPACE[: len(data)] + data):
        with suppress(StatusError):
            assert isinstance(parse_body(body, PROTOBUF), dict)


@pytest.mark.parametrize(
    ("form", "body", "status"),
    [
        ("application/json", b"[" * 100_000, 400),
        ("application/json", b'{"metadata":[]}', 400),
        ("application/json", b'{"metadata":{"name":"a","labels":["x"]}}', 400),
        ("application/json", b'{"metadata":{"name":7}}', 400),
        ("application/json", b"\xff", 400),
        ("application/yaml", b"a: [", 400),
        ("application/yaml", b"just text", 400),
        ("text/plain", b"x", 415),
        ("application/cbor", b"x", 415),
    ],
)
def test_nonsense_is_a_bad_request(connection: Connection, form: str, body: bytes, status: int) -> None:
    for path in (PODS, QUEUES):
        with pytest.raises(Refused) as refusal:
            connection.request("POST", path, body=body, content_type=form)
        assert refusal.value.status == status
    create(connection, PODS, pod())  # and the server continues
    ask(connection, "DELETE", f"{PODS}/a", {})
