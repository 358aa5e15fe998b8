"""How a workload stands: the groups that its pods are in, or, where they are in none, its pods."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from extender.api.conditions import condition
from extender.api.objects.base import Condition, Meta, Wire
from extender.api.objects.owners import WorkloadSpec
from extender.api.objects.pods import Pod
from extender.cli.access_reviews import right_to
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.explanation import EMPTY, OVER, UNSEEN, Explanation
from extender.cli.explain.groups import explain_group
from extender.cli.explain.job_objects import job_of_kind
from extender.cli.explain.jobs import explain_job
from extender.cli.explain.offers import Offer, offered
from extender.cli.explain.owner_chain import OwnerChain
from extender.cli.explain.owner_objects import OwnerObjects
from extender.cli.explain.pods import explain_pod
from extender.cli.owner_kinds import OwnerKind, job_kinds, kind_of_owner
from extender.domain.model.ownership import group_name
from extender.kube.resources import EVENTS, Resource

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
        going_on = [each for each in found if each.verdict != OVER]
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
        groups = {each.name for each in self._evidence.groups_here}
        alone = [pod for pod in self._pods_of(kind, name) if group_name(pod) not in groups]
        yield from _unlike(explain_pod(self._evidence, pod) for pod in alone)

    def _pods_of(self, kind: OwnerKind, name: str) -> list[Pod]:
        return [pod for pod in self._evidence.pods or () if self._belongs(pod.metadata, kind, name)]

    def _belongs(self, meta: Meta, kind: OwnerKind, name: str) -> bool:
        if meta.uid not in self._known:
            owners = self._chain.above(meta)
            self._known[meta.uid] = frozenset((kind_of_owner(each), each.name) for each in owners)
        return (kind, name) in self._known[meta.uid]

    # ---- without pods

    def _without_pods(self, kind: OwnerKind, name: str) -> list[Explanation]:
        resource = self.objects.resource_of(kind)
        found = self.objects.find(kind, name, ObservedWorkload)
        return [_empty(self._evidence, kind, resource, found)] if found and resource else []


def _unlike(answers: Iterable[Explanation]) -> list[Explanation]:
    """One of each verdict, reason and group."""
    alike: dict[tuple[str, str, str], list[Explanation]] = {}
    for each in answers:
        alike.setdefault((each.verdict, each.reason, each.group), []).append(each)
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
        commands=[offered(evidence, each) for each in offers],
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
    found_conditions = (condition(found.status.conditions, each) for each in _ENDINGS)
    return next((each for each in found_conditions if each and each.status == "True"), None)
