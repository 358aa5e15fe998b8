"""What a name or a KIND/NAME leads to, and the answer about each."""

from collections.abc import Iterator

import click

from extender.api.keys import ENDED_PHASES
from extender.api.objects.pods import Pod
from extender.cli.access import ClusterAccess
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.explanation import Explanation
from extender.cli.explain.groups import explain_group
from extender.cli.explain.pods import explain_pod
from extender.cli.explain.queues import explain_queue
from extender.cli.explain.workloads import Workloads
from extender.cli.kinds import POD, POD_GROUP, QUEUE, Target, owner_kind, owner_kinds
from extender.cli.lookup import fetch
from extender.cli.observed import ObservedGroup, ObservedQueue
from extender.domain.model.ownership import group_name
from extender.kube.resources import POD_GROUPS, PODS, QUEUES
from extender.terminal.text import did_you_mean, near_misses, pods_that_name


def answers(place: ClusterAccess, target: Target) -> list[Explanation]:
    """At least one; a target that there is not ends the command."""
    evidence = Evidence(place, place.namespace)
    match target.kind:
        case "":
            return _of_name(evidence, target.name)
        case "pod":
            return [explain_pod(evidence, fetch(place.reader, PODS, place.namespace, target.name, Pod))]
        case "podgroup":
            return [explain_group(evidence, _group(place, evidence, target.name))]
        case "queue":
            return [explain_queue(evidence, fetch(place.reader, QUEUES, "", target.name, ObservedQueue))]
    return _of_workload(place, evidence, target)


def _group(place: ClusterAccess, evidence: Evidence, name: str) -> ObservedGroup:
    if group := evidence.find(POD_GROUPS, name, ObservedGroup):
        return group
    if naming := _naming(evidence, name):
        raise click.ClickException(f"podgroup {name!r} not found in namespace {place.namespace}; {naming}")
    return fetch(place.reader, POD_GROUPS, place.namespace, name, ObservedGroup)


def _of_workload(place: ClusterAccess, evidence: Evidence, target: Target) -> list[Explanation]:
    kind = owner_kind(target.kind)
    assert kind is not None, "the command line lets no other through"
    workloads = Workloads(evidence)
    if found := workloads.explain(kind, target.name):
        return found
    resource = workloads.objects.resource_of(kind)
    if resource is None:
        raise click.ClickException(f"the cluster knows no {kind.plural}.{kind.group}")
    fetch(place.reader, resource, place.namespace, target.name, object)
    raise click.ClickException(f"{target.kind}/{target.name} was made just now: run the command again")


# ---- a name alone


def _of_name(evidence: Evidence, name: str) -> list[Explanation]:
    """One answer for each group, even if a pod or a workload of the name leads to it as well."""
    found: dict[tuple[str, str], Explanation] = {}
    for answer in _called(evidence, name):
        found.setdefault(_subject(evidence, answer), answer)
    if not found:
        raise _nothing_called(evidence, name)
    return list(found.values())


def _subject(evidence: Evidence, answer: Explanation) -> tuple[str, str]:
    if any(group.name == answer.group for group in evidence.groups_here):
        return "PodGroup", answer.group
    return answer.kind, answer.name


def _called(evidence: Evidence, name: str) -> Iterator[Explanation]:
    if pod := evidence.find(PODS, name, Pod):
        yield explain_pod(evidence, pod)
    if group := evidence.find(POD_GROUPS, name, ObservedGroup):
        yield explain_group(evidence, group)
    workloads = Workloads(evidence)
    for kind in owner_kinds():
        yield from workloads.explain(kind, name)
    if queue := evidence.find(QUEUES, name, ObservedQueue):
        yield explain_queue(evidence, queue)


def _nothing_called(evidence: Evidence, name: str) -> click.ClickException:
    message = f"no pod, podgroup, queue or workload is called {name!r} in namespace {evidence.namespace}"
    if naming := _naming(evidence, name):
        return click.ClickException(f"{message}; {naming}")
    unread = f"; you may not read {', '.join(evidence.unread)}" if evidence.unread else ""
    return click.ClickException(f"{message}{unread}{_elsewhere(evidence, name) or _alike(evidence, name)}")


def _naming(evidence: Evidence, name: str) -> str:
    """`2 pods name trian: did you mean train?`, of a group that there is not; empty where no pod does."""
    there = [group.name for group in evidence.groups_here]
    pods = sum(_waits_for(pod, name) for pod in evidence.pods or ())
    if POD_GROUPS.plural in evidence.unread or not pods:
        return ""
    home = _elsewhere(evidence, name).removeprefix("; ")
    meant = did_you_mean(near_misses(name, there)) or home or "no podgroup has this name"
    return f"{pods_that_name(pods)} {name}: {meant}"


def _waits_for(pod: Pod, group: str) -> bool:
    return group_name(pod) == group and pod.status.phase not in ENDED_PHASES


def _elsewhere(evidence: Evidence, name: str) -> str:
    homes = sorted(group.namespace for group in evidence.groups if group.name == name)
    return f"; there is podgroup/{name} in namespace {homes[0]}: add -n {homes[0]}" if homes else ""


def _alike(evidence: Evidence, name: str) -> str:
    """The targets whose names are most like it."""
    there = {f"{POD_GROUP}/{group.name}": group.name for group in evidence.groups_here}
    there |= {f"{QUEUE}/{queue}": queue for queue in evidence.queues or ()}
    there |= {f"{POD}/{pod.metadata.name}": pod.metadata.name for pod in evidence.pods or ()}
    alike = near_misses(name, there.values())
    named = [next(target for target, called in there.items() if called == near) for near in alike]
    return f"; {did_you_mean(named)}" if named else ""
