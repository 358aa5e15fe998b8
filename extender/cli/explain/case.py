"""What waits, as far as the commands that may help it name it."""

from typing import NamedTuple

from extender.cli.explain.evidence import Evidence
from extender.cli.observed import ObservedGroup


class Case(NamedTuple):
    """`wanted`: the group that a pod names although there is none. `there`: how many pods are its members, or
    name `wanted`."""

    evidence: Evidence
    namespace: str
    queue: str = ""
    detail: str = ""
    group: ObservedGroup | None = None
    pod: str = ""
    wanted: str = ""
    there: int = 0
