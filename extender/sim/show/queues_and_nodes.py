"""What queues hold of what they deserve, and what is used of nodes.

Shares come from Queue status, and where that does not carry them yet, from Muster's debug port.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from extender.api.keys import DEFAULT_QUEUE, ENDED_PHASES, ROOT_QUEUE
from extender.api.objects.nodes import Node
from extender.api.objects.pods import Pod
from extender.api.objects.queues import Queue
from extender.api.quantities import Quantity
from extender.domain.model.requests import pod_requests
from extender.domain.model.resources import CPU, Resources, offered, total
from extender.sim.apiserver.decoding import typed
from extender.sim.apiserver.kinds import Json
from extender.sim.show.outcome import NodeSummary, QueueSummary, Written


def queue_summaries(
    queues: Iterable[Json], used: Collection[str], shares: Iterable[Json] | None
) -> list[QueueSummary]:
    """Those that exist, and the default one where it is used without being made. Those that every cluster has
    are left out where no group uses them. `shares`: what /debug/queues says."""
    debugged = {share["name"]: share for share in shares or ()}
    shown = [queue for queue in queues if queue["metadata"]["name"] in used or not _is_everywhere(queue)]
    made = [_queue(queue, debugged.get(queue["metadata"]["name"], {})) for queue in shown]
    if DEFAULT_QUEUE in used and DEFAULT_QUEUE not in [part.name for part in made]:
        made.append(_queue({"metadata": {"name": DEFAULT_QUEUE}}, debugged.get(DEFAULT_QUEUE, {})))
    return sorted(made, key=lambda part: part.name)


def _is_everywhere(queue: Json) -> bool:
    return queue["metadata"]["name"] in (DEFAULT_QUEUE, ROOT_QUEUE)


def _queue(given: Json, debugged: Json) -> QueueSummary:
    queue, status = typed(given, Queue), given.get("status") or {}
    if "deserved" in status:
        deserved, allocated = status["deserved"], status.get("allocated") or {}
        share = status.get("share") or 0.0
    else:
        deserved, allocated = _written(debugged.get("deserved")), _written(debugged.get("allocated"))
        share = debugged.get("share") or 0.0
    state = queue.status.state or debugged.get("state") or queue.spec.state or "Open"
    return QueueSummary(queue.metadata.name, state, queue.spec.weight, deserved, allocated, round(share, 4))


# ---- nodes and amounts


def node_summary(node: Node, pods: Iterable[Pod]) -> NodeSummary:
    name = node.metadata.name
    here = [pod for pod in pods if pod.spec.node_name == name and pod.status.phase not in ENDED_PHASES]
    used = total(pod_requests(pod.spec) for pod in here)
    room = offered(node.status.allocatable)
    return NodeSummary(
        name, node.status.allocatable or {}, _written({each: used.get(each, 0) for each in room})
    )


def _written(amounts: Mapping[str, Any] | None) -> Written:
    """Amounts as Kubernetes writes them; those without bound are left out."""
    finite = ((name, amount) for name, amount in (amounts or {}).items() if isinstance(amount, int | float))
    return {name: _quantity(name, round(amount)) for name, amount in finite if abs(amount) < 2**63}


def _quantity(name: str, amount: int) -> str:
    if name == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    for suffix, unit in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if amount and amount % unit == 0:
            return f"{amount // unit}{suffix}"
    return str(amount)


def amounts(written: Mapping[str, Quantity]) -> Resources:
    """The numbers behind written amounts."""
    return offered(written)
