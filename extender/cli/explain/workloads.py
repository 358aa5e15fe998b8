"""How a workload stands: the groups that its pods are in, its pods, or why it is suspended."""

import json
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from extender.api.keys import DEFAULT_QUEUE, KUEUE_QUEUE, LOCAL_QUEUE, QUEUE
from extender.api.objects.base import Condition, Meta, Wire, condition
from extender.api.objects.cluster import WorkloadSpec
from extender.api.objects.pods import Pod
from extender.cli.explain.evidence import Evidence, OwnerChain, OwnerObjects
from extender.cli.explain.explanation import EMPTY, OVER, SCHEDULERS, UNSEEN, WAITING, Explanation
from extender.cli.explain.groups import explain_group
from extender.cli.explain.offers import Offer, checking, offered
from extender.cli.explain.pods import explain_pod
from extender.cli.kinds import OwnerKind, job_kinds, kind_of_owner
from extender.cli.lookup import Right, right_to
from extender.cli.observed import ObservedGroup
from extender.cli.observed_jobs import JobState, ObservedJob, job_of_kind
from extender.cli.output import Json
from extender.domain.model.ownership import controller_of, group_name
from extender.domain.snapshot.jobs import JobRecord
from extender.kube.resources import EVENTS, POD_GROUPS, Resource
from extender.terminal.text import many

# ---- Why Muster does not manage a job that is suspended, as far as objects show it: its settings do
# not.


def why_left_alone(evidence: Evidence, job: ObservedJob) -> tuple[str, list[Offer]]:
    """A sentence that goes on after a colon, and what may be done about it."""
    record, owner = job.record, controller_of(job.meta.owner_references)
    if owner and record and record.is_part:
        return _of_owner(job, f"{owner.kind.lower()}/{owner.name}")
    if record and record.named_group:
        return "its pods name a PodGroup, so once it is let go, they wait in that.", [_letting_go(job)]
    if record and not record.ours:
        ours = " or ".join(SCHEDULERS)
        why = f"its pods name another scheduler than {ours}, whose pods Muster places by default."
        return why, [_letting_go(job)]
    if evidence.is_kueues(job.meta):
        return _of_kueue(job)
    if record and not _has_queue(evidence, record):
        why = "it names no queue, and neither does its namespace."
        return why, [_naming_queue(job), _letting_go(job)]
    return _not_seen(job), [checking()]


def _of_owner(job: ObservedJob, owner: str) -> tuple[str, list[Offer]]:
    namespace = job.meta.namespace
    line, right = f"muster why {owner} -n {namespace}", right_to("get", POD_GROUPS, namespace)
    return f"it belongs to {owner}, which starts as a whole.", [Offer("ask about that", line, right)]


def _has_queue(evidence: Evidence, job: JobRecord) -> bool:
    return bool(job.queue or job.local_queue or evidence.queue_of_namespace(job.namespace))


def _of_kueue(job: ObservedJob) -> tuple[str, list[Offer]]:
    why = f"its label {KUEUE_QUEUE} names no LocalQueue of Muster here, so it is Kueue's to start."
    line = f"kubectl -n {job.meta.namespace} label {_target(job)} {KUEUE_QUEUE}- {LOCAL_QUEUE}=NAME"
    return why, [Offer("have Muster start it, by a LocalQueue of Muster", line, _patching(job))]


def _not_seen(job: ObservedJob) -> str:
    """What is left: all of it is known to administrators alone."""
    kind = f"{job.row.kind}.{job.row.group}"
    return (
        "nothing on the job itself stands against it. Wait a moment. If it stays so, either Muster does not"
        f" run, or its role for {job.row.plural} is not installed, or --manage-jobs is off, or"
        f" --unmanaged-namespace or --unmanaged-kind names {job.meta.namespace} or {kind}."
    )


# ---- commands


def _naming_queue(job: ObservedJob) -> Offer:
    patch = f"annotate {_target(job)} {QUEUE}={DEFAULT_QUEUE}"
    return Offer("let it wait in a queue", f"kubectl -n {job.meta.namespace} {patch}", _patching(job))


