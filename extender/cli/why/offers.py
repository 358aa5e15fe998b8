"""Commands that are offered to help what waits: what each is for, and the right that it takes. Settings of
Muster have none: the next `kubectl apply` of the install would undo a change in the cluster.

What tenants write reaches a shell here: texts that may be anything (annotations, spec.queue, conditions)
enter a command only as names that an object may have.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from extender.api.keys import GROUP_ANNOTATION, MAY_USE, MIN_MEMBER
from extender.api.summaries import CommandSummary
from extender.cli.kinds import job_of, job_row
from extender.cli.output import number
from extender.cli.why.evidence import Evidence, OtherGroup
from extender.domain.explain.observed import ObservedGroup
from extender.domain.model.reasons import Reason
from extender.domain.model.records import Origin
from extender.domain.model.resources import show
from extender.kube import resources as kube
from extender.kube.access import Right, right_to
from extender.kube.resources import resource_of
from extender.terminal.text import near_miss

NAME = "[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"

_RESOURCE = re.compile(rf"(?:{NAME}/)?[A-Za-z0-9][-A-Za-z0-9_.]{{0,62}}")
_GROUP = "podgroup.scheduling.volcano.sh"
_QUEUE = "queue.scheduling.volcano.sh"
_LOCAL_QUEUE = f"{kube.LOCAL_QUEUES.plural}.{kube.LOCAL_QUEUES.group}"
_OF_MUSTER = Right("list", "apps", kube.DEPLOYMENTS.plural, "", "kube-muster")


class Offer(NamedTuple):
    """`purpose`: an infinitive without `to`."""

    purpose: str
    line: str
    right: Right


class Case(NamedTuple):
    """What waits, as far as the commands that may help it name it."""

    evidence: Evidence
    namespace: str
    queue: str = ""
    detail: str = ""
    group: ObservedGroup | None = None
    pod: str = ""
    wanted: str = ""  # the group that a pod names although there is none
    there: int = 0  # how many pods are its members, or name `wanted`
    other: OtherGroup | None = None  # its group, where that is not Volcano's


def commands(reason: str, case: Case) -> list[CommandSummary]:
    offers = _OFFERS.get(reason)
    return [offered(case.evidence, offer) for offer in offers(case)] if offers else []


def offered(evidence: Evidence, offer: Offer) -> CommandSummary:
    return CommandSummary(offer.purpose, offer.line, str(offer.right), evidence.may(offer.right))


# ---- commands that are offered in several places


def opening(queue: str, above: str) -> Offer:
    """`above`: the closed queue above it, with which it opens; empty if none is."""
    shut = above or queue
    purpose = "open the queue above it" if above else "open it"
    return Offer(purpose, f"muster queue open {shut}", right_to("patch", kube.QUEUES, name=shut))


def resuming(queue: str) -> Offer:
    right = right_to("patch", kube.QUEUES, name=queue)
    return Offer("let it admit groups again", f"muster queue resume {queue}", right)


def annotating(namespace: str, pods: list[str], group: str) -> str:
    return f"kubectl -n {namespace} annotate --overwrite pod {' '.join(pods)} {GROUP_ANNOTATION}={group}"


def describing(namespace: str, pod: str, purpose: str) -> Offer:
    line = f"kubectl -n {namespace} describe pod {pod}"
    return Offer(purpose, line, right_to("list", kube.EVENTS, namespace))


def checking() -> Offer:
    return Offer("look whether Muster works", "muster check", _OF_MUSTER)


def _is_name(text: str) -> bool:
    return re.fullmatch(NAME, text) is not None


def _without_group(case: Case) -> Iterator[Offer]:
    if not case.wanted:
        return
    right = right_to("patch", kube.PODS, case.namespace)
    if meant := near_miss(case.wanted, (group.name for group in case.evidence.groups_here)):
        line = annotating(case.namespace, [case.pod], meant)
        yield Offer(f"name the group {meant}", line, right)
    if not _is_name(case.wanted):
        return
    new = {"apiVersion": kube.POD_GROUPS.version, "kind": "PodGroup", "metadata": {"name": case.wanted}}
    text = json.dumps({**new, "spec": {"minMember": max(1, case.there)}})
    line = f"echo '{text}' | kubectl -n {case.namespace} create -f -"
    pods = f"the {case.there} pods that name it" if case.there > 1 else "the pod"
    yield Offer(f"create it for {pods}", line, right_to("create", kube.POD_GROUPS, case.namespace))


def _without_queue(case: Case) -> Iterator[Offer]:
    if meant := near_miss(case.queue, case.evidence.queues or ()):
        yield from _changed_group(case, f"name the queue {meant}", {"queue": meant})
    if _is_name(case.queue):
        yield Offer("create it", f"muster queue create {case.queue}", right_to("create", kube.QUEUES))


# ---- the group's own fields


def _changed_group(case: Case, purpose: str, spec: dict[str, object]) -> Iterator[Offer]:
    """Nothing for a group that Muster made: what it is made from would have to change."""
    if case.group and not case.group.maker:
        patch = json.dumps({"spec": spec})
        line = f"kubectl -n {case.namespace} patch {_GROUP} {case.group.name} --type merge -p '{patch}'"
        yield Offer(purpose, line, right_to("patch", kube.POD_GROUPS, case.namespace))


def _edited(case: Case) -> Iterator[Offer]:
    """Whose specification is invalid: the queue's where the queue says so itself."""
    queue = case.evidence.queue(case.queue)
    if queue and queue.has_fault:
        right = right_to("patch", kube.QUEUES, name=case.queue)
        yield Offer("correct the queue", f"kubectl edit {_QUEUE} {case.queue}", right)
    elif case.group and (job := _job(case)):
        yield Offer("correct it", f"kubectl -n {case.namespace} edit {job[0]}", job[1])
    elif case.group and not case.group.maker:
        line = f"kubectl -n {case.namespace} edit {_GROUP} {case.group.name}"
        yield Offer("correct it", line, right_to("patch", kube.POD_GROUPS, case.namespace))


