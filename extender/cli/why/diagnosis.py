"""Diagnosis of groups, pods and queues, as statements with codes.

It covers:

- the condition of a group, with faults of its members and queue
- pods that were meant for a group and do not count
- differences of a pod from its group
- the state of a queue
- groups and queues that are ahead
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from extender.api.keys import ENDED_PHASES, GROUP_ANNOTATION, GROUP_LABEL, MANAGED
from extender.api.objects.base import Quantities, condition
from extender.api.objects.pods import Pod
from extender.api.objects.queues import QueuePreemption
from extender.api.summaries import HolderSummary
from extender.api.units import human_duration
from extender.cli.output import amount, numeric, percent
from extender.cli.why.commands import Case, check_offer, commands, open_offer
from extender.cli.why.evidence import (
    SCHEDULERS,
    Evidence,
    OtherGroup,
    foreign_gates,
    held_amounts,
    is_gated,
    is_ours,
    pod_scheduled,
    reason_of,
    scheduler_of,
)
from extender.cli.why.explanation import (
    ENDING,
    FOREIGN,
    PLACED,
    Blocker,
    Explanation,
    MemberCounts,
    Offer,
    QueueFigures,
    Statement,
    Uncounted,
    numbers,
)
from extender.domain.explain.observed_objects import ObservedGroup, ObservedQueue
from extender.domain.model.ownership import auto_group_name, group_name, group_owner_of
from extender.domain.model.queue_of_group import explicit_queue
from extender.domain.model.reasons import CAPACITY_WAITS, NOT_RECLAIMED_TEXT, REMEDIES, Reason, Verdict
from extender.domain.queues.records import RECLAIM_AFTER, RECLAIM_AT_MOST, duration_of
from extender.kube.resources import EVENTS, PODS
from extender.terminal.text import counted, did_you_mean, near_miss, near_misses

_BLOCKED = (Verdict.WAITING, Verdict.STARTING, Verdict.RUNNING)  # verdicts with reasons about amounts
_MIN_SIMILARITY = 0.8  # minimum ratio of similar keys, by difflib
_GROUP_NAMES = {"group", "groupname", "podgroup", "podgroupname"}  # letters of keys that seem to name a group
_MAX_PODS = 6  # maximum of pods that one command changes
_FULL_SHARE = 0.9995  # a share that counts as 1, because shares are rounded to three digits
_REMARK_CONDITIONS = ("GuaranteeUnmet", "Valid", "FlavorNotFound")  # conditions with a message


# ---- groups


def explain_group(evidence: Evidence, group: ObservedGroup, pod: str = "") -> Explanation:
    """Return the answer about a group. `pod` is the name of the member that the user asked about, if any."""
    # Only if the group lacks members, search for pods that do not count.
    lacks_members = group.scheduled is None or group.scheduled.reason == Reason.NOT_ENOUGH_MEMBERS
    strays = uncounted_pods(evidence, group) if lacks_members else []
    members, counts = _members(evidence, group, strays)
    has_ended = counts and counts.succeeded + counts.failed and not counts.there
    verdict = Verdict.ENDED if has_ended else group.verdict
    refusals = _refusals(evidence, group, counts) if lacks_members or verdict is Verdict.STARTING else []
    is_blocked = verdict in _BLOCKED
    queue, named_queue = evidence.queue_of(group), evidence.requested_queue(group)
    observed_queue = evidence.queue(queue)
    ahead = blockers(evidence, group) if is_blocked else []
    pod = pod or next((member.metadata.name for member in members if not member.spec.node_name), "")
    member_count = counts.there if counts and not strays else 0  # with strays, the final number is unknown
    case = Case(evidence, queue, group, pod, member_count=member_count)
    sentence = [*_group_state(group, verdict, counts), *refusals]
    remedies = refusals if refusals and is_blocked else [*sentence, *reclaim_hints(evidence, group, ahead)]
    reason = group.reason if is_blocked else ""
    offers = [check_offer(case)] if verdict is Verdict.UNKNOWN else commands(reason, case)
    remarks = [] if named_queue == queue else [Statement("CountsElsewhere", asked=named_queue, queue=queue)]
    return Explanation(
        kind="PodGroup",
        name=group.name,
        namespace=group.namespace,
        verdict=verdict,
        sentence=sentence,
        reason=reason,
        detail=numbers(group.message),
        since=group.scheduled.last_transition_time if group.scheduled else None,
        estimate=group.waiting.estimate if verdict is Verdict.WAITING else None,
        members=counts,
        queue=figures_of(observed_queue) if observed_queue else None,
        uncounted=strays,
        holders=ahead,
        remedies=[*(stray.cause for stray in strays), *remedies],
        commands=[*_renaming_offers(case, strays), *offers],
        notes=[*unread_queue_hints(evidence, queue), *remarks, *evidence.notes],
    )


def member_counts(needed: int, pods: Sequence[Pod]) -> MemberCounts:
    """Return the counts of the pods of a group that needs `needed` members."""
    phases = [pod.status.phase for pod in pods]
    active_pods = [pod for pod in pods if pod.status.phase not in ENDED_PHASES]
    placed, gated = sum(bool(pod.spec.node_name) for pod in active_pods), sum(map(is_gated, active_pods))
    ended_counts = phases.count("Succeeded"), phases.count("Failed")
    return MemberCounts(needed, len(active_pods), placed, gated, *ended_counts)


def unread_queue_hints(evidence: Evidence, name: str) -> list[Statement]:
    """Return a note with the name of a queue that the user may not read; empty if the queue was read."""
    return [] if evidence.queue(name) else [Statement("InQueue", queue=name)]


def _members(
    evidence: Evidence, group: ObservedGroup, strays: Iterable[Uncounted]
) -> tuple[list[Pod], MemberCounts | None]:
    """Return the pods that name a group, and the counts of its members (None if unknown)."""
    if (naming_pods := evidence.members(group)) is None:
        return [], None
    stray_names = {name for stray in strays if stray.namespace == evidence.namespace for name in stray.pods}
    members = [pod for pod in naming_pods if pod.metadata.name not in stray_names]
    return naming_pods, member_counts(group.spec.min_member, members)


def _group_state(group: ObservedGroup, verdict: Verdict, members: MemberCounts | None) -> Iterator[Statement]:
    """Yield statements about the state of a group."""
    is_blocked = bool(group.reason) and verdict in (Verdict.RUNNING, Verdict.STARTING)
    if verdict is Verdict.ENDED and members and members.succeeded + members.failed:
        yield Statement("MembersEnded", succeeded=members.succeeded, failed=members.failed)
    elif verdict is not Verdict.WAITING:
        yield Statement(f"{'Partly' if is_blocked else 'Group'}{verdict}")
    if verdict is Verdict.WAITING or is_blocked:
        yield Statement("Reason", reason=group.reason)
    starts_one_by_one = group.controller is not None and group.spec.min_member <= 1
    may_start_more = starts_one_by_one and verdict in (Verdict.WAITING, Verdict.RUNNING)
    if may_start_more and members and members.placed < members.there > 1:
        yield Statement("SomeRun", placed=members.placed, there=members.there)
        yield Statement("StartApart")


def _refusals(evidence: Evidence, group: ObservedGroup, members: MemberCounts | None) -> list[Statement]:
    """Return a statement if an event says why the controller of a group could not create all its pods."""
    lacks_pods = members is not None and members.there < members.needed
    refusal = evidence.creation_refusal(group.controller) if group.controller and lacks_pods else ""
    if not refusal or members is None:
        return []
    return [Statement("PodsRefused", made=members.there, needed=members.needed, refusal=refusal)]


# ---- pods that do not count


def uncounted_pods(evidence: Evidence, group: ObservedGroup) -> list[Uncounted]:
    """Return the pods that were meant for a group and do not count, by cause.

    The list is empty if pods may not be read.
    """
    causes = [(pod, cause) for pod in evidence.pods or () if (cause := _cause(evidence, group, pod))]
    # Pods may name the group in a namespace that has no group with this name.
    namespaces = {other.namespace for other in evidence.groups if other.name == group.name}
    for pod in evidence.waiting_pods:
        namespace = pod.metadata.namespace
        if group_name(pod) == group.name and namespace not in namespaces:
            causes.append((pod, Statement("OtherNamespace", namespace=namespace)))
    strays: list[Uncounted] = []
    for pod, cause in causes:
        same_cause = next((stray for stray in strays if stray.cause == cause), None)
        if same_cause is None:
            namespace = pod.metadata.namespace or group.namespace
            same_cause = Uncounted([], namespace, cause, misnamed=cause.code in _MISNAMING_CAUSES)
            strays.append(same_cause)
        same_cause.pods.append(pod.metadata.name)
    return strays


_MISNAMING_CAUSES = ("WrongKey", "NoSuchGroup")  # causes that an annotation on the pods can correct


def _cause(evidence: Evidence, group: ObservedGroup, pod: Pod) -> Statement | None:
    """Return why a pod that was meant for a group does not count; None for other pods."""
    if pod.status.phase in ENDED_PHASES or pod.metadata.deletion_timestamp:
        return None
    named_group = group_name(pod)
    if named_group == group.name:
        scheduler = scheduler_of(pod)
        schedulers = {other.spec.scheduler_name for other in evidence.pods or () if is_ours(other)}
        if not is_ours(pod) and scheduler not in schedulers:
            return Statement("WrongScheduler", scheduler=scheduler, ours=SCHEDULERS[0])
        gates = foreign_gates(pod)
        return Statement("OtherGates", gates=", ".join(gates)) if gates else None
    if named_group in ("", auto_group_name(pod)):
        key, _ = _wrong_key(pod, lambda value: value == group.name)
        return Statement("WrongKey", key=key) if key else None
    names = [other.name for other in evidence.groups_here]
    if named_group in names or near_miss(named_group, names) != group.name:
        return None
    return Statement("NoSuchGroup", group=named_group)


def _renaming_offers(case: Case, strays: Iterable[Uncounted]) -> Iterator[Offer]:
    """Yield the command that corrects the name of the group on a few pods.

    Many pods should be created again.
    """
    for stray in strays:
        if stray.misnamed and len(stray.pods) <= _MAX_PODS:
            pods, count = " ".join(stray.pods), counted(len(stray.pods), "pod")
            yield case.offer("AnnotatePods", case.right_to("patch", PODS), pods=pods, count=count)


def misnaming_hints(evidence: Evidence, pod: Pod) -> list[Statement]:
    """Return a statement if a pod names a group by an annotation or label that does not count."""
    key, named = _wrong_key(pod, lambda value: any(group.name == value for group in evidence.groups_here))
    if not named or named == group_name(pod):
        return []
    return [Statement("NamesGroupBy", group=named, key=key)]


def _wrong_key(pod: Pod, is_group: Callable[[str], bool]) -> tuple[str, str]:
    """Return the wrong key by which a pod names a group, and the named group; empty if there is none."""
    meta = pod.metadata
    for field, values in (("annotation", meta.annotations or {}), ("label", meta.labels or {})):
        for key, value in values.items():
            if _resembles_group_key(field, key) and is_group(value):
                return f"{field} {key}", value
    return "", ""


def _resembles_group_key(field: str, key: str) -> bool:
    """Return whether a key looks like the key of the annotation or label that names a pod's group."""
    if key in (GROUP_ANNOTATION, GROUP_LABEL):
        return (field, key) not in (("annotation", GROUP_ANNOTATION), ("label", GROUP_LABEL))
    letters = re.sub(r"[^a-z]", "", key.rpartition("/")[2].lower())
    return letters in _GROUP_NAMES or SequenceMatcher(None, key, GROUP_ANNOTATION).ratio() >= _MIN_SIMILARITY


