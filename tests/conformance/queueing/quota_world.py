"""Cases of Kueue with quotas, as a world that is full: queues in a tree, what runs, and who needs its room.

Quotas are by flavor and resource, and each such pair is a resource of its own here: the flavor is chosen
already. A queue deserves its nominal quota, and a cohort is a queue above it, with what it brings along. All
the room is on one node. Whom a policy of Kueue protects from a newcomer says that nobody may evict it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.pods import Pod
from extender.api.objects.queues import BorrowWithinCohort, Queue
from extender.domain.model.evictions import EvictionCause
from extender.domain.model.reasons import Verdict
from extender.domain.model.resources import PODS, Resources, offered
from extender.domain.model.shapes import requests_of
from extender.domain.queues.guarantees_and_ceilings import EPSILON
from extender.domain.scheduling.shares import QueueShares
from extender.domain.snapshot.decisions import GroupDecision
from tests.conformance.queueing.quota_trees import limits
from tests.conformance.queueing.waiting import moment
from tests.conformance.volcano.objects import priority_class
from tests.domain import builders
from tests.domain.world import World, key

Given = Mapping[str, Any]
Pair = tuple[str, str]  # a flavor and a resource
_LONG_AGO = -2_000_000


class QuotaWorld:
    """`given` has the fields of the families of Kueue; `pending`: those that take part."""

    def __init__(self, given: Given, pending: Sequence[Given]) -> None:
        self._given, self._pending = given, pending
        self._policies = {each["name"]: each.get("preemption", {}) for each in given["queues"]}
        self._cohort = {each["name"]: each.get("cohort") for each in given["queues"]}
        self._sums = _sums(given)
        self.world = World(self._node(), *self._queues())
        for each in given["admitted"]:
            self._admit(each)
        for each in pending:
            self.world.add(*self._group(each))
        self.world.settle()

    # ---- what is decided

    def decision(self, workload: str) -> GroupDecision:
        return self.world.decision(workload)

    def starting(self) -> list[str]:
        groups = self.world.decisions.groups
        return sorted(
            each["id"] for each in self._pending if groups[key(each["id"])].verdict is Verdict.STARTING
        )

    def evicted(self) -> dict[str, EvictionCause]:
        """By workload."""
        victims = (eviction.victim for eviction in self.world.decisions.evictions.values())
        return {victim.group.partition("/")[2]: victim.cause for victim in victims}

    # ---- what queues deserve, before anything was evicted

    def is_above_share(self, newcomer: str, without: Iterable[str] = ()) -> bool:
        """Whether a newcomer brings its queue above what it deserves, once some workloads of it are gone."""
        shares, queue = self._shares, self._queue_of(newcomer)
        for each in without:
            shares.take(queue, self._requests(each), -1)
        return shares.is_above_share(queue, self._requests(newcomer))

    def give_their_due(self, victims: Iterable[str], newcomer: str) -> bool:
        """Whether a queue that loses these, or one above it that the newcomer does not use, would have to
        give when it holds no more than it deserves of what the newcomer lacks, whichever goes last."""
        shares, own = self._shares, self._queue_of(newcomer)
        lost = {victim: self._requests(victim) for victim in victims if self._queue_of(victim)}
        lacking = self._lacking(newcomer)
        for each, amounts in lost.items():
            shares.take(self._queue_of(each), amounts, -1)
        may_be_last: defaultdict[tuple[str, int], bool] = defaultdict(bool)
        for each, amounts in lost.items():
            counted = [name for name in lacking or amounts if name in amounts and name != PODS]
            for level, (held, due, _) in enumerate(shares.levels(self._queue_of(each), own)):
                before = {name: held.get(name, 0) + amounts[name] for name in counted}
                above = any(n > due.get(name, 0.0) + EPSILON for name, n in before.items())
                may_be_last[self._queue_of(each), level] |= above
        return not all(may_be_last.values())

    def deserve_more_than_nominal(self, victims: Iterable[str]) -> bool:
        """Whether the queue of any of these deserves some of what others do not ask for."""
        quotas = {each["name"]: dict(limits(each)) for each in self._given["queues"]}
        for name in {self._queue_of(victim) for victim in victims} & quotas.keys():
            nominal = offered(_written({pair: limit["nominal"] for pair, limit in quotas[name].items()}))
            deserved = self.world.queue(name).deserved
            if any(deserved.get(each, 0.0) > n + EPSILON for each, n in nominal.items()):
                return True
        return False

    def _lacking(self, newcomer: str) -> set[str]:
        """What the node has too little left of; nothing where only a limit of the queue is in the way."""
        snapshot = self.world.ledger.snapshot()
        used: Counter[str] = Counter()
        for group in snapshot.groups.values():
            used.update(requests_of(Counter(pod.shape for pod in group.placed)))
        room = {
            name: int(n)
            for name, n in (self.world.nodes["n"].status.allocatable or {}).items()
            if name in used
        }
        return {
            name
            for name, n in self._requests(newcomer).items()
            if name in room and n > room[name] - used[name]
        }

    @property
    def _shares(self) -> QueueShares:
        return QueueShares(self.world.ledger.snapshot())

    def _queue_of(self, workload: str) -> str:
        """Empty where nothing like it runs or waits."""
        group = self.world.ledger.snapshot().groups.get(key(workload))
        return group.queue if group is not None else ""

    def _requests(self, workload: str) -> Resources:
        return requests_of(Counter(pod.shape for pod in self.world.ledger.groups.members(key(workload))))

    # ---- nodes and queues

    def _node(self) -> Any:
        room: defaultdict[Pair, int] = defaultdict(int)
        for each in (*self._given["queues"], *self._given["cohorts"]):
            for pair, limit in limits(each):
                room[pair] += limit["nominal"]
        return builders.node("n", pods="100000", more=_written(room))

    def _queues(self) -> Iterator[Queue]:
        given = self._given
        cohorts = {each["name"]: each for each in given["cohorts"]}
        named = {each.get("cohort") for each in given["queues"]} | {
            cohort.get("parent") for cohort in cohorts.values()
        }
        for name in sorted({*cohorts, *filter(None, named)}):
            cohort = cohorts.get(name, {})
            yield self._queue(_cohort(name), cohort.get("parent"), cohort, self._sums[_cohort(name)])
        for each in given["queues"]:
            own = {pair: limit["nominal"] for pair, limit in limits(each)}
            yield self._queue(each["name"], each.get("cohort"), each, own)

    def _queue(self, name: str, above: str | None, given: Given, deserved: Mapping[Pair, int]) -> Queue:
        policies = self._policies.get(name, {})
        is_fair = self._given.get("config", {}).get("fair_sharing")  # then Kueue ignores this policy
        within = policies.get("within_queue", "Never")
        borrows = ({} if is_fair else policies.get("borrow_in_cohort")) or {}
        return builders.queue(
            name,
            weight=max(1, round(100 * given.get("fair_weight", 1))),
            parent=_cohort(above) if above else "",
            capability=None if above else _written(deserved),
            created=moment(_LONG_AGO),
            deserved=_written(deserved),
            borrowing_limit=_limit(given, "borrowing_limit"),
            lending_limit=_limit(given, "lending_limit"),
            reclaimable=self._is_reclaimable(name),
            preemption=builders.preemption(
                within_queue="Never" if within == "Never" else "LowerPriority",
                borrow_within_cohort=BorrowWithinCohort(
                    borrows.get("policy", ""), borrows.get("max_priority")
                ),
            ),
        )

    # ---- groups

    def _admit(self, given: Given) -> None:
        """A group that runs, of a pod for each part."""
        name, level = given["id"], f"p{given['priority']}"
        notes = {keys.PREEMPTABLE: "false"} if self._is_protected(given) else None
        self.world.add(
            priority_class({"name": level, "value": given["priority"]}),
            builders.group(
                name,
                len(given["usage"]),
                given["queue"],
                priority_class=level,
                created=moment(given["created"]),
                stood_whole=True,
                annotations=notes,
            ),
        )
        for part in given["usage"]:
            used = {(use["flavor"], resource): use["amount"] for resource, use in part["usage"].items()}
            running = _pod(given.get("uid", name), f"{name}-{part['name']}", name, used, on="n")
            status = replace(running.status, start_time=moment(given["reserved_at"]))
            self.world.add(replace(running, status=status))
            if given.get("evicted"):
                self.world.mark_deleted(running.metadata.name)

    def _is_protected(self, given: Given) -> bool:
        """Whether no policy of a queue with a newcomer allows to evict it."""
        queues = {each["queue"] for each in self._pending}
        return given["queue"] not in queues and not self._may_be_reclaimed(given)

    def _is_reclaimable(self, queue: str) -> bool:
        """Whether others may take from a queue; one group that they may not take keeps them from none."""
        held = [each for each in self._given["admitted"] if each["queue"] == queue]
        return not held or any(map(self._may_be_reclaimed, held))

    def _may_be_reclaimed(self, victim: Given) -> bool:
        others = [each for each in self._pending if each["queue"] != victim["queue"]]
        return any(self._may_reclaim(other, victim) for other in others)

    def _may_reclaim(self, newcomer: Given, victim: Given) -> bool:
        policy = self._policies.get(newcomer["queue"], {}).get("reclaim_in_cohort", "Never")
        return bool(
            policy == "Any" or (policy == "LowerPriority" and victim["priority"] < newcomer["priority"])
        )

    def _group(self, given: Given) -> Iterator[Any]:
        name, level = given["id"], f"p{given['priority']}"
        yield priority_class({"name": level, "value": given["priority"]})
        counts = {part["name"]: part["count"] for part in given["podsets"]}
        created = moment(given["created"])
        yield builders.group(name, sum(counts.values()), given["queue"], counts, level, created)
        for part in given["podsets"]:
            flavors = given["assignment"].get(part["name"], {})
            asked = {
                (flavors[each]["flavor"], each): n for each, n in part["request"].items() if each in flavors
            }
            for number in range(part["count"]):
                pod = f"{name}-{part['name']}-{number}"
                yield _pod(pod, pod, name, asked, role=part["name"])


def _sums(given: Given) -> dict[str, dict[Pair, int]]:
    """What each cohort has: what it brings along itself, and all below it."""
    above = {_cohort(each["name"]): each.get("parent") for each in given["cohorts"]}
    own = [(_cohort(each["name"]), each) for each in given["cohorts"]]
    sums: defaultdict[str, dict[Pair, int]] = defaultdict(dict)
    for at, each in (*own, *((_cohort(queue.get("cohort") or ""), queue) for queue in given["queues"])):
        passed: set[str] = set()
        step: str | None = at
        while step is not None and step not in passed:
            passed.add(step)
            for pair, limit in limits(each):
                sums[step][pair] = sums[step].get(pair, 0) + limit["nominal"]
            parent = above.get(step)
            step = _cohort(parent) if parent else None
    return sums


def _pod(uid: str, name: str, group: str, asked: Mapping[Pair, int], role: str = "", on: str = "") -> Pod:
    return builders.pod(name, group, cpu="0", more=_written(asked), role=role, on=on, uid=f"uid-{uid}-{name}")


def _cohort(name: str) -> str:
    return f"cohort-{name}"


def _limit(given: Given, which: str) -> dict[str, str] | None:
    return _written({pair: limit[which] for pair, limit in limits(given) if which in limit}) or None


def _written(amounts: Mapping[Pair, int]) -> dict[str, str]:
    return {
        f"example.com/{flavor}.{resource.replace('/', '.')}": str(n)
        for (flavor, resource), n in amounts.items()
    }
