"""Kinds of jobs by the CRDs of their operators.

The API server keeps the fields that the table of kinds reads and writes, and accepts the statuses.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from extender.api.workloads.pod_sets import annotation_paths, pod_sets
from extender.api.workloads.shape import Json, Path, is_suspended, outcome_of
from tests.api.job_files import documents, row_of
from tests.e2e.harness import manifests
from tests.e2e.harness.access import User
from tests.e2e.harness.client import Client
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.releases import Release
from tests.e2e.harness.resources import CRDS, Resource
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

JSON_PATCH = "application/json-patch+json"
NAMESPACE = "default"


RAY = Release("github.com/ray-project/kuberay/ray-operator@v1.4.2", "config/crd/bases")
TRAINING = Release("github.com/kubeflow/training-operator@v1.9.2", "manifests/base/crds")
RELEASES = {
    "jobset": Release("sigs.k8s.io/jobset@v0.10.1", "config/components/crd/bases"),
    "leaderworkerset": Release("sigs.k8s.io/lws@v0.7.0", "config/crd/bases"),
    "raycluster": RAY,
    "rayjob": RAY,
    "pytorchjob": TRAINING,
    "tfjob": TRAINING,
    "xgboostjob": TRAINING,
    "paddlejob": TRAINING,
    "jaxjob": TRAINING,
    "mpijob-v1": TRAINING,
    "mpijob": Release("github.com/kubeflow/mpi-operator@v0.6.0", "manifests/base"),
    "trainjob": Release("github.com/kubeflow/trainer/v2@v2.1.0", "manifests/base/crds"),
    "sparkapplication": Release("github.com/kubeflow/spark-operator/v2@v2.4.0", "config/crd/bases"),
}


@pytest.fixture(params=RELEASES)
def name(request: pytest.FixtureRequest, cluster: ControlPlane) -> Iterator[str]:
    """Yield the name of the file, with its kind served; two operators have a kind of the same name."""
    name, job = request.param, documents(request.param)[0]
    crd = RELEASES[name].crd(row_of(job).group, job["kind"])
    manifests.install(cluster.admin, [crd])
    yield name
    manifests.remove(cluster.admin, [crd])
    wait_for(lambda: not cluster.admin.find(CRDS, crd["metadata"]["name"]), what=f"the kind of {name} gone")


@pytest.fixture(scope="module")
def account(cluster: ControlPlane, muster_user: User) -> Iterator[Client]:
    """Yield Muster's own client, with the rights to all kinds of jobs, once its policies are in force."""
    with manifests.applied(cluster.admin, "jobs/*/rbac.yaml"), Client(cluster.access(muster_user)) as client:
        yield client


def test_fields_of_the_table_of_kinds_are_stored(cluster: ControlPlane, account: Client, name: str) -> None:
    written, *ends = documents(name)
    row, job = row_of(written), _created(cluster, written)
    client = account if row.manageable else cluster.admin
    assert is_suspended(row, job) is row.manageable
    assert outcome_of(row, job) is None
    assert _summary(job) == _summary({**written, "metadata": job["metadata"]})
    with pytest.raises(ApiError, match="422"):  # a test of a patch that fails: it changed since
        _started(client, {**job, "metadata": {**job["metadata"], "resourceVersion": "1"}})
    started = _started(client, job)
    assert not is_suspended(row, started)
    if name != "trainjob":  # whose templates are in its runtime
        assert all(each.template["metadata"]["annotations"]["note"] == "x" for each in pod_sets(started))
    if row.manageable:
        for change in _of_what_runs(job):
            with pytest.raises(ApiError, match="Muster"):
                client.patch(_resource(job), job["metadata"]["name"], [change], NAMESPACE, content=JSON_PATCH)
    for end in ends:
        assert outcome_of(row, _with_status(cluster, job, end["status"])) is outcome_of(row, end)


def _resource(job: Json) -> Resource:
    row = row_of(job)
    return Resource(f"/apis/{row.api_version}", row.plural)


def _created(cluster: ControlPlane, written: Json) -> Json:
    meta = {key: value for key, value in written["metadata"].items() if key != "uid"}
    job = {**written, "metadata": {**meta, "namespace": NAMESPACE}}
    made = cluster.admin.create(_resource(job), job)
    return _with_status(cluster, made, written["status"])


def _with_status(cluster: ControlPlane, job: Json, status: Json) -> Json:
    """Write the status as its operator does: MPIJob v1 has no subresource for it."""
    name, body = job["metadata"]["name"], {"status": status}
    try:
        return cluster.admin.patch(_resource(job), name, body, NAMESPACE, "status")
    except ApiError as error:
        if error.status != 404:
            raise
    return cluster.admin.patch(_resource(job), name, body, NAMESPACE)


def _of_what_runs(job: Json) -> list[Json]:
    """Return changes of images, and of the node in each pod's spec."""
    images = [{"op": "replace", "path": path, "value": "evil"} for path in _paths(job["spec"], "image")]
    specs = [path.rpartition("/")[0] for path in _paths(job["spec"], "containers")]
    assert images
    return [*images, *({"op": "add", "path": f"{path}/nodeName", "value": "n"} for path in specs)]


def _paths(found: Any, name: str, path: str = "/spec") -> Iterator[str]:
    """Yield the paths of fields with this name."""
    items = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, value in items:
        if key == name:
            yield f"{path}/{key}"
        yield from _paths(value, name, f"{path}/{key}")


def _started(client: Client, job: Json) -> Json:
    """Unsuspend a job, with an annotation for its pods, unless it has changed; return it."""
    row, meta = row_of(job), job["metadata"]
    changes: list[Json] = [
        {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
        {"op": "test", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
    ]
    for path in annotation_paths(row, job):
        changes += _added(job, path)
    if row.manageable:
        changes.append({"op": "replace", "path": "/" + "/".join(row.suspend), "value": False})
    return client.patch(_resource(job), meta["name"], changes, NAMESPACE, content=JSON_PATCH)


def _added(job: Json, path: Path) -> Iterator[Json]:
    """Yield the missing parts of the path, and the note at its end."""
    place: Any = job
    for number, key in enumerate(path):
        place = place[int(key)] if isinstance(place, list) else place.get(key)
        if place is None:
            missing: Json = {"note": "x"}
            for each in reversed(path[number + 1 :]):
                missing = {each: missing}
            yield {"op": "add", "path": "/" + "/".join(path[: number + 1]), "value": missing}
            return
    yield {"op": "add", "path": "/" + "/".join((*path, "note")), "value": "x"}


def _summary(job: Json) -> list[tuple[str, int, Any]]:
    """Return the sets of pods, with their requests."""
    return [
        (
            each.role,
            each.count,
            [container.get("resources") for container in each.template["spec"]["containers"]],
        )
        for each in pod_sets(job)
    ]
