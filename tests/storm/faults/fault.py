"""What a fault is: it breaks something, says what, and knows how that is mended."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import urllib3

from tests.storm.arena import Arena
from tests.storm.crowd import Crowd, Gang
from tests.storm.view import unbound

Json = dict[str, Any]
Each = TypeVar("Each")


class NoVictim(Exception):
    """There is nothing that this fault could break now."""


@dataclass(frozen=True)
class Field:
    """What a fault may draw its victims from, and the luck that it draws by."""

    arena: Arena
    crowd: Crowd
    luck: Random
    lasting: float

    def one(self, victims: list[Each]) -> Each:
        if not victims:
            raise NoVictim
        return self.luck.choice(victims)

    def gang(self) -> Gang:
        """Two times of three one that stands at the barrier or starts, where there is one."""
        gangs = [each for each in self.crowd.gangs.values() if not each.leaving and each.wish.kind != "pods"]
        starting = [each for each in gangs if each.wish.name in self.starting()]
        return self.one(starting if starting and self.luck.random() < 0.67 else gangs)

    def starting(self) -> set[str]:
        """Gangs with members at the barrier, as Muster's page tells while it answers."""
        try:
            return {name.rpartition("-")[0] for name in self.arena.muster.held()}
        except (urllib3.exceptions.HTTPError, AssertionError):
            return set()

    def member(self, running: bool | None = None) -> Json:
        """A pod of a gang; two times of three one that is not bound yet, if that is all the same."""
        pods = self.arena.view.members(self.gang().wish.name)
        if running:
            return self.one([each for each in pods if each["status"].get("phase") == "Running"])
        waiting = [each for each in pods if unbound(each)]
        return self.one(waiting if waiting and self.luck.random() < 0.67 else pods)

    def node(self, having: str = "cpu") -> Json:
        """A node that nothing else was done to, with this resource."""
        nodes = [each for each in self.arena.view.nodes() if having in each["status"]["allocatable"]]
        return self.one([each for each in nodes if each["metadata"]["name"] not in self.arena.down])


@dataclass(frozen=True)
class Broken:
    """What was done to whom, and what mends it, if anything does; a mend that says False is not done yet."""

    what: str
    mend: Callable[[], object] | None = None


Inflict = Callable[[Field], Broken]


def takes_down(field: Field, part: str) -> None:
    """One fault at a time for each part."""
    if part in field.arena.down:
        raise NoVictim
    field.arena.down.add(part)
