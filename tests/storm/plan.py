"""The plan of a campaign: what comes and what breaks, when, and with what luck. The seed makes all of it.

What an action meets on a live cluster does not: it draws its victims, by the luck that its step carries, from
what is there at that moment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from tests.storm.wishes import Wish, draw

ARRIVALS, FAULTS = 0.9, 1.2  # seconds between two, on average
MINUTE, ROUGH = 60.0, 30.0  # in the rest of each minute nothing dies, so that deadlines may pass undisturbed
ROUGH_KINDS = {
    "kill-muster": 3,
    "stop-muster": 1,
    "freeze-muster": 2,
    "kill-scheduler": 2,
    "freeze-scheduler": 1,
    "kill-apiserver": 1.5,
    "freeze-apiserver": 1.5,
    "muster-offline": 2,
    "scheduler-offline": 1,
    "api-down-for-muster": 2,
}
MILD_KINDS = {
    "delete-group": 7,
    "delete-group-and-remake": 3,
    "delete-pod": 8,
    "delete-gang": 2,
    "delete-node": 4,
    "cordon-node": 4,
    "shrink-node": 4,
    "taint-node": 2,
    "lose-gpus": 2,
    "close-queue": 3,
    "cap-queue": 2,
    "reweigh-queue": 2,
    "foreign-pods": 6,
    "fail-member": 5,
    "finish-member": 3,
    "kubelets-off": 2,
    "cut-muster-watches": 5,
    "cut-scheduler-watches": 2,
    "cut-calls": 3,
    "bindings-refused": 4,
    "bindings-slow": 3,
    "bindings-lost": 3,
    "bindings-hang": 2,
    "writes-refused": 4,
    "writes-slow": 3,
    "evictions-refused": 3,
}
VIEW_KINDS = {"cut-view": 40}  # one every few seconds, where the scheduler reads through Muster


@dataclass(frozen=True)
class Step:
    """One thing that happens, `at` seconds after the beginning."""

    at: float
    kind: str  # "arrive", or a kind of fault
    luck: int  # the seed of what it draws on the spot
    lasting: float  # seconds until a fault is mended, or a gang that lingers may go on
    wish: Wish | None = None


def plan(seed: int, seconds: float, *, view: bool = False) -> list[Step]:
    """All steps in the order of their moments. With the view few pods have gates, and its wire is cut."""
    arrivals = _arrivals(Random(f"{seed} arrivals"), seconds)
    if view:
        arrivals = [replace(step, wish=_ungated(step.wish)) for step in arrivals]
    mild = {**MILD_KINDS, **VIEW_KINDS} if view else MILD_KINDS
    return sorted([*arrivals, *_faults(Random(f"{seed} faults"), seconds, mild)], key=lambda step: step.at)


def _ungated(wish: Wish | None) -> Wish | None:
    """Most pods have gates in the plan: here they are those that have none. Without one, none can hang."""
    if wish is None or not wish.gated:
        return wish and replace(wish, gated=True)
    return replace(wish, gated=False, lingers=wish.lingers and "binding")


def _arrivals(luck: Random, seconds: float) -> list[Step]:
    steps, at = list[Step](), 0.0
    while at < seconds:
        steps.append(Step(at, "arrive", _seed(luck), luck.uniform(2, 10), draw(luck, len(steps))))
        at += luck.expovariate(1 / ARRIVALS)
    return steps


def _faults(luck: Random, seconds: float, mild: Mapping[str, float]) -> list[Step]:
    """The first one comes when there is something to break."""
    steps, at = list[Step](), 5.0
    while at < seconds:
        kinds = {**mild, **ROUGH_KINDS} if rough(at) else mild
        kind = luck.choices(list(kinds), list(kinds.values()))[0]
        steps.append(Step(at, kind, _seed(luck), lasting=luck.uniform(1, 6)))
        at += luck.expovariate(1 / FAULTS)
    return steps


def rough(at: float) -> bool:
    """Whether anything may die at this moment."""
    return at % MINUTE < ROUGH


def _seed(luck: Random) -> int:
    return luck.getrandbits(32)
