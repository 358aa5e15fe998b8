"""Which groups a listener has to look at: each turn once, however often the same decisions come by."""

from collections.abc import Iterator, Sequence

from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.model.records import GroupKey

GroupChange = tuple[GroupKey, GroupDecision | None, GroupDecision | None]


class ChangedGroups:
    def __init__(self) -> None:
        self._seen = Decisions()

    def of(self, decisions: Decisions) -> Sequence[GroupKey]:
        """Groups of which anything changed since this was last asked."""
        before, self._seen = self._seen, decisions
        return decisions.turned_since(before)

    def compared(self, decisions: Decisions) -> Iterator[GroupChange]:
        """Groups on which something else was decided since this was last asked, with what it was and is."""
        before = self._seen.groups
        for key in self.of(decisions):
            was, now = before.get(key), decisions.groups.get(key)
            if was is not now:
                yield key, was, now
