"""Other programs that start, schedule or write the same objects: Kubernetes' PodGroups, Kueue and Volcano."""

from collections.abc import Iterator

import msgspec

from extender.api.keys import ENDED_PHASES, KUEUE_QUEUE, VOLCANO_CONTROLLERS, VOLCANO_LEASE, VOLCANO_SCHEDULER
from extender.api.objects.cluster import Lease, is_held
from extender.api.objects.pods import Pod
from extender.api.units import listed
from extender.api.workloads.table import WORKLOADS
from extender.cli.check.findings import OK, Finding, error, fine
from extender.cli.installation import Installation, name_of, nested
from extender.cli.observed_jobs import observed_job
from extender.cli.output import Json
from extender.domain.model.reasons import Verdict
from extender.kube import resources as kube
from extender.kube.resources import Resource, resource_of
from extender.terminal.text import counted

_KUEUE_CRD = f"{kube.KUEUE_LOCAL_QUEUES[0].plural}.{kube.KUEUE_LOCAL_QUEUES[0].group}"
_OWN_CRD = f"{kube.LOCAL_QUEUES.plural}.{kube.LOCAL_QUEUES.group}"

_SCHEDULER, _CONTROLLERS = map("=".join, (VOLCANO_SCHEDULER, VOLCANO_CONTROLLERS))
_SHARED = ("queue-controller", "pg-controller")  # Volcano's controllers with the same task as Muster's
_PAGE = "docs/how-to/move-from-volcano.md has the steps"


def native_groups(site: Installation) -> Iterator[Finding]:
    """Check that Muster reads the version of Kubernetes' PodGroups that the cluster serves."""
    readable = (kube.NATIVE_POD_GROUPS, kube.ALPHA_POD_GROUPS)
    served = site.versions_of(kube.NATIVE_POD_GROUPS)
    read_version = next((resource.version for resource in readable if resource.version in served), "")
    if read_version:
        yield fine("groups", f"PodGroups of Kubernetes itself are served and read as {read_version}")
    elif served:
        message = f"PodGroups of Kubernetes itself are served as {listed(served)}, which is not read"
        versions = " and ".join(resource.version for resource in readable)
        todo = f"Serve {versions}, or have pods name a PodGroup of scheduling.volcano.sh."
        yield error("groups", message, todo)
    else:
        yield fine("groups", "PodGroups of Kubernetes itself are not served (feature gate GenericWorkload)")


def kueue(site: Installation) -> Iterator[Finding]:
    """Check which jobs belong to Kueue, and which jobs both Kueue and Muster would start."""
    crd = site.get(kube.CRDS, "", _KUEUE_CRD)
    if crd is None:
        yield fine("Kueue", "the cluster does not have it")
        return
    own_names = _names(site, kube.LOCAL_QUEUES)
    served = {version["name"] for version in nested(crd, "spec", "versions") or () if version.get("served")}
    served_kinds = (kind for kind in kube.KUEUE_LOCAL_QUEUES if kind.version.rpartition("/")[2] in served)
    newest_kind = next(served_kinds, None)  # each version lists all objects
    kueue_names = _names(site, newest_kind) if newest_kind else set()
    if shared := sorted(own_names & kueue_names):
        message = f"{listed(shared)}: LocalQueues of both, so both start and suspend the jobs that name them"
        yield error("Kueue", message, f"Keep one of each name: kubectl get {_OWN_CRD},{_KUEUE_CRD} -A")
    waiting_jobs = [(job, queue) for job, queue in _waiting_jobs(site) if queue not in own_names]
    known_jobs = sorted(job for job, queue in waiting_jobs if queue in kueue_names)
    queueless_jobs = sorted(f"{job} ({queue})" for job, queue in waiting_jobs if queue not in kueue_names)
    if known_jobs:
        message = f"{counted(len(known_jobs), 'suspended job')} left to Kueue: {listed(known_jobs)}"
        todo = f"To let Muster start one, remove its label {KUEUE_QUEUE} and name a queue of Muster."
        yield Finding("Kueue", OK, message, todo)
    if queueless_jobs:
        count = counted(len(queueless_jobs), "suspended job")
        message = f"{count} left to Kueue, with missing LocalQueues: {listed(queueless_jobs)}"
        todo = f"Correct the label {KUEUE_QUEUE}, or create the LocalQueue; for Muster, a {_OWN_CRD}."
        yield error("Kueue", message, todo)
    if not waiting_jobs:
        yield fine("Kueue", "the cluster has it, and no job of Muster's scheduler waits for it")


