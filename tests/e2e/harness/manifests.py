"""The repository's manifests, applied as users install them."""

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
    """Yield every object of the matching files under manifests/: `documents("crds/*.yaml", "rbac.yaml")`."""
    for pattern in patterns:
        for document in read(sorted(MANIFESTS.glob(pattern))):
            yield from _objects(document)


def service_accounts() -> list[User]:
    """Return the users of the manifests' service accounts, for the token file."""
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
    """Create or replace the objects of files, and wait for new kinds. Return the objects as in the files."""
    return install(client, list(documents(*patterns)))


def install(client: Client, documents_: list[Json]) -> list[Json]:
    """Create or replace objects, as `apply` does for files."""
    for document in documents_:
        apply_one(client, document)
    for document in documents_:
        if document["kind"] == "CustomResourceDefinition":
            _wait_established(client, document["metadata"]["name"])
    return documents_


def apply_one(client: Client, document: Json) -> Json:
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
    """Delete objects in reverse order. Wait until kinds are gone, else new ones would be deleted, too."""
    documents = list(documents_to_remove)
    for document in reversed(documents):
        metadata = document["metadata"]
        client.delete(resource_of(client, document), metadata["name"], metadata.get("namespace", ""))
    kinds = [item["metadata"]["name"] for item in documents if item["kind"] == "CustomResourceDefinition"]
    wait_for(lambda: not any(client.find(CRDS, kind) for kind in kinds), what=f"{kinds} gone")


@contextmanager
def applied(client: Client, *patterns: str) -> Iterator[None]:
    """Apply files, and delete their objects when the context ends."""
    documents_ = apply(client, *patterns)
    try:
        yield
    finally:
        remove(client, documents_)


def find(client: Client, document: Json) -> Json | None:
    """Return an object from the API server; None if it or its kind does not exist."""
    try:
        resource = resource_of(client, document)
    except (LookupError, ApiError):
        return None
    metadata = document["metadata"]
    return client.find(resource, metadata["name"], metadata.get("namespace", ""))


def resource_of(client: Client, document: Json) -> Resource:
    """Return the resource of an object, looked up in the API server."""
    version, kind = document["apiVersion"], document["kind"]
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    for resource in client.request("GET", prefix)["resources"]:
        if resource["kind"] == kind and "/" not in resource["name"]:
            return Resource(prefix, resource["name"], resource["namespaced"])
    raise LookupError(f"the API server has no {kind} in {version}")


def ensure_namespace(client: Client, name: str | None) -> None:
    if name and client.find(NAMESPACES, name) is None:
        client.create(NAMESPACES, namespace(name))


def _objects(document: Json | None) -> Iterator[Json]:
    """Yield the objects of a document, which may be empty or a list."""
    if document and document.get("kind") == "List":
        yield from document["items"]
    elif document and "kind" in document and "apiVersion" in document:
        yield document


def _wait_established(client: Client, name: str) -> None:
    """Wait until a CRD is established and its objects can be listed."""

    def is_ready() -> bool:
        crd = client.get(CRDS, name)
        conditions = crd.get("status", {}).get("conditions") or []
        established = any(
            condition["type"] == "Established" and condition["status"] == "True" for condition in conditions
        )
        served = [
            served_version["name"] for served_version in crd["spec"]["versions"] if served_version["served"]
        ]
        return established and all(_is_listed(client, crd, version) for version in served)

    wait_for(is_ready, what=f"{name} established")


def _is_listed(client: Client, crd: Json, version: str) -> bool:
    group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
    try:
        client.request("GET", f"/apis/{group}/{version}/{plural}?limit=1")
    except ApiError:
        return False
    return True
