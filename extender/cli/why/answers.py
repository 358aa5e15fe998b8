"""Answers about a target of `muster why`: objects with a name, and the groups or pods of a workload."""

import json
from collections.abc import Iterator

import click
from msgspec.structs import replace

from extender.api.keys import DEFAULT_QUEUE, ENDED_PHASES
from extender.api.objects.pods import Pod
from extender.cli.access import ClusterAccess
from extender.cli.kinds import OwnerKind, Target, job_kinds, owner_kind, owner_kinds
from extender.cli.lookup import fetch
from extender.cli.observed_jobs import SUSPENDED, ObservedJob, job_of_kind
from extender.cli.output import Json
from extender.cli.why.commands import Case, check_offer, safe_offers
from extender.cli.why.diagnosis import explain_group, explain_pod, explain_queue
from extender.cli.why.evidence import SCHEDULERS, Evidence
from extender.cli.why.explanation import EMPTY, Explanation, Offer, Statement, numbers
from extender.domain.explain.observed_objects import ObservedGroup, ObservedQueue
from extender.domain.model.ownership import controller_of, group_name
from extender.domain.model.reasons import Verdict
from extender.domain.snapshot.jobs import suspension_patch
from extender.kube.access import right_to
from extender.kube.resources import API_GROUPS, EVENTS, POD_GROUPS, PODS, QUEUES
from extender.terminal.text import counted, did_you_mean, near_misses, pods_that_name

_REFUSED_PODS = "ReplicaFailure"  # condition of a Deployment or ReplicaSet whose pods were refused
_END_CONDITIONS = ("Complete", "Succeeded", "Failed")  # conditions of workloads that have ended


def answers(access: ClusterAccess, target: Target) -> list[Explanation]:
    """Return at least one answer. If the target does not exist, the command ends with an error."""
    evidence = Evidence(access, access.namespace)
    namespace, name = access.namespace, target.name
    match target.kind:
        case "":
            return _answers_by_name(evidence, name)
        case "pod":
            return [explain_pod(evidence, fetch(access.reader, PODS, namespace, name, Pod))]
        case "podgroup":
            group = evidence.find(POD_GROUPS, name, ObservedGroup)
            hint = _misspelling_hint(evidence, name) if group is None else ""
            if hint:
                raise click.ClickException(f"podgroup {name!r} not found in namespace {namespace}; {hint}")
            group = group or fetch(access.reader, POD_GROUPS, namespace, name, ObservedGroup)
            return [explain_group(evidence, group)]
        case "queue":
            return [explain_queue(evidence, fetch(access.reader, QUEUES, "", name, ObservedQueue))]
    kind = owner_kind(target.kind)
    assert kind is not None, "the command line accepts known kinds only"
    if explanations := explain_workload(evidence, kind, name):
        return explanations
    resource = evidence.resource_of_kind(kind)
    if resource is None:
        if API_GROUPS.root in evidence.unread_kinds:
            raise click.ClickException(f"not allowed: you may not get {API_GROUPS.root}")
        raise click.ClickException(f"the cluster knows no {kind.plural}.{kind.group}")
    fetch(access.reader, resource, namespace, name, object)
    raise click.ClickException(f"{target.kind}/{name} was made just now: run the command again")


def find_group(access: ClusterAccess, target: Target) -> ObservedGroup:
    """Return the PodGroup of a target: the group itself, or the group of a pod or workload."""
    title = f"{target.kind}/{target.name}" if target.kind else target.name
    if target.kind == "queue":
        raise click.UsageError(f"{title!r}: must be a group, or a pod or workload of it")
    group = Evidence(access, access.namespace).group(target.name) if not target.kind else None
    if group is not None:
        return group
    explanations = answers(access, target)
    names = sorted({_group_name(answer) for answer in explanations} - {""})
    if len(names) != 1:
        problem = f"means several groups: name one of {', '.join(names)}"
        raise click.ClickException(f"{title!r} {problem if names else 'is in no group'}")
    return fetch(access.reader, POD_GROUPS, access.namespace, names[0], ObservedGroup)


