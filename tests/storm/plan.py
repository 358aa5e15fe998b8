"""The plan of a campaign: what comes and what breaks, when, and the seed of each step, from one seed.

An action draws its victims from the objects at its time, by the random numbers of its step's seed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from tests.storm.wishes import CROWD, FLAVORS, QUEUES, TREE, Json, Wish, draw

MINUTE, ROUGH = 60.0, 30.0  # in the rest of each minute nothing dies, so that deadlines may pass undisturbed
ROUGH_KINDS: dict[str, float] = {
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
    "api-hangs-for-muster": 1,
    "token-expired": 1,
    "memory-short": 1,
    "out-of-memory": 1,
    "kind-gone": 1,
}
MILD_KINDS: dict[str, float] = {
    "delete-group": 7,
    "delete-group-and-remake": 3,
    "delete-pod": 8,
    "delete-gang": 2,
    "delete-node": 4,
    "cordon-node": 4,
    "shrink-node": 4,
    "taint-node": 2,
    "fail-node": 2,
    "relabel-node": 3,
    "lose-gpus": 2,
    "close-queue": 3,
    "cap-queue": 2,
    "reweigh-queue": 2,
    "foreign-pods": 6,
    "fail-member": 5,
    "finish-member": 3,
    "kubelets-off": 2,
    "clock-steps": 2,
    "tenant-misbehaves": 1,
    "cut-muster-watches": 5,
    "cut-scheduler-watches": 2,
    "cut-calls": 3,
    "bindings-refused": 4,
    "bindings-slow": 3,
    "bindings-lost": 3,
    "bindings-hang": 2,
    "writes-refused": 4,
    "writes-slow": 3,
    "writes-lost": 3,
    "writes-doubled": 3,
    "reads-refused": 2,
    "reads-slow": 2,
    "watches-expired": 3,
    "events-doubled": 2,
    "events-retold": 2,
    "evictions-refused": 3,
}
VIEW_KINDS: dict[str, float] = {
    "cut-view": 40
}  # one every few seconds, where the scheduler reads through Muster
ROUGH_VIEW_KINDS: dict[str, float] = {"disk-full": 1}
REPLICAS_KINDS: dict[str, float] = {  # where there are two Musters
    "lose-leader": 4,
    "freeze-leader": 2,
    "lose-lease": 2,
}
OUTAGES = ROUGH_KINDS.keys() | ROUGH_VIEW_KINDS.keys() | REPLICAS_KINDS.keys()


@dataclass(frozen=True)
class Mix:
    """Mix of arrivals and faults; `kinds` are weights other than the usual, 0 for kinds to leave out."""

    name: str = "usual"
    arrivals: float = 0.9  # seconds between two, on average
    faults: float = 1.2
    view: bool = False  # the scheduler reads through Muster
    replicas: bool = False  # two Musters, each with its scheduler
    tree: bool = False  # of queues that reclaim capacity from each other
    crowded: bool = False  # 200 queues
    flavored: bool = False  # queues divide the nodes into flavors, by zone
    ipv6: bool = False  # everything listens on ::1
    older_etcd: bool = False
    fates: Mapping[str, float] = field(default_factory=dict)  # what strikes most gangs when half is bound
    kinds: Mapping[str, float] = field(default_factory=dict)

    @property
    def queues(self) -> dict[str, Json]:
        queues = TREE if self.tree else CROWD if self.crowded else QUEUES
        return (
            {name: {**spec, "flavors": FLAVORS} for name, spec in queues.items()} if self.flavored else queues
        )

    def weights(self, at: float) -> dict[str, float]:
        """Return the weights of every kind of fault that may come at this time."""
        usual = {**MILD_KINDS, **(VIEW_KINDS if self.view else {})}
        if rough(at):
            usual |= {**ROUGH_KINDS, **(ROUGH_VIEW_KINDS if self.view else {})}
            usual |= REPLICAS_KINDS if self.replicas else {}
        return {kind: self.kinds.get(kind, weight) for kind, weight in usual.items()}


@dataclass(frozen=True)
class Step:
    """One thing that happens, `at` seconds after the beginning."""

    at: float
    kind: str  # "arrive", or a kind of fault
    rng: int  # the seed of what it draws on the spot
    lasting: float  # seconds until a fault is mended, or a gang that lingers may go on
    wish: Wish | None = None


def plan(seed: int, seconds: float, mix: Mix) -> list[Step]:
    """Return all steps in the order of their times.

    With the proxy few pods have gates, and its connection is cut.
    """
    arrivals = _arrivals(Random(f"{seed} arrivals"), seconds, mix)
    if mix.view:
        arrivals = [replace(step, wish=_ungated(step.wish)) for step in arrivals]
    if mix.fates:
        arrivals = [replace(step, wish=_halved(step, mix.fates)) for step in arrivals]
    faults = _faults(Random(f"{seed} faults"), seconds, mix)
    return sorted([*arrivals, *faults], key=lambda step: step.at)


def _ungated(wish: Wish | None) -> Wish | None:
    """Return the wish with its gates inverted: most pods have gates in the plan, and here few have.

    Without a gate, none can hang.
    """
    if wish is None or not wish.gated:
        return wish and replace(wish, gated=True)
    return replace(wish, gated=False, lingers=wish.lingers and "binding")


def _halved(step: Step, fates: Mapping[str, float]) -> Wish | None:
    """Return the wish; two of three gangs are incomplete for a while, when a fault comes."""
    rng, wish = Random(step.rng), step.wish
    if wish is None or wish.kind != "gang" or wish.min_member < 2 or rng.random() > 0.67:
        return wish
    return replace(wish, lingers="half", fate=rng.choices(list(fates), list(fates.values()))[0])


def _arrivals(rng: Random, seconds: float, mix: Mix) -> list[Step]:
    steps, at = list[Step](), 0.0
    while at < seconds:
        steps.append(Step(at, "arrive", _seed(rng), rng.uniform(2, 10), draw(rng, len(steps), mix.queues)))
        at += rng.expovariate(1 / mix.arrivals)
    return steps


def _faults(rng: Random, seconds: float, mix: Mix) -> list[Step]:
    """Return the steps with faults; the first one comes when there is something to break."""
    steps, at = list[Step](), 5.0
    while at < seconds:
        weights = mix.weights(at)
        kind = rng.choices(list(weights), list(weights.values()))[0]
        steps.append(Step(at, kind, _seed(rng), lasting=rng.uniform(1, 6)))
        at += rng.expovariate(1 / mix.faults)
    return steps


def rough(at: float) -> bool:
    """Return whether processes may be killed at this time."""
    return at % MINUTE < ROUGH


def _seed(rng: Random) -> int:
    return rng.getrandbits(32)
