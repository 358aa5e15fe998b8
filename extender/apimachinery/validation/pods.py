"""Validation of pods, of the requests of their containers, and of nodes.

The module covers the common errors of ValidatePodCreate (pkg/apis/core/validation of Kubernetes), with
validateResourceRequirements and ValidateNodeResources.
"""

from typing import Any

from extender.api.units import rounded_up
from extender.apimachinery import errors
from extender.apimachinery.errors import FieldError, FieldErrors
from extender.apimachinery.kinds import Json
from extender.apimachinery.validation import metadata

_STANDARD_RESOURCES = frozenset(("cpu", "memory", "ephemeral-storage"))
_NOT_FOR_CONTAINERS = {
    *("pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps"),
    *("persistentvolumeclaims", "storage", "services.nodeports", "services.loadbalancers"),
    *(f"{side}.{name}" for side in ("requests", "limits") for name in _STANDARD_RESOURCES),
    "requests.storage",
}
_HUGE_PAGES_PREFIX = "hugepages-"
_KUBERNETES_PREFIX = "kubernetes.io/"
_NANO = 10**9


def request_errors(resources: Json, at: str) -> FieldErrors:
    """Yield the errors of the requests and limits of a container."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for section, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in sorted(amounts.items()):
            field = f"{at}.{section}[{name}]"
            name_errors = metadata.label_key(name)
            for message in name_errors:
                yield errors.bad_value(field, name, message)
            if "/" not in name:
                if not name_errors and not _is_standard(name) and name not in _NOT_FOR_CONTAINERS:
                    yield errors.bad_value(field, name, "must be a standard resource type or fully qualified")
                if not _is_standard(name):
                    yield errors.bad_value(field, name, "must be a standard resource for containers")
            elif not _is_native(name) and not _is_extended(name):
                yield errors.bad_value(field, name, "doesn't follow extended resource name standard")
            yield from amount_errors(name, amount, field)
            if section == "requests":
                yield from _limit_errors(name, amount, limits, at)
    all_names = {*limits, *requests}
    if any(name.startswith(_HUGE_PAGES_PREFIX) for name in all_names) and not {"cpu", "memory"} & all_names:
        yield errors.forbidden_field(at, "HugePages require cpu or memory")


def node_errors(node: Json) -> FieldErrors:
    for field in ("capacity", "allocatable"):
        for name, amount in sorted(((node.get("status") or {}).get(field) or {}).items()):
            yield from amount_errors(name, amount, f"status.{field}.{name}")


def quota_errors(spec: Json, at: str) -> FieldErrors:
    """Yield the errors of the spec of a ResourceQuota."""
    for name, amount in sorted((spec.get("hard") or {}).items()):
        field = f"{at}.hard[{name}]"
        yield from (errors.bad_value(field, name, message) for message in metadata.label_key(name))
        if not ("/" in name or _is_of_quotas(name)):
            yield errors.bad_value(field, name, "must be a standard resource for quota")
        yield from amount_errors(name, amount, field)
    scopes, standard = spec.get("scopes") or [], [*filter(_is_of_quotas, spec.get("hard") or {})]
    yield from _scope_errors(scopes, standard, f"{at}.scopes", f"{at}.scopes")
    selector = spec.get("scopeSelector") or {}
    expressions, inside = selector.get("matchExpressions") or [], f"{at}.scopeSelector.matchExpressions"
    names = [expression.get("scopeName", "") for expression in expressions]
    yield from _scope_errors(names, standard, f"{inside}.scopeName", inside)
    for expression in expressions:
        operator, values = expression.get("operator", ""), expression.get("values") or []
        if expression.get("scopeName") in _EXISTING and operator != "Exists":
            scopes = ", ".join(f"ResourceQuotaScope{name}" for name in _EXISTING[:-1])
            message = f"must be 'Exists' when scope is any of {scopes} or ResourceQuotaScope{_EXISTING[-1]}"
            yield errors.bad_value(f"{inside}.operator", operator, message)
        if operator in ("In", "NotIn") and not values:
            message = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield errors.required(f"{inside}.values", message)
        if operator in ("Exists", "DoesNotExist") and values:
            message = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield errors.bad_value(f"{inside}.values", values, message)
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            yield errors.bad_value(f"{inside}.operator", operator, "not a valid selector operator")


_COMPUTE = {"pods", *(f"{side}{name}" for side in ("", "requests.", "limits.") for name in ("cpu", "memory"))}
_EXISTING = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity")
# Standard resources that each scope applies to.
_SCOPES = {
    **dict.fromkeys((*_EXISTING, "PriorityClass"), _COMPUTE),
    "BestEffort": {"pods"},
    "VolumeAttributesClass": {"persistentvolumeclaims", "requests.storage"},
}


def _is_of_quotas(name: str) -> bool:
    return name in _NOT_FOR_CONTAINERS or _is_standard(name.removeprefix("requests."))


def _scope_errors(scopes: list[Any], standard: list[str], field: str, path: str) -> FieldErrors:
    """Yield the errors of scopes.

    Args:
        scopes: The names of the scopes to validate.
        standard: The quota's resources that every cluster has.
        field: The field to report for an unknown scope.
        path: The path of the list of scopes.
    """
    for scope in scopes:
        if scope not in _SCOPES:
            yield errors.bad_value(field, scopes if field == path else scope, "unsupported scope")
        for _ in [name for name in standard if name not in _SCOPES.get(scope, standard)]:
            yield errors.bad_value(path, scopes, "unsupported scope applied to resource")
    for name in ("BestEffort", "Terminating"):
        if {name, f"Not{name}"} <= {*scopes}:
            yield errors.bad_value(path, scopes, "conflicting scopes")


def amount_errors(name: str, amount: Any, field: str) -> FieldErrors:
    value = rounded_up(amount, _NANO)
    if value < 0:
        yield errors.bad_value(field, str(amount), "must be greater than or equal to 0")
    if (_is_extended(name) or name == "pods") and value % _NANO:
        scales = ((10**6, "m"), (10**3, "u"), (1, "n"))  # billionths in a unit, and its suffix
        text = next(f"{value // scale}{suffix}" for scale, suffix in scales if value % scale == 0)
        yield errors.bad_value(field, text, "must be an integer")


def _limit_errors(name: str, amount: Any, limits: Json, at: str) -> FieldErrors:
    """Yield the errors of a request that does not fit the limit of its resource."""
    overcommits = _is_native(name) and not name.startswith(_HUGE_PAGES_PREFIX)
    if name not in limits:
        if not overcommits:
            yield errors.required(f"{at}.limits", "Limit must be set for non overcommitable resources")
        return
    requested_amount, limit = rounded_up(amount, _NANO), rounded_up(limits[name], _NANO)
    is_wrong = requested_amount > limit if overcommits else requested_amount != limit
    if is_wrong:
        relation = "less than or equal to" if overcommits else "equal to"
        message = f"must be {relation} {name} limit of {limits[name]}"
        yield errors.bad_value(f"{at}.requests", str(amount), message)


def _is_standard(name: str) -> bool:
    return name in _STANDARD_RESOURCES or name.startswith(_HUGE_PAGES_PREFIX)


def _is_native(name: str) -> bool:
    return "/" not in name or _KUBERNETES_PREFIX in name


def _is_extended(name: str) -> bool:
    if _is_native(name) or name.startswith("requests."):
        return False
    return not metadata.label_key(f"requests.{name}")


def pod_errors(spec: Json, at: str) -> FieldErrors:
    """Yield the faults of a pod's spec at this path that concern several fields or names."""
    yield from _volume_errors(spec, at)
    yield from _all_container_errors(spec, at)
    yield from metadata.labels_errors(f"{at}.nodeSelector", spec.get("nodeSelector"))
    yield from _name_errors(f"{at}.nodeName", spec.get("nodeName"), metadata.subdomain)
    yield from _name_errors(f"{at}.priorityClassName", spec.get("priorityClassName"), metadata.subdomain)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration_errors(toleration, f"{at}.tolerations[{index}]")
    gates = [gate.get("name", "") for gate in spec.get("schedulingGates") or ()]
    if gates and spec.get("nodeName"):
        message = "cannot be set until all schedulingGates have been cleared"
        yield errors.forbidden_field(f"{at}.nodeName", message)
    for index, name in enumerate(gates):
        yield from _name_errors(f"{at}.schedulingGates[{index}]", name, metadata.label_key, is_required=True)
        if name in gates[:index]:
            yield errors.duplicate(f"{at}.schedulingGates[{index}]", name)
    if spec.get("ephemeralContainers"):
        yield errors.forbidden_field(f"{at}.ephemeralContainers", "cannot be set on create")
    if spec.get("dnsPolicy") == "None" and not (spec.get("dnsConfig") or {}).get("nameservers"):
        field = f"{at}.dnsConfig.nameservers" if spec.get("dnsConfig") else f"{at}.dnsConfig"
        yield errors.required(field, "must provide `dnsConfig` when `dnsPolicy` is None")
    if spec.get("hostPID") and spec.get("shareProcessNamespace"):
        message = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield errors.bad_value(f"{at}.shareProcessNamespace", True, message)
    spreads = [
        (constraint.get("topologyKey"), constraint.get("whenUnsatisfiable"))
        for constraint in spec.get("topologySpreadConstraints") or ()
    ]
    for index, spread in enumerate(spreads):
        if spread in spreads[index + 1 :]:
            field = f"{at}.topologySpreadConstraints[{index}].{{topologyKey, whenUnsatisfiable}}"
            yield errors.duplicate(field, f"{{{', '.join(map(str, spread))}}}")


