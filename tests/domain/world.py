"""World for tests of a Ledger: objects of an API server, calls of a scheduler, and a clock."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any, Self

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Condition
from extender.api.objects.cluster import (
    ClusterTopology,
    Namespace,
    Node,
    PodDisruptionBudget,
    PriorityClass,
    Workload,
)
from extender.api.objects.pods import Pod
from extender.api.objects.queues import (
    AlphaPodGroup,
    CompositePodGroup,
    LocalQueue,
    NativePodGroup,
    PluginsPodGroup,
    PodGroup,
    Queue,
    ResourceFlavor,
)
from extender.api.objects.volcano import HyperNode
from extender.api.setting_kinds import LOGICAL
from extender.domain.ledger.claims import Claim, ClaimStage
from extender.domain.ledger.ledger import Confirmation, Ledger
from extender.domain.model.device_requests import LogicalResources
from extender.domain.model.ownership import Ownership
from extender.domain.model.queue_of_group import entry_annotation
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey, Uid
from extender.domain.model.versioned_pod_watch import Appearance
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import Decisions, GroupDecision, QueueDecision
from extender.domain.snapshot.jobs import JobRules
from extender.domain.snapshot.snapshot import Limits
from tests.domain import builders
from tests.domain.builders import NAMESPACE, SCHEDULER

_MOST_CYCLES = 50
_SETTERS: dict[type, str] = {  # methods of the ledger's intake, by type of object
    **dict.fromkeys(
        (PodGroup, PluginsPodGroup, NativePodGroup, AlphaPodGroup, CompositePodGroup), "set_group"
    ),
    Workload: "set_owner",
    Queue: "set_queue",
    ResourceFlavor: "set_flavor",
    ClusterTopology: "set_topology",
    HyperNode: "set_hyper_node",
    LocalQueue: "set_local_queue",
    Namespace: "set_namespace",
    PriorityClass: "set_priority_class",
    PodDisruptionBudget: "set_disruption_budget",
}
EPOCH = datetime(2026, 1, 1, tzinfo=UTC).timestamp()  # wall-clock time at which the clock is 0
LIMITS = Limits(
    window=1000,
    start_deadline=120.0,
    start_deadline_base=30.0,
    start_deadline_per_member=0.1,
    refusal_grace=2.0,
    arrival_grace=15.0,
    arrival_grace_per_pod=0.0,
    stall_grace=10.0,
    refusal_memory=60.0,
    backoff=5.0,
    backoff_max=300.0,
)


class World:
    """Cluster around a ledger. `through_proxy`: the scheduler reads its pods through Muster."""

    def __init__(
        self,
        *objects: Any,
        limits: Limits | None = None,
        auto_groups: bool = False,
        records_trusted: bool = True,
        through_proxy: bool = False,
        jobs: JobRules | None = None,
        logical: Sequence[str] = (),
    ) -> None:
        """Begin with some objects. `logical`: logical resources, as in the configuration."""
        self.now = 1000.0
        self.wall_steps = 0.0  # seconds by which the wall clock was set forward
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.changes = 0
        self._calls = count(1)  # tokens of bind calls
        self.cycles = 2
        self.scheduler_asks = True  # whether the scheduler calls filter for foreign pods all the time
        self.ledger = Ledger(
            Ownership(frozenset({SCHEDULER}), auto_groups),
            limits or LIMITS,
            clock=lambda: self.now,
            on_change=self._record_change,
            on_shown=(lambda: None) if through_proxy else None,
            wall_clock=lambda: EPOCH + self.now + self.wall_steps,
            jobs=jobs,
            logical=LogicalResources(map(LOGICAL.parse, logical)),
        )
        self.ledger.intake.trust_markers(records_trusted)
        self.ledger.intake.trust_authors(records_trusted)
        self.changes = 0
        self.add(*objects)

    def _record_change(self) -> None:
        self.changes += 1

    # ---- the API server's side

    def add(self, *objects: Any) -> Self:
        """Add or replace objects; a list counts as its elements."""
        for obj in objects:
            self._set(obj)
        return self

    def _set(self, obj: Any) -> None:
        match obj:
            case list():
                self.add(*obj)
            case Pod():
                self.pods[obj.metadata.name] = obj
                self.ledger.pods.set_pod(obj)
            case Node():
                self.nodes[obj.metadata.name] = obj
                self.ledger.intake.set_node(obj)
            case _:
                getattr(self.ledger.intake, _SETTERS[type(obj)])(obj)

    def drop_node(self, name: str) -> None:
        del self.nodes[name]
        self.ledger.intake.drop_node(name)

    def delete(self, *names: str) -> Self:
        for name in names:
            self.ledger.pods.drop(Uid(self.pods.pop(name).metadata.uid))
        return self

    def mark_deleted(self, name: str, grace: float = 0.0) -> None:
        """Delete a pod that its kubelet still runs: it gets a deletion timestamp."""
        before, gone_by = self.pods[name], timestamp(self.now + grace)
        self.add(replace(before, metadata=replace(before.metadata, deletion_timestamp=gone_by)))

    def bind(self, name: str, node: str) -> None:
        before = self.pods[name]
        meta, queue = before.metadata, self.ledger.groups.queue_uid(key(self.group_of(name)))
        annotations = entry_annotation(queue, meta.uid) if queue else {}
        meta = replace(meta, annotations={**(meta.annotations or {}), **annotations})
        self.add(replace(before, metadata=meta, spec=replace(before.spec, node_name=node)))

    def run(self, *names: str) -> Self:
        for name in names:
            self._set_phase(name, "Running")
        return self

    def finish(self, *names: str, phase: str = "Succeeded") -> Self:
        for name in names:
            self._set_phase(name, phase)
        return self

    def _set_phase(self, name: str, phase: str) -> None:
        before = self.pods[name]
        self.add(replace(before, status=replace(before.status, phase=phase)))

    def ungate(self, *names: str) -> Self:
        for name in names:
            before = self.pods[name]
            others = [gate for gate in before.spec.scheduling_gates or () if gate.name != keys.GATE]
            self.add(replace(before, spec=replace(before.spec, scheduling_gates=others or None)))
        return self

    def refuse(self, name: str, message: str = "0/3 nodes are available: 3 Insufficient magic.") -> None:
        """Write to the status of a pod that the scheduler finds no node for it."""
        before = self.pods[name]
        condition = Condition("PodScheduled", "False", "Unschedulable", message)
        self.add(replace(before, status=replace(before.status, conditions=[condition])))

    # ---- time

    def advance(self, seconds: float) -> Self:
        self.now += seconds
        return self

    def pass_time(self, seconds: float) -> None:
        """Advance the clock, and decide again at the times that the decisions request."""
        until = self.now + seconds
        self.settle()
        requeue_at = self.decisions.requeue_at
        while requeue_at is not None and requeue_at <= until:
            self._move_on(max(requeue_at, self.now + 0.001))
            requeue_at = self.settle().decisions.requeue_at
        self._move_on(until)

    def _move_on(self, until: float) -> None:
        """Advance the clock to a time, with a call of the scheduler every few seconds."""
        while self.scheduler_asks and self.now < until:
            self.now = min(self.now + 5.0, until)
            self.ledger.record_scheduler_call()
        self.now = until

    # ---- deciding

    def decide(self) -> Decisions:
        return decide(self.ledger.snapshot(), self.ledger.decisions)

    def publish_decisions(self, decisions: Decisions) -> None:
        self.ledger.publish(decisions)

    def settle(self) -> Self:
        """Decide and publish until nothing changes.

        Fails if decisions still change `cycles` cycles after the last start or eviction.
        """
        if self.scheduler_asks:
            self.ledger.record_scheduler_call()
        remaining = self.cycles
        for _ in range(_MOST_CYCLES):
            before, version = self.decisions, self.ledger.version
            decisions = self.decide()
            self.publish_decisions(decisions)
            self._release_due_groups()
            self._give_up_calls()
            if self.ledger.version == version:
                return self
            remaining = self.cycles if starts_or_evicts(before, decisions) else remaining - 1
            if remaining < 0:
                break
        raise AssertionError(f"does not settle: {dict(self.decisions.groups)}")

    def _release_due_groups(self) -> None:
        for group in self.ledger.shown_pods.due_groups():
            self.ledger.shown_pods.release(group)

    def _give_up_calls(self) -> None:
        """Give up the held bind calls of waiting groups, as the barrier does."""
        for decision in self.decisions.groups.values():
            if decision.verdict is Verdict.WAITING:
                for pod in self.ledger.groups.members(decision.key):
                    claim = self.ledger.claims.get(pod.uid)
                    if claim is not None and claim.stage is ClaimStage.HELD:
                        self.ledger.assumed_pods.release(pod.uid, claim.token)

    @property
    def decisions(self) -> Decisions:
        return self.ledger.decisions

    def decision(self, group: str) -> GroupDecision:
        return self.decisions.groups[key(group)]

    def queue(self, name: str) -> QueueDecision:
        return self.decisions.queues[name]

    def verdict(self, group: str) -> Verdict:
        return self.decision(group).verdict

    def reason(self, group: str) -> Reason | None:
        return self.decision(group).reason

    def detail(self, group: str) -> str:
        return self.decision(group).detail

    def figures(self, group: str) -> list[str]:
        """Return the amounts in the detail of a decision, in order."""
        return re.findall(r"(?<![\w-])\d[\w.:-]*", self.detail(group))

    def verdicts(self, *groups: str) -> list[Verdict]:
        return [self.verdict(group) for group in groups]

    def plan(self, group: str) -> dict[str, str]:
        """Return the nodes of existing pods, by the pods' names."""
        plan = self.decision(group).plan
        uids = {name: Uid(pod.metadata.uid) for name, pod in self.pods.items()}
        return {name: plan[uid] for name, uid in uids.items() if uid in plan}

    def claim(self, name: str) -> Claim | None:
        return self.ledger.claims.get(Uid(self.pods[name].metadata.uid))

    def claim_count(self) -> int:
        """Return the number of claims of all pods, also of pods that a job has yet to create."""
        return len(list(self.ledger.claims))

    def stage(self, name: str) -> ClaimStage | None:
        claim = self.claim(name)
        return claim.stage if claim else None

    def stood_whole(self, group: str) -> bool:
        self.ledger.snapshot()
        return self.ledger.groups.history(key(group))[0] is not None

    # ---- the scheduler's side

    def shown(self) -> dict[str, Appearance]:
        """Return the appearances of released pods to the scheduler, by name."""
        appearances = self.ledger.shown_pods._releases.appearances
        uids = {name: Uid(pod.metadata.uid) for name, pod in self.pods.items()}
        return {name: appearances[uid] for name, uid in uids.items() if uid in appearances}

    def shown_changes(self) -> list[tuple[str, Appearance | None]]:
        """Return the changes of appearances since the last call; None for withdrawn pods."""
        names = {pod.metadata.uid: name for name, pod in self.pods.items()}
        return [(names[uid], appearance) for uid, appearance in self.ledger.shown_pods.take_changes()]

    def shows(self) -> dict[str, Appearance | None]:
        """Return the last change of each pod."""
        return dict(self.shown_changes())

    def report(self, name: str, text: str = "") -> Uid | None:
        """Report the end of a scheduling attempt by a status patch, as the scheduler does."""
        return self.ledger.shown_pods.record_status(NAMESPACE, name, text)

    def answer(self, name: str, offered: Sequence[str] | None = None) -> list[str] | Reason:
        """Answer a filter call, by default with all nodes offered."""
        uid = Uid(self.pods[name].metadata.uid)
        self.ledger.record_scheduler_call()
        return self.ledger.assumed_pods.assume(uid, list(self.nodes) if offered is None else offered)

    def hold(self, name: str, node: str) -> Reason | None:
        return self.ledger.assumed_pods.hold(Uid(self.pods[name].metadata.uid), node, next(self._calls))

    def release(self, name: str) -> None:
        if (claim := self.claim(name)) is not None:
            self.ledger.assumed_pods.release(claim.pod.uid, claim.token)

    def confirm(self, group: str) -> Confirmation:
        return self.ledger.assumed_pods.confirm(key(group))

    def scheduler_takes(self, *names: str, offered: Sequence[str] | None = None) -> Self:
        """Filter and bind each pod in turn, as the scheduler does. Bindings of complete gangs are posted."""
        for name in names:
            self.ungate(name)
            nodes = self.answer(name, offered)
            assert isinstance(nodes, list), f"{name} was refused: {nodes}"
            refused = self.hold(name, nodes[0])
            assert refused is None, f"the binding of {name} was refused: {refused}"
            self.post(self.group_of(name))
        return self

    def group_of(self, name: str) -> str:
        record = self.ledger.pods.get(Uid(self.pods[name].metadata.uid))
        assert record is not None
        return str(record.group).partition("/")[2]

    def post(self, group: str) -> list[str]:
        """Post the bindings of a complete group; return the names of its pods."""
        posted = [(claim.pod.name, claim.node) for claim in self.confirm(group).claims_to_post]
        for name, node in posted:
            self.bind(name, node)
        return [name for name, _ in posted]

    def start(self, *groups: str) -> Self:
        """Settle, let the scheduler bind all planned pods, and run them."""
        for group in groups:
            self.settle()
            names = list(self.plan(group))
            assert names, f"{group} does not start: {self.decision(group)}"
            self.scheduler_takes(*names).run(*names)
        return self.settle()