def _letting_go(job: ObservedJob) -> Offer:
    patch: Json | bool = False
    for name in reversed(job.row.suspend):
        patch = {name: patch}
    line = f"kubectl -n {job.meta.namespace} patch {_target(job)} --type merge -p '{json.dumps(patch)}'"
    return Offer("let it go on", line, _patching(job))


def _target(job: ObservedJob) -> str:
    """As the other commands about workloads write it."""
    return f"{job.row.plural}.{job.row.group} {job.meta.name}"


def _patching(job: ObservedJob) -> Right:
    return right_to("patch", job.resource, job.meta.namespace, job.meta.name)


# ---- Why a job that is suspended waits: by its PodGroup; without one, why Muster leaves it alone.


def explain_job(evidence: Evidence, job: ObservedJob) -> Explanation | None:
    """None for a job that is not suspended, or has ended: its pods and groups tell how it stands."""
    if not job.is_suspended or job.state is JobState.FINISHED:
        return None
    if job.state is JobState.SUSPENDED:
        return _stopped(evidence, job)
    return _queued(evidence, job, job.unit) if job.unit else _left_alone(evidence, job)


def _queued(evidence: Evidence, job: ObservedJob, unit: ObservedGroup) -> Explanation:
    answer = explain_group(evidence, unit)
    count = many(unit.spec.min_member, "pod")
    text = f"{answer.sentence} It waits as a job: its {count} will be made when it starts."
    sentence = text if answer.verdict == WAITING else answer.sentence
    return replace(answer, kind=job.row.kind, name=job.meta.name, group=unit.name, sentence=sentence)


def _stopped(evidence: Evidence, job: ObservedJob) -> Explanation:
    offer = Offer(
        "let it queue again, at its old place",
        f"muster job resume {job.spoken_name} -n {job.meta.namespace}",
        right_to("patch", job.resource, job.meta.namespace, job.meta.name),
    )
    sentence = "It was suspended after Muster had started it, and stays out of its queue until it is resumed."
    return _without_pods(evidence, job, sentence, [offer])


def _without_pods(evidence: Evidence, job: ObservedJob, sentence: str, offers: list[Offer]) -> Explanation:
    return Explanation(
        kind=job.row.kind,
        name=job.meta.name,
        namespace=job.meta.namespace,
        group=job.unit.name if job.unit else "",
        verdict=EMPTY,
        sentence=sentence,
        commands=[offered(evidence, offer) for offer in offers],
        notes=evidence.notes,
    )


# ---- those that Muster leaves alone


def _left_alone(evidence: Evidence, job: ObservedJob) -> Explanation:
    why, offers = why_left_alone(evidence, job)
    sentence = f"It is suspended, and Muster does not manage it: {why}"
    return _without_pods(evidence, job, sentence, offers)


# ---- How a workload stands: the groups that its pods are in, or, where they are in none, its pods.

_ENDINGS = ("Complete", "Succeeded", "Failed")  # types of conditions


class WorkloadStatus(Wire, frozen=True):
    conditions: list[Condition] | None = None


