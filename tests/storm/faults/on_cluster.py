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
from tests.storm.arena import Arena
from tests.storm.crowd import Crowd
from tests.storm.faults.fault import Broken, Field, Inflict, takes_down

ATTACKS = (amounts_at_limits, long_names, owners_in_a_loop, priorities, uids_of_others)
FILES = ("podgroups", "queues", "local-queues", "resource-flavors", "commands")


def _kind_gone(field: Field) -> Broken:
    """Delete a kind with all its objects. Their owners create PodGroups again."""
    takes_down(field, "kinds")
    field.arena.calm.begin("kinds")
    file = field.rng.choice(FILES)
    (crd,) = manifests.documents(f"crds/{file}.yaml")
    field.arena.api.delete(CRDS, crd["metadata"]["name"])
    return Broken(f"the kind of {file} is gone", partial(_kind_back, field.arena, field.crowd, file))


def _kind_back(arena: Arena, crowd: Crowd, file: str) -> bool:
    """Recreate a kind once it has gone: made again before that, it would go, too."""
    (crd,) = manifests.documents(f"crds/{file}.yaml")
    stored = arena.api.find(CRDS, crd["metadata"]["name"])
    if stored is not None and "deletionTimestamp" in stored["metadata"]:
        return False
    manifests.apply(arena.api, f"crds/{file}.yaml")
    for name, spec in arena.queues.items() if file == "queues" else ():
        if arena.api.find(QUEUES, name) is None:
            arena.api.create(QUEUES, objects.queue(name, **spec))
    for gang in crowd.gangs.values() if file == "podgroups" else ():
        gang.remade = gang.wish.kind in ("gang", "job")
    arena.give_back(["kinds"])
    return True


def _tenant_misbehaves(field: Field) -> Broken:
    takes_down(field, MALLORY)
    api = field.arena.api
    manifests.ensure_namespace(api, MALLORY)
    attack = field.rng.choice(ATTACKS)
    victim = field.one(list(api.items(POD_GROUPS, field.arena.namespace)))
    count = attack(Tenant(api, {"kind": "PodGroup", "apiVersion": "scheduling.volcano.sh/v1beta1", **victim}))
    return Broken(f"a tenant writes {attack.__name__}: {count} objects", partial(_tenant_gone, field.arena))


def _tenant_gone(arena: Arena) -> bool:
    remaining = 0
    for resource in (REPLICA_SETS, PODS, POD_GROUPS):
        arena.api.delete_all(resource, MALLORY)
        remaining += len(arena.api.items(resource, MALLORY))
    if remaining == 0:
        arena.give_back([MALLORY])
    return remaining == 0


FAULTS: dict[str, Inflict] = {
    "kind-gone": _kind_gone,
    "tenant-misbehaves": _tenant_misbehaves,
}