def _noted_use(case: Case) -> Iterator[Offer]:
    """On what names the queue: the job, or the group where that was not made by Muster."""
    job, made = _job(case), job_of(case.group.maker) if case.group else None
    what, kind = (
        (job[0], made.kind)
        if job and made
        else (f"{_GROUP} {case.group.name if case.group else ''}", "PodGroup")
    )
    if _is_name(case.queue) and case.group and (job or not case.group.maker):
        line = f"kubectl -n {case.namespace} annotate {what} {MAY_USE}={case.queue}/{kind}"
        yield Offer("note that you may use it", line, right_to("use", kube.QUEUES, name=case.queue))


def _job(case: Case) -> tuple[str, Right] | None:
    """What Muster made a group for, as kubectl calls it, and the right to change it."""
    made = job_of(case.group.maker) if case.group else None
    row = job_row(made.api_version, made.kind) if made else None
    if made is None or row is None or not re.fullmatch(NAME, made.name):
        return None
    right = right_to("patch", resource_of(row), case.namespace, made.name)
    return f"{row.plural}.{row.group} {made.name}", right


def _fewer_members(case: Case) -> Iterator[Offer]:
    """Where the number alone is what keeps it."""
    group, other = case.group, case.other
    pods = "the pod that is there" if case.there == 1 else f"the {case.there} pods that are there"
    if other and 0 < case.there < other.record.min_member and other.record.origin is not Origin.ALPHA:
        spec: object = case.there
        for field in reversed(other.number):
            spec = {field: spec}
        what = f"podgroup.{other.resource.group} {other.record.name}"
        line = f"kubectl -n {case.namespace} patch {what} --type merge -p '{json.dumps({'spec': spec})}'"
        yield Offer(f"start with {pods}", line, right_to("patch", other.resource, case.namespace))
    if group and 0 < case.there < group.spec.min_member and not group.spec.min_task_member:
        if job := _job(case):
            name, right = job
            annotate = f"annotate --overwrite {name} {MIN_MEMBER}={case.there}"
            yield Offer(f"start with {pods}", f"kubectl -n {case.namespace} {annotate}", right)
        yield from _changed_group(case, f"start with {pods}", {"minMember": case.there})


def _resumed(case: Case) -> Iterator[Offer]:
    if group := case.group:
        what = f"job resume {job.spoken_name}" if (job := job_of(group.maker)) else f"resume {group.name}"
        line = f"muster {what} -n {case.namespace}"
        yield Offer("let it start", line, right_to("patch", kube.POD_GROUPS, case.namespace))


def _what_failed(case: Case) -> Iterator[Offer]:
    if group := case.group:
        job = job_of(group.maker)
        what = f"job describe {job.spoken_name}" if job else f"podgroup describe {group.name}"
        line = f"muster {what} -n {case.namespace}"
        yield Offer("see what failed", line, right_to("list", kube.EVENTS, case.namespace))


def _scheduler_message(case: Case) -> Iterator[Offer]:
    if case.pod:
        yield describing(case.namespace, case.pod, "read the scheduler's message")


# ---- the queue that keeps it waiting


