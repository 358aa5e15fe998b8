"""What else might schedule the same pods, or write the same status: Volcano."""

from collections.abc import Iterator

import msgspec

from extender.api.objects.cluster import Lease
from extender.api.objects.pods import Pod
from extender.cli.check.findings import (
    Finding,
    Installation,
    at,
    fine,
    name_of,
    setting,
    settings,
    wrong,
)
from extender.cli.output import Json
from extender.controllers.coexistence import LEASE, POD_LABEL, works
from extender.controllers.leader_election import lively
from extender.kube.resources import DEPLOYMENTS, LEASES, PODS

_NAME = "volcano"
_SCHEDULER, _CONTROLLERS = "=".join(POD_LABEL), "app=volcano-controller"
_SHARED = ("queue-controller", "pg-controller")  # of its controllers those that do what Muster does
_PAGE = "docs/volcano.md has the steps"


def volcano(site: Installation) -> Iterator[Finding]:
    """Its scheduler is looked for in every namespace: where Muster does not look, both take the same pods."""
    place = setting(site.container, "volcano_namespace")
    pods = [pod for pod in site.labelled(PODS, "", _SCHEDULER) if works(msgspec.convert(pod, Pod))]
    holder = _holder(site, place)
    if not pods and not holder:
        yield fine("Volcano", "no scheduler of Volcano is at work")
        # Those of its controllers that only its scheduler needs.
        for found in site.labelled(DEPLOYMENTS, "", _CONTROLLERS):
            shared = [
                controller
                for controller in _SHARED
                if at(found, "spec", "replicas") and _is_on(found, controller)
            ]
            if shared:
                where = f"{found['metadata']['namespace']}/{name_of(found)}"
                message = f"its {' and '.join(shared)} run ({where}), and do what Muster does"
                off = ",".join(f"-{controller}" for controller in _SHARED)
                yield wrong(
                    "Volcano", message, f"Start it with --controllers=*,-sharding-controller,{off}; {_PAGE}."
                )
    elif _NAME not in settings(site.container, "scheduler_names"):
        yield fine("Volcano", "its scheduler is at work, and Muster leaves its name alone")
    elif not holder and all(pod["metadata"]["namespace"] != place for pod in pods):
        yield _unseen(pods[0])
    else:
        yield _at_work(holder or name_of(pods[0]))


def _at_work(holder: str) -> Finding:
    message = f"its scheduler is at work ({holder}), so pods of schedulerName: volcano are left to it"
    todo = (
        f"Stop it when Muster is to take them over; {_PAGE}. Or take volcano out of --scheduler-name, the"
        " profiles and the policy, so that Muster's scheduler does not try them in vain."
    )
    return wrong("Volcano", message, todo)


def _unseen(pod: Json) -> Finding:
    place = pod["metadata"]["namespace"]
    message = (
        f"its scheduler is at work in namespace {place} ({name_of(pod)}), and Muster does not look there"
    )
    return wrong("Volcano", message, f"Set --volcano-namespace={place}: until then both take the same pods.")


def _is_on(deployment: Json, controller: str) -> bool:
    """As its flag --controllers says; without it all of them are on."""
    containers = at(deployment, "spec", "template", "spec", "containers") or ()
    flags = [
        arg
        for container in containers
        for arg in container.get("args", ())
        if arg.startswith("--controllers=")
    ]
    named = flags[-1].partition("=")[2].split(",") if flags else ["*"]
    return f"-{controller}" not in named and not {"*", controller, f"+{controller}"}.isdisjoint(named)


def _holder(site: Installation, namespace: str) -> str:
    found = site.get(LEASES, namespace, LEASE)
    lease = msgspec.convert(found, Lease).spec if found else None
    return (lease.holder_identity or "") if lease and lively(lease, site.now) else ""