def _all_container_errors(spec: Json, at: str) -> FieldErrors:
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    main, init = spec.get("containers") or [], spec.get("initContainers") or []
    names: list[str] = []
    for field, containers in (("containers", main), ("initContainers", init)):
        for index, container in enumerate(containers):
            inside = f"{at}.{field}[{index}]"
            yield from _container_errors(container, volumes, inside)
            yield from _probe_errors(container, inside, is_init=field == "initContainers")
            claims = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
            for number, claim in enumerate((container.get("resources") or {}).get("claims") or ()):
                if claim.get("name") not in claims:
                    yield errors.not_found_field(f"{inside}.resources.claims[{number}]", claim.get("name"))
            ports = (container.get("ports") or ()) if spec.get("hostNetwork") else ()
            for number, port in enumerate(ports):
                if port.get("hostPort", port.get("containerPort")) != port.get("containerPort"):
                    message = "must match `containerPort` when `hostNetwork` is true"
                    yield errors.bad_value(f"{inside}.ports[{number}].hostPort", port["hostPort"], message)
            name = container.get("name", "")
            if name in names:
                yield errors.duplicate(f"{inside}.name", name)
            names.append(name)


def _container_errors(container: Json, volumes: set[Any], at: str) -> FieldErrors:
    yield from _name_errors(f"{at}.name", container.get("name"), metadata.dns_label, is_required=True)
    if not container.get("image"):
        yield errors.required(f"{at}.image")
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") and mount["name"] not in volumes:
            yield errors.not_found_field(f"{at}.volumeMounts[{index}].name", mount["name"])
    yield from request_errors(container.get("resources") or {}, f"{at}.resources")


