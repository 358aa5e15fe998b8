"""The starting window: how many members may be on their way to the scheduler at once."""

from functools import partial

from extender.domain.model.journal import Journal


class Window:
    """Used up within a round. Everything that is on its way already has its place before anything new."""

    def __init__(self, size: int, journal: Journal) -> None:
        self.size = size
        self.left = size
        self._journal = journal
        self.is_full = False
        """A gang waits for a place: it is not overtaken by smaller ones, so no other gets one."""

    def take(self, members: int) -> None:
        self._count(members)
        self._journal.note(partial(self._count, -members))

    def _count(self, members: int) -> None:
        self.left -= members

    def has_place_for(self, members: int) -> bool:
        """Whether a whole gang may start; if not, none after it may."""
        self.is_full = self.is_full or members > self.left
        return not self.is_full

    @property
    def places(self) -> int:
        """For members that come one by one, after all gangs."""
        return 0 if self.is_full else max(self.left, 0)