class ObservedWorkload(Wire, frozen=True):
    metadata: Meta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class Workloads:
    """Those of one namespace; what belongs to which is worked out once."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.objects = OwnerObjects(evidence)
        self._chain = OwnerChain(evidence, self.objects)
        self._known: dict[str, frozenset[tuple[OwnerKind | None, str]]] = {}

    def explain(self, kind: OwnerKind, name: str) -> list[Explanation]:
        """An answer for each of its groups, and for pods without one; none where there is no such workload.
        What has ended is left out while something of it has not."""
        if waiting := self._as_job(kind, name):
            return [waiting]
        found = [*self._of_groups(kind, name), *self._of_pods(kind, name)]
        going_on = [answer for answer in found if answer.verdict != OVER]
        return going_on or found[-1:] or self._without_pods(kind, name)

    def _as_job(self, kind: OwnerKind, name: str) -> Explanation | None:
        """Of a job that is suspended: it waits as a whole, whatever its last pods do."""
        job = job_of_kind(self._evidence, self.objects, kind, name) if kind in job_kinds() else None
        return explain_job(self._evidence, job) if job else None

    # ---- what belongs to it

    def _of_groups(self, kind: OwnerKind, name: str) -> Iterator[Explanation]:
        named = {group_name(pod) for pod in self._pods_of(kind, name)}
        for group in self._evidence.groups_here:
            if group.name in named or self._belongs(group.metadata, kind, name):
                answer = explain_group(self._evidence, group)
                yield replace(answer, kind=kind.name, name=name, group=group.name)

    def _of_pods(self, kind: OwnerKind, name: str) -> Iterator[Explanation]:
        """Of pods that stand alike, the first."""
        groups = {group.name for group in self._evidence.groups_here}
        alone = [pod for pod in self._pods_of(kind, name) if group_name(pod) not in groups]
        yield from _unlike(explain_pod(self._evidence, pod) for pod in alone)

    def _pods_of(self, kind: OwnerKind, name: str) -> list[Pod]:
        return [pod for pod in self._evidence.pods or () if self._belongs(pod.metadata, kind, name)]

    def _belongs(self, meta: Meta, kind: OwnerKind, name: str) -> bool:
        if meta.uid not in self._known:
            owners = self._chain.above(meta)
            self._known[meta.uid] = frozenset((kind_of_owner(owner), owner.name) for owner in owners)
        return (kind, name) in self._known[meta.uid]

    # ---- without pods

    def _without_pods(self, kind: OwnerKind, name: str) -> list[Explanation]:
        resource = self.objects.resource_of(kind)
        found = self.objects.find(kind, name, ObservedWorkload)
        return [_empty(self._evidence, kind, resource, found)] if found and resource else []


def _unlike(answers: Iterable[Explanation]) -> list[Explanation]:
    """One of each verdict, reason and group."""
    alike: dict[tuple[str, str, str], list[Explanation]] = {}
    for answer in answers:
        alike.setdefault((answer.verdict, answer.reason, answer.group), []).append(answer)
    return [_with_count(first, len(rest)) for first, *rest in alike.values()]


def _with_count(answer: Explanation, more: int) -> Explanation:
    """`more`: pods that stand as this one does."""
    if not more:
        return answer
    pods = "One more pod stands" if more == 1 else f"{more} more pods stand"
    return replace(answer, notes=[f"{pods} like this.", *answer.notes])


def _empty(evidence: Evidence, kind: OwnerKind, resource: Resource, found: ObservedWorkload) -> Explanation:
    """Of one that has no pods, as far as they may be read."""
    verdict, sentence = _standing(evidence, found)
    offers = _offers(kind, resource, found) if verdict == EMPTY else ()
    return Explanation(
        kind=kind.name,
        name=found.metadata.name,
        verdict=verdict,
        sentence=sentence,
        namespace=found.metadata.namespace,
        commands=[offered(evidence, offer) for offer in offers],
        notes=evidence.notes,
    )


def _standing(evidence: Evidence, found: ObservedWorkload) -> tuple[str, str]:
    if ended := _ended(found):
        return OVER, f"It has ended ({ended.type}), and its pods are gone."
    if evidence.pods is None:
        return UNSEEN, "Its groups are known by its pods, and you may not list pods in this namespace."
    if found.spec.suspend:
        return EMPTY, "It is suspended."
    if found.spec.replicas == 0:
        return EMPTY, "It wants no pods: spec.replicas is 0."
    return EMPTY, "Its controller has made no pods for it."


def _offers(kind: OwnerKind, resource: Resource, found: ObservedWorkload) -> Iterator[Offer]:
    meta, spec = found.metadata, found.spec
    what, where = f"{kind.plural}.{kind.group} {meta.name}", f"kubectl -n {meta.namespace}"
    if spec.suspend:
        line = f"""{where} patch {what} --type merge -p '{{"spec": {{"suspend": false}}}}'"""
        yield Offer("let it go on", line, right_to("patch", resource, meta.namespace, meta.name))
    elif spec.replicas != 0:
        right = right_to("list", EVENTS, meta.namespace)
        yield Offer("see what its controller says", f"{where} describe {what}", right)


def _ended(found: ObservedWorkload) -> Condition | None:
    found_conditions = (condition(found.status.conditions, ending) for ending in _ENDINGS)
    return next(
        (
            found_condition
            for found_condition in found_conditions
            if found_condition and found_condition.status == "True"
        ),
        None,
    )
