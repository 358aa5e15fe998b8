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
from extender.domain.explain.observed_objects import ObservedGroup
from extender.domain.model.reasons import Reason
from extender.domain.model.records import Origin
from extender.domain.model.resources import show
from extender.kube import resources as kube
from extender.kube.access import Right, right_to
from extender.kube.resources import Resource, resource_of
from extender.terminal.text import counted, near_miss, pods_that_name

_NAME_PATTERN = "[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"

_PATTERN_BY_FIELD = {  # patterns of the fields that have names; the last two may have a kind
    **dict.fromkeys(("namespace", "queue", "group", "pod"), _NAME_PATTERN),
    **dict.fromkeys(("name", "whole"), rf"(?:[a-z0-9.]+/)?{_NAME_PATTERN}"),
}
_RESOURCE_RE = re.compile(rf"(?:{_NAME_PATTERN}/)?[A-Za-z0-9][-A-Za-z0-9_.]{{0,62}}")
_CHECK_RIGHT = Right("list", "apps", kube.DEPLOYMENTS.plural, "", "kube-muster")


class Case(NamedTuple):
    """Pending object for which commands are searched.

    Attributes:
        missing_group: The group that the pod names, if that group does not exist.
        member_count: The number of members of the group, or of pods that name `missing_group`.
        other_group: The group, if it is a PodGroup of an API other than Volcano's.
    """

    evidence: Evidence
    queue: str = ""
    group: ObservedGroup | None = None
    pod: str = ""
    missing_group: str = ""
    member_count: int = 0
    other_group: OtherGroup | None = None

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
    offers = _OFFERS_BY_REASON.get(reason)
    return safe_offers(offers(case)) if offers else []


def safe_offers(offers: Iterable[Offer]) -> list[Offer]:
    """Return the commands in which all names are valid names of objects."""
    return [offer for offer in offers if _is_safe(offer)]


def _is_safe(offer: Offer) -> bool:
    fields = (field for field in _PATTERN_BY_FIELD if f"{{{field}}}" in COMMANDS[offer.code])
    return all(re.fullmatch(_PATTERN_BY_FIELD[field], vars(offer)[field]) for field in fields)


def check_offer(case: Case) -> Offer:
    return case.offer("CheckMuster", _CHECK_RIGHT)


def open_offer(case: Case) -> Offer:
    """Return the command that opens a queue.

    If queues above this queue are closed, the command opens the topmost closed queue.
    """
    return case.for_queue("OpenQueue", case.evidence.closed_above(case.queue))


def _is_name(text: str) -> bool:
    return re.fullmatch(_NAME_PATTERN, text) is not None


def _group_offers(case: Case) -> Iterator[Offer]:
    """Yield commands that correct the name of the missing group in the pod, or that create the group."""
    if not case.missing_group:
        return
    if similar_name := near_miss(case.missing_group, (group.name for group in case.evidence.groups_here)):
        yield case.offer("NameGroup", case.right_to("patch", kube.PODS), group=similar_name)
    if _is_name(case.missing_group):
        metadata = {"name": case.missing_group}
        head = {"apiVersion": kube.POD_GROUPS.version, "kind": "PodGroup", "metadata": metadata}
        manifest = json.dumps({**head, "spec": {"minMember": max(1, case.member_count)}})
        right, pods = case.right_to("create", kube.POD_GROUPS), pods_that_name(max(1, case.member_count))
        yield case.offer("CreateGroup", right, manifest=manifest, pods=pods)


def _queue_offers(case: Case) -> Iterator[Offer]:
    if similar_name := near_miss(case.queue, case.evidence.queues or ()):
        yield from _patch_offers(case, "NameQueue", {"queue": similar_name}, queue=similar_name)
    yield case.offer("CreateQueue", right_to("create", kube.QUEUES))


# ---- the group's own fields


class _ChangedObject(NamedTuple):
    """Object that a user has to change: the job for which Muster made the group, or else the group itself."""

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


def _patch_offers(case: Case, code: str, spec: Mapping[str, object], **fields: object) -> Iterator[Offer]:
    """Yield the command that patches the group, unless Muster made the group for an owner."""
    target = _changed_object(case) if case.group and not case.group.controller else None
    if target is not None:
        patch = json.dumps({"spec": spec})
        yield case.offer(code, target.right, what=target.name, patch=patch, **fields)


def _edit_offers(case: Case) -> Iterator[Offer]:
    """Yield the command that edits the invalid object: the queue if its status has a fault."""
    queue = case.evidence.queue(case.queue)
    if queue and queue.has_fault:
        yield case.for_queue("EditQueue")
    elif target := _changed_object(case):
        yield case.offer("Edit", target.right, what=target.name)


def _use_offers(case: Case) -> Iterator[Offer]:
    """Yield the command that records that the author may use the queue."""
    if target := _changed_object(case):
        right = right_to("use", kube.QUEUES, name=case.queue)
        yield case.offer("RecordUse", right, what=target.name, kind=target.kind)


def _minimum_offers(case: Case) -> Iterator[Offer]:
    """Yield commands that lower the minimum, if the group lacks nothing but members."""
    group, other, pods = case.group, case.other_group, counted(case.member_count, "pod")
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
        yield from _patch_offers(case, "PatchNumber", {"minMember": case.member_count}, pods=pods)


