"""Objects that a malicious tenant creates to harm other tenants. The API allows all of them."""

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from extender.api.keys import LOCAL_QUEUE, QUEUE, QUEUE_UID, STOOD_WHOLE_NOTE
from tests.e2e.harness import objects
from tests.e2e.harness.client import Client
from tests.e2e.harness.resources import POD_GROUPS, PODS, REPLICA_SETS, Resource
from tests.e2e.harness.watch import ApiError

Json = dict[str, Any]
TIMES = int(os.environ.get("MUSTER_HOSTILE", "1"))
LARGEST_INTEGER = 2**63 - 1
NAMES_PER_POD = 4_000  # number of resource names in one pod; a pod may have 1.5 MB
ANNOTATION_BYTES = 250_000  # bytes, close to the limit of an object's annotations
MALLORY = "mallory"


class Tenant(NamedTuple):
    """Malicious tenant, who writes into the namespace MALLORY, and a victim."""

    client: Client
    victim: Json  # PodGroup of another tenant

    def pods(self, name: str, count: int, **options: Any) -> int:
        bodies = (objects.pod(f"{name}-{n}", namespace=MALLORY, **options) for n in range(count))
        return self.create(PODS, bodies)

    def groups(self, name: str, count: int, **options: Any) -> int:
        bodies = (objects.pod_group(f"{name}-{n}", namespace=MALLORY, **options) for n in range(count))
        return self.create(POD_GROUPS, bodies)

    def create(self, resource: Resource, bodies: Iterable[Json]) -> int:
        """Create objects, and return the number of objects that were accepted.

        A refused object harms no other tenant, so refusals are ignored. Raise ApiError for an error of the
        server.
        """
        accepted = 0
        for body in bodies:
            try:
                self.client.create(resource, body)
                accepted += 1
            except ApiError as fault:
                if fault.status >= 500:
                    raise
        return accepted


# ---- Attacks. Each function returns the number of objects that the API server accepted.


def amounts_at_limits(tenant: Tenant) -> int:
    """Create pods and groups whose requests are the largest possible amounts."""
    requests_of_containers = [{"cpu": "10m", "memory": "9E"}, {"cpu": str(LARGEST_INTEGER), "memory": "9E"}]
    containers = [
        {"name": f"c{n}", "image": objects.PAUSE_IMAGE, "resources": {"requests": container_requests}}
        for n, container_requests in enumerate(requests_of_containers)
    ]
    accepted = tenant.pods("huge", 40 * TIMES, containers=containers)
    accepted += tenant.groups(
        "most", 20 * TIMES, min_member=2**31 - 1, minResources={"cpu": str(LARGEST_INTEGER)}
    )
    return accepted + tenant.pods("of-most", 20 * TIMES, group="most-0", cpu=f"{LARGEST_INTEGER}m")


def long_names(tenant: Tenant) -> int:
    """Create pods and groups whose queue, group or role has a very long name."""
    long_name = "q" * ANNOTATION_BYTES
    accepted = tenant.pods("queue", 10 * TIMES, annotations={QUEUE: long_name})
    accepted += tenant.pods("group", 10 * TIMES, group=long_name)
    return accepted + tenant.groups("role", 10 * TIMES, min_member=1, minTaskMember={long_name: 1})


def resource_names(tenant: Tenant) -> int:
    """Create pods that request many different resources."""
    pods = range(10 * TIMES)
    limits = ({f"x{pod}.example.com/r{n}": "1" for n in range(NAMES_PER_POD)} for pod in pods)
    return sum(tenant.pods(f"wide{pod}", 1, limits=names) for pod, names in enumerate(limits))


def absent_queues(tenant: Tenant) -> int:
    """Create pods of queues and LocalQueues that do not exist.

    A pod of an absent queue is refused, after a request to the API server for each pod. A pod of an absent
    LocalQueue is accepted, since the LocalQueue may be created later.
    """
    accepted = sum(tenant.pods(f"absent{n}", 1, queue=f"absent-{n}") for n in range(150 * TIMES))
    return accepted + sum(
        tenant.pods(f"late{n}", 1, labels={LOCAL_QUEUE: f"absent-{n}"}) for n in range(350 * TIMES)
    )


def owners_in_a_loop(tenant: Tenant) -> int:
    """Create pairs of ReplicaSets that own each other, with a pod of each pair."""
    accepted = 0
    for number in range(20 * TIMES):
        pair = [tenant.client.create(REPLICA_SETS, _replica_set(f"loop{number}-{suffix}")) for suffix in "ab"]
        for owned_set, owner_set in (pair, pair[::-1]):
            body = {"metadata": {"ownerReferences": _owner_references(owner_set)}}
            tenant.client.patch(REPLICA_SETS, owned_set["metadata"]["name"], body, MALLORY)
        accepted += 2 + tenant.create(PODS, [_with_owner(f"loop{number}", pair[0])])
    return accepted


def uids_of_others(tenant: Tenant) -> int:
    """Create objects that refer to objects of other tenants, by owner, annotation or name."""
    uid = tenant.victim["metadata"]["uid"]
    forged_annotations = {QUEUE_UID: f"{uid}/{uid}", STOOD_WHOLE_NOTE: f"3/{uid}"}
    accepted = tenant.groups("noted", 20 * TIMES, min_member=1, annotations=forged_annotations)
    accepted += tenant.create(PODS, (_with_owner(f"owned{n}", tenant.victim) for n in range(20 * TIMES)))
    for _ in range(20 * TIMES):
        accepted += tenant.pods("again", 1, group="noted-0", cpu="1000")
        tenant.client.delete(PODS, "again-0", MALLORY, 0)
    return accepted


def priorities(tenant: Tenant) -> int:
    """Create groups and pods with system priorities, or with a priority class that does not exist."""
    accepted = tenant.groups("system", 20, min_member=1, priorityClassName="system-node-critical")
    accepted += tenant.groups("none", 20 * TIMES, min_member=1, priorityClassName="there-is-none")
    accepted += tenant.pods("none", 20 * TIMES, group="none-0", cpu="1000")
    return accepted + tenant.pods("system", 20, cpu="1000", priorityClassName="system-cluster-critical")


def daemon_sets(tenant: Tenant) -> int:
    """Create pods as the DaemonSet controller creates them, for nodes that do not exist."""
    name = "metadata.name"
    node_terms = [
        {"matchFields": [{"key": name, "operator": "In", "values": [f"absent{n}"]}]} for n in range(100)
    ]
    node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": node_terms}}
    accepted = 0
    for number in range(100 * TIMES):
        pod = objects.pod(f"daemon{number}", namespace=MALLORY, affinity={"nodeAffinity": node_affinity})
        pod["metadata"]["ownerReferences"] = _owner_references(
            {**tenant.victim, "apiVersion": "apps/v1", "kind": "DaemonSet"}
        )
        accepted += tenant.create(PODS, [pod])
    return accepted


def _replica_set(name: str) -> Json:
    template = objects.pod("", namespace=MALLORY, labels={"app": name})
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    metadata = {"name": name, "namespace": MALLORY}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}


def _owner_references(owner: Json) -> list[Json]:
    metadata = owner["metadata"]
    kind = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    return [{**kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True}]


def _with_owner(name: str, owner: Json) -> Json:
    """Return a pod with an owner. The pod is too large for every node."""
    pod = objects.pod(name, namespace=MALLORY, cpu="1000")
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": _owner_references(owner)}}


ATTACKS = (
    amounts_at_limits,
    long_names,
    resource_names,
    absent_queues,
    owners_in_a_loop,
    uids_of_others,
    priorities,
    daemon_sets,
)
