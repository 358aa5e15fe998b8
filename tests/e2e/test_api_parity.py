"""The embedded API server answers as a real one does: the same requests to both, one after the other.

Statuses and reasons have to be the same, and so have the words, unless the list of OTHER_WORDS says so.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from extender.apimachinery.field_schemas import KUBERNETES
from extender.apimachinery.kinds import (
    COMMANDS,
    EXPANDED_KINDS,
    KINDS,
    OPERATOR_KINDS,
    RUNTIME_KINDS,
    ResourceKind,
)
from extender.sim.apiserver.protobuf import MESSAGES
from tests.e2e.api_requests import (
    CLASSES,
    CONTAINER,
    JSON,
    MERGE,
    NAMESPACE,
    NAMESPACES,
    PREPARATION,
    REFUSED,
    WITH_OTHER_MESSAGES,
    WRITES_OF_MANAGERS,
    ApiRequest,
    Json,
    named,
    pod,
    pod_requesting,
)
from tests.e2e.harness import manifests
from tests.e2e.harness.cleanup import clean
from tests.e2e.harness.client import Client
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.embedded import EmbeddedControlPlane
from tests.e2e.harness.waiting import wait_for
from tests.sim.refusals import named_in, refusals
from tools.schemas import published_schemas, sent_messages

pytestmark = pytest.mark.nightly

# Text that the API server adds when it could not evaluate all rules in CEL; it helps no user.
_UNCHECKED = "<nil>: Invalid value: null: some validation rules were not checked"
PLAYED = "1.37"
DATA = Path(__file__).parent / "data"
UNSERVED_KINDS = (
    COMMANDS,
    *OPERATOR_KINDS,
    *EXPANDED_KINDS,
    *RUNTIME_KINDS,
)  # kinds that no user looks at, or that the real one does not have
SERVED_KINDS = [kind for kind in KINDS if kind not in UNSERVED_KINDS]
LIMITED_NAMESPACE = "parity-limited"  # where a quota holds
LIMITED_PODS = f"/api/v1/namespaces/{LIMITED_NAMESPACE}/pods"
QUOTAS = f"/api/v1/namespaces/{LIMITED_NAMESPACE}/resourcequotas"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_MADE_AT_RANDOM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Answer(NamedTuple):
    status: int
    reason: str
    message: str


@pytest.fixture
def real(cluster: ControlPlane) -> Iterator[Client]:
    if cluster.kubernetes != PLAYED:
        pytest.skip(f"the embedded API server plays Kubernetes {PLAYED}, whose words these are")
    yield cluster.admin
    for name in (NAMESPACE, LIMITED_NAMESPACE):
        clean(cluster.admin, name)
    cluster.admin.exchange("DELETE", f"{CLASSES}/there", None, JSON)  # where the test made one


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Client]:
    with EmbeddedControlPlane(tmp_path) as embedded:
        yield embedded.admin


def answers(api: Client, requests: Sequence[ApiRequest]) -> dict[str, Answer]:
    return {sent.name: answer(*exchanged(api, sent)) for sent in requests}


def exchanged(api: Client, sent: ApiRequest) -> tuple[int, Json]:
    body = sent.body if sent.body is None or isinstance(sent.body, bytes) else json.dumps(sent.body).encode()
    status, data = api.exchange(sent.method, sent.path, body, sent.content_type)
    return status, json.loads(data)


def answer(status: int, body: Json) -> Answer:
    if status < 300:
        return Answer(status, "", "")
    return Answer(status, body.get("reason", ""), _plain(body.get("message", "")))


def _plain(message: str) -> str:
    """Return a message without its random parts, and without what could not be checked."""
    head, _, errors = message.partition(" is invalid: ")
    if _UNCHECKED in errors:
        reserved = [each for each in errors.strip("[]").split(", <nil>") if "Invalid value: null" not in each]
        message = f"{head} is invalid: {', <nil>'.join(reserved)}"
    return _MADE_AT_RANDOM.sub("UID", message)


def test_both_servers_refuse_the_same_requests(real: Client, ours: Client) -> None:
    made = [answers(api, PREPARATION) for api in (real, ours)]
    assert made[0] == made[1] == dict.fromkeys(made[0], Answer(201, "", ""))
    theirs, found = (answers(api, REFUSED) for api in (real, ours))
    for name in WITH_OTHER_MESSAGES:
        found[name] = found[name]._replace(message=theirs[name].message)
    assert found == theirs


def test_both_servers_refuse_the_table_of_refusals_for_the_same_fields(real: Client, ours: Client) -> None:
    found = [dict(refused(api)) for api in (real, ours)]
    reported = {each.name: (422 if each.fields else 400, each.fields) for each in refusals()}
    assert found[0] == reported, "the table says what a real server does"
    assert found[1] == reported


def refused(api: Client) -> Iterator[tuple[str, tuple[int, frozenset[str]]]]:
    """Yield by the name of each refusal its status and the named fields."""
    api.exchange("POST", "/api/v1/namespaces", json.dumps(PREPARATION[0].body).encode(), JSON)
    for each in refusals():
        path = f"{each.path(NAMESPACE)}?dryRun=All"
        status, data = api.exchange("POST", path, json.dumps(each.body).encode(), JSON)
        yield each.name, (status, named_in(json.loads(data)))


def test_both_servers_refuse_pods_beyond_a_quota_and_count_the_others(real: Client, ours: Client) -> None:
    """Compare the messages, too; the status of a new quota is written here, as the real controller does."""
    (theirs, their_use), (found, use) = (under_a_quota(api) for api in (real, ours))
    assert found == theirs
    assert use == their_use == {"requests.cpu": "1500m", "limits.memory": "1536Mi", "pods": "2"}
    assert [each.status for each in theirs] == [201, 403, 403, 403, 201, 403]


def under_a_quota(api: Client) -> tuple[list[Answer], Json]:
    """Return the answers to new pods, and the usage at the end."""
    hard = {"requests.cpu": "1500m", "limits.memory": "2Gi", "pods": "4"}
    used = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
    made = ApiRequest("the quota", "POST", QUOTAS, named("ResourceQuota", "q", spec={"hard": hard}))
    counted = ApiRequest("its status", "PATCH", f"{QUOTAS}/q/status", used, MERGE)
    for each in (
        ApiRequest("the namespace", "POST", NAMESPACES, named("Namespace", LIMITED_NAMESPACE)),
        made,
        counted,
    ):
        assert exchanged(api, each)[0] < 300
    large = pod_requesting({"cpu": "9"}, {"cpu": "9", "memory": "1Gi"}, name="large")
    tried = ApiRequest("a trial", "POST", f"{LIMITED_PODS}?dryRun=All", large)
    wait_for(lambda: "exceeded quota" in exchanged(api, tried)[1].get("message", ""), what="the quota holds")
    pods = (
        pod_requesting({"cpu": "1"}, {"memory": "1024Mi"}, name="a"),
        pod_requesting({"cpu": "600m"}, {"memory": "1536Mi"}, name="both"),
        pod_requesting({"cpu": "100m"}, name="no-limit"),
        pod("nothing", containers=[CONTAINER, {**CONTAINER, "name": "side"}]),
        pod_requesting({"cpu": "0.5"}, {"memory": "512Mi"}, name="b"),
        pod_requesting({"cpu": "1m"}, {"memory": "1Mi"}, name="one-more"),
    )
    found = [answer(*exchanged(api, ApiRequest("a pod", "POST", LIMITED_PODS, each))) for each in pods]
    return found, exchanged(api, ApiRequest("the quota", "GET", f"{QUOTAS}/q"))[1]["status"]["used"]


def test_both_servers_have_the_same_managed_fields(real: Client, ours: Client) -> None:
    for number, each in enumerate(WRITES_OF_MANAGERS, start=1):
        theirs, found = (reserved(*exchanged(api, each)) for api in (real, ours))
        assert found == theirs, f"{number}: {each.name}"


def reserved(status: int, obj: Json) -> Any:
    """Return the answer without times, identities and the order of entries."""
    if status >= 300:
        return answer(status, obj)
    meta = obj["metadata"]
    account = {
        tuple(entry.get(name, "") for name in ("manager", "operation", "subresource")): entry["fieldsV1"]
        for entry in meta.get("managedFields", ())
    }
    named = {name: meta.get(name) for name in ("labels", "finalizers", "generation")}
    return status, named, obj["spec"], obj.get("status"), account


@pytest.fixture(scope="module")
def quota_kinds(cluster: ControlPlane) -> Iterator[None]:
    """Install kinds that a cluster has only with a component, or from other projects."""
    elastic = list(yaml.safe_load_all((DATA / "elastic-quotas.yaml").read_text()))
    written = [*manifests.apply(cluster.admin, "quota/crd.yaml"), *manifests.install(cluster.admin, elastic)]
    yield
    manifests.remove(cluster.admin, written)


@pytest.mark.usefixtures("quota_kinds")
@pytest.mark.parametrize("kind", SERVED_KINDS, ids=lambda kind: kind.plural)
def test_both_servers_have_the_same_table_columns(real: Client, ours: Client, kind: ResourceKind) -> None:
    theirs, found = (columns(api, f"{kind.root}/{kind.plural}") for api in (real, ours))
    assert found == theirs


def columns(api: Client, path: str) -> list[tuple[str, int]]:
    """Return the names of a Table's columns, and which of them are for -o wide."""
    shown = api.request("GET", path, accept=TABLE)
    return [(column["name"], column["priority"]) for column in shown["columnDefinitions"]]


def test_the_stored_schemas_are_those_of_the_real_server(real: Client) -> None:
    assert published_schemas(real) == KUBERNETES.read_text(encoding="utf-8")


def test_the_stored_messages_are_those_of_the_release() -> None:
    assert sent_messages() == MESSAGES.read_text(encoding="utf-8")
