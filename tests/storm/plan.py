"""Plan of a campaign, made from one seed: arrivals and faults, their times, and a seed for each step.

A step draws its victims from the objects that exist at its time, with random numbers from its seed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from tests.storm.gang_specs import FLAVORS, MANY_QUEUES, QUEUES, TREE, GangSpec, Json, draw

MINUTE = 60.0
ROUGH_SECONDS = 30.0  # seconds; no process is killed in the rest of each minute, so that deadlines can pass
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
# One every few seconds, where the scheduler reads through Muster.
VIEW_KINDS: dict[str, float] = {"cut-view": 40}
ROUGH_VIEW_KINDS: dict[str, float] = {"disk-full": 1}
REPLICAS_KINDS: dict[str, float] = {  # where there are two Musters
    "lose-leader": 4,
    "freeze-leader": 2,
    "lose-lease": 2,
}
OUTAGES = ROUGH_KINDS.keys() | ROUGH_VIEW_KINDS.keys() | REPLICAS_KINDS.keys()


@dataclass(frozen=True)
class Mix:
    """Mix of arrivals and faults. `kinds`: weights of faults that differ from the usual ones; 0: never."""

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
    # Weights of the faults that hit most gangs when half of their members are bound.
    fates: Mapping[str, float] = field(default_factory=dict)
    kinds: Mapping[str, float] = field(default_factory=dict)

    @property
    def queues(self) -> dict[str, Json]:
        queues = TREE if self.tree else QUEUES
        if self.crowded and not self.tree:
            queues = MANY_QUEUES
        if not self.flavored:
            return queues
        return {name: {**spec, "flavors": FLAVORS} for name, spec in queues.items()}

    def weights(self, at: float) -> dict[str, float]:
        """Return the weights of the kinds of faults that are possible at a time."""
        usual = {**MILD_KINDS, **(VIEW_KINDS if self.view else {})}
        if is_rough(at):
            usual |= {**ROUGH_KINDS, **(ROUGH_VIEW_KINDS if self.view else {})}
            usual |= REPLICAS_KINDS if self.replicas else {}
        return {kind: self.kinds.get(kind, weight) for kind, weight in usual.items()}


@dataclass(frozen=True)
class Step:
    """Arrival or fault, `at` seconds after the beginning."""

    at: float
    kind: str  # "arrive", or a kind of fault
    seed: int  # of its random numbers
    lasting: float  # seconds until a fault is repaired, or a hanging gang continues
    gang_spec: GangSpec | None = None


def plan(seed: int, seconds: float, mix: Mix) -> list[Step]:
    """Return all steps in the order of their times. With the scheduler proxy, few pods have gates."""
    arrivals = _arrivals(Random(f"{seed} arrivals"), seconds, mix)
    if mix.view:
        arrivals = [replace(step, gang_spec=_with_inverted_gates(step.gang_spec)) for step in arrivals]
    if mix.fates:
        arrivals = [replace(step, gang_spec=_with_half_bound(step, mix.fates)) for step in arrivals]
    faults = _faults(Random(f"{seed} faults"), seconds, mix)
    return sorted([*arrivals, *faults], key=lambda step: step.at)


def _with_inverted_gates(gang_spec: GangSpec | None) -> GangSpec | None:
    """Return a gang for the scheduler proxy: with gates if it had none, else without.

    Without gates, no removal of a gate can hang, so a binding hangs instead.
    """
    if gang_spec is None:
        return None
    if not gang_spec.gated:
        return replace(gang_spec, gated=True)
    return replace(gang_spec, gated=False, hangs_at="binding" if gang_spec.hangs_at else "")


def _with_half_bound(step: Step, fates: Mapping[str, float]) -> GangSpec | None:
    """Return the gang of a step. Two of three gangs hang at half of their bindings, and then meet a fault."""
    rng, gang_spec = Random(step.seed), step.gang_spec
    if gang_spec is None or gang_spec.kind != "gang" or gang_spec.min_member < 2 or rng.random() > 0.67:
        return gang_spec
    return replace(gang_spec, hangs_at="half", fate=rng.choices(list(fates), list(fates.values()))[0])


def _arrivals(rng: Random, seconds: float, mix: Mix) -> list[Step]:
    steps, at = list[Step](), 0.0
    while at < seconds:
        steps.append(Step(at, "arrive", _seed(rng), rng.uniform(2, 10), draw(rng, len(steps), mix.queues)))
        at += rng.expovariate(1 / mix.arrivals)
    return steps


def _faults(rng: Random, seconds: float, mix: Mix) -> list[Step]:
    """Return the steps with faults. They begin after the first gangs have arrived."""
    steps, at = list[Step](), 5.0
    while at < seconds:
        weights = mix.weights(at)
        kind = rng.choices(list(weights), list(weights.values()))[0]
        steps.append(Step(at, kind, _seed(rng), lasting=rng.uniform(1, 6)))
        at += rng.expovariate(1 / mix.faults)
    return steps


def is_rough(at: float) -> bool:
    """Return whether processes may be killed at this time."""
    return at % MINUTE < ROUGH_SECONDS


def _seed(rng: Random) -> int:
    return rng.getrandbits(32)
