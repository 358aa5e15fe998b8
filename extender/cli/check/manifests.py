"""Installed manifests: CRDs, the rights of Muster's account, policies and webhooks."""

from collections.abc import Iterator
from functools import cache
from itertools import product

from extender.api.keys import MANAGED, NEVER_ADOPTED
from extender.api.units import listed
from extender.api.workloads.table import WORKLOADS
from extender.cli.check.certificates import (
    Certificate,
    bundle_fault,
    reason_of_distrust,
    webhook_certificates,
)
from extender.cli.check.findings import APPLY, Finding, error, fine
from extender.cli.check.view import uses_proxy
from extender.cli.installation import ACCOUNT, Installation, name_of, nested
from extender.cli.observed_jobs import ObservedJob, observed_job
from extender.cli.output import Json
from extender.cli.why.evidence import Evidence
from extender.kube import resources as kube
from extender.kube.access import Right, right_to
from extender.kube.calls import AUTHORS_POLICIES, MARKERS_POLICY, USES_POLICY
from extender.kube.resources import resource_of
from extender.shipped import CRDS, RIGHTS, read

_GATES_FROM = 36  # minor version with MutatingAdmissionPolicy; older versions need the webhook
_POD_WEBHOOK = "kube-muster-pods"
_MAX_LISTED = 3  # maximum of listed webhooks or fields
_GATE_POLICIES = {"kube-muster-gate", "kube-muster-mark"}
_ADOPTING = {"kube-muster-adoption", "adoption.webhooks.kube-muster.io", "kube-muster-mark-by-namespace"}
_CRDS_TODO = "kubectl apply -f manifests/crds"
_MUSTER_FIELDS = {
    kube.QUEUES: ("spec", "state"),
    kube.POD_GROUPS: ("spec", "minMember"),
    kube.LOCAL_QUEUES: ("spec", "queue"),
    kube.RESOURCE_FLAVORS: ("spec", "nodeLabels"),
}  # fields that only Muster's CRDs have


def kinds(site: Installation) -> Iterator[Finding]:
    """Check that Muster's CRDs are installed and established, and have the fields of this release."""
    muster_crds = set(map(name_of, site.muster_objects(kube.CRDS)))
    for resource, (parent, field) in _MUSTER_FIELDS.items():
        name, served = f"{resource.plural}.{resource.group}", resource.version.rpartition("/")[2]
        crd = site.get(kube.CRDS, "", name)
        states = {state["type"]: state["status"] for state in nested(crd, "status", "conditions") or ()}
        versions = {version["name"]: version for version in nested(crd, "spec", "versions") or ()}
        version = versions.get(served)
        schema = nested(version, "schema", "openAPIV3Schema", "properties", parent, "properties", field)
        newer = sorted(_shipped_fields()[name] - _fields(crd)) if crd and name in muster_crds else []
        if crd is None:
            yield error(name, "is not installed", _CRDS_TODO)
        elif states.get("Established") != "True":
            yield error(name, "is not established", f"kubectl describe crd {name} tells why.")
        elif not nested(version, "served"):
            yield error(name, f"does not serve {served}", _CRDS_TODO)
        elif schema is None:
            message = f"lacks {parent}.{field}: it is another project's or an older one"
            yield error(name, message, f"{_CRDS_TODO} (it accepts all stored objects).")
        elif newer:
            yield error(name, f"lacks {listed(newer, _MAX_LISTED)}: it is of an older release", _CRDS_TODO)
        else:
            yield fine(name, f"is there and serves {served}")


@cache
def _shipped_fields() -> dict[str, set[str]]:
    """Return the fields of this release's CRDs, by name of the CRD."""
    return {name_of(crd): _fields(crd) for crd in read(CRDS)}


def _fields(crd: Json) -> set[str]:
    """Return the paths of all fields in the schemas of a CRD."""
    paths: set[str] = set()
    versions = nested(crd, "spec", "versions") or ()
    schemas = (nested(version, "schema", "openAPIV3Schema") for version in versions)
    stack = [("", schema or {}) for schema in schemas]
    while stack:
        path, schema = stack.pop()
        parts = {**(schema.get("properties") or {}), "[]": schema.get("items") or {}}
        stack += [(f"{path}.{name}".lstrip("."), part) for name, part in parts.items() if part]
        paths.add(path)
    return paths


# ---- rights of Muster's account that the manifests grant: each is checked by itself


