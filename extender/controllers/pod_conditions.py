"""Writes of the condition PodScheduled on waiting pods, which users and autoscalers read.

A reason is written once it has lasted for some seconds. It is written once for each pod and state of the
group; if another writer overwrites it, the other text stays. All writes share a budget, since ten thousand
pods may begin to wait at the same time. Groups are written one after the other, so that autoscalers see all
members of a group together.
"""

import threading
from collections.abc import Callable, Hashable, Iterable
from datetime import UTC, datetime
from functools import partial

from extender.api.keys import UNSCHEDULABLE
from extender.controllers.controller import ControllerContext, PacedController
from extender.controllers.objects import timestamp
from extender.controllers.provisioning import ProvisioningChanges, ProvisioningQueues
from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupKey, PodRecord, Uid, Unscheduled
from extender.domain.snapshot.decisions import ConditionPolicy, Decisions, GroupDecision, display_reason
from extender.telemetry import metrics

MIN_REASON_SECONDS = 5.0  # seconds after which a reason is written
_HEAD_START = 1.0  # seconds by which a partly written group precedes others
_MIN_TOKENS = 25  # a group begins with at least so many tokens, so that a large gang gets several writes


class PodConditionsController(PacedController[GroupKey]):
    """Controller of the pods' conditions.

    It sends as many requests as a scheduler may send by default: 50 a second, in bursts of 100.
    """

    name = "pod-conditions"
    rate, burst = 50.0, 100

    def __init__(
        self,
        context: ControllerContext,
        policy: ConditionPolicy,
        queues: ProvisioningQueues,
        read_time: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(context)
        self._policy = policy
        self._queues = queues
        self._queue_changes = ProvisioningChanges(queues)
        self._read_time = read_time

    def prepare(self) -> None:
        super().prepare()
        # State of a group that the conditions of its pods show, and since when (monotonic seconds).
        self._states: dict[GroupKey, tuple[Hashable, float]] = {}
        self._lock = threading.Lock()
        self._written_conditions: dict[GroupKey, dict[Uid, Unscheduled]] = {}  # in this state

    def on_stopped_leading(self) -> None:
        super().on_stopped_leading()
        self._states.clear()
        with self._lock:
            self._written_conditions.clear()

    def due_keys(self, decisions: Decisions) -> Iterable[GroupKey]:
        """Park the changed groups, and return no key, since a new reason has to last first.

        Writes that are due already keep their place in the work queue.
        """
        for key in (*self._changed_groups.since_last_call(decisions), *self._queue_changes.groups(decisions)):
            decision = decisions.groups.get(key)
            if decision is None or (reason := display_reason(decision)) is None:
                self._queue.forget(key)
                self._parked.pop(key, None)
                self._states.pop(key, None)
                with self._lock:
                    self._written_conditions.pop(key, None)
                continue
            # A change of the state starts the wait again. So does each new member while members are missing,
            # because most groups are complete before a report of missing members is useful.
            missing_members = decision.detail if reason is Reason.NOT_ENOUGH_MEMBERS else ""
            node_need = decision.exceeds_queue, decision.exceeds_cluster, decision.asking
            state = reason, node_need, missing_members, self._is_by_request(decision)
            if not self._is_parked(key, state):
                self._states[key] = state, self._clock()
                self._park(key, state, MIN_REASON_SECONDS)
        return ()

    def _is_by_request(self, decision: GroupDecision) -> bool:
        """Return whether nodes for the group are requested by ProvisioningRequests."""
        return self._queues.get(decision.queue) is not None

    def reconcile(self, key: GroupKey) -> None:
        """Write the conditions of a group.

        A partly written group precedes groups that are due at the same time.
        """
        decision, state_and_time = self._decisions.groups.get(key), self._states.get(key)
        if decision is None or state_and_time is None:
            return
        state, since = state_and_time
        remaining = since + MIN_REASON_SECONDS - self._clock()
        if remaining > 0.0:
            self._park(key, state, remaining)
        elif not self._write_members(key, decision):
            self._park(key, state, remaining - _HEAD_START)

    def _may_begin_numbers(self) -> bool:
        return super()._may_begin_numbers() and self._budget.tokens_at(self._clock()) >= _MIN_TOKENS

    def _write_members(self, key: GroupKey, decision: GroupDecision) -> bool:
        """Write as many conditions as the budget allows; return whether all are written."""
        wanted_pairs = [
            (pod, condition)
            for pod in self._ledger.groups.members(key)
            if (condition := self._desired_condition(decision, pod)) is not None
        ]
        with self._lock:
            earlier_conditions = self._written_conditions.pop(key, {})
            written = {
                pod.uid: condition
                for pod, condition in wanted_pairs
                if condition in (pod.unscheduled, earlier_conditions.get(pod.uid))
            }
            if written:
                self._written_conditions[key] = written
        missing_pairs = [(pod, condition) for pod, condition in wanted_pairs if pod.uid not in written]
        allowed_count = self._budget.take_up_to(self._clock(), len(missing_pairs))
        for pod, condition in missing_pairs[:allowed_count]:
            with self._lock:
                self._written_conditions.setdefault(key, {})[pod.uid] = condition
            write = partial(self._write, key, pod.uid, condition)
            forget = partial(self._forget_write, key, pod.uid, condition)
            self.write(key, write, target=pod.uid, on_failure=forget)
        return allowed_count == len(missing_pairs)

    def _desired_condition(self, decision: GroupDecision, pod: PodRecord) -> Unscheduled | None:
        """Return the condition for a pod; None also for a pod with a planned or assumed node."""
        if self._ledger.claims.get(pod.uid):
            return None
        return self._policy.condition_of(decision, pod, self._is_by_request(decision))

    def _forget_write(self, key: GroupKey, uid: Uid, condition: Unscheduled) -> None:
        with self._lock:
            written = self._written_conditions.get(key, {})
            if written.get(uid) == condition:
                del written[uid]

    def _write(self, key: GroupKey, uid: Uid, condition: Unscheduled) -> None:
        """Write the condition, unless a decision has changed it meanwhile.

        The resourceVersion in the request keeps a late write from changing a pod that is bound by now.
        """
        decision, pod = self._ledger.decisions.groups.get(key), self._ledger.pods.get(uid)
        if decision is None or pod is None or self._desired_condition(decision, pod) != condition:
            return self._forget_write(key, uid, condition)
        body = {"status": "False", "reason": condition.reason, "message": condition.message}
        if pod.unscheduled is None:  # otherwise the existing transition time stays
            body["lastTransitionTime"] = timestamp(self._read_time())
        # A pod that lacks capacity has no planned node, and Karpenter ignores pods with a nominated node.
        forget_node = condition.reason == UNSCHEDULABLE and bool(pod.nominated_node)
        self._cluster.set_unscheduled(pod.namespace, pod.name, uid, pod.version, body, forget_node)
        metrics.pod_conditions.labels(condition.reason).inc()
