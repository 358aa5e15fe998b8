"""Which groups are expected to run for as long as each other."""

from collections import Counter

from extender.domain.model.run_history import RunKind
from extender.domain.model.shapes import requests_of
from extender.domain.snapshot.group_view import GroupView


def kind_of(group: GroupView) -> RunKind:
    return group.once(_kind_of)


def _kind_of(group: GroupView) -> RunKind:
    pods = (*group.placed, *(pod for pod, _ in group.pinned), *group.waiting)
    asks = requests_of(Counter(pod.shape for pod in pods))
    return RunKind(group.queue, group.series, frozenset(asks.items()))
