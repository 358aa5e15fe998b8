"""What happened: the turns of every gang, found by comparing one picture with the next."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from extender.domain.model.reasons import REFUSAL_PREFIX, Reason, refusal
from extender.sim.show.picture import Gang, Picture


class Turn(NamedTuple):
    """`second` is since the beginning; `brief` is for where the reason is shown anyway."""

    second: float
    gang: str
    text: str
    brief: str


class Story(NamedTuple):
    """One gang from its first sight on; None for what has not come."""

    seen: float
    waited: bool = False
    ran: float | None = None
    ended: float | None = None


class History:
    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.stories: dict[str, Story] = {}
        self._states: dict[str, tuple[str, str]] = {}

    def look(self, picture: Picture, second: float) -> list[Turn]:
        """Note what is new; returns it."""
        new = list(self._turns(picture, second))
        self.turns += new
        return new

    def _turns(self, picture: Picture, second: float) -> Iterator[Turn]:
        present = {gang.key: gang for gang in picture.gangs}
        for key in self._states.keys() - present.keys():
            del self._states[key]
            yield Turn(second, key, "was deleted", "was deleted")
        for key, gang in present.items():
            state = (state_of(gang), gang.part.reason)
            if self._states.get(key) != state and state != ("waits", ""):
                self._states[key] = state
                self._tell_story(gang, second)
                brief = f"waits: {gang.part.reason}" if gang.waits else told(gang, picture)
                yield Turn(second, key, told(gang, picture), brief)

    def _tell_story(self, gang: Gang, second: float) -> None:
        story = self.stories.get(gang.key, Story(second))
        if gang.waits:
            story = story._replace(waited=True)
        elif gang.runs or gang.done:
            story = story._replace(ran=second if story.ran is None else story.ran)
        if gang.done:
            story = story._replace(ended=second)
        self.stories[gang.key] = story


def state_of(gang: Gang) -> str:
    if gang.done:
        return "ended"
    return "runs" if gang.runs else "starts" if gang.starts else "waits"


def told(gang: Gang, picture: Picture) -> str:
    """A gang's state in a sentence."""
    if gang.done:
        return f"has ended: {_ends(gang)}"
    if gang.runs:
        return f"runs: {gang.running} of {gang.pods} pods on {', '.join(gang.nodes)}"
    if gang.starts:
        return f"starts: all {gang.pods} pods were let go together"
    return f"waits. {why(gang)}{ahead(gang, picture)}"


def _ends(gang: Gang) -> str:
    if not gang.failed:
        return f"all {gang.pods} pods succeeded"
    return f"{gang.failed} of {gang.pods} pods failed"


def why(gang: Gang) -> str:
    """The reason of a gang that waits, with the numbers that its PodGroup's condition gives."""
    if not gang.part.reason:
        return "Muster has not looked at it yet."
    sentence = _sentence(gang.part.reason)
    return f"{sentence} ({gang.detail})." if gang.detail else f"{sentence}."


def _sentence(reason: str) -> str:
    known = reason in [str(each) for each in Reason]
    return refusal(Reason(reason)).removeprefix(REFUSAL_PREFIX) if known else reason


def ahead(gang: Gang, picture: Picture) -> str:
    """Who holds what a gang waits for, by what their status says. Nobody where only the gang itself could
    change it, or where the numbers of its own condition name whom it waits for."""
    holds = _IN_THE_WAY.get(gang.part.reason)
    others = [each for each in picture.gangs if holds and each.key != gang.key and holds(each, gang)]
    names = [each.part.name for each in others]
    return f" Ahead of it: {listed(names)}." if names else ""


def _on_nodes(other: Gang, _gang: Gang) -> bool:
    return other.runs or other.starts


def _on_nodes_of_its_queue(other: Gang, gang: Gang) -> bool:
    return other.part.queue == gang.part.queue and (other.runs or other.starts)


_IN_THE_WAY: Mapping[str, Callable[[Gang, Gang], bool]] = {
    **dict.fromkeys((Reason.NO_ROOM, Reason.FRAGMENTED, Reason.RESERVED, Reason.RECLAIMING), _on_nodes),
    **dict.fromkeys((Reason.QUEUE_CEILING, Reason.QUEUE_SHARE), _on_nodes_of_its_queue),
    Reason.WINDOW_FULL: lambda other, _gang: other.starts,
}


def listed(names: list[str], most: int = 5) -> str:
    """Names for a sentence: a few, and how many more."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"
