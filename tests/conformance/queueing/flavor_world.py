"""Cases of Kueue with flavors, as a world: nodes for pools of quota, queues with flavors, gangs with roles.

What a queue of Kueue may use of a flavor are the nodes that are labelled for both. A part of a workload is a
role; its pods are real, and so are those of what was admitted before.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from extender.api.objects.base import Meta, Quantities
from extender.api.objects.cluster import Namespace, Node, PriorityClass, Taint
from extender.api.objects.pods import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    Requirement,
    Toleration,
)
from extender.api.objects.queues import Queue, QueueFlavor
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey, Uid
from extender.domain.model.resources import counts
from extender.domain.snapshot.decisions import GroupDecision
from tests.conformance.queueing.quota_trees import Pool, QuotaTree, limits
from tests.conformance.queueing.waiting import moment, selector
from tests.conformance.volcano.objects import priority_class
from tests.domain import builders
from tests.domain.world import World

Given = Mapping[str, Any]
_FLAVOR = "flavor"
_PLACES = 10_000  # pods, on nodes whose quota names none


class FlavorWorld:
    """`given` has the fields of the families of Kueue; `pending`: those that take part."""

    def __init__(self, given: Given, pending: Sequence[Given]) -> None:
        self._given = given
        self._flavors = {flavor["name"]: flavor for flavor in given["flavors"]}
        self._pending = pending
        spaces = {each["id"]: each.get("namespace", builders.NAMESPACE) for each in pending}
        self._keys = {name: GroupKey(f"{space}/{name}") for name, space in spaces.items()}
        self._pools = QuotaTree(given["queues"], given["cohorts"]).pools()
        self._nodes = {node.metadata.name: node for pool in self._pools for node in self._nodes_of(pool)}
        labelled = given.get("namespaces", {}).items()
        self.world = World(*(Namespace(Meta(name=name, labels=labels)) for name, labels in labelled))
        self.world.add(*self._nodes.values(), *map(self._queue, given["queues"]))
        for number, use in enumerate(_uses(given)):
            self.world.add(*self._standing(f"use-{number}", **use))
        for each in pending:
            self.world.add(*(_in_namespace(thing, each) for thing in self._group(each)))
        self.world.settle()

    # ---- what is decided

    def decision(self, workload: str) -> GroupDecision:
        return self.world.decisions.groups[self._keys[workload]]

    def starts(self, workload: str) -> bool:
        return workload in self._keys and self.decision(workload).verdict is Verdict.STARTING

    def starting(self) -> list[str]:
        return sorted(each["id"] for each in self._pending if self.starts(each["id"]))

    def members(self, workload: str) -> dict[str, int]:
        """How many members of each part run once it has started, and grown as far as it can."""
        if not self.starts(workload):
            return {}
        members = self.world.ledger.groups.members
        plan = self.decision(workload).plan
        for pod in members(self._keys[workload]):
            if pod.uid in plan:
                self.world.bind(pod.name, plan[pod.uid])
                self.world.run(pod.name)
        self.world.settle()
        running = [pod.role for pod in members(self._keys[workload]) if pod.node]
        plan = self.decision(workload).plan
        return dict(Counter([*running, *(self._role(uid) for uid in plan)]))

    def flavors(self, workload: str) -> dict[str, set[str]]:
        """By part, the flavors of the nodes that are planned for it."""
        used: dict[str, set[str]] = {}
        if not self.starts(workload):
            return used
        for uid, node in self.decision(workload).plan.items():
            used.setdefault(self._role(uid), set()).add((self._nodes[node].metadata.labels or {})[_FLAVOR])
        return used

    def _role(self, uid: Uid) -> str:
        pod = self.world.ledger.pods.get(uid)
        assert pod is not None
        return pod.role

    # ---- nodes

    def _nodes_of(self, pool: Pool) -> Iterator[Node]:
        for name in dict.fromkeys(flavor for flavor, _ in pool.quota if flavor in self._flavors):
            flavor = self._flavors[name]
            room = {resource: n for (of, resource), n in pool.quota.items() if of == name}
            labels = {**self._asked_labels(flavor), **flavor.get("node_labels", {}), _FLAVOR: name}
            yield builders.node(
                f"{name}-{pool.owner}",
                cpu=f"{room.pop('cpu', 0)}m",
                memory=str(room.pop("memory", 0)),
                pods=str(room.pop("pods") + self._standing_on(name) if "pods" in room else _PLACES),
                labels={**labels, **{_use(queue): "yes" for queue in pool.queues}},
                taints=[Taint(**taint) for taint in flavor.get("taints", ())],
                more={resource_name(resource): str(n) for resource, n in room.items()},
            )

    def _asked_labels(self, flavor: Given) -> dict[str, str]:
        """Kueue compares only labels that flavors define; whatever else pods ask for, its nodes have."""
        compared = self._given.get("compared_labels", set(flavor.get("node_labels", ())))
        asked: dict[str, str] = {}
        for part in (part for each in self._pending for part in each["podsets"]):
            wishes = list(part.get("node_selector", {}).items())
            terms = [wish for term in part.get("required_affinity", ()) for wish in term]
            wishes += [(wish["key"], wish["values"][0]) for wish in terms if wish["op"] == "In"]
            asked |= {key: value for key, value in wishes if key not in compared}
        return asked

    def _standing_on(self, flavor: str) -> int:
        return sum(use["flavor"] == flavor for use in _uses(self._given))

    # ---- queues

    def _queue(self, given: Given) -> Queue:
        flavors: dict[str, QueueFlavor] = {}
        for (name, _), _ in limits(given):
            flavors[name] = self._flavor(given, name)
        strategy = {"StrictFIFO": "fifo"}.get(given.get("strategy", ""), "")
        made = list(flavors.values())
        return builders.queue(
            given["name"],
            strategy=strategy,
            created=moment(-2_000_000),
            flavors=made,
            namespace_selector=selector(given.get("namespace_selector")),
        )

    def _flavor(self, queue: Given, name: str) -> QueueFlavor:
        """The nominal quota is what it deserves, where a flavor without borrowing is looked for first."""
        shown = {resource: limit for (of, resource), limit in limits(queue) if of == name}
        fungible = queue.get("flavor_fungibility", {})
        prefers_own = fungible.get("when_can_borrow") == "TryNextFlavor"
        own = {resource: limit["nominal"] for resource, limit in shown.items()}
        most = {
            resource: limit["nominal"] + limit["borrowing_limit"]
            for resource, limit in shown.items()
            if "borrowing_limit" in limit
        }
        labels = {_FLAVOR: name, _use(queue["name"]): "yes"}
        deserved = self._places(quantities(own), name) if prefers_own else None
        return QueueFlavor(name, labels, self._places(quantities(most), name), deserved)

    def _places(self, amounts: dict[str, str], flavor: str) -> Quantities:
        """What stands there already takes places that the case does not count."""
        if "pods" in amounts:
            return {**amounts, "pods": int(amounts["pods"]) + self._standing_on(flavor)}
        return {**amounts}

    # ---- groups

    def _standing(self, name: str, queue: str, flavor: str, amounts: Mapping[str, int]) -> Iterator[Any]:
        """A group of a pod for each node that it takes room of: that of the queue's own quota first."""
        nodes = [(pool, f"{flavor}-{pool.owner}") for pool in self._pools if queue in pool.queues]
        nodes = [(pool, node) for pool, node in nodes if node in self._nodes]
        yield builders.group(name, len(nodes), queue, stood_whole=True)
        left = dict(amounts)
        for pool, node in nodes:
            own = {resource: pool.quota.get((flavor, resource), 0) for resource in left}
            taken = left if node == nodes[-1][1] else {each: min(n, own[each]) for each, n in left.items()}
            left = {resource: n - taken[resource] for resource, n in left.items()}
            asked = {"cpu": "0", **quantities(taken)}
            yield builders.pod(f"{name}-{node}", name, cpu=asked.pop("cpu"), more=asked, on=node)

    def _group(self, given: Given) -> Iterator[Any]:
        level = f"p{given['priority']}"
        yield priority_class({"name": level, "value": given["priority"]})
        may_shrink = self._given.get("config", {}).get("partial_admission", True)
        roles = {
            part["name"]: part.get("min_count", part["count"]) if may_shrink else part["count"]
            for part in given["podsets"]
        }
        created = moment(given["created"])
        yield builders.group(given["id"], sum(roles.values()), given["queue"], roles, level, created)
        for part in given["podsets"]:
            for number in range(part["count"]):
                yield _pod(given["id"], part, number)


