"""The CRDs: there, served, and ours."""

from collections.abc import Iterator

from extender.cli.check.findings import Finding, Installation, at, fine, wrong
from extender.cli.output import Json
from extender.kube.resources import CRDS, LOCAL_QUEUES, POD_GROUPS, QUEUES

_APPLY = "kubectl apply -f manifests/crds"
_OF_OURS = {
    QUEUES: ("spec", "state"),
    POD_GROUPS: ("spec", "minMember"),
    LOCAL_QUEUES: ("spec", "queue"),
}  # Volcano's Queue has no spec.state


def kinds(site: Installation) -> Iterator[Finding]:
    for resource, field in _OF_OURS.items():
        name = f"{resource.plural}.{resource.group}"
        yield _judged(name, site.get(CRDS, "", name), resource.version.rpartition("/")[2], field)


def _judged(name: str, crd: Json | None, served: str, field: tuple[str, str]) -> Finding:
    if crd is None:
        return wrong(name, "is not installed", _APPLY)
    if not _established(crd):
        return wrong(name, "is not established", f"kubectl describe crd {name} tells why.")
    version = next((each for each in at(crd, "spec", "versions") or () if each["name"] == served), None)
    if version is None or not version.get("served"):
        return wrong(name, f"does not serve {served}", _APPLY)
    schema = at(version, "schema", "openAPIV3Schema", "properties", field[0], "properties", field[1])
    if schema is None:
        message = f"lacks {'.'.join(field)}: it is another project's or an older one"
        return wrong(name, message, f"{_APPLY} (it takes all that is stored).")
    return fine(name, f"is there and serves {served}")


def _established(crd: Json) -> bool:
    found = at(crd, "status", "conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in found)
