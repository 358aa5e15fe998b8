"""The garbage collector: what is left without any of its owners goes as well."""

from contextlib import suppress

from extender.sim.apiserver.kinds import KINDS
from extender.sim.apiserver.service import Service
from extender.sim.apiserver.status_errors import StatusError


def collect(service: Service, gone: set[str]) -> None:
    """Delete what only objects that are gone own. `gone`: their UIDs."""
    for kind in KINDS:
        for obj in service.store.all(kind) if kind.namespaced and gone else ():
            meta = obj["metadata"]
            owners = [owner.get("uid") for owner in meta.get("ownerReferences") or ()]
            if owners and gone.issuperset(owners):
                with suppress(StatusError):
                    service.delete(
                        kind, meta["namespace"], meta["name"], {"preconditions": {"uid": meta["uid"]}}
                    )
