"""Pods that do not wait, or that wait for others than Muster."""

from msgspec.structs import replace

from extender.api.keys import DEFAULT_SCHEDULER, ENDED_PHASES
from extender.api.objects.pods import Pod
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.explanation import ENDING, FOREIGN, OVER, PLACED, WAITING, Explanation
from extender.cli.explain.offers import describing, offered
from extender.cli.explain.pod_answers import answer_of
from extender.cli.explain.pod_state import SCHEDULERS, scheduled
from extender.cli.explain.uncounted import misnamed
from extender.domain.model.ownership import group_name
from extender.terminal.near_misses import near_misses


def settled(evidence: Evidence, pod: Pod) -> Explanation | None:
    meta, phase, node = pod.metadata, pod.status.phase, pod.spec.node_name
    if phase in ENDED_PHASES:
        how = "all its containers succeeded" if phase == "Succeeded" else "it failed"
        return answer_of(pod, OVER, f"The pod has ended: {how}.")
    if meta.deletion_timestamp:
        where = f" on node {node}" if node else ""
        return answer_of(pod, ENDING, f"The pod is being deleted{where}.", since=meta.deletion_timestamp)
    return _placed(evidence, pod, node) if node else None


def _placed(evidence: Evidence, pod: Pod, node: str) -> Explanation:
    since, notes = scheduled(pod).last_transition_time or "", misnamed(evidence, pod)
    if pod.status.phase == "Running":
        message = f"The pod does not wait: it runs on node {node}."
        return replace(answer_of(pod, PLACED, message, since=since), notes=notes)
    message = f"The pod does not wait for a place: it is on node {node}, which is to start its containers."
    offers = [offered(evidence, describing(pod.metadata.namespace, pod.metadata.name, "see how far it is"))]
    return replace(answer_of(pod, PLACED, message, since=since), notes=notes, commands=offers)


# ---- pods that wait for others


def held_back(pod: Pod, gates: list[str]) -> Explanation:
    message = f"The pod is held back by scheduling gates that are not Muster's: {', '.join(gates)}."
    advice = "Their owner must remove them. Until then the pod does not count as a member of a group."
    return answer_of(pod, WAITING, message, advice)


def not_ours(pod: Pod) -> Explanation:
    scheduler, name = pod.spec.scheduler_name or DEFAULT_SCHEDULER, group_name(pod)
    message = f"Nothing shows that the pod is Muster's: {scheduler} places it."
    if name:
        message += f" It names the group {name}, but no scheduler keeps that group together."
    alike = near_misses(scheduler, SCHEDULERS, 1)
    advice = (
        f"For Muster to place it, create it with schedulerName: {(*alike, *SCHEDULERS)[0]} (or another name"
        " that your administrator gave it)."
    )
    return replace(answer_of(pod, FOREIGN, message, advice), detail=scheduled(pod).message)