def _group_name(explanation: Explanation) -> str:
    """Return the name of the group that an answer is about; empty if the answer is about no group."""
    return explanation.group or (explanation.name if explanation.kind == "PodGroup" else "")


# ---- a name alone


def _answers_by_name(evidence: Evidence, name: str) -> list[Explanation]:
    """Return one answer for each group, even if a pod and a workload of the group have the name."""
    answer_by_subject: dict[str, Explanation] = {}
    for answer in _explain_objects(evidence, name):
        is_of_group = any(group.name == answer.group for group in evidence.groups_here)
        subject = f"podgroup/{answer.group}" if is_of_group else answer.display_name
        answer_by_subject.setdefault(subject, answer)
    if answer_by_subject:
        return list(answer_by_subject.values())
    message = f"no pod, podgroup, queue or workload is called {name!r} in namespace {evidence.namespace}"
    if hint := _misspelling_hint(evidence, name):
        raise click.ClickException(f"{message}; {hint}")
    unread_text = f"you may not read {', '.join(evidence.unread_kinds)}" if evidence.unread_kinds else ""
    suggestion = _namespace_hint(evidence, name) or _suggestion(evidence, name)
    raise click.ClickException("; ".join(filter(None, (message, unread_text, suggestion))))


def _explain_objects(evidence: Evidence, name: str) -> Iterator[Explanation]:
    if pod := evidence.find(PODS, name, Pod):
        yield explain_pod(evidence, pod)
    if group := evidence.find(POD_GROUPS, name, ObservedGroup):
        yield explain_group(evidence, group)
    for kind in owner_kinds():
        yield from explain_workload(evidence, kind, name)
    if queue := evidence.find(QUEUES, name, ObservedQueue):
        yield explain_queue(evidence, queue)


def _misspelling_hint(evidence: Evidence, name: str) -> str:
    """Return a hint if pods name a group that does not exist: `2 pods name trian: did you mean train?`."""
    names = [group.name for group in evidence.groups_here]
    active_pods = (pod for pod in evidence.pods or () if pod.status.phase not in ENDED_PHASES)
    pod_count = sum(group_name(pod) == name for pod in active_pods)
    if POD_GROUPS.plural in evidence.unread_kinds or not pod_count:
        return ""
    hint = did_you_mean(near_misses(name, names)) or _namespace_hint(evidence, name)
    return f"{pods_that_name(pod_count)} {name}: {hint or 'no podgroup has this name'}"


def _namespace_hint(evidence: Evidence, name: str) -> str:
    """Return a hint if another namespace has a group with this name, else an empty text."""
    namespaces = sorted(group.namespace for group in evidence.groups if group.name == name)
    if not namespaces:
        return ""
    return f"there is podgroup/{name} in namespace {namespaces[0]}: add -n {namespaces[0]}"


def _suggestion(evidence: Evidence, name: str) -> str:
    """Return a question that suggests objects with similar names; empty if there are none."""
    bare_names = {f"podgroup/{group.name}": group.name for group in evidence.groups_here}
    bare_names |= {f"queue/{queue}": queue for queue in evidence.queues or ()}
    bare_names |= {f"pod/{pod.metadata.name}": pod.metadata.name for pod in evidence.pods or ()}
    similar = near_misses(name, bare_names.values())
    return did_you_mean([next(full for full, bare in bare_names.items() if bare == near) for near in similar])


# ---- workloads


