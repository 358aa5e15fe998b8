"""Kubernetes Events on pods, PodGroups, queues and jobs, as `kubectl describe` shows them.

There is one Event for each object and reason. When it is recorded again, its count grows and its message is
replaced. Each object, and all objects together, have a rate limit; Events beyond it are dropped, since
conditions and /debug show all states. Events belong to the core API group, because kubectl shows the counts
of core Events best.

A change of a gang of 500 pods is a single Event, on the PodGroup. The reason why a group waits is also
recorded on its job and on the first few waiting members, since users describe jobs and pods. A state is
recorded only once it has lasted for some seconds.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from socket import gethostname
from uuid import uuid4

import msgspec
from cachetools import TTLCache

from extender.api.objects.base import Reference
from extender.controllers.cycle import ChangedGroups, FaultGuard
from extender.controllers.objects import group_reference, job_reference, pod_reference, timestamp
from extender.controllers.work_queue import WorkQueue
from extender.domain.explain.explain import WhyGroup, cycle_work, explain_group
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.scheduling.memory import read_facts
from extender.domain.snapshot import decisions as transitions
from extender.domain.snapshot.decisions import Decisions, GroupDecision, Transition, message_of
from extender.kube.calls import ApiClient
from extender.kube.errors import Conflict, NotFound
from extender.kube.writers import TokenBucket, Writers
from extender.telemetry import metrics

COMPONENT = "kube-muster"  # not "muster", the name of the scheduler profile, whose Events have that source
NORMAL, WARNING = "Normal", "Warning"

_MAX_MESSAGE_LENGTH = 1024  # most characters of a message
_MAX_NAME_LENGTH = 230  # most characters of the object's name within the name of an Event
_MAX_EVENTS = 4096  # number of remembered Events, and of remembered objects
_CACHE_SECONDS = 1800.0  # seconds; the API server deletes an Event after an hour
_OBJECT_BURST, _OBJECT_RATE = 10, 1 / 30  # limits of one object: Events at once, and per second
_BURST, _RATE = 50, 5.0  # limits of all objects together: Events at once, and per second
_STATE_SECONDS = 5.0  # seconds for which a state has to last before it is recorded
_START_TIME = 30.0  # the same for a start, since other starting groups may delay it
_MAX_PODS = 3  # number of waiting members that get an Event when their group waits
_MAX_WORK = 2_000  # work limit for explaining a group: a few dozen milliseconds


@dataclass(eq=False)
class _Event:
    about: Reference  # the object that the Event is about
    type: str  # NORMAL or WARNING
    reason: str
    name: str  # name of the Event object
    first_at: str  # time when the Event was first recorded
    last_at: str = ""  # time when the Event was last recorded
    message: str = ""
    count: int = 0  # how often the Event was recorded
    is_created: bool = False  # whether the API server has the Event

    @property
    def namespace(self) -> str:
        return self.about.namespace or "default"


class EventRecorder:
    """Recorder of Events. `record` may be called from any thread; `writers` send the Events."""

    def __init__(
        self,
        cluster: ApiClient,
        writers: Writers,
        leads: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._writers = writers
        self._leads = leads
        self._clock = clock
        self._lock = threading.Lock()
        self._events: TTLCache[tuple[str, str, str], _Event] = TTLCache(_MAX_EVENTS, _CACHE_SECONDS, clock)
        self._budgets: TTLCache[str, TokenBucket] = TTLCache(_MAX_EVENTS, _CACHE_SECONDS, clock)
        self._budget = TokenBucket(_RATE, _BURST, clock())

    def has_capacity(self, event_count: int = 1) -> bool:
        """Return whether the rate limit allows `event_count` Events now.

        Callers that can wait ask first, and record their Events later.
        """
        with self._lock:
            return self._budget.tokens_at(self._clock()) >= event_count

    def record(self, about: Reference, type_: str, reason: str, message: str) -> None:
        """Record an Event, unless a rate limit is used up or this replica does not lead.

        Args:
            about: The object.
            type_: NORMAL or WARNING.
            reason: A code of the closed list of reasons.
            message: The text for users.
        """
        if not self._leads():
            return
        with self._lock:
            now = self._clock()
            fresh_budget = TokenBucket(_OBJECT_RATE, _OBJECT_BURST, now)
            object_budget = self._budgets.setdefault(_identity(about), fresh_budget)
            if not (self._budget.tokens_at(now) >= 1 and object_budget.take(now) and self._budget.take(now)):
                metrics.events.labels("dropped").inc()
                return
            key, at = (_identity(about), type_, reason), timestamp(datetime.now(UTC))
            name = f"{about.name[:_MAX_NAME_LENGTH]}.{uuid4().hex[:16]}"
            event = self._events.get(key) or _Event(about, type_, reason, name, at)
            event.last_at, event.message, event.count = at, message[:_MAX_MESSAGE_LENGTH], event.count + 1
            self._events[key] = event
        self._writers.submit(("event", event.name), lambda: self._write(event))

    def _write(self, event: _Event) -> None:
        """Update an existing Event, or create the Event."""
        changed_fields = {"lastTimestamp": event.last_at, "message": event.message, "count": event.count}
        if event.is_created:
            try:
                self._cluster.patch_event(event.namespace, event.name, changed_fields)
                metrics.events.labels("repeated").inc()
                return
            except NotFound:
                event.is_created = False
        with suppress(Conflict):  # Muster created the Event before, but lost the answer
            self._cluster.create_event(
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"name": event.name, "namespace": event.namespace},
                    "involvedObject": msgspec.to_builtins(event.about),
                    "type": event.type,
                    "reason": event.reason,
                    "firstTimestamp": event.first_at,
                    "source": {"component": COMPONENT},
                    "reportingComponent": COMPONENT,
                    "reportingInstance": gethostname(),
                    **changed_fields,
                }
            )
        event.is_created = True
        metrics.events.labels("created").inc()


def _identity(about: Reference) -> str:
    return about.uid or f"{about.kind}/{about.namespace}/{about.name}"


_ExplanationBasis = tuple[Reason | None, str, float]


class StartChanges:
    """Explanations of why each pending group waits, with the smallest change that would start the group.

    An explanation is computed once, and only for a group with a write due. `work` limits the computation, in
    the unit of `cycle_work`: on large clusters, only /debug/why computes explanations.
    """

    def __init__(self, work: int = _MAX_WORK) -> None:
        self._work = work
        self._explanations: dict[GroupKey, tuple[_ExplanationBasis, WhyGroup | None]] = {}

    def known_explanation(self, decision: GroupDecision) -> WhyGroup | None:
        """Return the explanation of a waiting group; None if it is not computed yet, or is outdated."""
        basis, why = self._explanations.get(decision.key, (None, None))
        return why if basis == _basis_of(decision) else None

    def is_due(self, decisions: Decisions, decision: GroupDecision) -> bool:
        """Return whether the explanation of a group is missing or outdated, so that it has to be computed."""
        basis, why = self._explanations.get(decision.key, (None, None))
        is_new = basis != _basis_of(decision) or (why is not None and _is_blocker_gone(decisions, why))
        is_due = decision.verdict is Verdict.WAITING and is_new
        is_due &= decision.reason is not Reason.WINDOW_FULL  # such a group starts soon without any change
        return is_due and 0 < cycle_work(decisions) <= self._work // 2

    def compute(self, decisions: Decisions, decision: GroupDecision) -> WhyGroup | None:
        """Return the explanation of a waiting group; compute it if necessary.

        None means that the group does not wait, or that the work limit forbids the computation.
        """
        if self.is_due(decisions, decision):
            self._explanations[decision.key] = (
                _basis_of(decision),
                explain_group(decisions, decision.key, self._work),
            )
        return self.known_explanation(decision)

    def forget(self, key: GroupKey) -> None:
        self._explanations.pop(key, None)


def _is_blocker_gone(decisions: Decisions, why: WhyGroup) -> bool:
    """Return whether a group or pod that had to end before the start is gone, for example a replaced pod."""
    facts = read_facts(decisions)
    if why.change is None or facts is None:
        return False
    gone_names = set(why.change.ends) - facts.snapshot.groups.keys()
    return bool(gone_names) and not gone_names <= {pod.key for pod in facts.snapshot.other_pods}


def _basis_of(decision: GroupDecision) -> _ExplanationBasis:
    """Return the parts of a decision on which its explanation depends."""
    return decision.reason, message_of(decision), decision.retry_at


class GroupEvents:
    """Listener that records Events of groups.

    It follows each cycle, also while another replica leads, so that it repeats none of the other leader's
    Events.
    """

    def __init__(
        self,
        ledger: Ledger,
        recorder: EventRecorder,
        leads: Callable[[], bool],
        changes: StartChanges,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._recorder = recorder
        self._leads = leads
        self._changes = changes
        self._clock = clock
        self._changed_groups = ChangedGroups()
        self._guard = FaultGuard("group-events")
        self._due_states = WorkQueue[GroupKey](clock)  # groups whose state is not recorded yet
        self._reported_waits = set[GroupKey]()  # groups with an Event that they do not run yet
        self._was_leading = False

    def on_decisions(self, decisions: Decisions) -> None:
        """Record transitions at once, and states that have lasted as far as the rate limit allows."""
        for group, old, new in self._changed_groups.decision_changes(decisions):
            self._guard.run(group, partial(self._on_change, group, old, new))
        leads = self._leads()
        if leads and not self._was_leading:
            # The previous leader, or this replica before a restart, has recorded the conditions' reasons.
            for group, decision in decisions.groups.items():
                record = self._ledger.groups.record(group) if group in self._due_states else None
                if record and record.last_reason == (decision.reason or decision.verdict):
                    self._due_states.forget(group)
                    self._reported_waits.add(group)
        self._was_leading = leads
        if leads:
            while self._recorder.has_capacity(1 + _MAX_PODS) and (key := self._due_states.get()) is not None:
                self._guard.run(key, partial(self._record_state, key, decisions.groups.get(key)))

    def _on_change(self, key: GroupKey, old: GroupDecision | None, new: GroupDecision | None) -> None:
        """Record the transition of a changed group now, or later if the new decision lasts."""
        if new is None:
            self._changes.forget(key)
            self._reported_waits.discard(key)
            return self._due_states.forget(key)
        transition = transitions.immediate_transition(old, new)
        if old is None or transitions.verdict_of(old) != transitions.verdict_of(new):
            self._due_states.forget(key)
            if transition is None:
                self._due_states.add(key, _START_TIME if new.verdict is Verdict.STARTING else _STATE_SECONDS)
        # A running group gets an Event only if an earlier Event said that the group does not run.
        if transition is not None and (transition.reason != Verdict.RUNNING or key in self._reported_waits):
            self._report(key, transition)
        if new.verdict is Verdict.RUNNING:
            self._reported_waits.discard(key)

    def _record_state(self, key: GroupKey, decision: GroupDecision | None) -> None:
        """Record an Event about a decision that has lasted, such as the reason why the group waits."""
        if decision is not None:
            why = self._changes.compute(self._ledger.decisions, decision)
            if (transition := transitions.state_transition(decision, why.outlook if why else "")) is not None:
                self._report(key, transition)

    def _report(self, key: GroupKey, transition: Transition) -> None:
        """Record a transition as Events on the PodGroup and, if it concerns members, on the job and pods."""
        groups, is_minor = self._ledger.groups, not (transition.is_warning or transition.is_for_members)
        if groups.may_be_foreign(key) or (is_minor and groups.needs_no_barrier(key)):
            return
        group = groups.record(key)
        objects = [group_reference(group)] if group else []
        if transition.is_for_members:
            # The job gets the Event, too, because users describe the job, whether or not it has pods.
            registry, namespace = self._ledger.registry, key.partition("/")[0]
            owner, job = registry.owner_of(key), registry.jobs.get(key)
            if registry.has_job(key) and job is not None:
                objects.append(job_reference(job))
            elif owner is not None and (ref := owner.reference) is not None:
                objects.append(Reference(ref.api_version, ref.kind, ref.name, namespace, ref.uid))
            waiting = (pod for pod in groups.members(key) if pod.is_waiting)
            objects += map(pod_reference, sorted(waiting, key=lambda pod: pod.order)[:_MAX_PODS])
        type_ = WARNING if transition.is_warning else NORMAL
        self._reported_waits.add(key)
        for reference in objects:
            self._recorder.record(reference, type_, transition.reason, transition.message)
