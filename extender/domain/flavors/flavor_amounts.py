"""What queues hold of their flavors by now, in a round, against what they may hold there at most."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

from extender.domain.model.journal import Journal
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.resources import Resources, add, total
from extender.domain.model.shapes import Shape, requests_of
from extender.domain.queues.queue_rules import Flavor, flavor_on
from extender.domain.shares.comparisons import exceeded, excess
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.snapshot import Snapshot

Amounts = Mapping[tuple[str, str], Resources]
"""By queue and flavor."""


class FlavorAmounts:
    """Members count where their nodes are: which flavor a node belongs to follows from its labels."""

    def __init__(self, snapshot: Snapshot, journal: Journal) -> None:
        self._nodes = snapshot.nodes
        self._flavors = {name: view.record.flavors for name, view in snapshot.queues.items()}
        self._held = {
            (name, flavor): dict(amounts)
            for name, view in snapshot.queues.items()
            for flavor, amounts in view.by_flavor.items()
        }
        self._journal = journal
        self._on: dict[tuple[str, str], Flavor | None] = {}

    def of(self, queue: str) -> tuple[Flavor, ...]:
        """The flavors of a queue, in order; none where it divides nothing."""
        return self._flavors.get(queue, ())

    def on(self, queue: str, node: str) -> Flavor | None:
        """The flavor of a queue that a node belongs to; None for none."""
        if (queue, node) not in self._on:
            row = self._nodes.row.get(node)
            record = self._nodes.nodes[row] if row is not None else None
            self._on[queue, node] = flavor_on(self.of(queue), record.labels) if record else None
        return self._on[queue, node]

    # ---- taking

    def take(self, group: GroupView, plan: Mapping[Uid, str], times: int = 1) -> None:
        """Members hold their planned nodes; -1 times gives them back."""
        if not self.of(group.queue):
            return
        shapes: dict[str, Counter[Shape]] = {}
        for pod in group.waiting:
            flavor = self.on(group.queue, plan[pod.uid]) if pod.uid in plan else None
            if flavor is not None:
                shapes.setdefault(flavor.name, Counter())[pod.shape] += 1
        for name, of_flavor in shapes.items():
            asked = requests_of(of_flavor)
            self._count((group.queue, name), asked, times)
            self._journal.note(partial(self._count, (group.queue, name), asked, -times))

    def _count(self, flavor: tuple[str, str], amounts: Resources, times: int) -> None:
        add(self._held.setdefault(flavor, {}), amounts, times)

    # ---- looking

    @property
    def amounts(self) -> Amounts:
        """All that is held by now; never changed, if nothing is taken any more."""
        return self._held

    def above_capability(self, queue: str, flavor: Flavor, asked: Resources) -> str:
        """A sentence on how `asked` would be more than a queue may hold of a flavor; empty where it is
        not."""
        return excess(_named(asked, flavor.capability), self.held(queue, flavor), flavor.capability)

    def is_never_below_capability(self, flavor: Flavor, asked: Resources) -> bool:
        """Whether `asked` is more than that even if the queue held nothing."""
        return bool(exceeded(_named(asked, flavor.capability), {}, flavor.capability))

    def above_deserved(self, queue: str, flavor: Flavor, asked: Resources) -> str:
        """The same for what the queue may hold of a flavor before the rest is lent."""
        if flavor.deserved is None:
            return ""
        return excess(_named(asked, flavor.deserved), self.held(queue, flavor), flavor.deserved)

    def as_many_as(
        self,
        queue: str,
        flavor: Flavor,
        pods: Iterable[PodRecord],
        asked: dict[str, int],
        is_lent: bool,
    ) -> list[PodRecord]:
        """The first of `pods` that keep the queue within a flavor's capability and, unless room is lent,
        within what it deserves there. `asked`: what others ask of the flavor; these are added."""
        limit, held, admitted = _limit(flavor, is_lent), self.held(queue, flavor), []
        for pod in pods:
            more = total([asked, pod.shape.requests])
            if exceeded(_named(more, limit), held, limit):
                break
            asked.update(more)
            admitted.append(pod)
        return admitted

    def held(self, queue: str, flavor: Flavor) -> Resources:
        return self._held.get((queue, flavor.name), {})


def _limit(flavor: Flavor, is_lent: bool) -> dict[str, int]:
    limits = [flavor.capability] if is_lent else [flavor.capability, flavor.deserved or {}]
    names = {name for limit in limits for name in limit}
    return {name: min(limit[name] for limit in limits if name in limit) for name in names}


def _named(asked: Resources, limit: Resources) -> Resources:
    return {name: amount for name, amount in asked.items() if name in limit}
