"""Events on PodGroups and pods: why a group waits, that it starts or runs, that a start was undone.

The group is told, not each of its pods: a turn of a gang of 500 is one event. A wait is also told to the
first few members that wait, since people describe pods. A state is told once it has lasted, so that a smooth
start costs one event; of a group of one, the scheduler says itself when it is bound.
"""

import time
from collections.abc import Callable
from functools import partial

from extender.controllers.changed_groups import ChangedGroups
from extender.controllers.event_recorder import NORMAL, WARNING, EventRecorder
from extender.controllers.guard import Guard
from extender.controllers.references import of_group, of_pod
from extender.controllers.work_queue import WorkQueue
from extender.domain.cache.ledger import Ledger
from extender.domain.decisions import transitions
from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.decisions.transitions import Transition
from extender.domain.model.records import GroupKey

_LASTING = 5.0  # seconds
_MEMBERS = 3  # that hear of a wait


class GroupEvents:
    """Listens to the cycle, also while another replica leads: what that one has told is not told again."""

    def __init__(
        self,
        ledger: Ledger,
        recorder: EventRecorder,
        leads: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._recorder = recorder
        self._leads = leads
        self._clock = clock
        self._changed_groups = ChangedGroups()
        self._guard = Guard("group-events")
        self._unreported = WorkQueue[GroupKey](clock)  # groups with a state that is not told yet
        self._led = False

    def look(self, decisions: Decisions) -> None:
        for key, was, now in self._changed_groups.compared(decisions):
            self._guard.run(key, partial(self._notice, key, was, now))
        leads = self._leads()
        if leads and not self._led:
            self._drop_what_is_told(decisions)
        self._led = leads
        if leads:
            self._tell_what_lasts(decisions)

    def _notice(self, key: GroupKey, was: GroupDecision | None, now: GroupDecision | None) -> None:
        if now is None:
            return self._unreported.forget(key)
        happened = transitions.of_turn(was, now)
        if was is None or transitions.course(was) != transitions.course(now):
            self._unreported.forget(key)
            if happened is None:
                self._unreported.add(key, _LASTING)
        if happened is not None:
            self._report(key, happened)

    def _drop_what_is_told(self, decisions: Decisions) -> None:
        """The leader before us, or we before a restart, told what the conditions say."""
        for key, decision in decisions.groups.items():
            if key in self._unreported:
                record = self._ledger.group_record(key)
                if record and record.last_reason == (decision.reason or decision.verdict):
                    self._unreported.forget(key)

    def _tell_what_lasts(self, decisions: Decisions) -> None:
        while self._recorder.has_room(1 + _MEMBERS) and (key := self._unreported.take()) is not None:
            self._guard.run(key, partial(self._tell_state, key, decisions.groups.get(key)))

    def _tell_state(self, key: GroupKey, decision: GroupDecision | None) -> None:
        lasting = transitions.of_state(decision) if decision else None
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
