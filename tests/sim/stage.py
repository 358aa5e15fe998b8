"""Sample clusters for drawings: objects in the store of the embedded API server, without Muster."""

from typing import Any

from extender.apimachinery.kinds import NODES, POD_GROUPS, PODS, QUEUES
from extender.apimachinery.service import Service
from extender.sim.show.cluster_state import ClusterState, ShownObjects, observe
from tests.e2e.harness import objects
from tests.sim.requests import Json

WAITS = ("NoRoom", "cpu: 8 needed, 2 left on suitable nodes; capacity for 1 of 4 members")
RUNS = ("Running", "")


def shares(used: int, deserved: int, waiting: int = 1) -> tuple[Json, ...]:
    """Return Muster's report on queue research, with used and deserved cpu."""
    amounts: Json = {"allocated": {"cpu": used * 1000}, "deserved": {"cpu": deserved * 1000.0}}
    return ({"name": "research", "state": "Open", **amounts, "share": used / deserved, "waiting": waiting},)


SHARES = shares(4, 8)


def line(*names: str) -> tuple[Json, ...]:
    """Return Muster's report on groups that wait in this order."""
    return tuple({"podGroup": f"default/{name}", "position": n} for n, name in enumerate(names, 1))


LINE = line("sweep")
LARGE_LINE = line(
    *(f"hyperparameter-search-of-the-large-model-{n:02}" for n in range(60) if n % 4 and n % 12 != 1)
)


def seen(service: Service, **pages: Any) -> ClusterState:
    """Return the current state. `pages`: of Muster's debug port."""
    return observe(ShownObjects.in_store(service.store), pages.get)


def gang(
    service: Service,
    name: str,
    size: int,
    phase: str,
    shown: tuple[str, str] | None,
    on: str = "",
    queue: str = "research",
    min_member: int | None = None,
) -> None:
    """Create a group and its pods. `shown`: reason and message of its condition, if it has one."""
    group = objects.pod_group(
        name, namespace="default", min_member=size if min_member is None else min_member, queue=queue
    )
    if shown:
        condition = {"type": "Scheduled", "status": "False", "reason": shown[0], "message": shown[1]}
        group["status"] = {"phase": phase, "conditions": [condition]}
    service.create(POD_GROUPS, "", group)
    for number in range(size):
        pod(service, f"{name}-{number}", name, phase, on)


def pod(service: Service, name: str, group: str, phase: str = "Pending", on: str = "", **spec: Any) -> None:
    node_fields: Json = {"nodeName": on} if on else {}
    body = objects.pod(name, namespace="default", group=group, cpu="2", **node_fields)
    service.create(PODS, "", {**body, "spec": {**body["spec"], **spec}})
    if on:
        set_phase(service, name, phase)


def set_phase(service: Service, name: str, phase: str) -> None:
    """Change the phase of a pod."""

    def changed(obj: Json) -> Json:
        return {**obj, "status": {**obj["status"], "phase": phase}}

    service.amend(PODS, "default", name, changed, "status")


def small(service: Service) -> None:
    """Create three gangs: train runs on a node, sweep waits, and notes has no status yet."""
    service.create(QUEUES, "", objects.queue("research", weight=2))
    for number in range(3):
        service.create(NODES, "", objects.node(f"n{number}"))
    gang(service, "train", 2, "Running", RUNS, on="n0")
    gang(service, "sweep", 4, "Pending", WAITS)
    gang(service, "notes", 1, "Pending", None)


def large(service: Service) -> None:
    """Create sixty gangs with long names: forty wait, fifteen run, five start, and 2 cpu are left."""
    service.create(QUEUES, "", objects.queue("research", weight=2))
    for number in range(8):
        service.create(NODES, "", objects.node(f"n{number}", cpu="10" if number else "12"))
    for number in range(60):
        name = f"hyperparameter-search-of-the-large-model-{number:02}"
        if number % 4 == 0:
            gang(service, name, 2, "Running", RUNS, on=f"n{number // 8}")
        elif number % 12 == 1:
            gang(service, name, 2, "Inqueue", ("Starting", ""))
        else:
            gang(service, name, 4, "Pending", WAITS)