def explain_workload(evidence: Evidence, kind: OwnerKind, name: str) -> list[Explanation]:
    """Return an answer for each group of a workload, and answers for its pods without a group.

    If the workload does not exist, the result is empty. A suspended job has one answer. Answers about ended
    groups are left out if there are answers about other groups or pods.
    """
    job = job_of_kind(evidence, kind, name) if kind in job_kinds() else None
    if job and job.is_suspended and job.state != Verdict.ENDED:
        return [explain_job(evidence, job)]
    resource = evidence.resource_of_kind(kind)
    version = resource.version if resource else ""
    answers: list[Explanation] = []
    group_names = {group_name(pod) for pod in evidence.pods_of(kind, name)}
    for group in evidence.groups_here:
        if group.name in group_names or evidence.belongs(group.metadata, kind, name):
            answer = replace(explain_group(evidence, group), api_version=version)
            answers.append(replace(answer, kind=kind.name, name=name, group=group.name))
    answers += _pod_answers(evidence, kind, name)
    if active_answers := [answer for answer in answers if answer.verdict != Verdict.ENDED]:
        return active_answers
    return answers[-1:] or _podless_workload_answer(evidence, kind, name, job)


def _pod_answers(evidence: Evidence, kind: OwnerKind, name: str) -> Iterator[Explanation]:
    """Yield one answer for all pods without a PodGroup that have the same verdict, reason and named group."""
    groups = {group.name for group in evidence.groups_here}
    answers_by_cause: dict[tuple[str, str, str], list[Explanation]] = {}
    for pod in evidence.pods_of(kind, name):
        if group_name(pod) not in groups:
            answer = explain_pod(evidence, pod)
            answers_by_cause.setdefault((answer.verdict, answer.reason, answer.group), []).append(answer)
    for first, *other_answers in answers_by_cause.values():
        note = Statement("MorePods", pods=counted(len(other_answers), "more pod"))
        yield replace(first, notes=[note, *first.notes]) if other_answers else first


def _podless_workload_answer(
    evidence: Evidence, kind: OwnerKind, name: str, job: ObservedJob | None
) -> list[Explanation]:
    """Return the answer about a workload without readable pods; empty if the workload does not exist."""
    workload, resource = evidence.find_owner(kind, name, Json), evidence.resource_of_kind(kind)
    if workload is None or resource is None:
        return []
    verdict, statement = _state_without_pods(evidence, workload, job)
    case, title, offers = Case(evidence), f"{kind.plural}.{kind.group} {name}", []
    if statement.code == "WorkloadSuspended":
        right = right_to("patch", resource, evidence.namespace, name)
        offers = [case.offer("Unsuspend", right, what=title, patch=json.dumps({"spec": {"suspend": False}}))]
    elif statement.code == "NoPods":
        offers = [case.offer("DescribeOwner", case.right_to("list", EVENTS), what=title)]
    answer = _workload_answer(evidence, kind.name, name, resource.version, [statement], offers)
    refusals = (each for each in _true_conditions(workload) if each.get("type") == _REFUSED_PODS)
    message = str(next(refusals, {}).get("message") or "")
    return [replace(answer, verdict=verdict, detail=numbers(message))]