def rights(site: Installation) -> Iterator[Finding]:
    # If another component makes the certificate, Muster needs no Secret.
    has_files = any(workload.setting("webhook_certificates") == "files" for workload in site.workloads)
    unneeded_resource = "secrets" if has_files else ""
    needed_rights = [right for right in _shipped_rights() if right.resource != unneeded_resource]
    missing_rights = [right for right in needed_rights if not site.may(right)]
    if not missing_rights:
        yield fine("rights", f"the account {site.account} has all {len(needed_rights)} that it needs")
        return
    names = listed(list(map(str, missing_rights)))
    message = f"the account {site.account} lacks {len(missing_rights)} of {len(needed_rights)}: {names}"
    yield error("rights", message, "kubectl apply -f manifests/rbac.yaml -f manifests/webhooks/rbac.yaml")


@cache
def _shipped_rights() -> tuple[Right, ...]:
    return tuple(granted_rights(read(RIGHTS)))


def granted_rights(documents: list[Json]) -> Iterator[Right]:
    """Yield the rights in the roles that are bound to Muster's account."""
    roles = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    for document in documents:
        if any(subject["name"] == ACCOUNT for subject in document.get("subjects", ())):
            role = roles[document["roleRef"]["kind"], document["roleRef"]["name"]]
            namespace = document["metadata"].get("namespace", "")
            for rule in role["rules"]:
                names = rule.get("resourceNames", [""])
                for group, resource, name in product(rule["apiGroups"], rule["resources"], names):
                    plural, _, sub = resource.partition("/")
                    yield from (Right(verb, group, plural, sub, namespace, name) for verb in rule["verbs"])


def jobs(site: Installation) -> Iterator[Finding]:
    """Check that Muster may change the jobs that wait for it. Each API group has its own rights."""
    if site.first_workload.setting("manage_jobs") == "off":
        yield fine("jobs", "they are left alone (--manage-jobs=off)")
        return
    evidence, account = Evidence(site.access, ""), site.account
    changeable_kinds: list[str] = []
    counts: dict[str, int] = {}  # pending jobs of each kind that the account may not change
    runs_volcano_jobs = site.first_workload.setting("volcano_jobs") == "on"
    rows = (row for row in WORKLOADS.values() if row.manageable and (runs_volcano_jobs or not row.commanded))
    for row in rows:
        resource = resource_of(row)
        kind = f"{resource.plural}.{resource.group}"
        if site.may(right_to("patch", resource)):
            changeable_kinds.append(kind)
        else:
            observed_jobs = (observed_job(row, obj, None) for obj in site.all_of(resource, Json))
            counts[kind] = max(counts.get(kind, 0), sum(_is_waiting(evidence, job) for job in observed_jobs))
    for kind, count in counts.items():
        if count:
            message = f"{count} of {kind} cannot start: the account {account} may not change that kind"
            yield error("jobs", message, "docs/reference/jobs.md#the-rights says how that is granted.")
    if not any(counts.values()):
        changes = listed(list(dict.fromkeys(changeable_kinds))) or "none"
        yield fine("jobs", f"the account {account} may change {changes}; no others wait for it")


def _is_waiting(evidence: Evidence, job: ObservedJob) -> bool:
    """Return whether a job waits until Muster starts it. A suspended job without a record also waits."""
    record = job.record()
    if record is None or not job.is_suspended:
        return job.is_suspended
    names_queue = record.queue or record.local_queue or evidence.queue_of_namespace(record.namespace)
    return bool(record.is_for_muster and (names_queue or record.is_commanded))


def policies(site: Installation) -> Iterator[Finding]:
    mutating_names = set(map(name_of, site.muster_objects(kube.MUTATING_POLICIES)))
    if site.minor >= _GATES_FROM and not mutating_names & _GATE_POLICIES and not uses_proxy(site):
        message = "no policy puts gates on pods: they wait in the scheduler, which costs it more"
        yield error("policies", message, APPLY)
    present_names = set(map(name_of, site.muster_objects(kube.VALIDATING_POLICIES)))
    if MARKERS_POLICY not in present_names:
        effect = "so Muster's records on PodGroups are not protected and not trusted"
        yield error("policies", f"{MARKERS_POLICY} is missing, {effect}", APPLY)
    if USES_POLICY not in present_names:
        message = f"{USES_POLICY} is missing, so nothing starts in restricted queues"
        yield error("policies", message, APPLY)
    for missing_policy in (name for name in AUTHORS_POLICIES if name not in present_names):
        yield error("policies", f"{missing_policy} is missing, so no user is known", APPLY)
    for kind, bindings in (
        (kube.MUTATING_POLICIES, kube.MUTATING_BINDINGS),
        (kube.VALIDATING_POLICIES, kube.VALIDATING_BINDINGS),
    ):
        bound_names = {nested(binding, "spec", "policyName") for binding in site.muster_objects(bindings)}
        for policy in site.muster_objects(kind):
            name = name_of(policy)
            if name not in bound_names:
                yield error("policies", f"{name} has no binding, so it does nothing", APPLY)
            elif warnings := nested(policy, "status", "typeChecking", "expressionWarnings"):
                message = f"{name} does not fit this API server: {warnings[0].get('warning', '')}"
                yield error("policies", message, "Apply the manifests of this release.")
            else:
                yield fine("policies", f"{name} is there and bound")


