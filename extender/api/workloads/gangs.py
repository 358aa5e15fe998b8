"""Gang size: the number of a job's pods that start together.

The first of these sources with a value decides:

    the job's annotation ── its pod template's ── its namespace's ── its queue's ── its kind

The annotation is `kube-muster.io/min-member`: `all`, or a number.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from extender.api import keys
from extender.api.units import is_count
from extender.api.workloads.shape import MAX_INT, Json, WorkloadRow, value_at

ALL = "all"
ORDERED_READY = "OrderedReady"
IN_TURN_TEXT = "they are created one after another"
_REMEDY = "create the StatefulSet again with spec.podManagementPolicy: Parallel, or remove the annotation"


class MadePods(msgspec.Struct, frozen=True, gc=False):
    """Pods that a controller makes for one group, and the gang sizes that its annotations request."""

    pods: int = 1  # pods that exist before any of them has ended
    sets: int = 1  # number of pod sets
    at_once: int = 1  # pods that exist before any of them runs
    is_together: bool = False  # whether the pods of this kind must run together
    requested: str = ""  # text of Muster's annotation; empty without it
    volcano: int | None = None  # number in Volcano's annotation, 1 if it is no number; None without it
    may_scale: bool = False  # whether the number of pods may change while pods run


class GangSize(NamedTuple):
    members: int  # number of pods that start together
    fault: str = ""  # fault of an annotation; `members` is then the default


class Defaults(NamedTuple):
    """Gang sizes in the annotations of a namespace and a queue; empty without an annotation."""

    namespace: str = ""
    queue: str = ""


def gang_of(row: WorkloadRow | None, obj: Json, counts: Mapping[str, int]) -> MadePods:
    """Return the pods of a job and its requested gang sizes.

    Args:
        row: The row of the job's kind; None if the kind is unknown.
        obj: The job.
        counts: The number of pods at the start, by role.

    Raises:
        SHAPE_ERRORS: The object cannot be read.
    """
    pods = sum(counts.values())
    requested, volcano = requested_sizes(value_at(obj, ("metadata", "annotations")) or {})
    if row is None:
        return MadePods(pods, len(counts), at_once=pods, requested=requested, volcano=volcano)
    dependent_roles = row.dependent_roles(obj, counts)
    independent_count = sum(count for role, count in counts.items() if role not in dependent_roles)
    at_once = row.at_once(obj, counts) if row.at_once else independent_count
    return MadePods(pods, len(counts), at_once, row.together(obj), requested=requested, volcano=volcano)


def gang_of_replicas(annotations: Mapping[str, str], replicas: int | None, policy: str) -> MadePods:
    """Return the pods of a ReplicaSet or StatefulSet and its requested gang sizes.

    Args:
        annotations: The annotations of the object.
        replicas: The spec.replicas of the object; None if it is not set.
        policy: Its spec.podManagementPolicy.
    """
    requested, volcano = requested_sizes(annotations)
    pods = 1 if replicas is None else replicas
    at_once = min(pods, 1) if policy == ORDERED_READY else pods
    may_scale = replicas is not None
    return MadePods(pods, at_once=at_once, requested=requested, volcano=volcano, may_scale=may_scale)


def requested_sizes(annotations: Mapping[str, str]) -> tuple[str, int | None]:
    """Return the gang sizes in Muster's and Volcano's annotation: `requested` and `volcano` of MadePods."""
    requested, text = annotations.get(keys.MIN_MEMBER, ""), annotations.get(keys.VOLCANO_MIN_MEMBER)
    if text is None:
        return requested, None
    return requested, int(text) if is_count(text) else 1


def gang_size_of(gang: MadePods | None, template: str, defaults: Defaults, waits: bool) -> GangSize:
    """Return the number of pods that start together.

    Args:
        gang: The pods of the job; None if the owner of the pods is unknown.
        template: The annotation of the pod template.
        defaults: The defaults of the namespace and the queue.
        waits: Whether the job is suspended until its start. Such a job needs capacity for all its pods.
    """
    maximum = None
    if gang:
        maximum = gang.pods if waits else gang.at_once
    default = maximum if gang and maximum and (waits or gang.is_together) else 1
    annotation = (gang.requested if gang else "") or template
    if annotation:
        return _read(annotation, gang, maximum, default)
    if gang and gang.volcano is not None and not waits:
        where = f"annotation {keys.VOLCANO_MIN_MEMBER}"
        return _scaled_size(gang.volcano, gang, where) if gang.may_scale else GangSize(gang.volcano)
    for text, source in ((defaults.namespace, "of its namespace"), (defaults.queue, "of its queue")):
        if text and maximum is not None:
            size = _read(text, None, maximum, default, source)
            return size._replace(members=min(size.members, max(maximum, 1)))
    return GangSize(default)


def _read(text: str, gang: MadePods | None, maximum: int | None, default: int, source: str = "") -> GangSize:
    """Return the gang size that an annotation requests.

    Args:
        text: The text of the annotation.
        gang: The pods of the job.
        maximum: The maximum size; None if unknown.
        default: The size to use if the text is invalid.
        source: The object that has the annotation, for the message; empty for the job.
    """
    where = " ".join(filter(None, (f"annotation {keys.MIN_MEMBER}", source)))
    scalable_gang = gang if gang is not None and gang.may_scale else None
    if text == ALL and scalable_gang is not None:
        return _scaled_size(scalable_gang.pods, scalable_gang, where)
    if text == ALL and maximum is not None:
        return GangSize(max(maximum, 1))
    if text == ALL:
        fault = f"{where}: invalid value {ALL!r}: how many pods that is, is not known: write a number"
        return GangSize(default, fault)
    if not (is_count(text) and 0 < int(text) <= MAX_INT):
        fault = f"{where}: invalid value {text!r:.50}: must be {ALL}, or a whole number from 1"
        return GangSize(default, fault)
    number = int(text)
    if scalable_gang is not None:
        return _scaled_size(number, scalable_gang, where)
    if gang is not None and 0 < gang.pods < number:
        return GangSize(default, f"{where}: invalid value {number}: it makes {gang.pods} at once")
    return GangSize(number if maximum is None else max(min(number, maximum), 1))


def _scaled_size(number: int, gang: MadePods, where: str) -> GangSize:
    """Return the size of a gang whose number of pods can change. The maximum is the current number of pods.

    The minimum is 1, because a rolling update begins with one new pod.
    """
    members = max(min(number, gang.pods), 1)
    if members > max(gang.at_once, 1):
        return GangSize(1, f"{where}: {members} pods cannot start together: {IN_TURN_TEXT}; {_REMEDY}")
    return GangSize(members)
