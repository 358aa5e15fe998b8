"""The commands that help a waiting group, for each reason that a command can change something about.

They are the same for every user. Settings of Muster have none: they belong into the files of the install, and
a change in the cluster alone would be undone by the next `kubectl apply`.
"""

import json
from collections.abc import Callable, Iterator, Mapping

from extender.cli.access_reviews import right_to
from extender.cli.explain import queue_offers
from extender.cli.explain.case import Case
from extender.cli.explain.explanation import OfferedCommand
from extender.cli.explain.offers import (
    Offer,
    annotating,
    checking,
    describing,
    is_name,
    offered,
)
from extender.cli.observed import ObservedGroup
from extender.domain.model.reasons import Reason
from extender.kube.resources import EVENTS, POD_GROUPS, PODS, QUEUES
from extender.terminal.near_misses import near_miss

_GROUP = "podgroup.scheduling.volcano.sh"
_QUEUE = "queue.scheduling.volcano.sh"


def commands(reason: str, case: Case) -> list[OfferedCommand]:
    offers = _OFFERS.get(reason)
    return [offered(case.evidence, each) for each in offers(case)] if offers else []


# ---- what names something that does not exist


def _without_group(case: Case) -> Iterator[Offer]:
    if not case.wanted:
        return
    right = right_to("patch", PODS, case.namespace)
    if meant := near_miss(case.wanted, (each.name for each in case.evidence.groups_here)):
        line = annotating(case.namespace, [case.pod], meant)
        yield Offer(f"name the group {meant}", line, right)
    if not is_name(case.wanted):
        return
    new = {"apiVersion": POD_GROUPS.version, "kind": "PodGroup", "metadata": {"name": case.wanted}}
    text = json.dumps({**new, "spec": {"minMember": max(1, case.there)}})
    line = f"echo '{text}' | kubectl -n {case.namespace} create -f -"
    pods = f"the {case.there} pods that name it" if case.there > 1 else "the pod"
    yield Offer(f"create it for {pods}", line, right_to("create", POD_GROUPS, case.namespace))


def _without_queue(case: Case) -> Iterator[Offer]:
    if meant := near_miss(case.queue, case.evidence.queues or ()):
        yield from _changed_group(case, f"name the queue {meant}", {"queue": meant})
    if is_name(case.queue):
        yield Offer("create it", f"muster queue create {case.queue}", right_to("create", QUEUES))


# ---- the group's own fields


def _changed_group(case: Case, purpose: str, spec: dict[str, object]) -> Iterator[Offer]:
    """Nothing for a group that Muster made: what it is made from would have to change."""
    if case.group and not case.group.is_automatic:
        right = right_to("patch", POD_GROUPS, case.namespace)
        patch = json.dumps({"spec": spec})
        line = f"kubectl -n {case.namespace} patch {_GROUP} {case.group.name} --type merge -p '{patch}'"
        yield Offer(purpose, line, right)


def _edited(case: Case) -> Iterator[Offer]:
    """Whose specification is invalid: the queue's where the queue says so itself."""
    queue = case.evidence.queue(case.queue)
    if queue and queue.has_fault:
        right = right_to("patch", QUEUES, name=case.queue)
        yield Offer("correct the queue", f"kubectl edit {_QUEUE} {case.queue}", right)
    elif case.group:
        line = f"kubectl -n {case.namespace} edit {_GROUP} {case.group.name}"
        yield Offer("correct it", line, right_to("patch", POD_GROUPS, case.namespace))


def _fewer_members(case: Case) -> Iterator[Offer]:
    """Where the number alone is what keeps it."""
    group = case.group
    if group and 0 < case.there < group.spec.min_member and not group.spec.min_task_member:
        pods = "the pod that is there" if case.there == 1 else f"the {case.there} pods that are there"
        yield from _changed_group(case, f"start with {pods}", {"minMember": case.there})


def _resumed(case: Case) -> Iterator[Offer]:
    if case.group:
        what = f"job resume {job}" if (job := _job_of(case.group)) else f"resume {case.group.name}"
        line = f"muster {what} -n {case.namespace}"
        yield Offer("let it start", line, right_to("patch", POD_GROUPS, case.namespace))


def _tried_again(case: Case) -> Iterator[Offer]:
    yield from _what_failed(case)
    yield from _resumed(case)


def _job_of(group: ObservedGroup) -> str:
    """`job/train`; empty for a group that stands for no job."""
    return f"{group.job.kind.lower()}/{group.job.name}" if group.job else ""


# ---- looking further


def _what_failed(case: Case) -> Iterator[Offer]:
    if case.group:
        what = (
            f"job describe {job}" if (job := _job_of(case.group)) else f"podgroup describe {case.group.name}"
        )
        line = f"muster {what} -n {case.namespace}"
        yield Offer("see what failed", line, right_to("list", EVENTS, case.namespace))


def _scheduler_message(case: Case) -> Iterator[Offer]:
    if case.pod:
        yield describing(case.namespace, case.pod, "read the scheduler's message")


def _checking(_case: Case) -> Iterator[Offer]:
    yield checking()


_OFFERS: Mapping[str, Callable[[Case], Iterator[Offer]]] = {
    Reason.GROUP_NOT_FOUND: _without_group,
    Reason.QUEUE_NOT_FOUND: _without_queue,
    Reason.INVALID_SPEC: _edited,
    Reason.QUEUE_NOT_OPEN: queue_offers.opened,
    Reason.NAMESPACE_NOT_ALLOWED: queue_offers.namespace_labelled,
    Reason.QUEUE_STOPPED: queue_offers.resumed,
    Reason.HELD: _resumed,
    Reason.START_TIMED_OUT: _tried_again,
    Reason.NOT_ENOUGH_MEMBERS: _fewer_members,
    Reason.NEVER_FITS: queue_offers.higher_capability,
    Reason.QUEUE_CEILING: queue_offers.higher_capability,
    Reason.QUEUE_SHARE: queue_offers.larger_share,
    Reason.BEHIND_OTHERS: queue_offers.overtaking,
    Reason.BACKING_OFF: _what_failed,
    Reason.REFUSED_BY_SCHEDULER: _scheduler_message,
    Reason.NOT_READY: _checking,
}
