"""What a name or a KIND/NAME leads to, and the answer about each."""

from collections.abc import Iterator

import click

from extender.api.keys import ENDED_PHASES
from extender.api.objects.pods import Pod
from extender.cli.access import ClusterAccess
from extender.cli.kinds import POD, POD_GROUP, QUEUE, Target, owner_kind, owner_kinds
from extender.cli.lookup import fetch
from extender.cli.why.evidence import Evidence
from extender.cli.why.explanation import Explanation
from extender.cli.why.groups import explain_group
from extender.cli.why.pods import explain_pod
from extender.cli.why.queues import explain_queue
from extender.cli.why.workloads import Workloads
from extender.domain.explain.observed import ObservedGroup, ObservedQueue
from extender.domain.model.ownership import group_name
from extender.kube.resources import POD_GROUPS, PODS, QUEUES
from extender.terminal.text import did_you_mean, near_misses, pods_that_name


def answers(place: ClusterAccess, target: Target) -> list[Explanation]:
    """At least one; a target that there is not ends the command."""
    evidence = Evidence(place, place.namespace)
    namespace, name = place.namespace, target.name
    match target.kind:
        case "":
            return _of_name(evidence, name)
        case "pod":
            return [explain_pod(evidence, fetch(place.reader, PODS, namespace, name, Pod))]
        case "podgroup":
            group = evidence.find(POD_GROUPS, name, ObservedGroup)
            if group is None and (naming := _naming(evidence, name)):
                raise click.ClickException(f"podgroup {name!r} not found in namespace {namespace}; {naming}")
            group = group or fetch(place.reader, POD_GROUPS, namespace, name, ObservedGroup)
            return [explain_group(evidence, group)]
        case "queue":
            return [explain_queue(evidence, fetch(place.reader, QUEUES, "", name, ObservedQueue))]
    kind = owner_kind(target.kind)
    assert kind is not None, "the command line lets no other through"
    if found := Workloads(evidence).explain(kind, name):
        return found
    resource = evidence.resource_of_kind(kind)
    if resource is None:
        raise click.ClickException(f"the cluster knows no {kind.plural}.{kind.group}")
    fetch(place.reader, resource, namespace, name, object)
    raise click.ClickException(f"{target.kind}/{name} was made just now: run the command again")


def _of_name(evidence: Evidence, name: str) -> list[Explanation]:
    """One answer for each group, even if a pod or a workload of the name leads to it as well."""
    found: dict[str, Explanation] = {}
    for answer in _called(evidence, name):
        is_of_group = any(group.name == answer.group for group in evidence.groups_here)
        subject = f"podgroup/{answer.group}" if is_of_group else answer.spoken_name
        found.setdefault(subject, answer)
    if found:
        return list(found.values())
    message = f"no pod, podgroup, queue or workload is called {name!r} in namespace {evidence.namespace}"
    if naming := _naming(evidence, name):
        raise click.ClickException(f"{message}; {naming}")
    unread = f"; you may not read {', '.join(evidence.unread)}" if evidence.unread else ""
    if not (meant := _home(evidence, name)):
        there = {f"{POD_GROUP}/{group.name}": group.name for group in evidence.groups_here}
        there |= {f"{QUEUE}/{queue}": queue for queue in evidence.queues or ()}
        there |= {f"{POD}/{pod.metadata.name}": pod.metadata.name for pod in evidence.pods or ()}
        alike = near_misses(name, there.values())
        meant = did_you_mean([next(full for full, bare in there.items() if bare == near) for near in alike])
    raise click.ClickException(f"{message}{unread}{f'; {meant}' if meant else ''}")


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


def _naming(evidence: Evidence, name: str) -> str:
    """`2 pods name trian: did you mean train?`, of a group that there is not; empty where no pod does."""
    there = [group.name for group in evidence.groups_here]
    pods = sum(
        group_name(pod) == name and pod.status.phase not in ENDED_PHASES for pod in evidence.pods or ()
    )
    if POD_GROUPS.plural in evidence.unread or not pods:
        return ""
    meant = did_you_mean(near_misses(name, there)) or _home(evidence, name) or "no podgroup has this name"
    return f"{pods_that_name(pods)} {name}: {meant}"


def _home(evidence: Evidence, name: str) -> str:
    """The namespace that has a group of this name."""
    homes = sorted(group.namespace for group in evidence.groups if group.name == name)
    return f"there is podgroup/{name} in namespace {homes[0]}: add -n {homes[0]}" if homes else ""