# ---- pods


def explain_pod(evidence: Evidence, pod: Pod) -> Explanation:
    meta, phase, node, name = pod.metadata, pod.status.phase, pod.spec.node_name, group_name(pod)
    if phase in ENDED_PHASES:
        return _answer(pod, Verdict.ENDED, Statement(f"Pod{phase}"))
    if meta.deletion_timestamp:
        code = "PodEndingOnNode" if node else "PodEnding"
        return _answer(pod, ENDING, Statement(code, node=node), since=meta.deletion_timestamp)
    if node:
        return _placed_pod_answer(evidence, pod)
    if gates := foreign_gates(pod):
        return _answer(pod, Verdict.WAITING, Statement("PodGatedByOthers", gates=", ".join(gates)))
    if not is_ours(pod):
        return _foreign_pod_answer(evidence, pod, name)
    if not name:
        return _lone_answer(evidence, pod)
    if group := evidence.group(name):
        return _member_answer(evidence, pod, group)
    if other := evidence.other_group(name):
        return _other_group_answer(evidence, pod, other)
    return _lone_answer(evidence, pod) if name == auto_group_name(pod) else _stray_answer(evidence, pod, name)


def _answer(pod: Pod, verdict: str, *sentence: Statement, **fields: Any) -> Explanation:
    """Return the answer about a pod without its group. By default, the remedies are those of the sentence."""
    meta = pod.metadata
    fields = {"since": meta.creation_timestamp, "remedies": [*sentence], **fields}
    return Explanation(
        kind="Pod",
        name=meta.name,
        verdict=verdict,
        sentence=[*sentence],
        namespace=meta.namespace,
        group=group_name(pod),
        **fields,
    )


