"""When a group has stood whole: from then on, losing members never undoes the rest.

All needed members are on nodes, and none of them failed within a grace. A kubelet that refuses a pod does so
within seconds and before any container runs, so a container that has run shows that the kubelet took the pod.
An image that is still being pulled, or a volume that is still being mounted, is not a failure.
"""

from collections import Counter
from math import inf

from extender.domain.lifecycle.quorum import whole
from extender.domain.snapshot.group_view import GroupView


def whole_at(group: GroupView, grace: float) -> float | None:
    """The moment at which the members on nodes make the group one that stood whole; None: they are too
    few."""
    since = group.once(_whole_since)
    return None if since is None else since + grace


def _whole_since(group: GroupView) -> float | None:
    """Since when enough members have been on nodes; -inf: enough of them have run; None: they are too few."""
    members = sorted(
        (-inf if pod.started else group.bound_since.get(pod.uid, 0.0), pod.uid, pod.role)
        for pod in group.placed
    )
    roles: Counter[str] = Counter()
    for count, (since, _, role) in enumerate(members, start=1):
        roles[role] += 1
        if whole(group.min_member, group.min_task_member, roles, count):
            return since
    return None
