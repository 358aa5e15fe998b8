"""How a workload stands: the groups that its pods are in, its pods, or why it is suspended."""

import json
from collections.abc import Iterator
from functools import cached_property

from msgspec.structs import replace

from extender.api.keys import DEFAULT_QUEUE, KUEUE_QUEUE, LOCAL_QUEUE, QUEUE
from extender.api.objects.base import Meta, OwnerReference, Wire
from extender.api.objects.cluster import WorkloadSpec
from extender.api.objects.pods import Pod
from extender.cli.kinds import OwnerKind, job_kinds, kind_of_owner
from extender.cli.observed_jobs import ObservedJob, ObservedJobState, job_of_kind
from extender.cli.output import Json
from extender.cli.why.evidence import HIGHEST, Evidence
from extender.cli.why.explanation import EMPTY, SCHEDULERS, Explanation
from extender.cli.why.groups import explain_group
from extender.cli.why.offers import Offer, checking, offered
from extender.cli.why.pods import explain_pod
from extender.domain.model.ownership import controller_of, group_name
from extender.domain.model.reasons import Verdict
from extender.kube.access import Right, right_to
from extender.kube.resources import EVENTS, POD_GROUPS
from extender.terminal.text import many


class WorkloadStatus(Wire, frozen=True):
    conditions: list[Json] | None = None  # those of Volcano's jobs have no type