def _placed_pod_answer(evidence: Evidence, pod: Pod) -> Explanation:
    meta, is_running = pod.metadata, pod.status.phase == "Running"
    case = Case(evidence, pod=meta.name)
    return _answer(
        pod,
        PLACED,
        Statement("PodRuns" if is_running else "PodPlaced", node=pod.spec.node_name),
        since=pod_scheduled(pod).last_transition_time or meta.creation_timestamp,
        commands=[] if is_running else [case.offer("FollowPod", case.right_to("list", EVENTS))],
        notes=misnaming_hints(evidence, pod),
    )


def _foreign_pod_answer(evidence: Evidence, pod: Pod, group: str) -> Explanation:
    scheduler = scheduler_of(pod)
    likeliest = (*near_misses(scheduler, SCHEDULERS, 1), *SCHEDULERS)[0]
    state = Statement("PodForeign", scheduler=scheduler, likeliest=likeliest)
    if evidence.is_adopted(pod.metadata.namespace):
        state = Statement("PodNotAdopted", scheduler=scheduler, key=MANAGED)
    parts = [Statement("GroupNotKept", group=group)] if group else []
    return _answer(pod, FOREIGN, state, *parts, detail=numbers(pod_scheduled(pod).message))


def _member_answer(evidence: Evidence, pod: Pod, group: ObservedGroup) -> Explanation:
    """Return the answer about a member of a group, which is mostly the answer about the group."""
    group_answer = explain_group(evidence, group, pod.metadata.name)
    pod_answer = replace(group_answer, kind="Pod", name=pod.metadata.name, group=group.name)
    match group_answer.verdict:
        case Verdict.WAITING:
            state = Statement("PodInGroup" if group.spec.min_member > 1 else "PodForItself")
            return replace(pod_answer, sentence=[state, *group_answer.sentence])
        case Verdict.RUNNING:
            return _surplus_answer(evidence, pod, group, pod_answer)
        case Verdict.STARTING if is_gated(pod):
            return replace(pod_answer, sentence=[Statement("PodUngated")])
        case Verdict.STARTING:
            node = pod.status.nominated_node_name
            nomination = [Statement("PodNominated", node=node)] if node else []
            return replace(pod_answer, sentence=[Statement("PodToBind"), *nomination])
    return replace(pod_answer, sentence=[Statement("AboutGroup"), *group_answer.sentence])


