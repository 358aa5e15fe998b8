"""In-place resizes of pods: a pod's growth is taken from its queue without a start, so it is judged here."""

from collections.abc import Iterator

from extender.api.objects.pods import Pod
from extender.api.quantities import BadQuantity
from extender.domain.admission.faults import Code, Fault
from extender.domain.admission.submission import Cluster, Destination
from extender.domain.model.requests import pod_requests
from extender.domain.model.resources import Resources, show
from extender.domain.queues.queue_view import QueueView

_FIELD = "spec.containers[*].resources.requests"


def growth(before: Pod, now: Pod) -> Resources:
    """What a pod asks for now in addition to before. Empty if a quantity cannot be read, which the API server
    itself refuses."""
    try:
        had, has = pod_requests(before.spec), pod_requests(now.spec)
    except BadQuantity:
        return {}
    return {name: amount - had.get(name, 0) for name, amount in has.items() if amount > had.get(name, 0)}


def judge_growth(more: Resources, to: Destination, cluster: Cluster) -> list[Fault]:
    """Faults unless the queue's capability has room for `more`. A resource that it does not list is
    unlimited."""
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
