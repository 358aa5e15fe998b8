"""Which groups each queue took in, so that they can be found when the queue is gone.

A queue that still has groups is protected from deletion. If it was deleted nevertheless, its groups are
deleted too. They are known by the UID of the queue, which is noted on them. A group that was created before
its queue carries no such note, and waits.
"""

from collections import defaultdict
from collections.abc import Set

import msgspec

from extender.domain.model.records import GroupKey, GroupRecord


class Orphan(msgspec.Struct, frozen=True):
    """A PodGroup whose queue took it in and is gone."""

    namespace: str
    name: str
    uid: str
    queue: str  # the name of the queue that is gone
    queue_uid: str


class TakenInGroups:
    """Groups by the UID of the queue that took them in."""

    def __init__(self) -> None:
        self._of: defaultdict[str, dict[GroupKey, GroupRecord]] = defaultdict(dict)  # by the queue's UID

    def note(self, before: GroupRecord | None, now: GroupRecord | None) -> None:
        """A group changed, appeared (`before` is None) or is gone (`now` is None)."""
        if before is not None and before.queue_uid:
            self._of[before.queue_uid].pop(before.key, None)
            if not self._of[before.queue_uid]:
                del self._of[before.queue_uid]
        if now is not None and now.queue_uid:
            self._of[now.queue_uid][now.key] = now

    def any_of(self, queue_uid: str) -> bool:
        """Whether a group says that this queue took it in."""
        return queue_uid in self._of

    def left_by(self, existing: Set[str]) -> list[GroupRecord]:
        """The groups of all queues whose UID is not in `existing`."""
        gone = sorted(self._of.keys() - existing)
        return [record for uid in gone for record in self._of[uid].values()]


def orphan(group: GroupRecord) -> Orphan:
    return Orphan(group.namespace, group.name, group.uid, group.queue, group.queue_uid)