def _surplus_answer(evidence: Evidence, pod: Pod, group: ObservedGroup, answer: Explanation) -> Explanation:
    """Return the answer about a surplus or replacement pod.

    `answer` is the answer about its running group.
    """
    reason, detail = (answer.reason, answer.detail) if answer.reason else reason_of(pod)
    case = Case(evidence, evidence.queue_of(group), group, pod.metadata.name)
    since = pod.metadata.creation_timestamp
    cause = [Statement("Reason", reason=reason)] if reason else []
    state = Statement("PodMissing" if reason else "PodFollows")
    answer = replace(answer, verdict=Verdict.WAITING, sentence=[state, *cause], since=since, remedies=cause)
    return replace(answer, reason=reason, detail=detail, commands=commands(reason, case))


def _stray_answer(evidence: Evidence, pod: Pod, name: str) -> Explanation:
    """Return the answer about a pod whose group does not exist, or exists only in another namespace."""
    meta, reason = pod.metadata, Reason.GROUP_NOT_FOUND
    suggestion = numbers(did_you_mean(near_misses(name, (group.name for group in evidence.groups_here), 1)))
    namespaces = sorted(group.namespace for group in evidence.groups if group.name == name)
    if not suggestion and namespaces:
        suggestion = Statement("GroupElsewhere", namespace=namespaces[0])
    member_count = sum(group_name(other) == name for other in evidence.pods or ())
    case = Case(evidence, pod=meta.name, missing_group=name, member_count=member_count)
    return _answer(
        pod,
        Verdict.WAITING,
        Statement("NoGroup", group=name),
        *([Statement("GatedUntilGroup")] if is_gated(pod) else []),
        reason=reason,
        detail=suggestion,
        remedies=[Statement("Reason", reason=reason)],
        commands=commands(reason, case),
    )