def timestamp(instant: float) -> str:
    """Return a time of the world's clock as the API writes it."""
    return datetime.fromtimestamp(EPOCH + instant, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def key(group: str) -> GroupKey:
    return GroupKey(f"{NAMESPACE}/{group}")


def single(pod: str) -> str:
    """Return the name of the group of a single pod."""
    return f"pod:{pod}"


def gang(
    name: str,
    members: int,
    min_member: int | None = None,
    queue: str = "",
    roles: Mapping[str, int] | None = None,
    priority_class: str = "",
    created: str = "",
    admitted: bool = False,
    run_time: str = "",
    notes: Mapping[str, str] | None = None,
    **pods: Any,
) -> list[Any]:
    """Return a PodGroup and its pods, `name-0` and so on.

    By default, all members are needed. `admitted`: it has the annotation of a start that an earlier process
    of Muster admitted. `notes`: annotations of the PodGroup.
    """
    minimum = members if min_member is None else min_member
    podgroup = builders.group(
        name,
        minimum,
        queue,
        roles,
        priority_class,
        created,
        admitted=admitted,
        run_time=run_time,
        annotations=notes,
    )
    return [podgroup, *(builders.pod(f"{name}-{n}", name, **pods) for n in range(members))]


def nodes(*names: str, **fields: Any) -> list[Node]:
    return [builders.node(name, **fields) for name in names]


def names(group: str, count: int) -> Iterable[str]:
    return (f"{group}-{n}" for n in range(count))


def starts_or_evicts(before: Decisions, now: Decisions) -> bool:
    """Return whether a decision starts or evicts pods, compared with the previous one."""
    if now.evictions.keys() - before.evictions.keys():
        return True
    pairs = ((before.groups.get(key), decision) for key, decision in now.groups.items())
    return any(
        decision.plan.keys() - (former.plan.keys() if former is not None else ()) or decision.undo
        for former, decision in pairs
        if former is not decision
    )


def comparable(decisions: Decisions) -> Decisions:
    """Return the decisions without fields that depend on caches."""
    return replace(decisions, serial=0, changed_groups=(), renumbered_groups=())
