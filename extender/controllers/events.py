"""Kubernetes Events: a few for each pod, PodGroup or queue, as `kubectl describe` shows them.

There is one Event for each object and reason: when it is recorded again, its count grows and its message is
replaced. Events beyond the rate limit of an object, or of all objects, are dropped; conditions and /debug
have all states. Events are of the core API group, because kubectl shows the counts of those best.

A change of a gang of 500 is one Event, on its PodGroup. Why a group waits is also recorded on its job and on
the first few waiting members, since users describe those. A state is recorded only once it has lasted.
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
from extender.domain.explain.explain import WhyGroup, explain_group, work_of
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.scheduling.memory import carried_facts_of
from extender.domain.snapshot import decisions as transitions
from extender.domain.snapshot.decisions import Decisions, GroupDecision, Transition, message_of
from extender.kube.calls import ApiClient
from extender.kube.errors import Conflict, NotFound
from extender.kube.writers import TokenBucket, Writers
from extender.telemetry import metrics

COMPONENT = "kube-muster"  # the scheduler's own events come from its profile, which is called muster
NORMAL, WARNING = "Normal", "Warning"

_LONGEST = 1024  # characters of a message
_LONGEST_NAME = 230  # characters of the object's name in the name of its Event
_REMEMBERED = 4096  # Events and objects
_MEMORY = 1800.0  # seconds; the API server deletes an Event after an hour
_OBJECT_BURST, _OBJECT_RATE = 10, 1 / 30  # Events of one object at once, and per second
_BURST, _RATE = 50, 5.0  # limits of all objects together
_LASTING = 5.0  # seconds after which a state is recorded
_SLOW = 30.0  # seconds for a start; others that fill the window delay it by a few
_MEMBERS = 3  # waiting members on which a wait is recorded
_WORK = 2_000  # most work to explain one group: a few dozen milliseconds


@dataclass(eq=False)
class _Event:
    about: Reference  # the object
    type: str  # NORMAL or WARNING
    reason: str
    name: str  # of the Event itself
    first: str  # when it was first recorded
    last: str = ""  # when it was last recorded
    message: str = ""
    count: int = 0  # how often it was recorded
    exists: bool = False  # whether the API server has it

    @property
    def namespace(self) -> str:
        return self.about.namespace or "default"


class EventRecorder:
    """Recorder of Events. `record` may be called from any thread; the writers send the Events."""

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
        self._known: TTLCache[tuple[str, str, str], _Event] = TTLCache(_REMEMBERED, _MEMORY, clock)
        self._objects: TTLCache[str, TokenBucket] = TTLCache(_REMEMBERED, _MEMORY, clock)
        self._all = TokenBucket(_RATE, _BURST, clock())

    def has_capacity(self, events: int = 1) -> bool:
        """Return whether this number of Events may be written now.

        Callers that can wait ask first, and record later.
        """
        with self._lock:
            return self._all.available(self._clock()) >= events

    def record(self, about: Reference, type_: str, reason: str, message: str) -> None:
        """Record an Event. `type_` is NORMAL or WARNING, `reason` a code of the closed list."""
        if not self._leads():
            return
        with self._lock:
            now = self._clock()
            fresh = TokenBucket(_OBJECT_RATE, _OBJECT_BURST, now)
            of_object = self._objects.setdefault(_identity(about), fresh)
            if not (self._all.available(now) >= 1 and of_object.take(now) and self._all.take(now)):
                metrics.events.labels("dropped").inc()
                return
            key, at = (_identity(about), type_, reason), timestamp(datetime.now(UTC))
            name = f"{about.name[:_LONGEST_NAME]}.{uuid4().hex[:16]}"
            event = self._known.get(key) or _Event(about, type_, reason, name, at)
            event.last, event.message, event.count = at, message[:_LONGEST], event.count + 1
            self._known[key] = event
        self._writers.submit(("event", event.name), lambda: self._write(event))

    def _write(self, event: _Event) -> None:
        """Write an Event: repeat an existing one, or create it."""
        repeated = {"lastTimestamp": event.last, "message": event.message, "count": event.count}
        if event.exists:
            try:
                self._cluster.patch_event(event.namespace, event.name, repeated)
                metrics.events.labels("repeated").inc()
                return
            except NotFound:
                event.exists = False
        with suppress(Conflict):  # an existing one is Muster's own, whose answer was lost
            self._cluster.create_event(
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"name": event.name, "namespace": event.namespace},
                    "involvedObject": msgspec.to_builtins(event.about),
                    "type": event.type,
                    "reason": event.reason,
                    "firstTimestamp": event.first,
                    "source": {"component": COMPONENT},
                    "reportingComponent": COMPONENT,
                    "reportingInstance": gethostname(),
                    **repeated,
                }
            )
        event.exists = True
        metrics.events.labels("created").inc()


def _identity(about: Reference) -> str:
    return about.uid or f"{about.kind}/{about.namespace}/{about.name}"


_Basis = tuple[Reason | None, str, float]


class StartChanges:
    """Changes that would start each pending group: computed once, only for groups with a write due.

    `work` is the limit, counted as by `work_of`: on large clusters, only /debug/why computes changes.
    """

    def __init__(self, work: int = _WORK) -> None:
        self._work = work
        self._known: dict[GroupKey, tuple[_Basis, WhyGroup | None]] = {}

    def known(self, decision: GroupDecision) -> WhyGroup | None:
        """Return why a group waits, with what would start it; None if that is not computed yet."""
        basis, why = self._known.get(decision.key, (None, None))
        return why if basis == _cause_of_event(decision) else None

    def is_due(self, decisions: Decisions, decision: GroupDecision) -> bool:
        """Return whether the change that would start a group is to be computed: it may be another one."""
        basis, why = self._known.get(decision.key, (None, None))
        is_new = basis != _cause_of_event(decision) or (why is not None and _is_blocker_gone(decisions, why))
        waits = decision.verdict is Verdict.WAITING and is_new
        waits &= decision.reason is not Reason.WINDOW_FULL  # such a group starts soon without a change
        return waits and 0 < work_of(decisions) <= self._work // 2

    def compute(self, decisions: Decisions, decision: GroupDecision) -> WhyGroup | None:
        """Return why a group waits, with the change that would start it; compute it if necessary."""
        if self.is_due(decisions, decision):
            self._known[decision.key] = (
                _cause_of_event(decision),
                explain_group(decisions, decision.key, self._work),
            )
        return self.known(decision)

    def forget(self, key: GroupKey) -> None:
        self._known.pop(key, None)


def _is_blocker_gone(decisions: Decisions, why: WhyGroup) -> bool:
    """Return whether a group or pod whose end would start the group is gone, such as a replaced pod."""
    carried = carried_facts_of(decisions)
    if why.change is None or carried is None:
        return False
    names = set(why.change.ends) - carried.snapshot.groups.keys()
    return bool(names) and not names <= {pod.key for pod in carried.snapshot.others}


def _cause_of_event(decision: GroupDecision) -> _Basis:
    return decision.reason, message_of(decision), decision.retry_at


class GroupEvents:
    """Events of groups. It follows each cycle, also of another leader, to repeat none of its Events."""

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
        self._unreported = WorkQueue[GroupKey](clock)  # groups with a state that is not recorded yet
        self._reported_not_running = set[GroupKey]()  # groups of which an Event says that they do not run yet
        self._led = False

    def on_decisions(self, decisions: Decisions) -> None:
        for group, was, now in self._changed_groups.decision_changes(decisions):
            self._guard.run(group, partial(self._on_change, group, was, now))
        leads = self._leads()
        if leads and not self._led:
            # The previous leader, or this replica before a restart, has recorded what the conditions say.
            for group, decision in decisions.groups.items():
                record = self._ledger.groups.record(group) if group in self._unreported else None
                if record and record.last_reason == (decision.reason or decision.verdict):
                    self._unreported.forget(group)
                    self._reported_not_running.add(group)
        self._led = leads
        if leads:
            while self._recorder.has_capacity(1 + _MEMBERS) and (key := self._unreported.get()) is not None:
                self._guard.run(key, partial(self._record_state, key, decisions.groups.get(key)))

    def _on_change(self, key: GroupKey, was: GroupDecision | None, now: GroupDecision | None) -> None:
        """Report a transition now, or later if the decision lasts."""
        if now is None:
            self._changes.forget(key)
            self._reported_not_running.discard(key)
            return self._unreported.forget(key)
        happened = transitions.immediate_transition(was, now)
        if was is None or transitions.verdict_of(was) != transitions.verdict_of(now):
            self._unreported.forget(key)
            if happened is None:
                self._unreported.add(key, _SLOW if now.verdict is Verdict.STARTING else _LASTING)
        # A running group gets an Event only if an earlier Event said that it does not run.
        if happened is not None and (happened.reason != Verdict.RUNNING or key in self._reported_not_running):
            self._report(key, happened)
        if now.verdict is Verdict.RUNNING:
            self._reported_not_running.discard(key)

    def _record_state(self, key: GroupKey, decision: GroupDecision | None) -> None:
        if decision is not None:
            why = self._changes.compute(self._ledger.decisions, decision)
            if (lasting := transitions.state_transition(decision, why.outlook if why else "")) is not None:
                self._report(key, lasting)

    def _report(self, key: GroupKey, transition: Transition) -> None:
        """Record a transition as Events: on the PodGroup and, if members are concerned, its job and pods."""
        groups, is_minor = self._ledger.groups, not (transition.warning or transition.for_members)
        if groups.may_be_foreign(key) or (is_minor and groups.needs_no_barrier(key)):
            return
        group = groups.record(key)
        about = [group_reference(group)] if group else []
        if transition.for_members:
            # The job gets the Event, too, because users describe it, whether or not it has pods.
            registry, namespace = self._ledger.registry, key.partition("/")[0]
            owner, job = registry.owner_of(key), registry.jobs.get(key)
            if registry.has_job(key) and job is not None:
                about.append(job_reference(job))
            elif owner is not None and (named := owner.reference) is not None:
                about.append(Reference(named.api_version, named.kind, named.name, namespace, named.uid))
            waiting = (pod for pod in groups.members(key) if pod.waiting)
            about += map(pod_reference, sorted(waiting, key=lambda pod: pod.order)[:_MEMBERS])
        type_ = WARNING if transition.warning else NORMAL
        self._reported_not_running.add(key)
        for reference in about:
            self._recorder.record(reference, type_, transition.reason, transition.message)
