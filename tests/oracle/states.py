"""States of small clusters as plain records, and their conversion to objects of the API."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from extender.api import keys
from extender.api.keys import DEFAULT_QUEUE
from extender.api.objects.cluster import Taint
from extender.api.objects.pods import LabelSelector, Toleration
from extender.api.objects.queues import QueueLimits
from extender.domain.model.resources import CPU, MEMORY, PODS
from extender.domain.queues.share_tree import QueueDemand
from extender.domain.snapshot.group_info import Start
from extender.domain.snapshot.snapshot import Limits
from tests.domain import builders
from tests.domain.world import World, key, timestamp
from tests.oracle.placement import Amounts, Node, Pod, total

GPU, KIND = "x.io/gpu", "kind"
NOW = 1000.0  # the clock of a new world
GONE = "gone"  # the name of a queue that does not exist
TAINT = Taint("oracle", "NoSchedule")


class Queue(NamedTuple):
    name: str
    weight: int = 1
    parent: str = ""
    priority: int = 0
    strategy: str = ""
    capability: tuple[tuple[str, int], ...] = ()
    guarantee: tuple[tuple[str, int], ...] = ()
    deserved: tuple[tuple[str, int], ...] = ()
    borrowing: tuple[tuple[str, int], ...] = ()
    lending: tuple[tuple[str, int], ...] = ()
    is_closed: bool = False
    is_stopped: bool = False
    is_restricted: bool = False  # its users are restricted, and no group's user is allowed
    is_for_others: bool = False  # it selects other namespaces
    groups: int | None = None  # maximum number of running groups
    reclaims: bool = False  # it reclaims at once

    @property
    def accepts_no_group(self) -> bool:
        return self.is_closed or self.is_restricted or self.is_for_others


class Group(NamedTuple):
    name: str
    queue: str
    needed: int
    pods: tuple[Pod, ...]
    nodes: tuple[str, ...] = ()  # nodes of its first pods; empty: all wait
    age: float = 0.0  # seconds since it was created
    priority: int = 0
    is_held: bool = False
    exists: bool = True
    timeouts: int = 0  # consecutive start timeouts
    retry_in: float = 0.0  # remaining seconds of its backoff; 0: none

    @property
    def order(self) -> tuple[int, float, str]:
        return -self.priority, -self.age, self.name

    @property
    def requests(self) -> Amounts:
        """Return the requests of the needed members, which are the first ones."""
        return total(self.pods[: self.needed])

    @property
    def holds(self) -> Amounts:
        return total(self.pods[: len(self.nodes)])


class State(NamedTuple):
    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    groups: tuple[Group, ...]
    others: tuple[tuple[Pod, str], ...] = ()  # pods that Muster does not manage, by node
    window: int = 1000

    def group(self, name: str) -> Group:
        return next(group for group in self.groups if group.name == name)

    def queue(self, name: str) -> Queue | None:
        return next((queue for queue in self.queues if queue.name == name), None)

    @property
    def placed_pods(self) -> list[tuple[Pod, str]]:
        """Return all pods on nodes."""
        running = [
            placement for group in self.groups for placement in zip(group.pods, group.nodes, strict=False)
        ]
        return [*running, *self.others]

    @property
    def offers(self) -> Mapping[str, int]:
        return total(Pod(node.offers) for node in self.nodes)

    def with_queue(self, queue: Queue) -> "State":
        return self._replace(queues=tuple(queue if old.name == queue.name else old for old in self.queues))

    def with_group(self, group: Group) -> "State":
        return self._replace(groups=tuple(group if old.name == group.name else old for old in self.groups))

    def without(self, names: Iterable[str]) -> "State":
        """Return the state after these groups and foreign pods have ended."""
        ended = set(names)
        others = (placement for n, placement in enumerate(self.others) if f"other-{n}" not in ended)
        return self._replace(
            groups=tuple(group for group in self.groups if group.name not in ended),
            others=tuple(placement for placement in others),
        )

    def demands(self) -> list[QueueDemand]:
        """Return the demands of queues: settings, usage and requests.

        Only resources that nodes have count. Pending requests of groups that may not start do not count.
        """
        return [self._demand(queue) for queue in (*self.queues, Queue(DEFAULT_QUEUE))]

    def _demand(self, queue: Queue) -> QueueDemand:
        groups = [group for group in self.groups if group.queue == queue.name and group.exists]
        demanding_pods = list[Pod]()
        for group in groups:
            is_refused = queue.accepts_no_group or queue.is_stopped or group.is_held
            demanding_pods += group.pods[: len(group.nodes)] if is_refused else group.pods
        sums = total(demanding_pods)
        return QueueDemand(
            queue.name,
            queue.weight,
            {name: n for name, n in sums.items() if name in self.offers},
            dict(queue.capability) or None,
            dict(queue.guarantee),
            bool(groups),
            queue.parent,
            dict(queue.deserved) or None,
            dict(queue.borrowing) or None,
            dict(queue.lending) or None,
        )

    def world(self) -> World:
        world = World(limits=Limits(window=self.window))
        world.ledger.intake.review_users()
        world.ledger.intake.trust_uses(True)
        for node in self.nodes:
            world.add(_node(node))
        for queue in self.queues:
            world.add(_queue(queue))
        for group in self.groups:
            world.add(_group(group))
        for group in self.groups:
            if group.retry_in and group.exists:
                start = Start(failures=1, retry_at=NOW + group.retry_in, failure="it took too long")
                world.ledger.registry.groups[key(group.name)].start = start
        for n, (pod, on) in enumerate(self.others):
            world.add(builders.foreign_pod(f"other-{n}", on=on, **_pod_options(pod)))
        return world


# ---- conversion to objects of the API


def _quantities(amounts: Iterable[tuple[str, int]]) -> dict[str, str]:
    return {name: f"{n}m" if name == CPU else str(n) for name, n in amounts}


def _node(node: Node) -> Any:
    offers = _quantities(node.offers)
    return builders.node(
        node.name,
        offers.pop(CPU),
        offers.pop(MEMORY),
        offers.pop(PODS),
        labels={KIND: node.kind} if node.kind else {},
        taints=[TAINT] if node.is_tainted else [],
        more=offers,
    )


def _pod_options(pod: Pod) -> dict[str, Any]:
    requests = _quantities(pod.requests)
    requests.pop(PODS)
    return {
        "cpu": requests.pop(CPU, "0"),
        "more": requests,
        "selector": {KIND: pod.kind} if pod.kind else None,
        "tolerations": [Toleration(operator="Exists")] if pod.tolerates else [],
    }


def _queue(queue: Queue) -> Any:
    fields: dict[str, Any] = {
        "deserved": _quantities(queue.deserved) or None,
        "borrowing_limit": _quantities(queue.borrowing) or None,
        "lending_limit": _quantities(queue.lending) or None,
        "stop_policy": keys.STOP_HOLD if queue.is_stopped else "",
        "restricted": queue.is_restricted,
        "namespace_selector": LabelSelector({"for": "others"}) if queue.is_for_others else None,
        "limits": None if queue.groups is None else QueueLimits(groups=queue.groups),
    }
    return builders.queue(
        queue.name,
        queue.weight,
        _quantities(queue.capability),
        _quantities(queue.guarantee),
        queue.strategy,
        queue.priority,
        spec_state="Closed" if queue.is_closed else "",
        parent=queue.parent,
        preemption=builders.AT_ONCE if queue.reclaims else None,
        **fields,
    )


def _group(group: Group) -> list[Any]:
    created = timestamp(NOW - group.age)
    annotations = {keys.HOLD: "true"} if group.is_held else {}
    annotations |= {keys.START_TIMEOUTS: str(group.timeouts)} if group.timeouts else {}
    is_whole = bool(group.nodes)
    podgroup = builders.group(
        group.name, group.needed, group.queue, created=created, stood_whole=is_whole, annotations=annotations
    )
    pods = [
        builders.pod(
            f"{group.name}-{n}",
            group.name,
            on=group.nodes[n] if n < len(group.nodes) else "",
            created=created,
            priority=group.priority,
            queue="" if group.exists else group.queue,
            **_pod_options(pod),
        )
        for n, pod in enumerate(group.pods)
    ]
    return [podgroup, *pods] if group.exists else pods
