"""Definition of a fault: it breaks something, describes it, and knows the repair."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import urllib3

from tests.e2e.harness.muster import SOON
from tests.storm.arena import Arena
from tests.storm.crowd import Crowd, Gang
from tests.storm.view import unbound

Json = dict[str, Any]
Each = TypeVar("Each")


class NoVictim(Exception):
    """There is nothing that this fault could break now."""


@dataclass(frozen=True)
class Field:
    """Possible victims of a fault, with the random generator that draws them."""

    arena: Arena
    crowd: Crowd
    rng: Random
    lasting: float
    target: Gang | None = None  # the gang that is to be struck

    def one(self, victims: list[Each]) -> Each:
        if not victims:
            raise NoVictim
        return self.rng.choice(victims)

    def gang(self) -> Gang:
        """Return the target; else, two times of three, a gang at the barrier, where there is one."""
        if self.target is not None:
            return self.target
        gangs = [gang for gang in self.crowd.gangs.values() if not gang.leaving and gang.wish.kind != "pods"]
        starting = [gang for gang in gangs if gang.wish.name in self.starting()]
        return self.one(starting if starting and self.rng.random() < 0.67 else gangs)

    def starting(self) -> set[str]:
        """Return the gangs with members at the barrier."""
        return {name.rpartition("-")[0] for name in self._held()}

    def _held(self) -> dict[str, str]:
        """Return the held pods by Muster's page, if it answers."""
        try:
            return self.arena.muster.held(SOON)
        except (urllib3.exceptions.HTTPError, AssertionError):
            return {}

    def member(self, running: bool | None = None) -> Json:
        """Return a pod of a gang; two times of three one that is not bound yet, unless `running`."""
        pods = self.arena.view.members(self.gang().wish.name)
        if running:
            return self.one([pod for pod in pods if pod["status"].get("phase") == "Running"])
        waiting = [pod for pod in pods if unbound(pod)]
        return self.one(waiting if waiting and self.rng.random() < 0.67 else pods)

    def node(self, having: str = "cpu") -> Json:
        """Return a node with this resource that has no other fault."""
        known = self.arena.view.nodes()
        nodes = [each for each in known if having in each["status"]["allocatable"]]
        free = [node for node in nodes if node["metadata"]["name"] not in self.arena.down]
        return self.one([each for each in free if each["metadata"]["name"] in self._aims()] or free)

    def _aims(self) -> set[str]:
        """Return the nodes of the target's members, held or bound."""
        if self.target is None:
            return set()
        name = self.target.wish.name
        bound = {member["spec"].get("nodeName", "") for member in self.arena.view.members(name)}
        return bound | {node for pod, node in self._held().items() if pod.rpartition("-")[0] == name}


@dataclass(frozen=True)
class Broken:
    """Description of an executed fault with its repair, if there is one.

    A repair that returns False is not done yet.
    """

    what: str
    mend: Callable[[], object] | None = None


Inflict = Callable[[Field], Broken]


def takes_down(field: Field, part: str) -> None:
    """Mark a part as down: one fault at a time for each part."""
    if part in field.arena.down:
        raise NoVictim
    field.arena.down.add(part)