def _other_group_answer(evidence: Evidence, pod: Pod, other: OtherGroup) -> Explanation:
    """Return the answer about a pod in a PodGroup of another API.

    Muster reports on such a PodGroup only by events.
    """
    record, meta = other.record, pod.metadata
    queue = evidence.queue_of_pods(meta.namespace, explicit_queue(record.queue), record.local_queue)
    reason, detail = evidence.reason_in_events("PodGroup", record.name)
    if not reason:
        reason, detail = evidence.reason_in_events("Pod", meta.name)
    members = [member for member in evidence.pods or () if group_name(member) == record.name]
    counts = member_counts(record.min_member, members) if evidence.pods is not None else None
    case = Case(evidence, queue, pod=meta.name, member_count=counts.there if counts else 0, other_group=other)
    of_parent = f" of CompositePodGroup {record.parent.rpartition('/')[2]}" if record.parent else ""
    state = Statement("InOtherGroup", group=f"{record.name}{of_parent}", project=other.project)
    return replace(_pod_without_podgroup(pod, case, state, (reason, detail), "ReadItsEvents"), members=counts)


def _lone_answer(evidence: Evidence, pod: Pod) -> Explanation:
    queue, name, controller = evidence.queue_of_pod(pod), group_name(pod), group_owner_of(pod)
    state = Statement("OwnGroup" if name else "Alone")
    if controller:
        state = Statement("GroupOfOwner", owner=controller.display_name)
    case = Case(evidence, queue, pod=pod.metadata.name)
    event_reason = evidence.reason_in_events("Pod", pod.metadata.name)
    return _pod_without_podgroup(pod, case, state, event_reason, "NameAGroup")


