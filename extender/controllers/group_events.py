"""Events on PodGroups and pods: why a group waits, that it starts or runs, that a start was undone.

Events are recorded on the group, not on each of its pods: a change of a gang of 500 is one Event. Why a group
waits is also recorded on the first few waiting members, since people describe pods. A state is recorded only
once it has lasted, so that a smooth start costs one Event; that a single pod was bound, the scheduler reports
itself.
"""

import time
from collections.abc import Callable
from functools import partial

from extender.controllers.changed_groups import ChangedGroups
from extender.controllers.event_recorder import NORMAL, WARNING, EventRecorder
from extender.controllers.guard import Guard
from extender.controllers.references import of_group, of_pod
from extender.controllers.start_changes import StartChanges
from extender.controllers.work_queue import WorkQueue
from extender.domain.cache.ledger import Ledger
from extender.domain.decisions import transitions
from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.decisions.transitions import Transition
from extender.domain.model.records import GroupKey

_LASTING = 5.0  # seconds after which a state is recorded
_MEMBERS = 3  # waiting members on which a wait is recorded


class GroupEvents:
    """Listens to the cycle, even while another replica leads: what that one has recorded is not repeated."""

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
        self._guard = Guard("group-events")
        self._unreported = WorkQueue[GroupKey](clock)  # groups with a state that is not recorded yet
        self._led = False

    def look(self, decisions: Decisions) -> None:
        for key, was, now in self._changed_groups.compared(decisions):
            self._guard.run(key, partial(self._notice, key, was, now))
        leads = self._leads()
        if leads and not self._led:
            self._drop_recorded(decisions)
        self._led = leads
        if leads:
            self._record_lasting(decisions)

    def _notice(self, key: GroupKey, was: GroupDecision | None, now: GroupDecision | None) -> None:
        if now is None:
            self._changes.forget(key)
            return self._unreported.forget(key)
        happened = transitions.of_turn(was, now)
        if was is None or transitions.course(was) != transitions.course(now):
            self._unreported.forget(key)
            if happened is None:
                self._unreported.add(key, _LASTING)
        if happened is not None:
            self._report(key, happened)

    def _drop_recorded(self, decisions: Decisions) -> None:
        """The previous leader, or this replica before a restart, has recorded what the conditions say."""
        for key, decision in decisions.groups.items():
            if key in self._unreported:
                record = self._ledger.group_record(key)
                if record and record.last_reason == (decision.reason or decision.verdict):
                    self._unreported.forget(key)

    def _record_lasting(self, decisions: Decisions) -> None:
        while self._recorder.has_room(1 + _MEMBERS) and (key := self._unreported.take()) is not None:
            self._guard.run(key, partial(self._record_state, key, decisions.groups.get(key)))

    def _record_state(self, key: GroupKey, decision: GroupDecision | None) -> None:
        if decision is None:
            return
        change = self._changes.work_out(self._ledger.decisions, decision)
        lasting = transitions.of_state(decision, change)
        if lasting is not None:
            self._report(key, lasting)

    def _report(self, key: GroupKey, transition: Transition) -> None:
        if self._ledger.may_be_left(key):
            return
        if not transition.warning and not transition.for_members and self._ledger.needs_no_barrier(key):
            return
        group = self._ledger.group_record(key)
        about = [of_group(group)] if group else []
        if transition.for_members:
            waiting = (pod for pod in self._ledger.members(key) if pod.waiting)
            about += map(of_pod, sorted(waiting, key=lambda pod: pod.order)[:_MEMBERS])
        for each in about:
            self._recorder.record(
                each, WARNING if transition.warning else NORMAL, transition.reason, transition.message
            )