class ObservedWorkload(Wire, frozen=True):
    metadata: Meta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class Workloads:
    """Those of one namespace; what belongs to which is worked out once."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._listed: dict[OwnerKind, dict[str, Meta]] = {}  # owners of pods, by UID
        self._known: dict[str, frozenset[tuple[OwnerKind | None, str]]] = {}

    def explain(self, kind: OwnerKind, name: str) -> list[Explanation]:
        """An answer for each of its groups, and for pods without one; none where there is no such workload. A
        suspended job waits as a whole; what has ended is left out while something has not."""
        job = job_of_kind(self._evidence, kind, name) if kind in job_kinds() else None
        if job and (waiting := explain_job(self._evidence, job)):
            return [waiting]
        found: list[Explanation] = []
        resource = self._evidence.resource_of_kind(kind)
        version = resource.version if resource else ""
        named = {group_name(pod) for pod in self._pods_of(kind, name)}
        for group in self._evidence.groups_here:
            if group.name in named or self._belongs(group.metadata, kind, name):
                answer = replace(explain_group(self._evidence, group), api_version=version)
                found.append(replace(answer, kind=kind.name, name=name, group=group.name))
        found += self._of_pods(kind, name)
        if going_on := [answer for answer in found if answer.verdict != Verdict.ENDED]:
            return going_on
        return found[-1:] or self._without_pods(kind, name, job)

    def _of_pods(self, kind: OwnerKind, name: str) -> Iterator[Explanation]:
        """Of pods in no group that have the same verdict, reason and group, the first, with their number."""
        groups = {group.name for group in self._evidence.groups_here}
        alike: dict[tuple[str, str, str], list[Explanation]] = {}
        for pod in self._pods_of(kind, name):
            if group_name(pod) not in groups:
                answer = explain_pod(self._evidence, pod)
                alike.setdefault((answer.verdict, answer.reason, answer.group), []).append(answer)
        for first, *rest in alike.values():
            pods = "One more pod stands" if len(rest) == 1 else f"{len(rest)} more pods stand"
            yield replace(first, notes=[f"{pods} like this.", *first.notes]) if rest else first

    def _pods_of(self, kind: OwnerKind, name: str) -> list[Pod]:
        return [pod for pod in self._evidence.pods or () if self._belongs(pod.metadata, kind, name)]

    def _belongs(self, meta: Meta, kind: OwnerKind, name: str) -> bool:
        if meta.uid not in self._known:
            owners = self._above(meta)
            self._known[meta.uid] = frozenset((kind_of_owner(owner), owner.name) for owner in owners)
        return (kind, name) in self._known[meta.uid]

    def _above(self, meta: Meta, height: int = 0) -> Iterator[OwnerReference]:
        """Its owners, their owners, and so on up to what a person made, the nearest first: a pod of a JobSet
        is a Job's, an executor of Spark its driver's. Each kind of owner is listed once, when one is met."""
        for owner in meta.owner_references or ():
            yield owner
            if owner.kind == "Pod":
                found = self._pods.get(owner.uid)
            elif kind := kind_of_owner(owner):
                if kind not in self._listed:
                    every = self._evidence.all_owners(kind)
                    self._listed[kind] = {obj.metadata.uid: obj.metadata for obj in every}
                found = self._listed[kind].get(owner.uid)
            else:
                found = None
            if found is not None and height < HIGHEST:
                yield from self._above(found, height + 1)

    @cached_property
    def _pods(self) -> dict[str, Meta]:
        return {pod.metadata.uid: pod.metadata for pod in self._evidence.pods or ()}

    def _without_pods(self, kind: OwnerKind, name: str, job: ObservedJob | None) -> list[Explanation]:
        """As far as pods may be read."""
        resource = self._evidence.resource_of_kind(kind)
        found = self._evidence.find_owner(kind, name, ObservedWorkload)
        if not found or not resource:
            return []
        meta, spec, offers = found.metadata, found.spec, []
        verdict, sentence = _standing(self._evidence, found, job)
        what, where = f"{kind.plural}.{kind.group} {meta.name}", f"kubectl -n {meta.namespace}"
        if verdict == EMPTY and spec.suspend:
            line = f"""{where} patch {what} --type merge -p '{{"spec": {{"suspend": false}}}}'"""
            right = right_to("patch", resource, meta.namespace, meta.name)
            offers.append(Offer("let it go on", line, right))
        elif verdict == EMPTY and spec.replicas != 0:
            right = right_to("list", EVENTS, meta.namespace)
            offers.append(Offer("see what its controller says", f"{where} describe {what}", right))
        answer = Explanation(
            kind=kind.name,
            name=meta.name,
            verdict=verdict,
            sentence=sentence,
            namespace=meta.namespace,
            commands=[offered(self._evidence, offer) for offer in offers],
            notes=self._evidence.notes,
            api_version=resource.version,
        )
        return [answer]


def _standing(evidence: Evidence, found: ObservedWorkload, job: ObservedJob | None) -> tuple[str, str]:
    holding = [each.get("type") for each in found.status.conditions or () if each.get("status") == "True"]
    for ending in ("Complete", "Succeeded", "Failed"):
        if ending in holding:
            return Verdict.ENDED, f"It has ended ({ending}), and its pods are gone."
    if job and job.state is ObservedJobState.FINISHED:
        return Verdict.ENDED, "It has ended, and its pods are gone."
    if evidence.pods is None:
        return (
            Verdict.UNKNOWN,
            "Its groups are known by its pods, and you may not list pods in this namespace.",
        )
    if found.spec.suspend:
        return EMPTY, "It is suspended."
    if found.spec.replicas == 0:
        return EMPTY, "It wants no pods: spec.replicas is 0."
    return EMPTY, "Its controller has made no pods for it."


# ---- jobs that are suspended


def explain_job(evidence: Evidence, job: ObservedJob) -> Explanation | None:
    """Why it waits: by its PodGroup; without one, why Muster leaves it alone. None for a job that is not
    suspended, or has ended: its pods and groups tell how it stands."""
    if not job.is_suspended or job.state is ObservedJobState.FINISHED:
        return None
    if job.state is ObservedJobState.SUSPENDED:
        again = f"muster job resume {job.spoken_name} -n {job.meta.namespace}"
        offers = [Offer("let it queue again, at its old place", again, _patching(job))]
        sentence = (
            "It was suspended after Muster had started it, and stays out of its queue until it is resumed."
        )
    elif job.unit:
        answer = explain_group(evidence, job.unit)
        sentence = answer.sentence
        if answer.verdict == Verdict.WAITING:
            count = many(job.unit.spec.min_member, "pod")
            sentence = f"{sentence} It waits as a job: its {count} will be made when it starts."
        named = replace(answer, kind=job.row.kind, name=job.meta.name, api_version=job.row.api_version)
        return replace(named, group=job.unit.name, sentence=sentence)
    else:
        why, offers = _why_left_alone(evidence, job)
        state = "It has no pods yet" if job.row.commanded else "It is suspended"
        sentence = f"{state}, and Muster does not manage it: {why}"
    return Explanation(
        kind=job.row.kind,
        name=job.meta.name,
        namespace=job.meta.namespace,
        group=job.unit.name if job.unit else "",
        verdict=EMPTY,
        sentence=sentence,
        commands=[offered(evidence, offer) for offer in offers],
        notes=evidence.notes,
        api_version=job.row.api_version,
    )


def _why_left_alone(evidence: Evidence, job: ObservedJob) -> tuple[str, list[Offer]]:
    """The end of a sentence, and what helps, as far as objects show; settings they do not."""
    record, namespace = job.record(), job.meta.namespace
    owner = controller_of(job.meta.owner_references)
    if owner and record and record.is_part:
        whole = owner.spoken_name
        right = right_to("get", POD_GROUPS, namespace)
        offers = [Offer("ask about that", f"muster why {whole} -n {namespace}", right)]
        return f"it belongs to {whole}, which starts as a whole.", offers
    if record and record.named_group:
        return "its pods name a PodGroup, so once it is let go, they wait in that.", _letting_go(job)
    if record and not record.ours:
        ours = " or ".join(SCHEDULERS)
        why = (
            f"its pods name another scheduler than {ours}, whose pods Muster places by default. For"
            " Muster to start it, create it again with schedulerName: muster in the spec of its pods."
        )
        return why, _letting_go(job)
    if evidence.is_kueues(job.meta):
        why = f"its label {KUEUE_QUEUE} names no LocalQueue of Muster here, so it is Kueue's to start."
        line = f"kubectl -n {namespace} label {_target(job)} {KUEUE_QUEUE}- {LOCAL_QUEUE}=NAME"
        return why, [Offer("have Muster start it, by a LocalQueue of Muster", line, _patching(job))]
    named = record and (record.queue or record.local_queue or record.commanded)
    if record and not named and not evidence.queue_of_namespace(record.namespace):
        line = f"kubectl -n {namespace} annotate {_target(job)} {QUEUE}={DEFAULT_QUEUE}"
        naming = Offer("let it wait in a queue", line, _patching(job))
        return "it names no queue, and neither does its namespace.", [naming, *_letting_go(job)]
    if not evidence.muster_may(_patching(job)):
        why = f"its account may not change {job.row.plural}.{job.row.group}."
        return f"{why} docs/reference/jobs.md#the-rights says how that is granted.", [checking()]
    kind = f"{job.row.kind}.{job.row.group}"
    off = "--volcano-jobs or --manage-jobs" if job.row.commanded else "--manage-jobs"
    why = (
        "nothing on the job itself stands against it. Wait a moment. If it stays so, either Muster does not"
        f" run, or its role for {job.row.plural} is not installed, or {off} is off, or"
        f" --unmanaged-namespace or --unmanaged-kind names {namespace} or {kind}."
    )
    return why, [checking()]


def _letting_go(job: ObservedJob) -> list[Offer]:
    """Nothing for a kind that has no field for it: what runs it lets go what Muster leaves alone."""
    if not job.row.suspend:
        return []
    patch = json.dumps(job.suspending(False))
    line = f"kubectl -n {job.meta.namespace} patch {_target(job)} --type merge -p '{patch}'"
    return [Offer("let it go on", line, _patching(job))]


def _target(job: ObservedJob) -> str:
    """As the other commands about workloads write it."""
    return f"{job.row.plural}.{job.row.group} {job.meta.name}"


def _patching(job: ObservedJob) -> Right:
    return right_to("patch", job.resource, job.meta.namespace, job.meta.name)