def adoption(site: Installation) -> Iterator[Finding]:
    """Check that pods of adopted namespaces get Muster's scheduler, if there are such namespaces."""
    namespaces = site.all_of(kube.NAMESPACES, Json, f"{MANAGED}=true")
    names = {*map(name_of, namespaces)}
    adopted_names = listed(sorted(names.difference(NEVER_ADOPTED)))
    hooks = (hook for obj in site.muster_objects(kube.MUTATING_WEBHOOKS) for hook in obj.get("webhooks", ()))
    adopting = {*map(name_of, site.muster_objects(kube.MUTATING_POLICIES)), *(hook["name"] for hook in hooks)}
    if ignored := listed(sorted(names.intersection(NEVER_ADOPTED))):
        message = f"pods in {ignored} stay with the cluster's scheduler, in spite of the label {MANAGED}"
        yield error("adoption", message, "Remove the label.")
    if not adopted_names:
        yield fine("adoption", "no namespace is adopted")
    elif adopting & _ADOPTING:
        yield fine("adoption", f"pods without a scheduler of their own are Muster's in {adopted_names}")
    else:
        message = f"no policy gives pods in {adopted_names} Muster's scheduler"
        yield error("adoption", message, f"{APPLY}, or remove the label {MANAGED}.")


def webhooks(site: Installation) -> Iterator[Finding]:
    webhook_kinds = (kube.MUTATING_WEBHOOKS, kube.VALIDATING_WEBHOOKS)
    configurations = [obj for kind in webhook_kinds for obj in site.muster_objects(kind)]
    if not configurations:
        message = "none is registered: only the CRDs and policies check objects"
        yield error("webhooks", message, APPLY)
    if site.minor < _GATES_FROM and _POD_WEBHOOK not in map(name_of, configurations) and not uses_proxy(site):
        effect = "pods get no gate and wait in the scheduler, which costs it more"
        todo = "List manifests/older-kubernetes under components: of your overlay."
        yield error("webhooks", f"{_POD_WEBHOOK} is missing: {effect}", todo)
    certificates = list(webhook_certificates(site))
    names_by_finding: dict[Finding, list[str]] = {}
    for configuration in configurations:
        for webhook in configuration.get("webhooks", ()):
            names_by_finding.setdefault(_finding_of(site, webhook, certificates), []).append(webhook["name"])
    for finding, names in names_by_finding.items():  # one line for each cause
        yield finding._replace(message=f"{listed(names, _MAX_LISTED)}: {finding.message}")


def _finding_of(site: Installation, webhook: Json, certificates: list[Certificate]) -> Finding:
    """Return the finding about a webhook, without the webhook's name."""
    service = nested(webhook, "clientConfig", "service")
    bundle = nested(webhook, "clientConfig", "caBundle") or ""
    if not service:
        return fine("webhooks", "served elsewhere")
    namespace, service_name = service["namespace"], f"{service['namespace']}/{service['name']}"
    todo = f"kubectl -n {namespace} get pods,endpointslices"
    if site.get(kube.SERVICES, namespace, service["name"]) is None:
        return error("webhooks", f"the service {service_name} does not exist", todo)
    selector = f"kubernetes.io/service-name={service['name']}"
    slices = site.all_of(kube.ENDPOINT_SLICES, Json, selector, namespace)
    endpoints = (endpoint for endpoint_slice in slices for endpoint in endpoint_slice.get("endpoints") or ())
    if not any(nested(endpoint, "conditions", "ready") for endpoint in endpoints):
        return error("webhooks", f"the service {service_name} has no endpoint that is ready", todo)
    if fault := bundle_fault(bundle, certificates, site.now):
        todo = "Muster renews its own certificate: see the lines rights and health, and its log."
        return error("webhooks", fault, todo)
    host = f"{service['name']}.{service['namespace']}.svc"
    for certificate in certificates:
        if distrust := reason_of_distrust(bundle, host, certificate):
            fault, todo = distrust
            return error("webhooks", fault, todo)
    return fine("webhooks", "served, with a certificate that the API server trusts")