def _updated(case: Case, purpose: str, flags: str) -> Offer:
    line = f"muster queue update {case.queue} {flags}"
    return Offer(purpose, line, right_to("patch", kube.QUEUES, name=case.queue))


def _opened(case: Case) -> Iterator[Offer]:
    queue = case.evidence.queue(case.queue)
    if _is_name(case.queue) and not (queue and queue.metadata.deletion_timestamp):
        yield opening(case.queue, case.evidence.closed_above(case.queue))


def _queue_resumed(case: Case) -> Iterator[Offer]:
    """The queue, or the LocalQueue where that is what is stopped."""
    queue = case.evidence.queue(case.queue)
    is_running = queue is None or queue.spec.stop_policy in ("", "None")
    stopped = case.evidence.stopped_local_queue(case.group) if case.group and is_running else None
    if stopped is not None:
        namespace, name = stopped.namespace, stopped.name
        patch = """'{"spec": {"stopPolicy": "None"}}'"""
        line = f"kubectl -n {namespace} patch {_LOCAL_QUEUE} {name} --type merge -p {patch}"
        right = right_to("patch", kube.LOCAL_QUEUES, namespace, name)
        yield Offer("let its LocalQueue admit groups again", line, right)
    elif _is_name(case.queue):
        yield resuming(case.queue)


def _namespace_labelled(case: Case) -> Iterator[Offer]:
    """Where labels are all that its queue asks for."""
    queue = case.evidence.queue(case.queue)
    selector = queue.spec.namespace_selector if queue else None
    if selector is not None and selector.match_labels and not selector.match_expressions:
        labels = " ".join(f"{key}={value}" for key, value in sorted(selector.match_labels.items()))
        line = f"kubectl label namespace {case.namespace} {labels}"
        right = right_to("patch", kube.NAMESPACES, name=case.namespace)
        yield Offer("have the queue take the namespace", line, right)


def _higher_capability(case: Case) -> Iterator[Offer]:
    """As much as would start the group; as people write it, where that rounds nothing down."""
    raised: dict[str, list[str]] = {}
    for more in case.group.waiting.capability if case.group else ():
        most = number(more.resource, more.amount)
        if most <= 0 or not _RESOURCE.fullmatch(more.resource):
            continue
        text = show(more.resource, most)
        exact = text if number(more.resource, text) >= most else more.amount
        raised.setdefault(more.queue, []).append(f"{more.resource}={exact}")
    for queue, amounts in raised.items():
        if _is_name(queue):
            line = f"muster queue update {queue} --capability {','.join(amounts)}"
            whose = "its capability" if queue == case.queue else f"the capability of queue {queue}"
            yield Offer(f"raise {whose}", line, right_to("patch", kube.QUEUES, name=queue))


def _larger_share(case: Case) -> Iterator[Offer]:
    if queue := case.evidence.queue(case.queue):
        yield _updated(case, "give it a larger share", f"--weight {2 * queue.spec.weight}")


def _overtaking(case: Case) -> Iterator[Offer]:
    for first in case.group.waiting.ahead[:1] if case.group else ():
        namespace, _, name = first.partition("/")
        if _is_name(namespace) and _is_name(name):
            line = f"muster why podgroup/{name} -n {namespace}"
            yield Offer("see what the first one waits for", line, right_to("get", kube.POD_GROUPS, namespace))
    if _is_name(case.queue):
        yield _updated(case, "let groups overtake", "--dequeue-strategy traverse")


_OFFERS: Mapping[str, Callable[[Case], Iterator[Offer]]] = {
    Reason.GROUP_NOT_FOUND: _without_group,
    Reason.QUEUE_NOT_FOUND: _without_queue,
    Reason.INVALID_SPEC: _edited,
    Reason.QUEUE_NOT_OPEN: _opened,
    Reason.NAMESPACE_NOT_ALLOWED: _namespace_labelled,
    Reason.QUEUE_NOT_ALLOWED: _noted_use,
    Reason.QUEUE_STOPPED: _queue_resumed,
    Reason.HELD: _resumed,
    Reason.START_TIMED_OUT: lambda case: chain(_what_failed(case), _resumed(case)),
    Reason.NOT_ENOUGH_MEMBERS: _fewer_members,
    Reason.NEVER_FITS: _higher_capability,
    Reason.QUEUE_CEILING: _higher_capability,
    Reason.QUEUE_SHARE: _larger_share,
    Reason.BEHIND_OTHERS: _overtaking,
    Reason.BACKING_OFF: _what_failed,
    Reason.REFUSED_BY_SCHEDULER: _scheduler_message,
    Reason.NOT_READY: lambda _case: iter([checking()]),
}