def _pod_without_podgroup(
    pod: Pod, case: Case, state: Statement, event_reason: tuple[str, Statement | None], advice: str
) -> Explanation:
    """Return the answer about a pod that is in no PodGroup of Volcano's API.

    `event_reason` has the reason and the numbers from events. `advice` is the remedy while events have no
    reason.
    """
    evidence = case.evidence
    reason, detail = reason_of(pod)
    if not reason:
        reason, detail = evidence.queue_refusal(case.queue)
    reported_reason, _ = event_reason
    if not reason or (reason == reported_reason and not detail):
        reason, detail = event_reason
    notes = [*misnaming_hints(evidence, pod), *unread_queue_hints(evidence, case.queue), *evidence.notes]
    queue = evidence.queue(case.queue)
    rest: dict[str, Any] = {"queue": figures_of(queue) if queue else None, "notes": notes}
    if reason:
        minimum = case.other_group.minimum_path[-1] if case.other_group else "minMember"
        cause = Statement("Reason", reason=reason, number=minimum)
        rest |= {"reason": reason, "detail": detail, "remedies": [cause], "commands": commands(reason, case)}
        return _answer(pod, Verdict.WAITING, state, cause, **rest)
    if is_gated(pod):
        return _answer(pod, Verdict.WAITING, state, Statement("Gated"), remedies=[Statement(advice)], **rest)
    offers = [check_offer(case)]
    return _answer(pod, Verdict.UNKNOWN, state, Statement("NothingSays"), commands=offers, **rest)


# ---- queues


def explain_queue(evidence: Evidence, queue: ObservedQueue) -> Explanation:
    groups = evidence.groups_in(queue.name)
    waiting_groups = [group for group in groups if group.verdict in (Verdict.WAITING, Verdict.UNKNOWN)]
    reasons = {group.scheduled.reason for group in waiting_groups if group.scheduled}
    is_below_share = queue.counts["pending"] and queue.share < 1
    open_condition = condition(queue.status.conditions, "Open")
    is_closed_by_parent = open_condition is not None and open_condition.reason == "ParentClosed"
    return Explanation(
        kind="Queue",
        name=queue.name,
        verdict=queue.state,
        sentence=[*_queue_state(queue), *_share_statements(queue)],
        queue=figures_of(queue),
        waiting=pending_blockers(waiting_groups),
        holders=list(_above_share(evidence, queue.name)) if is_below_share else [],
        remedies=[
            *([_message(open_condition.message)] if open_condition and is_closed_by_parent else []),
            *(Statement("ReasonOfGroups", reason=reason) for reason in REMEDIES if reason in reasons),
        ],
        commands=_commands(evidence, queue),
        notes=evidence.notes,
    )


def figures_of(queue: ObservedQueue) -> QueueFigures:
    spec, status, counts = queue.spec, queue.status, queue.counts
    amounts = (status.allocated or {}, status.deserved or {}, spec.capability or {})
    groups = (counts[name] for name in ("pending", "inqueue", "running"))
    return QueueFigures(queue.name, queue.state, spec.weight, status.share, *amounts, *groups)


def _message(text: str) -> Statement:
    """Return the message of a condition as a statement with a capital first letter."""
    return Statement("Message", message=f"{text[:1].upper()}{text[1:]}")


def _queue_state(queue: ObservedQueue) -> Iterator[Statement]:
    is_deleted = bool(queue.metadata.deletion_timestamp)
    if is_deleted:
        yield Statement("QueueDeleted")
    if queue.state in ("Closing", "Closed"):
        group_count = sum(queue.counts[name] for name in ("pending", "inqueue", "running"))
        yield Statement(f"Queue{queue.state}", left=group_count)
    elif queue.is_stopped and not is_deleted:
        yield Statement("QueueStopped", policy=queue.spec.stop_policy)
    else:
        yield Statement("QueueTakesNone" if is_deleted else "QueueOpen")
    for kind in _REMARK_CONDITIONS:
        remark = condition(queue.status.conditions, kind)
        if remark is not None and remark.status == "True" and remark.message:
            yield Statement(f"Queue{kind}", message=remark.message)


