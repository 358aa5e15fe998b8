"""Which groups a listener has to look at: each change once, however often it gets the same decisions."""

from collections.abc import Iterator, Sequence

from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.model.records import GroupKey

GroupChange = tuple[GroupKey, GroupDecision | None, GroupDecision | None]


class ChangedGroups:
    def __init__(self) -> None:
        self._seen = Decisions()

    def of(self, decisions: Decisions) -> Sequence[GroupKey]:
        """The groups of which anything changed since the last call."""
        before, self._seen = self._seen, decisions
        return decisions.turned_since(before)

    def compared(self, decisions: Decisions) -> Iterator[GroupChange]:
        """The groups whose decision changed since the last call, with the old and the new one."""
        before = self._seen.groups
        for key in self.of(decisions):
            was, now = before.get(key), decisions.groups.get(key)
            if was is not now:
                yield key, was, now