def _uses(given: Given) -> list[dict[str, Any]]:
    """What is held before, by queue and flavor."""
    before = [
        {**use, "queue": each["queue"], "resource": resource}
        for each in given["admitted"]
        for part in each["usage"]
        for resource, use in part["usage"].items()
    ]
    return [
        {"queue": use["queue"], "flavor": use["flavor"], "amounts": {use["resource"]: use["amount"]}}
        for use in (*given["usage"], *before)
    ]


def _in_namespace(thing: Any, workload: Given) -> Any:
    if isinstance(thing, PriorityClass) or "namespace" not in workload:
        return thing
    return replace(thing, metadata=replace(thing.metadata, namespace=workload["namespace"]))


def _pod(group: str, part: Given, number: int) -> Pod:
    asked = quantities(part["request"])
    terms = [_term(term) for term in part.get("required_affinity", ())]
    affinity = Affinity(NodeAffinity(NodeSelector(terms))) if terms else None
    return builders.pod(
        f"{group}-{part['name']}-{number}",
        group,
        cpu=asked.pop("cpu", "0"),
        more=asked,
        role=part["name"],
        selector=part.get("node_selector"),
        tolerations=[Toleration(**each) for each in part.get("tolerations", ())],
        affinity=affinity,
    )


def _term(wishes: Iterable[Given]) -> NodeSelectorTerm:
    return NodeSelectorTerm([Requirement(wish["key"], wish["op"], wish.get("values")) for wish in wishes])


def _use(queue: str) -> str:
    return f"use-{queue}"


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """As pods and queues write them."""
    return {resource_name(name): f"{n}m" if name == "cpu" else str(n) for name, n in amounts.items()}


def resource_name(name: str) -> str:
    """Cases have resources whose names the API does not allow."""
    return name if counts(name) else f"example.com/{name}"
