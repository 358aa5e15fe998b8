"""The ProvisioningRequest of a group that lacks room, where its queue says that an autoscaler is asked so."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from operator import attrgetter

import msgspec

from extender.api.objects.base import Condition, condition
from extender.api.objects.queues import Provisioning
from extender.domain.model.records import GroupRecord, PodRecord
from extender.domain.model.shapes import Shape

MOST_POD_SETS = 32  # that the API server lets a request have
_LONGEST_PREFIX = 40  # with the digest a name stays below the 63 characters that a label may have
_LONGEST_MESSAGE = 256
_FAILED, _SPENT = "Failed", ("BookingExpired", "CapacityRevoked")


class PodSet(msgspec.Struct, frozen=True):
    """Members of one shape."""

    like: PodRecord  # the member whose specification is the template
    count: int  # how many there are, at least 1


class NodesWanted(msgspec.Struct, frozen=True):
    """A ProvisioningRequest as it should be."""

    name: str  # of the object, in the group's namespace
    class_name: str  # the autoscaler's class
    parameters: Mapping[str, str]  # what that class takes
    pod_sets: tuple[PodSet, ...]  # 1 to MOST_POD_SETS


def wanted_request(
    group: GroupRecord, provisioning: Provisioning, members: Iterable[PodRecord]
) -> NodesWanted | None:
    """For all members that wait, without gates of others. None: there is none, or of too many shapes."""
    waiting = [pod for pod in members if pod.waiting and not pod.foreign_gates]
    waiting.sort(key=attrgetter("order"))
    counts, first = Counter(pod.shape for pod in waiting), {pod.shape: pod for pod in reversed(waiting)}
    if not 0 < len(counts) <= MOST_POD_SETS:
        return None
    parameters = provisioning.parameters or {}
    request = (group.uid, provisioning.class_name, sorted(parameters.items()))
    shapes = sorted((_text_of(shape), count) for shape, count in counts.items())
    digest = hashlib.sha256(repr((request, shapes)).encode()).hexdigest()[:16]
    return NodesWanted(
        name=f"{group.name[:_LONGEST_PREFIX].rstrip('.-')}-{digest}",
        class_name=provisioning.class_name,
        parameters=parameters,
        pod_sets=tuple(PodSet(first[shape], count) for shape, count in counts.items()),
    )


def _text_of(shape: Shape) -> str:
    """The same for equal shapes in every process."""
    sets, terms = shape.constraints, shape.terms
    selected = [(term.topology_key, sorted(term.namespaces or ()), term.selector) for term in terms]
    rest = (sets.node_labels, sets.node_terms, sets.tolerations, sets.ports, sets.unplanned)
    return repr((sorted(shape.requests.items()), rest, selected))


def failure(conditions: list[Condition] | None) -> str:
    """Why the autoscaler has given a request up, for people; empty if it has not."""
    failed = condition(conditions, _FAILED)
    if failed is None or failed.status != "True":
        return ""
    return (failed.message or failed.reason or _FAILED)[:_LONGEST_MESSAGE]


def is_spent(conditions: list[Condition] | None) -> bool:
    """Whether nodes came and are kept no longer, so that a new request is needed."""
    found = [condition(conditions, kind) for kind in _SPENT]
    return any(said is not None and said.status == "True" for said in found)