def _commands(evidence: Evidence, queue: ObservedQueue) -> list[Offer]:
    case = Case(evidence, queue=queue.name)
    if queue.metadata.deletion_timestamp:
        return []
    if queue.state in ("Closing", "Closed"):
        return [open_offer(case)]
    return [case.for_queue("ResumeQueue")] if queue.is_stopped else []


def _share_statements(queue: ObservedQueue) -> Iterator[Statement]:
    if queue.status.share is None:
        yield Statement("ShareUnknown")
        return
    yield Statement("QueueUses", share=share_of(queue))
    if queue.share > 1:
        yield Statement("KeepsAbove" if queue.spec.reclaimable is False else "BorrowsAbove")
    elif queue.counts["pending"] and queue.share < _FULL_SHARE and not queue.is_stopped:
        yield Statement("HasClaim")


def share_of(queue: ObservedQueue) -> Statement:
    """Return the used part of the deserved share, with the resource whose part is largest."""
    status = queue.status
    usages = [(status.allocated or {}, status.deserved or {}, "")]
    usages += [(each.allocated or {}, each.deserved or {}, each.name) for each in status.flavors or ()]
    shares = [
        (numeric(name, held.get(name)) / (numeric(name, due) or 1), name, held.get(name, 0), due, flavor_name)
        for held, deserved, flavor_name in usages
        for name, due in sorted(deserved.items())
    ]
    used_text = percent(queue.share)
    if not shares:
        return Statement("Share", used=used_text)
    _, name, held, due, flavor_name = max(shares, key=itemgetter(0))
    figures = {"resource": name, "held": amount(name, held), "deserved": amount(name, due)}
    code = "ShareOfFlavor" if flavor_name else "ShareOfResource"
    return Statement(code, used=used_text, flavor=flavor_name, **figures)


# ---- groups and queues that are ahead


def blockers(evidence: Evidence, group: ObservedGroup) -> list[Blocker]:
    """Return the groups and queues that block a group; empty if only a change of the group would help."""
    own_queue = evidence.queue_of(group)
    if group.reason in CAPACITY_WAITS:
        own_queue_first = sorted(evidence.groups, key=lambda other: evidence.queue_of(other) != own_queue)
        return [*_above_share(evidence, own_queue), *_holding_blockers(evidence, group, own_queue_first)]
    match group.reason:
        case Reason.QUEUE_CEILING:
            return list(_holding_blockers(evidence, group, evidence.groups_in(own_queue)))
        case Reason.QUEUE_SHARE:
            same_queue = evidence.groups_in(own_queue)
            return [*_claimants(evidence, own_queue), *_holding_blockers(evidence, group, same_queue)]
        case Reason.BEHIND_OTHERS:
            return pending_blockers(_groups_ahead(evidence, group))
        case Reason.RESERVED:
            keys = {f"{holder.namespace}/{holder.name}" for holder in group.waiting.holders}
            return pending_blockers(other for other in evidence.groups if other.key in keys)
        case Reason.WINDOW_FULL:
            starting_groups = (other for other in evidence.groups if other.verdict is Verdict.STARTING)
            return list(_holding_blockers(evidence, group, starting_groups))
    return []