def _volume_errors(spec: Json, at: str) -> FieldErrors:
    names = [volume.get("name", "") for volume in spec.get("volumes") or ()]
    for index, name in enumerate(names):
        yield from _name_errors(f"{at}.volumes[{index}].name", name, metadata.dns_label, is_required=True)
        if name in names[:index]:
            yield errors.duplicate(f"{at}.volumes[{index}].name", name)


def _probe_errors(container: Json, at: str, *, is_init: bool) -> FieldErrors:
    """Yield the errors of probes. An init container has none, unless it always restarts."""
    policy = container.get("restartPolicy")
    if is_init and policy not in (None, "Always"):
        yield errors.not_supported(f"{at}.restartPolicy", policy, ("Always",))
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is not None and is_init and policy != "Always":
            message = "may not be set for init containers without restartPolicy=Always"
            yield errors.forbidden_field(f"{at}.{name}", message)
        elif probe is not None and name != "readinessProbe" and probe.get("successThreshold", 1) > 1:
            yield errors.bad_value(f"{at}.{name}.successThreshold", probe["successThreshold"], "must be 1")


def _toleration_errors(toleration: Json, at: str) -> FieldErrors:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    if not key and operator != "Exists":
        message = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield errors.bad_value(f"{at}.operator", operator, message)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        message = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield errors.bad_value(f"{at}.effect", effect, message)
    if operator in ("Equal", ""):
        if message := ";".join(metadata.label_value(value)):
            yield errors.bad_value(f"{at}.operator", value, message)
    elif operator == "Exists" and value:
        yield errors.bad_value(f"{at}.operator", value, "value must be empty when `operator` is 'Exists'")


def taint_errors(node: Json) -> FieldErrors:
    for index, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        at = f"metadata.taints[{index}]"  # Kubernetes names this path, although taints are in the spec
        yield from _name_errors(f"{at}.key", taint.get("key"), metadata.label_key, is_required=True)
        if message := ";".join(metadata.label_value(taint.get("value", ""))):
            yield errors.bad_value(f"{at}.value", taint.get("value", ""), message)
        effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        effect = taint.get("effect")
        if not effect:
            yield errors.required(f"{at}.effect")
        elif effect not in effects:
            yield errors.not_supported(f"{at}.effect", effect, effects)
        known_taints = [(taint.get("key"), taint.get("effect")) for taint in node["spec"]["taints"][:index]]
        if (taint.get("key"), taint.get("effect")) in known_taints:
            yield errors.duplicate(at, taint.get("key"))


def _name_errors(
    field: str, name: str | None, rule: metadata.NameRule, is_required: bool = False
) -> list[FieldError]:
    if not name:
        return [errors.required(field)] if is_required else []
    return [errors.bad_value(field, name, message) for message in rule(name)]
