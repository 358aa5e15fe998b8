"""Admission: the policies inside the API server, and the webhooks with their certificates."""

from collections.abc import Iterator

from extender.cli.check.certificates import ShownCertificate, bundle_fault, distrust, shown
from extender.cli.check.findings import APPLY, Finding, Installation, at, fine, name_of, wrong
from extender.cli.check.view import is_viewed
from extender.cli.output import Json
from extender.kube.calls import MARKS_POLICY
from extender.kube.resources import (
    ENDPOINT_SLICES,
    MUTATING_BINDINGS,
    MUTATING_POLICIES,
    MUTATING_WEBHOOKS,
    SERVICES,
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
    VALIDATING_WEBHOOKS,
)

_GATES_FROM = 36  # Kubernetes 1.36 has MutatingAdmissionPolicy; before, this webhook stands in for it
_POD_WEBHOOK = "kube-muster-pods"


# ---- policies


def policies(site: Installation) -> Iterator[Finding]:
    if site.minor >= _GATES_FROM and not site.ours(MUTATING_POLICIES) and not is_viewed(site):
        message = "no policy puts gates on pods: they wait in the scheduler, which costs it more"
        yield wrong("policies", message, APPLY)
    if MARKS_POLICY not in map(name_of, site.ours(VALIDATING_POLICIES)):
        message = (
            f"{MARKS_POLICY} is missing, so Muster's records on PodGroups are not protected and not trusted"
        )
        yield wrong("policies", message, APPLY)
    for kind, bindings in (
        (MUTATING_POLICIES, MUTATING_BINDINGS),
        (VALIDATING_POLICIES, VALIDATING_BINDINGS),
    ):
        bound = {at(each, "spec", "policyName") for each in site.ours(bindings)}
        yield from (_policy(each, name_of(each) in bound) for each in site.ours(kind))


def _policy(policy: Json, bound: bool) -> Finding:
    name = name_of(policy)
    if not bound:
        return wrong("policies", f"{name} has no binding, so it does nothing", APPLY)
    if warnings := at(policy, "status", "typeChecking", "expressionWarnings"):
        message = f"{name} does not fit this API server: {warnings[0].get('warning', '')}"
        return wrong("policies", message, "Apply the manifests of this release.")
    return fine("policies", f"{name} is there and bound")


# ---- webhooks


def webhooks(site: Installation) -> Iterator[Finding]:
    found = [*site.ours(MUTATING_WEBHOOKS), *site.ours(VALIDATING_WEBHOOKS)]
    if not found:
        message = "none is registered: what the CRDs and policies cannot check is not checked"
        yield wrong("webhooks", message, APPLY)
    if site.minor < _GATES_FROM and _POD_WEBHOOK not in map(name_of, found) and not is_viewed(site):
        message = (
            f"{_POD_WEBHOOK} is missing: pods get no gate and wait in the scheduler, which costs it more"
        )
        yield wrong("webhooks", message, "List manifests/older-kubernetes under components: of your overlay.")
    certificates = list(shown(site))
    for configuration in found:
        for webhook in configuration.get("webhooks", ()):
            yield _webhook(site, webhook, certificates)


def _webhook(site: Installation, webhook: Json, certificates: list[ShownCertificate]) -> Finding:
    name, service = webhook["name"], at(webhook, "clientConfig", "service")
    bundle = at(webhook, "clientConfig", "caBundle") or ""
    if not service:
        return fine("webhooks", f"{name} is served elsewhere")
    if fault := _unserved(site, service):
        todo = f"kubectl -n {service['namespace']} get pods,endpointslices"
        return wrong("webhooks", f"{name}: {fault}", todo)
    if fault := bundle_fault(bundle, certificates, site.now):
        todo = "Muster renews what it made itself: look at the lines rights and health, and at its log."
        return wrong("webhooks", f"{name}: {fault}", todo)
    host = f"{service['name']}.{service['namespace']}.svc"
    for each in certificates:
        if found := distrust(bundle, host, each):
            fault, todo = found
            return wrong("webhooks", f"{name}: {fault}", todo)
    return fine("webhooks", f"{name} is served, with a certificate that the API server trusts")


def _unserved(site: Installation, service: Json) -> str:
    namespace, name = service["namespace"], service["name"]
    if site.get(SERVICES, namespace, name) is None:
        return f"the service {namespace}/{name} does not exist"
    slices = site.labelled(ENDPOINT_SLICES, namespace, f"kubernetes.io/service-name={name}")
    ready = [end for each in slices for end in each.get("endpoints") or () if at(end, "conditions", "ready")]
    return "" if ready else f"the service {namespace}/{name} has no endpoint that is ready"
