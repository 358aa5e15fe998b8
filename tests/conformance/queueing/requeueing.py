"""Requeueing of workloads that could not start: families requeue_rule and queue_ops.

Kueue takes a head out of its queue and puts it back: among the active ones, which are tried again by
themselves, or among the inadmissible ones, which wait for an event. Here nothing is taken out, so the tests
check the effects that users see: which groups start once there is capacity, which only wait for a change of
the cluster, and for which capacity is reserved before others.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from extender.api.objects.base import Meta
from extender.api.objects.cluster import Namespace
from extender.api.objects.pods import LabelSelector
from extender.api.objects.queues import QueueFlavor
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey, Uid
from extender.domain.scheduling.decide import decide
from extender.domain.scheduling.order import lines_by_queue
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.group_info import Start
from extender.domain.snapshot.snapshot import Snapshot
from tests.conformance.amounts import unequal
from tests.conformance.cases import Case
from tests.conformance.queueing.needs import in_family
from tests.conformance.queueing.waiting import QUEUE, instant, selector
from tests.conformance.verdicts import Check, NoCounterpart, Skip
from tests.conformance.volcano.objects import group, pod, priority_class
from tests.domain import builders
from tests.domain.world import LIMITS, World, gang
from tests.domain.world import key as world_key

CaseData = Mapping[str, Any]
_STRATEGIES = {"BestEffortFIFO": "", "StrictFIFO": "fifo"}

# ---- scripts


def check_script(case: Case) -> Iterator[str]:
    script = _Script(case.input)
    for number, step in enumerate(case.input["ops"]):
        if step["op"] == "pop":
            yield from unequal(f"step {number}, pop", step.get("want"), script.pop())
        elif step["op"] == "check_active":
            expected = sorted(step.get("want") or ())
            yield from unequal(f"step {number}, active", expected, sorted(script.active()))
        else:
            script.do(step)
    expect = case.expect
    yield from unequal("active", sorted(expect["active"]), sorted(script.active()))
    yield from unequal("pending", expect["pending_total"], len(script.decided))
    if "moved_by_flush" in expect:
        yield from unequal("moved", expect["moved_by_flush"], script.moved)


class _Script:
    """Script of a case.

    Active workloads start where there is capacity for all. Inadmissible workloads ask for a
    resource that no node has, until a flush: then a node comes that has the amounts requested so far.
    """

    def __init__(self, data: CaseData) -> None:
        self._data = data
        ids = [step["id"] for step in data["ops"] if "id" in step]
        self._workloads: dict[str, CaseData] = {
            name: {"id": name, "priority": 0, "created": 0} for name in ids
        }
        self._workloads |= {workload["id"]: workload for workload in data["workloads"]}
        self._pending: dict[str, CaseData] = {}  # as pushed or updated last
        self._inadmissible: dict[str, int] = {}  # by inadmissible workload, the number of flushes before
        self._popped_at: dict[str, int] = {}
        self._flushes = 0
        self.moved = 0
        self._decisions: Decisions | None = None
        queue = builders.queue(
            QUEUE,
            strategy=_STRATEGIES[data.get("strategy", "BestEffortFIFO")],
            namespace_selector=selector(data["queue"].get("namespace_selector")),
        )
        names = (Namespace(Meta(name=name, labels=labels)) for name, labels in data["namespaces"].items())
        self._world = World(queue, *names, builders.node("n", cpu="1000"))

    def do(self, step: CaseData) -> None:
        name, is_for_all = step.get("id", ""), step["op"] == "flush_inadmissible"
        match step["op"]:
            case op if not (name or is_for_all):
                raise NoCounterpart(f"operation {op} of no workload")
            case "push" | "return_immediate":
                self._submit({**self._workloads[name], **step})
            case "update":
                if step.get("spec_changed"):
                    self._inadmissible.pop(name, None)
                self._submit(self._workloads[name])
            case "return_inadmissible":
                self._inadmissible.setdefault(name, self._popped_at.pop(name, self._flushes))
                self._submit(self._workloads[name])
            case "delete":
                self._inadmissible.pop(name, None)
                self._drop(name)
            case "flush_inadmissible":
                waiting = {*self._pending} - {*self.active()}
                self._flushes += 1
                scarce_resources = {_scarce_resource(number): "1000" for number in range(self._flushes)}
                self._world.add(builders.node("more", cpu="1000", more=scarce_resources))
                self.moved = len(waiting & {*self.active()})
            case _:
                raise NoCounterpart(f"operation {step['op']}")

    def pop(self) -> str | None:
        """Return the first workload that starts; it is taken out."""
        snapshot = self._snapshot()
        waiting = lines_by_queue(snapshot.groups.values(), lambda info: info).get(QUEUE, ())
        names = [info.key.partition("/")[2] for info in waiting]
        active = {*self.active()}
        first = next((name for name in names if name in active), None)
        if first is not None:
            self._popped_at[first] = self._flushes
            self._drop(first)
        return first

    @property
    def decided(self) -> Mapping[GroupKey, GroupDecision]:
        """Return the decisions, based on the previous ones, so that events have to requeue waiting groups."""
        self._decisions = decide(self._snapshot(), self._decisions)
        return self._decisions.groups

    def active(self) -> list[str]:
        return [name for name in self._pending if self.decided[self._key(name)].verdict is Verdict.STARTING]

    def _submit(self, data: CaseData) -> None:
        name = data["id"]
        self._pending[name] = data
        fields = {"name": name, "namespace": data.get("namespace", "default")}
        scarce = {_scarce_resource(self._inadmissible[name]): "1"} if name in self._inadmissible else {}
        self._world.add(
            priority_class({"name": f"p{data['priority']}", "value": data["priority"]}),
            group(
                {**fields, "queue": QUEUE, "minMember": 1, "priorityClassName": f"p{data['priority']}"},
                created=instant(data["created"]),
            ),
            pod({**fields, "name": f"{name}-0", "podgroup": name, "requests": {"cpu": "1m", **scarce}}),
        )

    def _drop(self, name: str) -> None:
        if self._pending.pop(name, None) is not None:
            self._world.delete(f"{name}-0")
            self._world.ledger.intake.drop_group(self._key(name))

    def _key(self, name: str) -> GroupKey:
        return GroupKey(f"{self._workloads[name].get('namespace', 'default')}/{name}")

    def _snapshot(self) -> Snapshot:
        """Return a snapshot with the groups whose start has failed, and that back off."""
        snapshot, now = self._world.ledger.snapshot(), self._data["now"]
        starts = {
            self._key(name): Start(
                failures=data.get("requeue_count", 0), retry_at=snapshot.now + data["requeue_at"] - now
            )
            for name, data in self._pending.items()
            if "requeue_at" in data
        }
        backing_off = {key: replace(snapshot.groups[key], start=start) for key, start in starts.items()}
        return replace(snapshot, groups={**snapshot.groups, **backing_off})


def _scarce_resource(number: int) -> str:
    return f"x.io/scarce-{number}"


# ---- rules

_HEAD = GroupKey("ns/head")
_ALL = 4  # cpus of a node


def check_rule(case: Case) -> Iterator[str]:
    """Check the placement of a head.

    It is active if it starts, if capacity is being reclaimed for it, or if it is tried again after some
    time.
    """
    world, reason = _world(case), _reason(case)
    decided = decide(_snapshot_after(world, reason), None)
    head = decided.groups[_HEAD]
    by_itself = head.verdict is Verdict.STARTING or head.reason is Reason.RECLAIMING
    placement = "active" if by_itself or decided.requeue_at is not None else "inadmissible"
    yield from unequal("placement", case.expect["placement"], placement)
    if "second_insert_accepted" in case.expect:
        before = len(world.ledger.snapshot().groups)
        is_accepted = len(world.add(*_head_objects(reason)).ledger.snapshot().groups) > before
        yield from unequal("second insert", case.expect["second_insert_accepted"], is_accepted)
    if "sticky_head" in case.expect:
        yield from unequal("sticky head", case.expect["sticky_head"], _is_reserved_for_head(world, reason))


def _reason(case: Case) -> str:
    reason = str(case.input["reason"])
    return "FlavorsLeft" if case.input["flavors_left"] else reason


def _world(case: Case) -> World:
    """Return a world in which a head is requeued for this reason."""
    reason, strategy = _reason(case), _STRATEGIES[case.input["strategy"]]
    spec: dict[str, Any] = {"strategy": strategy}
    nodes = [builders.node("n", cpu=str(_ALL), labels={"flavor": "n"})]
    holder: list[Any] = []
    match reason:
        case "FailedAfterNomination" | "nominated" | "NoFit" | "not-nominated":
            pass
        case "NamespaceMismatch":
            spec["namespace_selector"] = LabelSelector({"may": "yes"})
        case "Generic" | "PendingPreemption" | "PreemptionFailed" | "FlavorsLeft":
            holder_priority = 0 if "Preemption" in reason else 1
            holder = gang(
                "holder",
                1,
                queue=QUEUE,
                cpu=str(_ALL),
                priority_class=f"p{holder_priority}",
                priority=holder_priority,
                on="n",
            )
        case _:
            raise NoCounterpart(f"a head that is put back as {reason}")
    if reason == "FlavorsLeft":
        nodes.append(builders.node("m", cpu=str(_ALL), labels={"flavor": "m"}))
        spec["flavors"] = [QueueFlavor(name, {"flavor": name}) for name in ("n", "m")]
    levels = (priority_class({"name": f"p{value}", "value": value}) for value in (0, 1, 2))
    namespace = Namespace(Meta(name=builders.NAMESPACE, labels={"may": "yes"}))
    world = World(
        namespace, *levels, *nodes, builders.queue(QUEUE, **spec), limits=replace(LIMITS, max_reserved_part=0)
    )
    world.add(holder, *_head_objects(reason))
    if "Preemption" in reason:
        world.settle()
    if reason == "PreemptionFailed":
        world.ledger.record_refused_eviction(Uid(world.pods["holder-0"].metadata.uid))
        world.settle()
    return world


def _head_objects(reason: str) -> Iterator[Any]:
    fields = {"namespace": "ns", "queue": QUEUE, "minMember": 1, "priorityClassName": "p1"}
    yield group({**fields, "name": "head"}, created=instant(-10))
    scarce = {_scarce_resource(0): "1"} if reason in ("NoFit", "not-nominated") else {}
    requests = {"cpu": str(_ALL), **scarce}
    yield pod({"namespace": "ns", "name": "head-0", "podgroup": "head", "requests": requests, "priority": 1})


def _snapshot_after(world: World, reason: str) -> Snapshot:
    """Return a snapshot with the failed start of a group that was requeued after it."""
    snapshot = world.ledger.snapshot()
    if reason not in ("FailedAfterNomination", "nominated"):
        return snapshot
    failed = Start(failures=1, retry_at=snapshot.now + world.ledger.limits.retry_after(0))
    return replace(snapshot, groups={**snapshot.groups, _HEAD: replace(snapshot.groups[_HEAD], start=failed)})


def _is_reserved_for_head(world: World, reason: str) -> bool:
    """Return whether a newcomer of a higher priority does not get the capacity that the head waits for."""
    extended = {_scarce_resource(0): "1"} if reason in ("NoFit", "not-nominated") else {}
    world.add(gang("newcomer", 1, queue=QUEUE, cpu=str(_ALL), more=extended, priority_class="p2", priority=2))
    if extended:
        world.add(builders.node("n", cpu=str(_ALL), more=extended))
    if "holder-0" in world.pods:
        world.delete("holder-0")
    decided = decide(_snapshot_after(world, reason), None).groups
    return decided[world_key("newcomer")].verdict is not Verdict.STARTING


def _is_tried_without_need(case: Case) -> bool:
    """Return whether a head is tried repeatedly although neither an event nor time would let it start."""
    return case.expect["placement"] == "active" and any(
        difference.startswith("placement") for difference in check_rule(case)
    )


CHECKS: dict[str, Check] = {"queue_ops": check_script, "requeue_rule": check_rule}
SKIPS: tuple[Skip, ...] = (
    Skip(
        "a group that lacks capacity is inadmissible until something changes, also the head of a fifo queue",
        in_family("requeue_rule", where=_is_tried_without_need),
    ),
)
