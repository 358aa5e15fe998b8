"""Resizing a pod in place: what it grows by is taken from its queue without a start, so it is judged here."""

from collections.abc import Iterator

from extender.api.objects import Pod
from extender.api.quantities import BadQuantity
from extender.domain.admission.faults import Code, Fault
from extender.domain.admission.submission import Cluster, Destination
from extender.domain.model.requests import pod_requests
from extender.domain.model.resources import Resources, show
from extender.domain.queues.queue_view import QueueView

_FIELD = "spec.containers[*].resources.requests"


def growth(before: Pod, now: Pod) -> Resources:
    """What a pod asks for on top of what it asked for. A quantity that cannot be read is the API server's to
    refuse, and nothing here."""
    try:
        had, has = pod_requests(before.spec), pod_requests(now.spec)
    except BadQuantity:
        return {}
    return {name: amount - had.get(name, 0) for name, amount in has.items() if amount > had.get(name, 0)}


def judge_growth(more: Resources, to: Destination, cluster: Cluster) -> list[Fault]:
    """Whether the queue's capability has room for `more`. What the capability does not list is free."""
    view = cluster.queue_view(to.queue)
    return list(_faults(more, view)) if view else []


def _faults(more: Resources, queue: QueueView) -> Iterator[Fault]:
    capability = queue.record.capability or {}
    for name, amount in more.items():
        held = queue.allocated.get(name, 0)
        if name in capability and held + amount > capability[name]:
            text = (
                f"got {show(name, amount)} {name} more, and queue {queue.record.name!r} holds "
                f"{show(name, held)} of {show(name, capability[name])}: "
                "free some, or raise spec.capability of the queue"
            )
            yield Fault(Code.RESIZE_ABOVE_CAPABILITY, _FIELD, text)
