"""Questions about rights and identity, which are asked by creating them: everybody may do everything."""

from extender.sim.apiserver.kinds import ACCESS, IDENTITY, Json, ResourceKind

_WHY = "the embedded cluster has no authentication: everybody may do everything"
_ALL = ["*"]


def reviewed(kind: ResourceKind, asked: Json) -> Json:
    """The question with its answer."""
    head = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {}}
    if kind is IDENTITY:
        return {**head, "status": {"userInfo": {"username": "you", "groups": ["system:masters"]}}}
    spec = asked.get("spec") or {}
    if kind is ACCESS:
        return {**head, "spec": spec, "status": {"allowed": True, "reason": _WHY}}
    resources = [{"verbs": _ALL, "apiGroups": _ALL, "resources": _ALL}]
    urls = [{"verbs": _ALL, "nonResourceURLs": _ALL}]
    status = {"resourceRules": resources, "nonResourceRules": urls, "incomplete": False}
    return {**head, "spec": spec, "status": status}
