"""Other programs that start, schedule or write the same objects: Kubernetes' own groups, Kueue, Volcano."""

from collections.abc import Iterator

import msgspec

from extender.api.keys import ENDED_PHASES, KUEUE_QUEUE, VOLCANO_CONTROLLERS, VOLCANO_LEASE, VOLCANO_SCHEDULER
from extender.api.objects.cluster import Lease, is_held
from extender.api.objects.pods import Pod
from extender.api.units import listed
from extender.api.workloads.table import WORKLOADS
from extender.cli.check.findings import OK, Finding, fine, wrong
from extender.cli.installation import Installation, at, name_of
from extender.cli.observed_jobs import observed_job
from extender.cli.output import Json
from extender.domain.model.reasons import Verdict
from extender.kube import resources as kube
from extender.kube.resources import Resource, resource_of
from extender.terminal.text import many

_KUEUES = f"{kube.KUEUE_LOCAL_QUEUES[0].plural}.{kube.KUEUE_LOCAL_QUEUES[0].group}"
_OURS = f"{kube.LOCAL_QUEUES.plural}.{kube.LOCAL_QUEUES.group}"

_SCHEDULER, _CONTROLLERS = map("=".join, (VOLCANO_SCHEDULER, VOLCANO_CONTROLLERS))
_SHARED = ("queue-controller", "pg-controller")  # Volcano's controllers that overlap with Muster
_PAGE = "docs/how-to/move-from-volcano.md has the steps"


def native_groups(site: Installation) -> Iterator[Finding]:
    """Check that Muster reads the version in which the cluster serves its own PodGroups."""
    read = (kube.NATIVE_POD_GROUPS, kube.ALPHA_POD_GROUPS)
    served = site.versions_of(kube.NATIVE_POD_GROUPS)
    ours = next((resource.version for resource in read if resource.version in served), "")
    if ours:
        yield fine("groups", f"PodGroups of Kubernetes itself are served and read as {ours}")
    elif served:
        message = f"PodGroups of Kubernetes itself are served as {listed(served)}, which is not read"
        known = " and ".join(resource.version for resource in read)
        yield wrong(
            "groups", message, f"Serve {known}, or have pods name a PodGroup of scheduling.volcano.sh."
        )
    else:
        yield fine("groups", "PodGroups of Kubernetes itself are not served (feature gate GenericWorkload)")


def kueue(site: Installation) -> Iterator[Finding]:
    """Check which jobs belong to Kueue, and which jobs both Kueue and Muster would start."""
    crd = site.get(kube.CRDS, "", _KUEUES)
    if crd is None:
        yield fine("Kueue", "the cluster does not have it")
        return
    ours = _names(site, kube.LOCAL_QUEUES)
    served = {version["name"] for version in at(crd, "spec", "versions") or () if version.get("served")}
    known = (kind for kind in kube.KUEUE_LOCAL_QUEUES if kind.version.rpartition("/")[2] in served)
    newest = next(known, None)  # each version lists all objects
    theirs = _names(site, newest) if newest else set()
    if both := sorted(ours & theirs):
        message = f"{listed(both)}: LocalQueues of both, so both start and suspend the jobs that name them"
        yield wrong("Kueue", message, f"Keep one of each name: kubectl get {_OURS},{_KUEUES} -A")
    left = [(job, queue) for job, queue in _waiting_jobs(site) if queue not in ours]
    known_jobs = sorted(job for job, queue in left if queue in theirs)
    lost = sorted(f"{job} ({queue})" for job, queue in left if queue not in theirs)
    if known_jobs:
        message = f"{many(len(known_jobs), 'suspended job')} left to Kueue: {listed(known_jobs)}"
        todo = f"To let Muster start one, remove its label {KUEUE_QUEUE} and name a queue of Muster."
        yield Finding("Kueue", OK, message, todo)
    if lost:
        count = many(len(lost), "suspended job")
        message = f"{count} left to Kueue, with missing LocalQueues: {listed(lost)}"
        todo = f"Correct the label {KUEUE_QUEUE}, or create the LocalQueue; for Muster, a {_OURS}."
        yield wrong("Kueue", message, todo)
    if not left:
        yield fine("Kueue", "the cluster has it, and no job of Muster's scheduler waits for it")


