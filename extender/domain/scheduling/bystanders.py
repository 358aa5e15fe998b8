"""Bystanders: groups that only wait, have nothing, and are asked nothing for others.

What is said of them depends on the means of the round alone. As long as nobody takes anything from these,
what others do is no matter to them, nor is it to others that they are there.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np
from msgspec.structs import replace

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.lifecycle.state import State, state_of
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey
from extender.domain.scheduling.judging import may_choose
from extender.domain.scheduling.means import Means
from extender.domain.scheduling.steps import Judged
from extender.domain.scheduling.strategies import lets_all_pass
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.nodes import AmountRows
from extender.domain.snapshot.snapshot import Snapshot


class Bystanders(msgspec.Struct, frozen=True, eq=False, dict=True):
    """All groups of a snapshot but those that have to take part in the next round, too."""

    snapshot: Snapshot
    """That of the groups that were judged; all others were bystanders before."""
    decided: Mapping[GroupKey, GroupDecision]
    """What was decided on these."""
    means: Means
    """What bystanders were judged by."""
    foremost: frozenset[GroupKey]
    """Groups that were asked for others."""
    lines: Mapping[str, Sequence[GroupView]]
    """By queue all groups in line, in their order."""
    same_until: float
    """Until when all of them pass the same reservations."""

    @classmethod
    def of(
        cls,
        judged: Judged,
        decided: Mapping[GroupKey, GroupDecision],
        lines: Mapping[str, Sequence[GroupView]],
    ) -> "Bystanders | None":
        if judged.means is None:
            return None
        snapshot, until = judged.round_.snapshot, judged.same_until
        return cls(snapshot, decided, judged.means, judged.foremost, lines, until)

    def no_longer_than(self, until: float) -> "Bystanders":
        """The same, for no longer than others of them pass the same reservations."""
        return replace(self, same_until=min(until, self.same_until))

    def after(self, then: AmountRows, now: AmountRows) -> "Bystanders":
        """The same with other room on nodes, which changes nothing for anyone."""
        rows = np.flatnonzero((then != now).any(axis=1))
        later = replace(self, means=self.means.with_room(rows, now[rows] - then[rows]))
        later.__dict__.update(self.__dict__)  # who has to take part, if that was looked up
        return later

    @cached_property
    def others(self) -> frozenset[GroupKey]:
        """Those that have to take part. Looked up when it is first asked for."""
        groups = self.snapshot.groups
        return frozenset(key for key, each in self.decided.items() if not self._stands_by(groups[key], each))

    def _stands_by(self, group: GroupView, decision: GroupDecision) -> bool:
        queue = self.snapshot.queues.get(group.queue)
        return (
            decision.verdict is Verdict.WAITING
            and state_of(group) is State.WAITING
            and group.key not in self.foremost
            and queue is not None
            and lets_all_pass(queue.record)
            and not _has_anything(group)
            and not group.least  # it would be judged by several sizes
            and not group.once(may_choose)
            and not _goes_on(decision)
            and not (self.means.in_force and group.run_time is not None)  # others of its kind may outrun it
        )


def _has_anything(group: GroupView) -> bool:
    promised = group.start.reservation or group.start.reclaim
    return bool(group.placed or group.pinned or group.planned or group.departing or promised)


def _goes_on(decision: GroupDecision) -> bool:
    """Whether more than a verdict was decided."""
    room = decision.plan or decision.reservation or decision.reclaim or decision.spared
    return bool(room or decision.undo or decision.failed or decision.moved or decision.fault)