def reclaim_hints(evidence: Evidence, group: ObservedGroup, ahead: Iterable[Blocker]) -> Iterator[Statement]:
    """Yield a statement that says when the queue reclaims capacity, or why it never reclaims capacity."""
    if refusals := [part for part in group.message.split("; ") if part.endswith(NOT_RECLAIMED_TEXT)]:
        yield _message(refusals[0])
        return
    queue = evidence.queue(evidence.queue_of(group))
    borrowers = [evidence.queue(blocker.holder.name) for blocker in ahead if blocker.holder.kind == "Queue"]
    if queue is None or queue.share >= _FULL_SHARE or group.reason == Reason.RECLAIMING:
        return
    if any(queue is not None and queue.spec.reclaimable is not False for queue in borrowers):
        rules = queue.spec.preemption or QueuePreemption()
        after, at_most = duration_of(rules.after, RECLAIM_AFTER), duration_of(rules.at_most, RECLAIM_AT_MOST)
        max_wait = human_duration(int(max(after, at_most)))
        yield Statement("Reclaims", after=human_duration(int(after)), most=max_wait)


def pending_blockers(groups: Iterable[ObservedGroup]) -> list[Blocker]:
    return [_blocker(group, wait_of(group)) for group in groups]


def wait_of(group: ObservedGroup) -> Statement:
    """Return the reason of a waiting group, with the numbers behind it."""
    if (scheduled := group.scheduled) is None:
        return Statement("WaitsUnseen")
    code = "WaitsWithNumbers" if scheduled.message else "Waits"
    return Statement(code, reason=scheduled.reason, message=scheduled.message)


def summary_of(group: ObservedGroup, pods: int = 0, holds: Quantities | None = None) -> HolderSummary:
    """Return the summary of a group, with its kind and name for users."""
    kind, name = group.display_reference.kind, group.display_reference.name
    version = group.display_reference.api_version
    return HolderSummary(kind, group.namespace, name, pods=pods, holds=holds or {}, api_version=version)


def _blocker(
    group: ObservedGroup, state: Statement, pods: int = 0, holds: Quantities | None = None
) -> Blocker:
    return Blocker(**vars(state), holder=summary_of(group, pods, holds))


def _holding_blockers(
    evidence: Evidence, group: ObservedGroup, others: Iterable[ObservedGroup]
) -> Iterator[Blocker]:
    """Yield the running and starting groups among `others`, except groups whose members have all ended."""
    for other in others:
        if other.key == group.key or not other.is_admitted:
            continue
        does = "starts" if other.verdict is Verdict.STARTING else "runs"
        members = evidence.members(other)
        if members is None:
            needs = counted(other.spec.min_member, "pod")
            yield _blocker(other, Statement("Holds", does=does, needs=needs))
        elif held := held_amounts(members):
            pod_count = sum(bool(pod.spec.node_name) for pod in members)
            state = Statement("HoldsOnNodes", does=does, pods=counted(pod_count, "pod"))
            yield _blocker(other, state, pod_count, held)


def _above_share(evidence: Evidence, own_queue: str) -> Iterator[Blocker]:
    """Yield the other queues that hold more than their deserved share."""
    for queue in (evidence.queues or {}).values():
        if queue.share > 1 and queue.name != own_queue:
            summary = HolderSummary("Queue", name=queue.name, holds=queue.status.allocated or {})
            yield Blocker("Uses", holder=summary, share=share_of(queue))


def _claimants(evidence: Evidence, own_queue: str) -> Iterator[Blocker]:
    """Yield the other queues that hold less than their deserved share and have pending groups."""
    for queue in (evidence.queues or {}).values():
        pending_count = queue.counts["pending"]
        if queue.name != own_queue and pending_count and queue.share < _FULL_SHARE:
            summary = HolderSummary("Queue", name=queue.name)
            yield Blocker("HasPending", holder=summary, pending=pending_count, share=share_of(queue))


def _groups_ahead(evidence: Evidence, group: ObservedGroup) -> list[ObservedGroup]:
    """Return the groups that the status names as ahead, else all older pending groups of the queue."""
    same_queue = evidence.groups_in(evidence.queue_of(group))
    if ahead := [other for other in same_queue if other.key in group.waiting.ahead]:
        return ahead
    position = next((number for number, other in enumerate(same_queue) if other.key == group.key), 0)
    return [other for other in same_queue[:position] if not other.is_admitted]