def _command(
    code: str, of_job: str, of_group: str, verb: str, resource: Resource
) -> Callable[[Case], Iterator[Offer]]:
    """Return a function that yields the offer of a command: `of_job` for a job's group, else `of_group`."""

    def offers(case: Case) -> Iterator[Offer]:
        if case.group:
            job = job_of(case.group.controller)
            command, name = (of_job, job.display_name) if job else (of_group, case.group.name)
            yield case.offer(code, case.right_to(verb, resource), command=command, name=name)

    return offers


_resume_offer = _command("Resume", "job resume", "resume", verb="patch", resource=kube.POD_GROUPS)
_describe_offer = _command("Describe", "job describe", "podgroup describe", verb="list", resource=kube.EVENTS)


def _pod_offers(case: Case) -> Iterator[Offer]:
    if case.pod:
        yield case.offer("DescribePod", case.right_to("list", kube.EVENTS))


# ---- the queue for which the group waits


def _open_offers(case: Case) -> Iterator[Offer]:
    queue = case.evidence.queue(case.queue)
    if not (queue and queue.metadata.deletion_timestamp):
        yield open_offer(case)


def _queue_resume_offer(case: Case) -> Iterator[Offer]:
    """Yield the command that resumes the queue, or the LocalQueue if only the LocalQueue is stopped."""
    queue = case.evidence.queue(case.queue)
    admits = queue is None or not queue.is_stopped
    local_queue = case.evidence.stopped_local_queue(case.group) if case.group and admits else None
    if local_queue is not None:
        right = right_to("patch", kube.LOCAL_QUEUES, local_queue.namespace, local_queue.name)
        local_queue_fields = {"namespace": local_queue.namespace, "name": local_queue.name}
        patch = json.dumps({"spec": {"stopPolicy": "None"}})
        yield case.offer("ResumeLocalQueue", right, patch=patch, **local_queue_fields)
    else:
        yield case.for_queue("ResumeQueue")


def _label_offers(case: Case) -> Iterator[Offer]:
    """Yield the command that labels the namespace, if the queue selects namespaces by labels only."""
    queue = case.evidence.queue(case.queue)
    selector = queue.spec.namespace_selector if queue else None
    if selector is not None and selector.match_labels and not selector.match_expressions:
        labels = " ".join(f"{key}={value}" for key, value in sorted(selector.match_labels.items()))
        right = right_to("patch", kube.NAMESPACES, name=case.namespace)
        yield case.offer("LabelNamespace", right, labels=labels)


def _capability_offers(case: Case) -> Iterator[Offer]:
    """Yield commands that raise capabilities until the group fits.

    Amounts are in usual units. If the usual unit would round an amount down, the amount stays exact.
    """
    amounts_by_queue: dict[str, list[str]] = {}
    for missing in case.group.waiting.capability if case.group else ():
        number = numeric(missing.resource, missing.amount)
        if number <= 0 or not _RESOURCE_RE.fullmatch(missing.resource):
            continue
        text = show(missing.resource, number)
        exact_text = text if numeric(missing.resource, text) >= number else missing.amount
        amounts_by_queue.setdefault(missing.queue, []).append(f"{missing.resource}={exact_text}")
    for queue, amounts in amounts_by_queue.items():
        yield case.for_queue("RaiseCapability", queue, amounts=",".join(amounts))


def _share_offers(case: Case) -> Iterator[Offer]:
    if queue := case.evidence.queue(case.queue):
        yield case.for_queue("RaiseWeight", weight=2 * queue.spec.weight)


def _overtaking_offers(case: Case) -> Iterator[Offer]:
    """Yield the command that explains the first group ahead, and the command that lets groups overtake."""
    for group_key in case.group.waiting.ahead[:1] if case.group else ():
        namespace, _, name = group_key.partition("/")
        right = right_to("get", kube.POD_GROUPS, namespace)
        yield case.offer("AskFirst", right, namespace=namespace, group=name)
    yield case.for_queue("LetOvertake")


_OFFERS_BY_REASON: Mapping[str, Callable[[Case], Iterator[Offer]]] = {
    Reason.GROUP_NOT_FOUND: _group_offers,
    Reason.QUEUE_NOT_FOUND: _queue_offers,
    Reason.INVALID_SPEC: _edit_offers,
    Reason.QUEUE_NOT_OPEN: _open_offers,
    Reason.NAMESPACE_NOT_ALLOWED: _label_offers,
    Reason.QUEUE_NOT_ALLOWED: _use_offers,
    Reason.QUEUE_STOPPED: _queue_resume_offer,
    Reason.HELD: _resume_offer,
    Reason.START_TIMED_OUT: lambda case: chain(_describe_offer(case), _resume_offer(case)),
    Reason.NOT_ENOUGH_MEMBERS: _minimum_offers,
    Reason.NEVER_FITS: _capability_offers,
    Reason.QUEUE_CEILING: _capability_offers,
    Reason.QUEUE_SHARE: _share_offers,
    Reason.BEHIND_OTHERS: _overtaking_offers,
    Reason.BACKING_OFF: _describe_offer,
    Reason.REFUSED_BY_SCHEDULER: _pod_offers,
    Reason.NOT_READY: lambda case: iter([check_offer(case)]),
}
