"""Definition of a fault: it breaks something, describes it, and knows the repair."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import urllib3

from tests.e2e.harness.muster import SHORT_TIMEOUT
from tests.storm.gang_owners import Gang, GangOwners
from tests.storm.storm_cluster import StormCluster
from tests.storm.view import is_unbound

Json = dict[str, Any]
Victim = TypeVar("Victim")


class NoVictim(Exception):
    """Error: there is nothing that this fault could break now."""


@dataclass(frozen=True)
class FaultContext:
    """Input of a fault: the cluster, its gangs, and the random generator that draws the victims."""

    storm_cluster: StormCluster
    owners: GangOwners
    rng: Random
    lasting: float  # seconds until the repair
    target: Gang | None = None  # the gang to break; None: any

    def choose(self, victims: list[Victim]) -> Victim:
        """Return a random victim. Raises NoVictim if there is none."""
        if not victims:
            raise NoVictim
        return self.rng.choice(victims)

    def gang(self) -> Gang:
        """Return the target; without one, a random gang, in two of three cases one at the barrier."""
        if self.target is not None:
            return self.target
        gangs = [gang for gang in self.owners.gangs.values() if not gang.leaving and gang.spec.kind != "pods"]
        starting = [gang for gang in gangs if gang.spec.name in self.starting()]
        return self.choose(starting if starting and self.rng.random() < 0.67 else gangs)

    def starting(self) -> set[str]:
        """Return the gangs with members at the barrier."""
        return {name.rpartition("-")[0] for name in self._held()}

    def _held(self) -> dict[str, str]:
        """Return the node of each pod at the barrier; empty if Muster does not answer."""
        try:
            return self.storm_cluster.muster.held(SHORT_TIMEOUT)
        except (urllib3.exceptions.HTTPError, AssertionError):
            return {}

    def member(self, running: bool | None = None) -> Json:
        """Return a pod of a gang: a running one on request, else in two of three cases an unbound one."""
        pods = self.storm_cluster.view.members(self.gang().spec.name)
        if running:
            return self.choose([pod for pod in pods if pod["status"].get("phase") == "Running"])
        waiting = [pod for pod in pods if is_unbound(pod)]
        return self.choose(waiting if waiting and self.rng.random() < 0.67 else pods)

    def node(self, resource: str = "cpu") -> Json:
        """Return a node with this resource that has no other fault."""
        all_nodes = self.storm_cluster.view.nodes()
        nodes = [node for node in all_nodes if resource in node["status"]["allocatable"]]
        free = [node for node in nodes if node["metadata"]["name"] not in self.storm_cluster.down]
        return self.choose(
            [node for node in free if node["metadata"]["name"] in self._nodes_of_target()] or free
        )

    def _nodes_of_target(self) -> set[str]:
        """Return the nodes of the target's members, held or bound."""
        if self.target is None:
            return set()
        name = self.target.spec.name
        bound = {member["spec"].get("nodeName", "") for member in self.storm_cluster.view.members(name)}
        return bound | {node for pod, node in self._held().items() if pod.rpartition("-")[0] == name}


@dataclass(frozen=True)
class InflictedFault:
    """Description of an executed fault with its repair, if there is one.

    A repair that returns False is not done yet.
    """

    description: str
    repair: Callable[[], object] | None = None


Inflict = Callable[[FaultContext], InflictedFault]


def mark_down(context: FaultContext, part: str) -> None:
    """Mark a part as down. Raises NoVictim if it is down already: each part has one fault at a time."""
    if part in context.storm_cluster.down:
        raise NoVictim
    context.storm_cluster.down.add(part)
