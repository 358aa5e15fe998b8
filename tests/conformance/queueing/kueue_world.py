"""Cases of Kueue as a world: nodes of each flavor, queues in a tree with flavors, gangs with roles.

A queue deserves its nominal quota of a flavor. A cohort is its parent queue, and deserves its own quota and
that of all queues below it. The nodes of a flavor have the quota of all queues and cohorts. A part of a
workload is a role, with pods, also for admitted workloads. A workload that a policy of Kueue protects from a
newcomer has an annotation against eviction.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Meta
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
from extender.api.objects.queues import BorrowWithinCohort, Queue, QueueFlavor, ResourceFlavor
from extender.domain.model.evictions import EvictionCause
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import PODS, Resources, is_counted, resource_of
from extender.domain.queues.share_tree import EPSILON
from extender.domain.scheduling.budget import Budget
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.wholeness import missing
from tests.conformance.queueing.waiting import instant, selector
from tests.conformance.volcano.objects import priority_class
from tests.domain import builders
from tests.domain.world import World, key

CaseData = Mapping[str, Any]
Pair = tuple[str, str]  # a flavor and a resource
_FLAVOR = "flavor"
_LONG_AGO = -2_000_000
_NONE = QueueFlavor("none", {_FLAVOR: "none"})  # of a queue that has no quota


class KueueWorld:
    """`data` has the fields of the families of Kueue; `pending`: those that take part."""

    def __init__(self, data: CaseData, pending: Sequence[CaseData]) -> None:
        self._data, self._pending = data, pending
        self._policies = {queue["name"]: queue.get("preemption", {}) for queue in data["queues"]}
        self._counts_pods = any(name == PODS for owner in _owners(data) for (_, name), _ in limits(owner))
        namespaces = {workload["id"]: workload.get("namespace", builders.NAMESPACE) for workload in pending}
        self._keys = {name: GroupKey(f"{namespace}/{name}") for name, namespace in namespaces.items()}
        labelled = data.get("namespaces", {}).items()
        self.world = World(*(Namespace(Meta(name=name, labels=labels)) for name, labels in labelled))
        self.world.add(*self._nodes(), *self._queues())
        for workload in data["admitted"]:
            self._admit(workload)
        for number, use in enumerate(data.get("usage", ())):
            used = {use["resource"]: {"flavor": use["flavor"], "amount": use["amount"]}}
            parts = [{"name": "p", "usage": used}]
            fields = {"priority": 0, "created": _LONG_AGO, "reserved_at": _LONG_AGO, "queue": use["queue"]}
            self._admit({"id": f"use-{number}", "usage": parts, **fields})
        for workload in pending:
            self.world.add(*(_in_namespace(obj, workload) for obj in self._workload_objects(workload)))
        self.world.settle()

    # ---- what is decided

    def decision(self, workload: str) -> GroupDecision:
        return self.world.decisions.groups[self._key(workload)]

    def starts(self, workload: str) -> bool:
        return workload in self._keys and self.decision(workload).verdict is Verdict.STARTING

    def starting(self) -> list[str]:
        return sorted(workload["id"] for workload in self._pending if self.starts(workload["id"]))

    def evicted(self) -> dict[str, EvictionCause]:
        """Return the causes of evictions by workload."""
        victims = (eviction.victim for eviction in self.world.decisions.evictions.values())
        return {victim.group.partition("/")[2]: victim.cause for victim in victims}

    def members(self, workload: str) -> dict[str, int]:
        """Return how many members of each part run after the start and the largest possible growth."""
        if not self.starts(workload):
            return {}
        plan = self.decision(workload).plan
        for pod in self._pods(workload):
            if pod.uid in plan:
                self.world.bind(pod.name, plan[pod.uid])
                self.world.run(pod.name)
        self.world.settle()
        running = [pod.role for pod in self._pods(workload) if pod.node]
        plan = self.decision(workload).plan
        return dict(Counter([*running, *(self._role(uid) for uid in plan)]))

    def flavors(self, workload: str) -> dict[str, set[str]]:
        """Return, by part, the flavors of the nodes that are planned for it."""
        used: dict[str, set[str]] = {}
        if self.starts(workload):
            for uid, node in self.decision(workload).plan.items():
                used.setdefault(self._role(uid), set()).add(node)
        return used

    def _role(self, uid: Uid) -> str:
        pod = self.world.ledger.pods.get(uid)
        assert pod is not None
        return pod.role

    # ---- what queues deserve, before anything was evicted

    def is_above_share(self, newcomer: str, without: Iterable[str] = ()) -> bool:
        """Return whether a newcomer brings its queue above its deserved share of each flavor.

        `without`: workloads of the queue that are gone by then.
        """
        budget, queue = self._budget, self._queue_of(newcomer)
        for workload in without:
            budget.shares.add(queue, self._held_amounts(budget, workload), -1)
        return all(
            budget.shares.is_above_share(queue, amounts)
            for amounts in self._requested_amounts(budget, newcomer)
        )

    def lose_deserved_capacity(self, victims: Iterable[str], newcomer: str) -> bool:
        """Return whether a queue of these victims would lose capacity that it deserves.

        The same is checked for its ancestors that the newcomer does not use. Whichever victim goes last, such
        a queue then holds no more than it deserves of any flavor.
        """
        budget, own_queue = self._budget, self._queue_of(newcomer)
        shares = budget.shares
        amounts_by_victim = {
            victim: self._held_amounts(budget, victim) for victim in victims if self._queue_of(victim)
        }
        for victim, amounts in amounts_by_victim.items():
            shares.add(self._queue_of(victim), amounts, -1)
        may_be_last: defaultdict[tuple[str, int], bool] = defaultdict(bool)
        for victim, amounts in amounts_by_victim.items():
            counted = [name for name in amounts if resource_of(name) != name]
            for level, (held, deserved, _) in enumerate(shares.levels(self._queue_of(victim), own_queue)):
                before = {name: held.get(name, 0) + amounts[name] for name in counted}
                above = any(n > deserved.get(name, 0.0) + EPSILON for name, n in before.items())
                may_be_last[self._queue_of(victim), level] |= above
        return not all(may_be_last.values())

    def is_within_quota(self, workload: str, flavor: str) -> bool:
        """Return whether the queue borrows nothing of a flavor for this workload."""
        budget, group = self._budget, self.world.ledger.snapshot().groups[self._key(workload)]
        queue_flavor = next(
            candidate for candidate in budget.flavors.flavors_of(group.queue) if candidate.name == flavor
        )
        requested = budget.flavors.counted_part(queue_flavor, missing(group).requests)
        return budget.shares.steps_to_lender(group.queue, requested) == 0

    def deserve_more_than_nominal(self, victims: Iterable[str]) -> bool:
        """Return whether the queue of a victim deserves more than its quota, which others do not request."""
        budget = self._budget
        deserved_amounts = budget.shares.state.division.nominal
        names = budget.shares.state.division.names
        for queue in {self._queue_of(victim) for victim in victims} - {""}:
            node = budget.shares.tree.node_by_queue[queue]
            deserved = budget.shares.state.deserved_at(node)
            nominal = dict(zip(names, deserved_amounts[node].tolist(), strict=True))
            if any(n > nominal[name] + EPSILON for name, n in deserved.items() if resource_of(name) != name):
                return True
        return False

    @property
    def _budget(self) -> Budget:
        return Budget(self.world.ledger.snapshot())

    def _queue_of(self, workload: str) -> str:
        """Return the queue of a workload; empty if nothing of that name runs or waits."""
        group = self.world.ledger.snapshot().groups.get(self._key(workload))
        return group.queue if group is not None else ""

    def _key(self, workload: str) -> GroupKey:
        return self._keys.get(workload, key(workload))

    def _pods(self, workload: str) -> list[PodRecord]:
        return list(self.world.ledger.groups.members(self._key(workload)))

    def _held_amounts(self, budget: Budget, workload: str) -> Resources:
        return budget.flavors.requests([(pod, pod.node) for pod in self._pods(workload)])

    def _requested_amounts(self, budget: Budget, workload: str) -> list[Resources]:
        """Return the requests of a workload by flavor of its queue."""
        group = self.world.ledger.snapshot().groups[self._key(workload)]
        return [assignment.requests for assignment in budget.flavors.assignments(group, missing(group))]

    # ---- nodes and queues

    def _nodes(self) -> Iterator[ResourceFlavor | Node]:
        """Yield the nodes of each flavor, and the flavor unless it is missing. Only flavors have taints."""
        flavors = {flavor["name"]: flavor for flavor in self._data.get("flavors", ())}
        capacity: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for owner in _owners(self._data):
            for (flavor, resource), limit in limits(owner):
                capacity[flavor][resource] += limit["nominal"]
        missing = {*self._data.get("missing_flavors", ())} | ({*capacity} - {*flavors} if flavors else set())
        for name in capacity:
            flavor, amounts = flavors.get(name, {}), _as_texts(capacity[name])
            if name not in missing:
                taints = (Taint(**taint) for taint in flavor.get("taints", ()))
                yield builders.shared(name, *taints, **{_FLAVOR: name})
            yield builders.node(
                name,
                cpu=amounts.pop("cpu", "0"),
                memory=amounts.pop("memory", "0"),
                pods="100000",
                labels={**self._requested_labels(flavor), **flavor.get("node_labels", {}), _FLAVOR: name},
                more=amounts,
            )

    def _requested_labels(self, flavor: CaseData) -> dict[str, str]:
        """Return the labels that pods request and the flavor does not define: its nodes have them.

        Kueue compares only labels that flavors define.
        """
        compared = self._data.get("compared_labels", set(flavor.get("node_labels", ())))
        labels: dict[str, str] = {}
        for part in itertools.chain.from_iterable(workload["podsets"] for workload in self._pending):
            requested = list(part.get("node_selector", {}).items())
            requirements = itertools.chain.from_iterable(part.get("required_affinity", ()))
            requested += [
                (requirement["key"], requirement["values"][0])
                for requirement in requirements
                if requirement["op"] == "In"
            ]
            labels |= {key: value for key, value in requested if key not in compared}
        return labels

    def _queues(self) -> Iterator[Queue]:
        data, sums = self._data, _sums_of_cohorts(self._data)
        cohorts = {cohort["name"]: cohort for cohort in data["cohorts"]}
        parents = (*(queue.get("cohort") for queue in data["queues"]), *map(_parent, cohorts.values()))
        for name in sorted({*cohorts, *filter(None, parents)}):
            cohort = cohorts.get(name, {})
            yield self._queue(_cohort(name), cohort.get("parent"), cohort, sums[_cohort(name)])
        for queue in data["queues"]:
            nominal = {pair: limit["nominal"] for pair, limit in limits(queue)}
            yield self._queue(queue["name"], queue.get("cohort"), queue, nominal)

    def _queue(self, name: str, parent: str | None, data: CaseData, nominal: Mapping[Pair, int]) -> Queue:
        policies = self._policies.get(name, {})
        is_fair = self._data.get("config", {}).get("fair_sharing")  # then Kueue ignores this policy
        within_queue = policies.get("within_queue", "Never")
        borrow_policy = ({} if is_fair else policies.get("borrow_in_cohort")) or {}
        queue_limits = dict(limits(data))
        flavors = [
            QueueFlavor(
                flavor,
                resource_flavor=flavor,
                capability=None if parent else _amounts_of_flavor(flavor, nominal),
                deserved=_amounts_of_flavor(flavor, nominal),
                borrowing_limit=_amounts_of_flavor(flavor, _limit(queue_limits, "borrowing_limit"))
                if parent
                else None,
                lending_limit=_amounts_of_flavor(flavor, _limit(queue_limits, "lending_limit"))
                if parent
                else None,
            )
            for flavor in dict.fromkeys((*_flavors(data), *(flavor for flavor, _ in nominal)))
        ]
        return builders.queue(
            name,
            weight=max(1, round(100 * data.get("fair_weight", 1))),
            strategy={"StrictFIFO": "fifo"}.get(data.get("strategy", ""), ""),
            parent=_cohort(parent) if parent else "",
            created=instant(_LONG_AGO),
            flavors=flavors or ([] if parent else [_NONE]),
            reclaimable=self._is_reclaimable(name),
            namespace_selector=selector(data.get("namespace_selector")),
            preemption=builders.preemption(
                within_queue="Never" if within_queue == "Never" else "LowerPriority",
                borrow_within_cohort=BorrowWithinCohort(
                    borrow_policy.get("policy", ""), borrow_policy.get("max_priority")
                ),
            ),
        )

    # ---- groups

    def _admit(self, data: CaseData) -> None:
        """Add a running group with a pod for each part and flavor."""
        name, class_name = data["id"], f"p{data['priority']}"
        annotations = {keys.PREEMPTABLE: "false"} if self._is_protected(data) else None
        used: dict[tuple[str, str], dict[str, int]] = {}
        for part in data["usage"]:
            for resource, use in part["usage"].items():
                used.setdefault((part["name"], use["flavor"]), {})[resource] = use["amount"]
        self.world.add(
            priority_class({"name": class_name, "value": data["priority"]}),
            builders.group(
                name,
                len(used),
                data["queue"],
                priority_class=class_name,
                created=instant(data["created"]),
                stood_whole=True,
                annotations=annotations,
            ),
        )
        for (part, flavor), amounts in used.items():
            pod = f"{name}-{part}-{flavor}"
            uid = f"uid-{data.get('uid', name)}-{pod}"
            running = _pod(pod, name, amounts, on=flavor, uid=uid)
            status = replace(running.status, start_time=instant(data["reserved_at"]))
            self.world.add(replace(running, status=status))
            if data.get("evicted"):
                self.world.mark_deleted(running.metadata.name)

    def _is_protected(self, data: CaseData) -> bool:
        """Return whether no policy of a queue with a newcomer allows its eviction."""
        queues = {workload["queue"] for workload in self._pending}
        return data["queue"] not in queues and not self._may_be_reclaimed(data)

    def _is_reclaimable(self, queue: str) -> bool:
        """Return whether others may reclaim from a queue.

        One group that they may not evict protects no other.
        """
        admitted = [workload for workload in self._data["admitted"] if workload["queue"] == queue]
        return not admitted or any(map(self._may_be_reclaimed, admitted))

    def _may_be_reclaimed(self, victim: CaseData) -> bool:
        others = [workload for workload in self._pending if workload["queue"] != victim["queue"]]
        return any(self._may_reclaim(other, victim) for other in others)

    def _may_reclaim(self, newcomer: CaseData, victim: CaseData) -> bool:
        policy = self._policies.get(newcomer["queue"], {}).get("reclaim_in_cohort", "Never")
        return bool(
            policy == "Any" or (policy == "LowerPriority" and victim["priority"] < newcomer["priority"])
        )

    def _workload_objects(self, data: CaseData) -> Iterator[Any]:
        class_name = f"p{data['priority']}"
        yield priority_class({"name": class_name, "value": data["priority"]})
        may_shrink = self._data.get("config", {}).get("partial_admission", True)
        roles = {
            part["name"]: part.get("min_count", part["count"]) if may_shrink else part["count"]
            for part in data["podsets"]
        }
        queue = data.get("queue", "nowhere")
        yield builders.group(
            data["id"], sum(roles.values()), queue, roles, class_name, instant(data["created"])
        )
        for part in data["podsets"]:
            assigned_flavors = {
                use["flavor"] for use in data.get("assignment", {}).get(part["name"], {}).values()
            }
            node_selector = part.get("node_selector", {}) | (
                {_FLAVOR: next(iter(assigned_flavors))} if assigned_flavors else {}
            )
            terms = [_term(term) for term in part.get("required_affinity", ())]
            for number in range(part["count"]):
                name = f"{data['id']}-{part['name']}-{number}"
                yield _pod(
                    name,
                    data["id"],
                    {**part["request"], **({PODS: 1} if self._counts_pods else {})},
                    role=part["name"],
                    uid=f"uid-{name}",
                    selector=node_selector,
                    tolerations=[Toleration(**toleration) for toleration in part.get("tolerations", ())],
                    affinity=Affinity(NodeAffinity(NodeSelector(terms))) if terms else None,
                )


def _in_namespace(obj: Any, workload: CaseData) -> Any:
    if isinstance(obj, PriorityClass) or "namespace" not in workload:
        return obj
    return replace(obj, metadata=replace(obj.metadata, namespace=workload["namespace"]))


def _owners(data: CaseData) -> tuple[CaseData, ...]:
    """Return the queues and cohorts, which have quota."""
    return (*data["queues"], *data["cohorts"])


def _sums_of_cohorts(data: CaseData) -> dict[str, dict[Pair, int]]:
    """Return the amounts of each cohort: its own, and those of all below it."""
    parents = {_cohort(owner["name"]): _parent(owner) for owner in data["cohorts"]}
    cohorts = [(_cohort(owner["name"]), owner) for owner in data["cohorts"]]
    sums: defaultdict[str, dict[Pair, int]] = defaultdict(dict)
    cohorts += [(_cohort(owner.get("cohort") or ""), owner) for owner in data["queues"]]
    for first_cohort, owner in cohorts:
        visited: set[str] = set()
        cohort: str | None = first_cohort
        while cohort is not None and cohort not in visited:
            visited.add(cohort)
            for pair, limit in limits(owner):
                sums[cohort][pair] = sums[cohort].get(pair, 0) + limit["nominal"]
            parent = parents.get(cohort)
            cohort = _cohort(parent) if parent else None
    return sums


def _parent(cohort: CaseData) -> str | None:
    return cohort.get("parent")


def limits(data: CaseData) -> Iterable[tuple[Pair, CaseData]]:
    """Yield the limits of a queue or cohort for each flavor and resource."""
    for group in data.get("resource_groups", ()):
        for flavor in group:
            for resource, limit in flavor["resources"].items():
                yield (flavor["flavor"], resource), limit


def _flavors(data: CaseData) -> Iterable[str]:
    return (flavor["flavor"] for group in data.get("resource_groups", ()) for flavor in group)


def _limit(limits_: Mapping[Pair, CaseData], name: str) -> dict[Pair, int]:
    return {pair: limit[name] for pair, limit in limits_.items() if name in limit}


def _amounts_of_flavor(flavor: str, amounts: Mapping[Pair, int]) -> dict[str, Any] | None:
    return _as_texts({resource: n for (name, resource), n in amounts.items() if name == flavor}) or None


def _pod(name: str, group: str, requests: Mapping[str, int], **fields: Any) -> Pod:
    amounts = _as_texts(requests)
    return builders.pod(name, group, cpu=amounts.pop("cpu", "0"), more=amounts, **fields)


def _term(requirements: Iterable[CaseData]) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        [
            Requirement(requirement["key"], requirement["op"], requirement.get("values"))
            for requirement in requirements
        ]
    )


def _cohort(name: str) -> str:
    return f"cohort-{name}"


def _as_texts(amounts: Mapping[str, int]) -> dict[str, str]:
    """Return the amounts as pods and queues write them."""
    return {resource_name(name): f"{n}m" if name == "cpu" else str(n) for name, n in amounts.items()}


def resource_name(name: str) -> str:
    """Return an allowed name for a resource: cases have names that the API does not allow.

    Their number of pods is such a resource, too.
    """
    return name if is_counted(name) and name != PODS else f"example.com/{name}"
