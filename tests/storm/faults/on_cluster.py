"""Faults of the whole cluster: kinds go and come back, and a tenant writes anything that the API allows."""

from functools import partial

from tests.e2e.harness import manifests, objects
from tests.e2e.harness.attacks import (
    MALLORY,
    Tenant,
    amounts_at_limits,
    long_names,
    owners_in_a_loop,
    priorities,
    uids_of_others,
)
from tests.e2e.harness.resources import CRDS, POD_GROUPS, PODS, QUEUES, REPLICA_SETS
from tests.storm.faults.fault import FaultContext, Inflict, InflictedFault, mark_down
from tests.storm.gang_owners import GangOwners
from tests.storm.storm_cluster import StormCluster

ATTACKS = (amounts_at_limits, long_names, owners_in_a_loop, priorities, uids_of_others)
FILES = ("podgroups", "queues", "local-queues", "resource-flavors", "commands")


def _delete_kind(context: FaultContext) -> InflictedFault:
    """Delete a kind with all its objects. Owners create their PodGroups again."""
    mark_down(context, "kinds")
    context.storm_cluster.undisturbed_time.begin("kinds")
    file = context.rng.choice(FILES)
    (crd,) = manifests.documents(f"crds/{file}.yaml")
    context.storm_cluster.api.delete(CRDS, crd["metadata"]["name"])
    return InflictedFault(
        f"the kind of {file} is gone", partial(_restore_kind, context.storm_cluster, context.owners, file)
    )


def _restore_kind(storm_cluster: StormCluster, owners: GangOwners, file: str) -> bool:
    """Recreate a kind once its deletion is complete; before that, the new kind would be deleted, too."""
    (crd,) = manifests.documents(f"crds/{file}.yaml")
    stored = storm_cluster.api.find(CRDS, crd["metadata"]["name"])
    if stored is not None and "deletionTimestamp" in stored["metadata"]:
        return False
    manifests.apply(storm_cluster.api, f"crds/{file}.yaml")
    if file == "queues":
        for name, spec in storm_cluster.queues.items():
            if storm_cluster.api.find(QUEUES, name) is None:
                storm_cluster.api.create(QUEUES, objects.queue(name, **spec))
    if file == "podgroups":
        for gang in owners.gangs.values():
            gang.needs_group = gang.spec.kind in ("gang", "job")
    storm_cluster.mark_up(["kinds"])
    return True


def _tenant_misbehaves(context: FaultContext) -> InflictedFault:
    mark_down(context, MALLORY)
    api = context.storm_cluster.api
    manifests.ensure_namespace(api, MALLORY)
    attack = context.rng.choice(ATTACKS)
    victim = context.choose(list(api.items(POD_GROUPS, context.storm_cluster.namespace)))
    count = attack(Tenant(api, {"kind": "PodGroup", "apiVersion": "scheduling.volcano.sh/v1beta1", **victim}))
    return InflictedFault(
        f"a tenant writes {attack.__name__}: {count} objects",
        partial(_delete_tenant_objects, context.storm_cluster),
    )


def _delete_tenant_objects(storm_cluster: StormCluster) -> bool:
    remaining = 0
    for resource in (REPLICA_SETS, PODS, POD_GROUPS):
        storm_cluster.api.delete_all(resource, MALLORY)
        remaining += len(storm_cluster.api.items(resource, MALLORY))
    if remaining == 0:
        storm_cluster.mark_up([MALLORY])
    return remaining == 0


FAULTS: dict[str, Inflict] = {
    "kind-gone": _delete_kind,
    "tenant-misbehaves": _tenant_misbehaves,
}
