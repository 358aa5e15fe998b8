"""The repository's manifests, applied as users apply them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from extender.shipped import read
from tests.e2e.harness.access import User, service_account
from tests.e2e.harness.client import Client
from tests.e2e.harness.objects import namespace
from tests.e2e.harness.resources import CRDS, NAMESPACES, Resource
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

Json = dict[str, Any]
MANIFESTS = Path(__file__).parents[3] / "manifests"
INSTALLED = (
    "crds/*.yaml",
    "namespace.yaml",
    "account.yaml",
    "marks.yaml",
    "rbac.yaml",
    "sidecar/rbac-*.yaml",
    "webhooks/rbac.yaml",
)
CONFLICT = 409


def documents(*patterns: str) -> Iterator[Json]:
    """Yield every object of the files under manifests/ that match a pattern.

    Example: `documents("crds/*.yaml", "rbac.yaml")`.
    """
    for pattern in patterns:
        for document in read(sorted(MANIFESTS.glob(pattern))):
            yield from _objects(document)


def service_accounts() -> list[User]:
    """Return a user for each service account of the manifests. The users go into the token file."""
    accounts = [
        document["metadata"]
        for document in documents("**/*.yaml")
        if document.get("kind") == "ServiceAccount"
    ]
    return list(
        dict.fromkeys(
            service_account(account.get("namespace", "default"), account["name"]) for account in accounts
        )
    )


def apply(client: Client, *patterns: str) -> list[Json]:
    """Create or replace the objects of files, and wait until the API server serves new kinds.

    Return the objects as they are in the files.
    """
    return install(client, list(documents(*patterns)))


def install(client: Client, objects_to_install: list[Json]) -> list[Json]:
    """Create or replace the given objects, and wait until the API server serves new kinds.

    Return the objects.
    """
    for document in objects_to_install:
        apply_one(client, document)
    for document in objects_to_install:
        if document["kind"] == "CustomResourceDefinition":
            _wait_established(client, document["metadata"]["name"])
    return objects_to_install


def apply_one(client: Client, document: Json) -> Json:
    """Create an object and its namespace. Patch the object if it exists already."""
    resource = resource_of(client, document)
    ensure_namespace(client, document["metadata"].get("namespace"))
    try:
        return client.create(resource, document)
    except ApiError as error:
        if error.status != CONFLICT:
            raise
    metadata = document["metadata"]
    return client.patch(resource, metadata["name"], document, metadata.get("namespace", ""))


def remove(client: Client, documents_to_remove: Iterable[Json]) -> None:
    """Delete objects in reverse order, and wait until all kinds among the objects are gone.

    Without the wait, the API server would delete new objects of the kinds, too.
    """
    objects_to_remove = list(documents_to_remove)
    for document in reversed(objects_to_remove):
        metadata = document["metadata"]
        client.delete(resource_of(client, document), metadata["name"], metadata.get("namespace", ""))
    kinds = [
        item["metadata"]["name"] for item in objects_to_remove if item["kind"] == "CustomResourceDefinition"
    ]
    wait_for(lambda: not any(client.find(CRDS, kind) for kind in kinds), what=f"{kinds} gone")


@contextmanager
def applied(client: Client, *patterns: str) -> Iterator[None]:
    """Apply files, and delete their objects when the context ends."""
    applied_objects = apply(client, *patterns)
    try:
        yield
    finally:
        remove(client, applied_objects)


def find(client: Client, document: Json) -> Json | None:
    """Return an object from the API server. Return None if the object or its kind does not exist."""
    try:
        resource = resource_of(client, document)
    except (LookupError, ApiError):
        return None
    metadata = document["metadata"]
    return client.find(resource, metadata["name"], metadata.get("namespace", ""))


def resource_of(client: Client, document: Json) -> Resource:
    """Ask the API server for the resource of an object.

    Raise LookupError if the object's kind is not served.
    """
    version, kind = document["apiVersion"], document["kind"]
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    for resource in client.request("GET", prefix)["resources"]:
        if resource["kind"] == kind and "/" not in resource["name"]:
            return Resource(prefix, resource["name"], resource["namespaced"])
    raise LookupError(f"the API server has no {kind} in {version}")


def ensure_namespace(client: Client, name: str | None) -> None:
    """Create a namespace if it is missing. Do nothing if `name` is empty or None."""
    if name and client.find(NAMESPACES, name) is None:
        client.create(NAMESPACES, namespace(name))


def _objects(document: Json | None) -> Iterator[Json]:
    """Yield the objects of a YAML document.

    A List has several objects, and an empty document has no objects.
    """
    if document and document.get("kind") == "List":
        yield from document["items"]
    elif document and "kind" in document and "apiVersion" in document:
        yield document


def _wait_established(client: Client, name: str) -> None:
    """Wait until a CRD is established, and until the objects of each served version can be listed."""

    def is_ready() -> bool:
        crd = client.get(CRDS, name)
        conditions = crd.get("status", {}).get("conditions") or []
        is_established = any(
            condition["type"] == "Established" and condition["status"] == "True" for condition in conditions
        )
        served_versions = [
            served_version["name"] for served_version in crd["spec"]["versions"] if served_version["served"]
        ]
        return is_established and all(_can_list(client, crd, version) for version in served_versions)

    wait_for(is_ready, what=f"{name} established")


def _can_list(client: Client, crd: Json, version: str) -> bool:
    group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
    try:
        client.request("GET", f"/apis/{group}/{version}/{plural}?limit=1")
    except ApiError:
        return False
    return True
