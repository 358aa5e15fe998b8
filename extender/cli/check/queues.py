"""Queues and the objects that they refer to: guarantees, budgets, flavors, LocalQueues and quotas."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from extender.api.keys import BUDGETS, QUOTA_SOURCE
from extender.api.objects.base import condition
from extender.api.objects.cluster import ClusterTopology, Node, QuotaKind
from extender.api.objects.queues import LocalQueue, Queue
from extender.api.units import listed
from extender.cli.check.findings import Finding, error, fine
from extender.cli.installation import Installation
from extender.domain.queues.quota_records import QuotaPlan, QuotaStep, is_obsolete, quota_source, step_of
from extender.domain.queues.quotas import Quotas, plan_of
from extender.kube import resources as kube
from extender.kube.access import right_to
from extender.terminal.text import counted

_QUOTA_TODO = "List manifests/quota under components: of your overlay (chart: quota.enabled), and apply it."
_OVERRULING_RIGHTS = (right_to("delete", kube.PODS), right_to("overrule", kube.QUEUES))
_OVERRULING_TODO = (
    "List manifests/overruling under components: of your overlay (chart: overruling.enabled), and apply it;"
    " or have the queues honour PodDisruptionBudgets."
)
_PAGE = "docs/reference/quotas.md#faults-of-a-quota"


def _queues_with(queues: Sequence[Queue], type_: str) -> list[str]:
    """Return the names of the queues whose condition of a type is True."""
    conditions = ((queue.metadata.name, condition(queue.status.conditions, type_)) for queue in queues)
    return sorted(name for name, stated in conditions if stated is not None and stated.status == "True")


def guarantees(site: Installation) -> Iterator[Finding]:
    queues = site.all_of(kube.QUEUES, Queue)
    if unmet_queues := _queues_with(queues, "GuaranteeUnmet"):
        message = f"nodes offer less than queues are guaranteed: {listed(unmet_queues)}"
        todo = "Lower their spec.guarantee, or add nodes; muster queue describe says of which resource."
        yield error("guarantees", message, todo)
    else:
        count = sum(bool(queue.spec.guarantee and queue.spec.guarantee.resource) for queue in queues)
        yield fine("guarantees", f"{counted(count, 'queue')} have theirs" if count else "there are none")


def overruling(site: Installation) -> Iterator[Finding]:
    """Check that Muster may delete pods under disruption budgets, if some queues do not honour budgets."""
    rules = {queue.metadata.name: queue.spec.preemption for queue in site.all_of(kube.QUEUES, Queue)}
    honoured = ((name, rule.honour) for name, rule in rules.items() if rule and rule.honour is not None)
    ignoring = sorted(name for name, protections in honoured if BUDGETS not in protections)
    missing_rights = [right for right in _OVERRULING_RIGHTS if not site.may(right)] if ignoring else []
    if missing_rights:
        subject = f"{listed(ignoring)}: pods that budgets protect keep borrowed capacity"
        message = f"{subject}, since the account {site.account} lacks: {', '.join(map(str, missing_rights))}"
        yield error("overruling", f"spec.preemption.honour leaves budgets out in {message}", _OVERRULING_TODO)
    elif ignoring:
        yield fine("overruling", f"disruption budgets protect no borrowed capacity of {listed(ignoring)}")
    else:
        yield fine("overruling", "no queue leaves disruption budgets out of spec.preemption.honour")


def flavors(site: Installation) -> Iterator[Finding]:
    queues = site.all_of(kube.QUEUES, Queue)
    if lacking_queues := _queues_with(queues, "FlavorNotFound"):
        message = f"queues name ResourceFlavors that do not exist: {listed(lacking_queues)}"
        todo = "kubectl describe queue NAME says which: create them, or correct spec.flavors."
        yield error("flavors", message, todo)
    else:
        flavored = sum(any(each.resource_flavor for each in queue.spec.flavors or ()) for queue in queues)
        text = f"{counted(flavored, 'queue')} name ResourceFlavors, and each exists"
        yield fine("flavors", text if flavored else "no queue names ResourceFlavors")


def topologies(site: Installation) -> Iterator[Finding]:
    """Check for levels of Topologies whose label no node has."""
    all_topologies = site.all_of(kube.TOPOLOGIES, ClusterTopology)
    node_labels = {label for node in site.all_of(kube.NODES, Node) for label in node.metadata.labels or {}}
    levels = [(topology, level) for topology in all_topologies for level in topology.spec.levels or ()]
    topology_by_label = {level.node_label: topology.metadata.name for topology, level in levels}
    unused_labels = [label for label in topology_by_label if label not in node_labels]
    if level_names := [f"{label} of {topology_by_label[label]}" for label in unused_labels]:
        message = f"no node has the label of some levels: {listed(level_names)}"
        yield error("topologies", message, "Label the nodes, or correct spec.levels of the Topology.")
    else:
        count = len(all_topologies)
        yield fine("topologies", f"{count}, and nodes have all levels" if count else "there are none")


def local_queues(site: Installation) -> Iterator[Finding]:
    """Check for LocalQueues that admit no groups, except LocalQueues that a user has stopped."""
    local_queues, inactive = site.all_of(kube.LOCAL_QUEUES, LocalQueue), []
    for local in local_queues:
        active = condition(local.status.conditions, "Active")
        if active is not None and active.status != "True" and active.reason != "Stopped":
            inactive.append(f"{local.metadata.namespace}/{local.metadata.name} ({active.reason})")
    if inactive:
        message = f"{len(inactive)} of {len(local_queues)} admit no groups: {listed(sorted(inactive))}"
        todo = "kubectl get localqueues.kube-muster.io -A -o wide says why; correct spec.queue, or the queue."
        yield error("LocalQueues", message, todo)
    else:
        message = f"{len(local_queues)}, and each leads into a queue" if local_queues else "there are none"
        yield fine("LocalQueues", message)


# ---- quotas: the rights to read them, their faults, and queues that are not yet made from them


class _QueueDiff(NamedTuple):
    """Plan of the queues that quotas request, and the existing queues."""

    plan: QuotaPlan
    queues: Mapping[str, Queue]  # by name

    def from_quotas(self) -> Iterator[Queue]:
        """Return the existing queues that were made from quotas."""
        return (queue for queue in self.queues.values() if quota_source(queue))

    def names_at(self, step: QuotaStep) -> list[str]:
        """Return the names of the planned queues whose next step is `step`."""
        wanted = self.plan.queues.items()
        return [key for key, queue in wanted if step_of(queue, self.queues.get(key), is_empty=False) is step]


def quotas(site: Installation) -> Iterator[Finding]:
    sources = site.first_workload.setting("quota_sources").split(",")
    quotas_by_kind = {name: site.all_of(*kind) for name, kind in kube.QUOTAS.items() if name in sources}
    kinds = (quotas_by_kind.get(name, []) for name in kube.QUOTAS)
    diff = _QueueDiff(
        plan_of(Quotas(*kinds), int(site.first_workload.setting("max_queue_depth"))),
        {queue.metadata.name: queue for queue in site.all_of(kube.QUEUES, Queue)},
    )
    if not any(quotas_by_kind.values()) and not any(diff.from_quotas()):
        yield fine("quotas", "there are none from which queues would be made")
        return
    unread = list(_unreadable_quotas(site, [name for name, objects in quotas_by_kind.items() if objects]))
    faults = [*unread, *_quota_faults(diff, may_sync=not unread)]
    yield from faults
    if not faults:
        yield fine("quotas", f"{counted(len(diff.plan.queues), 'queue')} made from them")


def _unreadable_quotas(site: Installation, existing: list[QuotaKind]) -> Iterator[Finding]:
    rights = [right_to(verb, kube.QUOTAS[name][0]) for name in sorted(existing) for verb in ("list", "watch")]
    rights += [right_to(verb, kube.QUEUES) for verb in ("create", "patch", "delete")]
    missing_rights = [right for right in rights if not site.may(right)]
    if existing and missing_rights:
        rights_text = ", ".join(map(str, missing_rights))
        message = f"no queues are made from them, since the account {site.account} lacks: {rights_text}"
        yield error("quotas", message, _QUOTA_TODO)


def _quota_faults(diff: _QueueDiff, may_sync: bool) -> Iterator[Finding]:
    """Yield findings about quotas, and about queues that differ from their quotas.

    Args:
        diff: The planned and the existing queues.
        may_sync: Whether Muster may read all quotas and write queues. If it may not, another check reports
            that, and this function reports no missing queues.
    """
    faults = [f"{fault.source}, {fault}" for fault in diff.plan.faults]
    for name in diff.names_at(QuotaStep.LEAVE):
        source = diff.plan.queues[name].source
        faults.append(f"{source}: queue {name!r} exists and is not made from this quota")
    if faults:
        message = f"{counted(len(faults), 'fault')}: {listed(faults, separator='; ')}"
        yield error("quotas", message, f"Correct them; the valid rest of these quotas counts ({_PAGE}).")
    outdated_queues = [*diff.names_at(QuotaStep.CREATE), *diff.names_at(QuotaStep.CHANGE)]
    if may_sync and outdated_queues:
        message = f"{counted(len(outdated_queues), 'queue')} not as the quotas say: {listed(outdated_queues)}"
        todo = "Muster needs a second or two. If this stays, see the line `health` here, and Muster's log."
        yield error("quotas", message, todo)
    # Muster has not closed these queues, because it has not seen the deletion of their quota.
    orphans = []
    for queue in diff.from_quotas():
        name, origin = queue.metadata.name, quota_source(queue)
        if name not in diff.plan.queues and origin not in diff.plan.unsure_quotas and not is_obsolete(queue):
            orphans.append(f"{name} ({origin})")
    if orphans:
        message = f"{counted(len(orphans), 'queue')} whose quota is gone or not read: {listed(orphans)}"
        todo = (
            "Muster closes them once it reads quotas of that kind (--quota-sources). Otherwise delete the"
            " binding of kube-muster-quota, and then either the queues or, to keep these, their annotation"
            f" {QUOTA_SOURCE}."
        )
        yield error("quotas", message, todo)
