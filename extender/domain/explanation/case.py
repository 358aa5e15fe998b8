"""One group that waits, with all that is needed to try out what would start it."""

import msgspec

from extender.domain.decisions.decisions import Decisions
from extender.domain.explanation.holders import Lookup
from extender.domain.explanation.trial import Trial
from extender.domain.model.resources import CPU, MEMORY, PODS, Resources, show
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.snapshot import Snapshot


class StartChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What would have to be different."""

    text: str
    """A condition for people, to be read after `it starts`."""
    then: str = ""
    """Why it would wait even then; empty: it starts."""
    ends: tuple[str, ...] = ()
    """Groups, and pods of others, that would have to end, by `namespace/name`."""

    @property
    def sentence(self) -> str:
        """`it starts once team/a (2 pods) ends`."""
        return f"{self.text} it would wait for {self.then}" if self.then else f"it starts {self.text}"


class WaitingCase:
    def __init__(self, snapshot: Snapshot, decisions: Decisions, group: GroupView, work: int) -> None:
        self.snapshot = snapshot
        self.decisions = decisions
        self.group = group
        self.decision = decisions.groups[group.key]
        self.queue = snapshot.queues[group.queue].record if group.queue in snapshot.queues else None
        self.lookup = Lookup(snapshot, decisions, group)
        self.trial = Trial(snapshot, group.key, work)

    def start_change(self, text: str, snapshot: Snapshot) -> StartChange:
        """A change, with what the group would wait for then, if it would."""
        outcome = self.trial.outcome(snapshot)
        return StartChange(text, then=str(outcome[1]) if outcome and outcome[1] else "")


def amounts_text(amounts: Resources) -> str:
    """`cpu 4 memory 64Gi`."""
    known = sorted(
        amounts, key=lambda name: ((CPU, MEMORY).index(name) if name in (CPU, MEMORY) else 2, name)
    )
    return " ".join(f"{name} {show(name, amounts[name])}" for name in known if name != PODS)
