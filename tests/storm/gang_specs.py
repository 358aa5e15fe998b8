"""Specifications of random gangs, and the objects that their owners create."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from extender.api.keys import REQUIRED_TOPOLOGY
from tests.e2e.harness import objects
from tests.e2e.harness.resources import JOBS, POD_GROUPS, PODS, VOLCANO_JOBS, Resource

Json = dict[str, Any]
NewObject = tuple[Resource, Json]
GANG, QUEUE, REFUSED = "storm/gang", "storm/queue", "storm/refused"
# No group reclaims here: an eviction from a gang that has run fully is a violation.
_NO_RECLAIM: Json = {"reclaimable": False, "preemption": {"withinQueue": "Never", "unmanaged": "Never"}}
QUEUES: dict[str, Json] = {
    "default": _NO_RECLAIM,
    "small": {"weight": 1, **_NO_RECLAIM},
    "large": {"weight": 3, **_NO_RECLAIM},
    "capped": {"weight": 2, "capability": {"cpu": "40"}, **_NO_RECLAIM},
    "important": {"weight": 1, "priority": 5, **_NO_RECLAIM},
}
# Many queues: each has few groups, and few places in the limit of in-flight pods.
MANY_QUEUES: dict[str, Json] = {**QUEUES, **{f"team-{number}": _NO_RECLAIM for number in range(195)}}
# These reclaim: another group must use the capacity. The first group that waits long reserves capacity.
TREE: dict[str, Json] = {
    "default": {"weight": 1},
    "science": {"weight": 3},
    "physics": {"weight": 1, "parent": "science", "reserveAfter": "15s"},
    "biology": {"weight": 2, "parent": "science"},
    "service": {"weight": 2, "capability": {"cpu": "70"}},
    "shop": {"weight": 1, "parent": "service", "deserved": {"cpu": "30"}},
    "mail": {"weight": 1, "parent": "service", "priority": 5, "reclaimable": False},
}
PRIORITIES = {"storm-low": 10, "storm-high": 1000}
ZONES = ("a", "b", "c")
RACK = "storm/rack"  # label of nodes
RACKS = ("r0", "r1", "r2", "r3", "r4", "r5")
MAX_RACK_PODS = 10  # largest gang that requires one rack
# A flavor is the nodes of one zone; each role of a group gets one flavor.
FLAVORS = [{"name": f"zone-{zone}", "nodeLabels": {"zone": zone}} for zone in ZONES]
MAX_PODS = 40  # pods of a gang
CPUS = ("500m", "1", "1", "1500m", "2", "3")
# Smallest, largest, probability.
SIZES = (
    (1, 1, 0.25),
    (2, 4, 0.35),
    (5, 10, 0.25),
    (11, 20, 0.1),
    (21, MAX_PODS, 0.05),
)


@dataclass(frozen=True)
class GangSpec:
    """Gang, job or single pods, and their course without faults."""

    name: str
    # "gang" with a PodGroup, "job" with a PodGroup and a Job, "volcano" for a Job of Volcano's, "pods" for
    # pods that name no group.
    kind: str
    size: int
    min_member: int
    queue: str
    cpu: str
    runtime: float  # seconds from when it runs until its members finish
    patience: float  # seconds after which its owner gives up
    # MinTaskMember; the roles are assigned to the members in turn.
    roles: dict[str, int] = field(default_factory=dict)
    selector: dict[str, str] = field(default_factory=dict)
    gpus: int = 0
    in_a_rack: bool = False  # all members need the same rack
    gated: bool = True
    priority: str = ""
    fails: bool = False  # its members end as Failed
    replaces_members: bool = True  # its owner replaces lost members
    refused: int = 0  # number of members that kubelets refuse
    hangs_at: str = ""  # the requests that hang for a while: "gate", "binding", or "half" of the bindings
    fate: str = ""  # the kind of fault that hits the gang while its requests hang

    def pod(self, number: int, namespace: str) -> Json:
        """Return a member; numbers from `size` on are replacements."""
        return objects.pod(f"{self.name}-{number}", namespace=namespace, **self._pod(number))

    def bodies(self, namespace: str) -> list[NewObject]:
        """Return the objects that the owner creates, in this order."""
        group = [] if self.kind in ("pods", "volcano") else [(POD_GROUPS, self.group(namespace))]
        if self.kind == "job":
            return [*group, (JOBS, self._job(namespace))]
        if self.kind == "volcano":
            return [(VOLCANO_JOBS, self._volcano_job(namespace))]
        return [*group, *((PODS, self.pod(number, namespace)) for number in range(self.size))]

    def group(self, namespace: str) -> Json:
        spec: Json = {"minTaskMember": self.roles} if self.roles else {}
        if self.priority:
            spec["priorityClassName"] = self.priority
        return objects.pod_group(
            self.name, namespace=namespace, min_member=self.min_member, queue=self.queue, **spec
        )

    def _pod(self, number: int) -> Json:
        roles = sorted(self.roles)
        membership = {"queue": self.queue} if self.kind == "pods" else {"group": self.name}
        further_fields: Json = {"priorityClassName": self.priority} if self.priority else {}
        if self.selector:
            further_fields["nodeSelector"] = self.selector
        return {
            **membership,
            **further_fields,
            "cpu": self.cpu,
            "gated": self.gated,
            "task": roles[number % len(roles)] if roles else None,
            "labels": {GANG: self.name, QUEUE: self.queue},
            "annotations": ({REFUSED: "yes"} if number < self.refused else {})
            | ({REQUIRED_TOPOLOGY: RACK} if self.in_a_rack else {}),
            "limits": {"example.com/gpu": str(self.gpus)} if self.gpus else None,
        }

    @property
    def is_job(self) -> bool:
        """Return whether a controller creates and recreates its pods."""
        return self.kind in ("job", "volcano")

    def _volcano_job(self, namespace: str) -> Json:
        """Return a Volcano Job, whose PodGroup and pods Muster creates."""
        sample_pod = self.pod(self.refused, namespace)
        template = {"metadata": {"labels": sample_pod["metadata"]["labels"]}}
        task = {"replicas": self.size, "template": {**template, "spec": sample_pod["spec"]}}
        return {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": {
                "schedulerName": "volcano",
                "queue": self.queue,
                "minAvailable": self.min_member,
                "priorityClassName": self.priority,
                "tasks": [{"name": "work", **task}],
            },
        }

    def _job(self, namespace: str) -> Json:
        sample_pod = self.pod(self.refused, namespace)
        template = {"metadata": {key: sample_pod["metadata"][key] for key in ("labels", "annotations")}}
        spec = {**sample_pod["spec"], "restartPolicy": "Never"}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": self.name, "namespace": namespace, "labels": {GANG: self.name}},
            "spec": {
                "parallelism": self.size,
                "completions": self.size,
                "backoffLimit": 100,
                "template": {**template, "spec": spec},
            },
        }


FATES = {
    "": 4,
    "delete-group": 5,
    "delete-group-and-remake": 3,
    "delete-pod": 5,
    "delete-node": 2,
    "cordon-node": 2,
    "shrink-node": 2,
    "relabel-node": 2,
    "foreign-pods": 2,
    "close-queue": 1,
    "cut-calls": 2,
    "cut-muster-watches": 2,
    "cut-scheduler-watches": 1,
    "kill-muster": 1,
    "freeze-muster": 1,
    "kill-scheduler": 1,
}


def leaves(queues: Mapping[str, Json]) -> list[str]:
    """Return the leaf queues: those that gangs name."""
    parents = {spec.get("parent") for spec in queues.values()}
    return [name for name in queues if name not in parents]


def draw(rng: Random, number: int, queues: Mapping[str, Json] = QUEUES) -> GangSpec:
    """Draw a gang: most are small, few are large, some have unusual settings."""
    size = _size(rng)
    kind = rng.choices(("gang", "pods", "job", "volcano"), (0.65, 0.15, 0.1, 0.1))[0]
    roles = _roles(rng, size) if kind == "gang" and size >= 4 and rng.random() < 0.25 else {}
    minimum = 1
    if kind != "pods":
        minimum = sum(roles.values()) if roles else _min_member(rng, size)
    return GangSpec(
        name=f"g{number}",
        kind=kind,
        size=min(size, 4) if kind == "pods" else size,
        min_member=minimum,
        queue=rng.choice(leaves(queues)),
        cpu=rng.choice(CPUS),
        runtime=rng.uniform(8, 40),
        patience=rng.uniform(60, 150),
        roles=roles,
        selector={"zone": rng.choice(ZONES)} if rng.random() < 0.15 else {},
        gpus=1 if size <= 4 and rng.random() < 0.1 else 0,
        in_a_rack=kind in ("gang", "job") and not roles and size <= MAX_RACK_PODS and rng.random() < 0.4,
        gated=rng.random() < 0.8,
        priority=rng.choice(tuple(PRIORITIES)) if rng.random() < 0.2 else "",
        fails=rng.random() < 0.15,
        replaces_members=rng.random() < 0.8,
        refused=rng.randint(1, min(size, 3)) if rng.random() < 0.1 else 0,
        **_hanging_fields(rng, kind),
    )


def _hanging_fields(rng: Random, kind: str) -> dict[str, str]:
    if kind != "gang" or rng.random() > 0.4:
        return {}
    fate = rng.choices(list(FATES), list(FATES.values()))[0]
    return {"hangs_at": rng.choice(("gate", "binding")), "fate": fate}


def _size(rng: Random) -> int:
    minimum, maximum, _ = rng.choices(SIZES, [probability for _, _, probability in SIZES])[0]
    return rng.randint(minimum, maximum)


def _min_member(rng: Random, size: int) -> int:
    """Draw minMember: usually all members, else fewer."""
    return size if rng.random() < 0.7 else rng.randint(1, size)


def _roles(rng: Random, size: int) -> dict[str, int]:
    """Draw two roles. Members get them in turn, so each role has at least half of the members."""
    return {"lead": 1, "work": rng.randint(1, size // 2)}
