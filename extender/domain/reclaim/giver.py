"""What queues may give: asked before each unit is taken, and told of it."""

from typing import Protocol

from extender.domain.model.resources import Resources


class Giver(Protocol):
    """For one group that needs room. What is given is taken into account from then on."""

    def may_give(self, queue: str, amounts: Resources) -> bool:
        """Whether a queue keeps what it deserves without `amounts`."""
        ...

    def give(self, queue: str, amounts: Resources, times: int = 1) -> None:
        """A queue holds so much less; -1 times takes it back."""
        ...

    def share(self, queue: str) -> float:
        """The part of what it deserves that a queue holds by now."""
        ...

    def suffices(self) -> bool:
        """Whether the group's own queue may hold the group by now."""
        ...
