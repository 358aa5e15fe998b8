"""What would start each group that waits, as conditions and events say it.

It is worked out once for what is said of the group otherwise, only for groups that are due to be written, and
within a small budget. On clusters that are too large for that it is left to /debug/why.
"""

from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.decisions.wording import message_of
from extender.domain.explanation.explain import explain_group, work_of
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey

_WORK = 2_000  # a few dozen milliseconds at most
_Basis = tuple[Reason | None, str]


class StartChanges:
    """`work`: how many groups and nodes the rounds for one group may go through."""

    def __init__(self, work: int = _WORK) -> None:
        self._work = work
        self._known: dict[GroupKey, tuple[_Basis, str]] = {}

    def known(self, decision: GroupDecision) -> str:
        """The sentence on what would start a group; empty if there is none, or it is not worked out yet."""
        basis, sentence = self._known.get(decision.key, (None, ""))
        return sentence if basis == _basis(decision) else ""

    def is_due(self, decisions: Decisions, decision: GroupDecision) -> bool:
        """Whether it is to be worked out."""
        basis, _ = self._known.get(decision.key, (None, ""))
        waits = decision.verdict is Verdict.WAITING and basis != _basis(decision)
        return waits and 0 < work_of(decisions) <= self._work // 2

    def work_out(self, decisions: Decisions, decision: GroupDecision) -> str:
        """The sentence, worked out if it has to be."""
        if self.is_due(decisions, decision):
            found = explain_group(decisions, decision.key, self._work)
            sentence = found.change.sentence if found and found.change else ""
            self._known[decision.key] = _basis(decision), sentence
        return self.known(decision)

    def forget(self, key: GroupKey) -> None:
        self._known.pop(key, None)


def _basis(decision: GroupDecision) -> _Basis:
    return decision.reason, message_of(decision)
