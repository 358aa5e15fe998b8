"""Commands that may help a pending object, by reason: their codes, fields and rights.

No command changes a setting of Muster, because the next `kubectl apply` of the install would undo the change.

Users paste the commands into a shell. Texts of tenants (annotations, spec.queue, owner references) are
therefore used only if they are valid names of objects. Other commands are left out (`safe_offers`).
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from extender.cli.kinds import job_of, job_row
from extender.cli.output import numeric
from extender.cli.why.evidence import Evidence, OtherGroup
from extender.cli.why.explanation import COMMANDS, Offer
from extender.domain.explain.observed import ObservedGroup
from extender.domain.model.reasons import Reason
from extender.domain.model.records import Origin
from extender.domain.model.resources import show
from extender.kube import resources as kube
from extender.kube.access import Right, right_to
from extender.kube.resources import Resource, resource_of
from extender.terminal.text import counted, near_miss, pods_that_name

_NAME = "[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"

_NAMES = {  # patterns of the fields that have names; the last two may have a kind
    **dict.fromkeys(("namespace", "queue", "group", "pod"), _NAME),
    **dict.fromkeys(("name", "whole"), rf"(?:[a-z0-9.]+/)?{_NAME}"),
}
_RESOURCE = re.compile(rf"(?:{_NAME}/)?[A-Za-z0-9][-A-Za-z0-9_.]{{0,62}}")
_OF_MUSTER = Right("list", "apps", kube.DEPLOYMENTS.plural, "", "kube-muster")


class Case(NamedTuple):
    """Pending object for which commands are searched.

    Attributes:
        missing_group: The group that the pod names, if that group does not exist.
        member_count: The number of members of the group, or of pods that name `missing_group`.
        other: The group, if it is a PodGroup of an API other than Volcano's.
    """

    evidence: Evidence
    queue: str = ""
    group: ObservedGroup | None = None
    pod: str = ""
    missing_group: str = ""
    member_count: int = 0
    other: OtherGroup | None = None

    @property
    def namespace(self) -> str:
        return self.evidence.namespace

    def offer(self, code: str, right: Right, **fields: object) -> Offer:
        fields_of_case = {"namespace": self.namespace, "queue": self.queue, "pod": self.pod}
        fields_of_case |= {"group": self.group.name if self.group else ""}
        return Offer(code, right=right, allowed=self.evidence.may(right), **{**fields_of_case, **fields})

    def for_queue(self, code: str, queue: str = "", **fields: object) -> Offer:
        """Return a command that changes a queue: the named queue, else the queue of the object."""
        right = right_to("patch", kube.QUEUES, name=queue or self.queue)
        return self.offer(code, right, **{"queue": queue or self.queue, **fields})

    def right_to(self, verb: str, resource: Resource) -> Right:
        return right_to(verb, resource, self.namespace)


def commands(reason: str, case: Case) -> list[Offer]:
    offers = _OFFERS.get(reason)
    return safe_offers(offers(case)) if offers else []


def safe_offers(offers: Iterable[Offer]) -> list[Offer]:
    """Return the commands in which all names are valid names of objects."""
    return [offer for offer in offers if _is_safe(offer)]


def _is_safe(offer: Offer) -> bool:
    fields = (field for field in _NAMES if f"{{{field}}}" in COMMANDS[offer.code])
    return all(re.fullmatch(_NAMES[field], vars(offer)[field]) for field in fields)


def check_offer(case: Case) -> Offer:
    return case.offer("CheckMuster", _OF_MUSTER)


def open_offer(case: Case) -> Offer:
    """Return the command that opens a queue. If a queue above it is closed, the command opens that one."""
    return case.for_queue("OpenQueue", case.evidence.closed_above(case.queue))


def _is_name(text: str) -> bool:
    return re.fullmatch(_NAME, text) is not None


def _without_group(case: Case) -> Iterator[Offer]:
    if not case.missing_group:
        return
    if similar := near_miss(case.missing_group, (group.name for group in case.evidence.groups_here)):
        yield case.offer("NameGroup", case.right_to("patch", kube.PODS), group=similar)
    if _is_name(case.missing_group):
        metadata = {"name": case.missing_group}
        head = {"apiVersion": kube.POD_GROUPS.version, "kind": "PodGroup", "metadata": metadata}
        manifest = json.dumps({**head, "spec": {"minMember": max(1, case.member_count)}})
        right, pods = case.right_to("create", kube.POD_GROUPS), pods_that_name(max(1, case.member_count))
        yield case.offer("CreateGroup", right, manifest=manifest, pods=pods)


def _without_queue(case: Case) -> Iterator[Offer]:
    if similar := near_miss(case.queue, case.evidence.queues or ()):
        yield from _changed_group(case, "NameQueue", {"queue": similar}, queue=similar)
    yield case.offer("CreateQueue", right_to("create", kube.QUEUES))


# ---- the group's own fields


class _ChangedObject(NamedTuple):
    """Object that a user changes to change a group: the job for which Muster made the group, or the group."""

    name: str  # in kubectl's notation
    kind: str
    right: Right


def _changed_object(case: Case) -> _ChangedObject | None:
    """Return the object to change; None if Muster made the group for an owner that is no job."""
    if (group := case.group) is None:
        return None
    if (controller := group.controller) is None:
        right = case.right_to("patch", kube.POD_GROUPS)
        return _ChangedObject(f"podgroup.scheduling.volcano.sh {group.name}", "PodGroup", right)
    row = job_row(controller.api_version, controller.kind)
    if row is None or not _is_name(controller.name):
        return None
    right = right_to("patch", resource_of(row), case.namespace, controller.name)
    return _ChangedObject(f"{row.plural}.{row.group} {controller.name}", controller.kind, right)


def _changed_group(case: Case, code: str, spec: Mapping[str, object], **fields: object) -> Iterator[Offer]:
    """Yield the command that patches the group, unless Muster made the group for an owner."""
    target = _changed_object(case) if case.group and not case.group.controller else None
    if target is not None:
        patch = json.dumps({"spec": spec})
        yield case.offer(code, target.right, what=target.name, patch=patch, **fields)


def _edited(case: Case) -> Iterator[Offer]:
    """Yield the command that edits the invalid object: the queue if its status has a fault."""
    queue = case.evidence.queue(case.queue)
    if queue and queue.has_fault:
        yield case.for_queue("EditQueue")
    elif submitted := _changed_object(case):
        yield case.offer("Edit", submitted.right, what=submitted.name)


def _recorded_use(case: Case) -> Iterator[Offer]:
    if submitted := _changed_object(case):
        right = right_to("use", kube.QUEUES, name=case.queue)
        yield case.offer("RecordUse", right, what=submitted.name, kind=submitted.kind)


def _fewer_members(case: Case) -> Iterator[Offer]:
    """Yield commands that lower the minimum, if the group lacks nothing but members."""
    group, other, pods = case.group, case.other, counted(case.member_count, "pod")
    if other and 0 < case.member_count < other.record.min_member and other.record.origin is not Origin.ALPHA:
        spec: object = case.member_count
        for field in reversed(other.minimum_path):
            spec = {field: spec}
        target, patch = f"podgroup.{other.resource.group} {other.record.name}", json.dumps({"spec": spec})
        right = case.right_to("patch", other.resource)
        yield case.offer("PatchNumber", right, what=target, patch=patch, pods=pods)
    if group and 0 < case.member_count < group.spec.min_member and not group.spec.min_task_member:
        job = _changed_object(case) if group.controller else None
        if job is not None:
            numbers = {"member_count": case.member_count, "pods": pods}
            yield case.offer("AnnotateNumber", job.right, what=job.name, **numbers)
        yield from _changed_group(case, "PatchNumber", {"minMember": case.member_count}, pods=pods)


def _command(
    code: str, of_job: str, of_group: str, verb: str, resource: Resource
) -> Callable[[Case], Iterator[Offer]]:
    """Return a function that yields the command `of_job` for groups of jobs, else the command `of_group`."""

    def offers(case: Case) -> Iterator[Offer]:
        if case.group:
            job = job_of(case.group.controller)
            command, name = (of_job, job.display_name) if job else (of_group, case.group.name)
            yield case.offer(code, case.right_to(verb, resource), command=command, name=name)

    return offers


_resumed = _command("Resume", of_job="job resume", of_group="resume", verb="patch", resource=kube.POD_GROUPS)
_described = _command(
    "Describe", of_job="job describe", of_group="podgroup describe", verb="list", resource=kube.EVENTS
)


def _scheduler_message(case: Case) -> Iterator[Offer]:
    if case.pod:
        yield case.offer("DescribePod", case.right_to("list", kube.EVENTS))


# ---- the queue that keeps it waiting


def _opened(case: Case) -> Iterator[Offer]:
    queue = case.evidence.queue(case.queue)
    if not (queue and queue.metadata.deletion_timestamp):
        yield open_offer(case)


def _queue_resumed(case: Case) -> Iterator[Offer]:
    """Yield the command that resumes the queue, or the LocalQueue if only the LocalQueue is stopped."""
    queue = case.evidence.queue(case.queue)
    admits = queue is None or not queue.is_stopped
    stopped = case.evidence.stopped_local_queue(case.group) if case.group and admits else None
    if stopped is not None:
        right = right_to("patch", kube.LOCAL_QUEUES, stopped.namespace, stopped.name)
        local_queue_fields = {"namespace": stopped.namespace, "name": stopped.name}
        patch = json.dumps({"spec": {"stopPolicy": "None"}})
        yield case.offer("ResumeLocalQueue", right, patch=patch, **local_queue_fields)
    else:
        yield case.for_queue("ResumeQueue")


def _namespace_labelled(case: Case) -> Iterator[Offer]:
    """Yield the command that labels the namespace, if the queue selects namespaces by labels only."""
    queue = case.evidence.queue(case.queue)
    selector = queue.spec.namespace_selector if queue else None
    if selector is not None and selector.match_labels and not selector.match_expressions:
        labels = " ".join(f"{key}={value}" for key, value in sorted(selector.match_labels.items()))
        right = right_to("patch", kube.NAMESPACES, name=case.namespace)
        yield case.offer("LabelNamespace", right, labels=labels)


def _higher_capability(case: Case) -> Iterator[Offer]:
    """Yield commands that raise capabilities until the group fits.

    Amounts are in usual units, unless these would round the amount down.
    """
    raised: dict[str, list[str]] = {}
    for missing in case.group.waiting.capability if case.group else ():
        number = numeric(missing.resource, missing.amount)
        if number <= 0 or not _RESOURCE.fullmatch(missing.resource):
            continue
        text = show(missing.resource, number)
        exact = text if numeric(missing.resource, text) >= number else missing.amount
        raised.setdefault(missing.queue, []).append(f"{missing.resource}={exact}")
    for queue, amounts in raised.items():
        yield case.for_queue("RaiseCapability", queue, amounts=",".join(amounts))


def _larger_share(case: Case) -> Iterator[Offer]:
    if queue := case.evidence.queue(case.queue):
        yield case.for_queue("RaiseWeight", weight=2 * queue.spec.weight)


def _overtaking(case: Case) -> Iterator[Offer]:
    for first in case.group.waiting.ahead[:1] if case.group else ():
        namespace, _, name = first.partition("/")
        right = right_to("get", kube.POD_GROUPS, namespace)
        yield case.offer("AskFirst", right, namespace=namespace, group=name)
    yield case.for_queue("LetOvertake")


_OFFERS: Mapping[str, Callable[[Case], Iterator[Offer]]] = {
    Reason.GROUP_NOT_FOUND: _without_group,
    Reason.QUEUE_NOT_FOUND: _without_queue,
    Reason.INVALID_SPEC: _edited,
    Reason.QUEUE_NOT_OPEN: _opened,
    Reason.NAMESPACE_NOT_ALLOWED: _namespace_labelled,
    Reason.QUEUE_NOT_ALLOWED: _recorded_use,
    Reason.QUEUE_STOPPED: _queue_resumed,
    Reason.HELD: _resumed,
    Reason.START_TIMED_OUT: lambda case: chain(_described(case), _resumed(case)),
    Reason.NOT_ENOUGH_MEMBERS: _fewer_members,
    Reason.NEVER_FITS: _higher_capability,
    Reason.QUEUE_CEILING: _higher_capability,
    Reason.QUEUE_SHARE: _larger_share,
    Reason.BEHIND_OTHERS: _overtaking,
    Reason.BACKING_OFF: _described,
    Reason.REFUSED_BY_SCHEDULER: _scheduler_message,
    Reason.NOT_READY: lambda case: iter([check_offer(case)]),
}