def _names(site: Installation, resource: Resource) -> set[str]:
    metas = (obj["metadata"] for obj in site.all_of(resource, Json))
    return {f"{meta['namespace']}/{meta['name']}" for meta in metas}


def _waiting_jobs(site: Installation) -> Iterator[tuple[str, str]]:
    """Yield suspended jobs of Muster's scheduler with only a label of Kueue, each with its LocalQueue."""
    schedulers = site.first.settings("scheduler_names")
    for row in WORKLOADS.values():
        for obj in site.all_of(resource_of(row), Json, labels=KUEUE_QUEUE) if row.manageable else []:
            job = observed_job(row, obj, None)
            record = job.record(schedulers)
            if record is None or not record.ours or record.is_part:
                continue
            label, namespace = record.local_queue, record.namespace
            waits = job.is_suspended and job.state == Verdict.WAITING
            if label is not None and label.is_kueues and waits:
                yield f"{namespace}/{record.spoken_name}", f"{namespace}/{label.name}"


def volcano(site: Installation) -> Iterator[Finding]:
    """Check for Volcano's scheduler in all namespaces: two schedulers must not place the same pods."""
    namespace = site.first.setting("volcano_namespace")
    found = [(obj, msgspec.convert(obj, Pod)) for obj in site.all_of(kube.PODS, Json, _SCHEDULER)]
    pods = [obj for obj, pod in found if pod.spec.node_name and pod.status.phase not in ENDED_PHASES]
    lease = site.get(kube.LEASES, namespace, VOLCANO_LEASE)
    spec = msgspec.convert(lease, Lease).spec if lease else None
    holder = (spec.holder_identity or "") if spec and is_held(spec, site.now) else ""
    if not pods and not holder:
        yield fine("Volcano", "no scheduler of Volcano is at work")
        yield from _controllers(site)
    elif "volcano" not in site.first.settings("scheduler_names"):
        yield fine("Volcano", "its scheduler is at work, and Muster leaves its name alone")
    elif not holder and all(pod["metadata"]["namespace"] != namespace for pod in pods):
        there = pods[0]["metadata"]["namespace"]
        message = f"its scheduler is at work in namespace {there} ({name_of(pods[0])})"
        todo = f"Set --volcano-namespace={there}: until then both schedulers place the same pods."
        yield wrong("Volcano", f"{message}, and Muster does not look there", todo)
    else:
        who = holder or name_of(pods[0])
        message = f"its scheduler is running ({who}), so pods of schedulerName: volcano are left to it"
        todo = (
            f"Stop it when Muster is to take them over; {_PAGE}. Or take volcano out of --scheduler-name, the"
            " profiles and the policy, so that Muster's scheduler does not try them in vain."
        )
        yield wrong("Volcano", message, todo)


def _controllers(site: Installation) -> Iterator[Finding]:
    """Check for controllers of Volcano that overlap with Muster."""
    for found in site.all_of(kube.DEPLOYMENTS, Json, _CONTROLLERS):
        containers = at(found, "spec", "template", "spec", "containers") or ()
        arguments = [argument for container in containers for argument in container.get("args", ())]
        flags = [argument for argument in arguments if argument.startswith("--controllers=")]
        named = flags[-1].partition("=")[2].split(",") if flags else ["*"]  # the flag's default
        shared = [
            controller
            for controller in _SHARED
            if f"-{controller}" not in named and not {"*", controller, f"+{controller}"}.isdisjoint(named)
        ]
        if shared and at(found, "spec", "replicas"):
            where = f"{found['metadata']['namespace']}/{name_of(found)}"
            message = f"its {' and '.join(shared)} run ({where}), and overlap with Muster"
            off = ",".join(f"-{controller}" for controller in _SHARED)
            todo = f"Start it with --controllers=*,-sharding-controller,{off}; {_PAGE}."
            yield wrong("Volcano", message, todo)