def _true_conditions(workload: Json) -> list[Json]:
    """Return the true conditions of a workload."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return [condition for condition in conditions if condition.get("status") == "True"]


def _state_without_pods(evidence: Evidence, workload: Json, job: ObservedJob | None) -> tuple[str, Statement]:
    """Return the verdict on a workload without pods, and a statement about its state."""
    spec = workload.get("spec") or {}
    conditions = {condition.get("type") for condition in _true_conditions(workload)}
    if end_condition := next((type_ for type_ in _END_CONDITIONS if type_ in conditions), ""):
        return Verdict.ENDED, Statement("WorkloadEndedAs", ending=end_condition)
    if job and job.state == Verdict.ENDED:
        return Verdict.ENDED, Statement("WorkloadEnded")
    if evidence.pods is None:
        return Verdict.UNKNOWN, Statement("PodsUnknown")
    if spec.get("suspend"):
        return EMPTY, Statement("WorkloadSuspended")
    return EMPTY, Statement("NoReplicas" if spec.get("replicas") == 0 else "NoPods")


def _workload_answer(
    evidence: Evidence, kind: str, name: str, version: str, sentence: list[Statement], offers: list[Offer]
) -> Explanation:
    return Explanation(
        kind=kind,
        name=name,
        verdict=EMPTY,
        sentence=sentence,
        namespace=evidence.namespace,
        commands=safe_offers(offers),
        notes=evidence.notes,
        api_version=version,
    )


# ---- jobs that are suspended


def explain_job(evidence: Evidence, job: ObservedJob) -> Explanation:
    """Return the answer about a suspended job.

    If the job has a PodGroup and is not stopped, the answer is about the PodGroup. Otherwise the answer says
    why the job stays suspended.
    """
    kind, meta, podgroup = job.row.kind, job.meta, job.podgroup
    if job.state != SUSPENDED and podgroup:
        answer = explain_group(evidence, podgroup)
        pods = counted(podgroup.spec.min_member, "pod")
        waits = [Statement("JobWaits", pods=pods)] if answer.verdict == Verdict.WAITING else []
        answer_on_job = replace(answer, kind=kind, name=meta.name, api_version=job.row.api_version)
        return replace(answer_on_job, group=podgroup.name, sentence=[*answer.sentence, *waits])
    if job.state == SUSPENDED:
        statements = [Statement("JobStopped")]
        offers = [_offer(evidence, job, "QueueAgain", name=job.display_name)]
    else:
        reason, offers = _explain_unmanaged(evidence, job)
        statements = [Statement("JobOfOthers" if job.row.commanded else "JobSuspendedByOthers"), reason]
    answer = _workload_answer(evidence, kind, meta.name, job.row.api_version, statements, offers)
    return replace(answer, group=podgroup.name if podgroup else "")


def _explain_unmanaged(evidence: Evidence, job: ObservedJob) -> tuple[Statement, list[Offer]]:
    """Return why Muster does not manage a job, as far as objects show. Muster's settings are unknown here."""
    record, namespace, case = job.record(), job.meta.namespace, Case(evidence)
    owner = controller_of(job.meta.owner_references)
    if owner and record and record.is_part:
        owner_name = owner.display_name
        offer = case.offer("AskWhole", case.right_to("get", POD_GROUPS), whole=owner_name)
        return Statement("JobIsPart", whole=owner_name), [offer]
    if record and record.names_group:
        return Statement("JobNamesGroup"), _unsuspend_offers(evidence, job)
    if record and not record.is_for_muster:
        return Statement("JobOfScheduler", ours=" or ".join(SCHEDULERS)), _unsuspend_offers(evidence, job)
    if evidence.is_kueue_label(job.meta):
        return Statement("JobOfKueue"), [_offer(evidence, job, "NameLocalQueue")]
    names_queue = record and (record.queue or record.local_queue or record.is_commanded)
    if record and not names_queue and not evidence.queue_of_namespace(record.namespace):
        offer = _offer(evidence, job, "NameItsQueue", queue=DEFAULT_QUEUE)
        return Statement("JobWithoutQueue"), [offer, *_unsuspend_offers(evidence, job)]
    if not evidence.muster_may(job.right_to_patch):
        kind = f"{job.row.plural}.{job.row.group}"
        return Statement("JobNotPermitted", kind=kind), [check_offer(case)]
    flag = "--volcano-jobs or --manage-jobs" if job.row.commanded else "--manage-jobs"
    kind = f"{job.row.kind}.{job.row.group}"
    statement = Statement("JobNotTaken", plural=job.row.plural, off=flag, namespace=namespace, kind=kind)
    return statement, [check_offer(case)]


def _unsuspend_offers(evidence: Evidence, job: ObservedJob) -> list[Offer]:
    """Return the command that unsuspends a job; empty if the kind has no field for it."""
    patch = json.dumps(suspension_patch(job.row, is_suspended=False))
    return [_offer(evidence, job, "Unsuspend", patch=patch)] if job.row.suspend else []


def _offer(evidence: Evidence, job: ObservedJob, code: str, **fields: object) -> Offer:
    """Return a command that changes a job, as an offer."""
    object_name = f"{job.row.plural}.{job.row.group} {job.meta.name}"
    return Case(evidence).offer(code, job.right_to_patch, what=object_name, **fields)