def _names(site: Installation, resource: Resource) -> set[str]:
    metas = (obj["metadata"] for obj in site.all_of(resource, Json))
    return {f"{meta['namespace']}/{meta['name']}" for meta in metas}


def _waiting_jobs(site: Installation) -> Iterator[tuple[str, str]]:
    """Yield suspended jobs for Muster's scheduler that name a LocalQueue only by Kueue's label."""
    schedulers = site.first_workload.settings("scheduler_names")
    rows = [row for row in WORKLOADS.values() if row.manageable]
    for row in rows:
        for obj in site.all_of(resource_of(row), Json, labels=KUEUE_QUEUE):
            job = observed_job(row, obj, None)
            record = job.record(schedulers)
            if record is None or not record.is_for_muster or record.is_part:
                continue
            label, namespace = record.local_queue, record.namespace
            is_waiting = job.is_suspended and job.state == Verdict.WAITING
            if label is not None and label.is_kueue_label and is_waiting:
                yield f"{namespace}/{record.display_name}", f"{namespace}/{label.name}"


def volcano(site: Installation) -> Iterator[Finding]:
    """Check for Volcano's scheduler in all namespaces.

    Two schedulers must not place the same pods.
    """
    namespace = site.first_workload.setting("volcano_namespace")
    found_pods = [(obj, msgspec.convert(obj, Pod)) for obj in site.all_of(kube.PODS, Json, _SCHEDULER)]
    pods = [obj for obj, pod in found_pods if pod.spec.node_name and pod.status.phase not in ENDED_PHASES]
    lease = site.get(kube.LEASES, namespace, VOLCANO_LEASE)
    spec = msgspec.convert(lease, Lease).spec if lease else None
    holder = (spec.holder_identity or "") if spec and is_held(spec, site.now) else ""
    if not pods and not holder:
        yield fine("Volcano", "no scheduler of Volcano is at work")
        yield from _controllers(site)
    elif "volcano" not in site.first_workload.settings("scheduler_names"):
        yield fine("Volcano", "its scheduler is at work, and Muster leaves its name alone")
    elif not holder and all(pod["metadata"]["namespace"] != namespace for pod in pods):
        other_namespace = pods[0]["metadata"]["namespace"]
        message = f"its scheduler is at work in namespace {other_namespace} ({name_of(pods[0])})"
        todo = f"Set --volcano-namespace={other_namespace}: until then both schedulers place the same pods."
        yield error("Volcano", f"{message}, and Muster does not look there", todo)
    else:
        program = holder or name_of(pods[0])
        message = f"its scheduler is running ({program}), so pods of schedulerName: volcano are left to it"
        todo = (
            f"Stop it when Muster is to take them over; {_PAGE}. Or take volcano out of --scheduler-name, the"
            " profiles and the policy, so that Muster's scheduler does not try them in vain."
        )
        yield error("Volcano", message, todo)


def _controllers(site: Installation) -> Iterator[Finding]:
    """Check for controllers of Volcano with the same task as Muster's."""
    for deployment in site.all_of(kube.DEPLOYMENTS, Json, _CONTROLLERS):
        containers = nested(deployment, "spec", "template", "spec", "containers") or ()
        arguments = [argument for container in containers for argument in container.get("args", ())]
        flags = [argument for argument in arguments if argument.startswith("--controllers=")]
        enabled = flags[-1].partition("=")[2].split(",") if flags else ["*"]  # the default of the flag
        overlaps = [
            controller
            for controller in _SHARED
            if f"-{controller}" not in enabled and not {"*", controller, f"+{controller}"}.isdisjoint(enabled)
        ]
        if overlaps and nested(deployment, "spec", "replicas"):
            full_name = f"{deployment['metadata']['namespace']}/{name_of(deployment)}"
            message = f"its {' and '.join(overlaps)} run ({full_name}), and overlap with Muster"
            exclusions = ",".join(f"-{controller}" for controller in _SHARED)
            todo = f"Start it with --controllers=*,-sharding-controller,{exclusions}; {_PAGE}."
            yield error("Volcano", message, todo)
