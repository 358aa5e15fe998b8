"""Which part of an object a request may write: its status, or the rest of it."""

from extender.sim.apiserver.kinds import Json, ResourceKind
from extender.sim.apiserver.same_object import named_by


def merged_parts(kind: ResourceKind, before: Json, wanted: Json, subresource: str) -> Json:
    """Status is written through its subresource and nowhere else, where a kind has one."""
    if subresource == "status":
        kept = {"managedFields": wanted["metadata"].get("managedFields")}
        meta = {**before["metadata"], **named_by(wanted), **{k: v for k, v in kept.items() if v}}
        return {**before, "metadata": meta, "status": wanted.get("status") or {}}
    after = {**wanted, "apiVersion": kind.api_version, "kind": kind.name}
    after["metadata"] = {**wanted.get("metadata", {})}
    if kind.status:
        after.pop("status", None)
        after |= {"status": before["status"]} if "status" in before else {}
    return after
