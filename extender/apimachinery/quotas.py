"""ResourceQuotas: their usage by the pods of a namespace, and the refusal of a pod that would exceed a quota.

A new pod is added to the status of each quota when it is created. When pods end or are deleted, a
controller counts again. Quotas count pods only, and the scope CrossNamespacePodAffinity matches no pod. The
rules follow the evaluator of pods in kubernetes/pkg/quota/v1/evaluator/core and the admission plugin
ResourceQuota.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from extender.api.keys import ENDED_PHASES
from extender.api.objects.pods import Container, Pod, PodSpec, ResourceRequirements
from extender.api.units import Quantity, rounded_down, rounded_up
from extender.api.workloads.shape import value_at
from extender.apimachinery.errors import StatusError, forbidden
from extender.apimachinery.kinds import PODS, RESOURCE_QUOTAS, Json
from extender.apimachinery.objects import typed
from extender.apimachinery.store import Store
from extender.domain.model.resources import CPU, MEMORY, pod_requests

_REQUESTS_PREFIX, _LIMITS, _HUGE_PAGES_PREFIX = "requests.", "limits.", "hugepages-"
_PLAIN = (CPU, MEMORY, "ephemeral-storage")  # these names mean requests even without the prefix
_REQUIRED = frozenset(f"{side}{name}" for side in ("", _REQUESTS_PREFIX, _LIMITS) for name in (CPU, MEMORY))
_MILLI = 1000


class BeyondQuota(StatusError):
    """Error: a pod would exceed a quota."""

    def __init__(self, pod: str, reason: str) -> None:
        refused = forbidden(PODS, pod, reason)
        super().__init__(refused.code, refused.reason, refused.message, refused.details)


def is_counted(name: str) -> bool:
    """Return whether the embedded cluster counts a resource name of a quota."""
    if name.startswith((_REQUESTS_PREFIX, _HUGE_PAGES_PREFIX)):
        return name != "requests.storage"
    return name in ("pods", "count/pods", *_PLAIN, *(_LIMITS + resource for resource in _PLAIN))


def usage(pod: Pod) -> dict[str, Quantity]:
    """Return the usage of a pod by the resource names of quotas. An ended pod counts as an object only."""
    if pod.status.phase in ENDED_PHASES:
        return {"count/pods": 1}
    amounts: dict[str, Quantity] = {"count/pods": 1, "pods": 1}
    for name, amount in _sum_requests(pod.spec).items():
        amounts[_REQUESTS_PREFIX + name] = amount
        if name in _PLAIN or name.startswith(_HUGE_PAGES_PREFIX):
            amounts[name] = amount
    limits = _sum_requests(_limits_as_requests(pod.spec))
    return amounts | {_LIMITS + name: limits[name] for name in _PLAIN if name in limits}


def _sum_requests(spec: PodSpec) -> dict[str, str]:
    """Return the sum of all requests of a pod, in the notation of its containers."""
    requests = [container.resources.requests or {} for container in _containers(spec)]
    binary_names = {name for amounts in requests for name, text in amounts.items() if str(text).endswith("i")}
    sums = pod_requests(spec)
    del sums["pods"]
    milli = {name: amount * (1 if name == CPU else _MILLI) for name, amount in sums.items()}
    return {name: _quantity(amount, is_binary=name in binary_names) for name, amount in milli.items()}


def _containers(spec: PodSpec) -> list[Container]:
    return [*spec.containers, *(spec.init_containers or ())]


def _limits_as_requests(spec: PodSpec) -> PodSpec:
    """Return a pod spec that has its limits as requests."""

    def limits_as_requests(container: Container) -> Container:
        return replace(container, resources=ResourceRequirements(container.resources.limits))

    pod_resources = ResourceRequirements(spec.resources.limits) if spec.resources else None
    inits = [limits_as_requests(container) for container in spec.init_containers or ()]
    containers = [limits_as_requests(container) for container in spec.containers]
    return replace(spec, containers=containers, init_containers=inits, resources=pod_resources, overhead=None)


def _quantity(milli: int, *, is_binary: bool) -> str:
    """Return an amount in the notation of the API: 500m, 1536Mi, 2G."""
    if milli % _MILLI:
        return f"{milli}m"
    amount, suffix, factor = milli // _MILLI, "", 1024 if is_binary else 1000
    for letter in "KMGTPE" if is_binary else "kMGTPE":
        if not amount or amount % factor:
            break
        amount, suffix = amount // factor, letter + ("i" if is_binary else "")
    return f"{amount}{suffix}"


def _applies(quota: Json, pod: Pod) -> bool:
    """Return whether a quota counts a pod, which depends on the scopes of the quota."""
    scopes = [{"scopeName": scope, "operator": "Exists"} for scope in quota["spec"].get("scopes") or ()]
    scopes += value_at(quota, ("spec", "scopeSelector", "matchExpressions")) or ()
    return all(_matches(scope, pod) for scope in scopes)


def _matches(scope: Json, pod: Pod) -> bool:
    """Return whether a pod matches a scope of a quota."""
    priority_class, values = pod.spec.priority_class_name, scope.get("values") or ()
    match scope["scopeName"], scope["operator"]:
        case ("Terminating" | "NotTerminating") as name, _:
            return (pod.spec.active_deadline_seconds is not None) is (name == "Terminating")
        case ("BestEffort" | "NotBestEffort") as name, _:
            return _REQUIRED.isdisjoint(usage(pod)) is (name == "BestEffort")
        case "PriorityClass", ("Exists" | "DoesNotExist") as operator:
            return bool(priority_class) is (operator == "Exists")
        case "PriorityClass", operator:
            return (priority_class in values) is (operator == "In")
    return False


def refusal(quotas: Iterable[Json], pod: Pod) -> str:
    """Return the API server's message if a quota refuses a new pod; empty if all quotas admit the pod."""
    applying_quotas = [quota for quota in quotas if _applies(quota, pod)]
    for quota in applying_quotas:
        if missing_text := "; ".join(_missing_requests(quota["status"]["used"], pod.spec)):
            return f"failed quota: {quota['metadata']['name']}: must specify {missing_text}"
    requested = usage(pod)
    for quota in applying_quotas:
        hard, used = quota["status"]["hard"], quota["status"]["used"]
        both = used.keys() & requested.keys()
        totals = {name: rounded_up(used[name], _MILLI) + rounded_up(requested[name], _MILLI) for name in both}
        exceeded_names = [name for name in sorted(totals) if totals[name] > rounded_down(hard[name], _MILLI)]
        if exceeded_names:
            text = f"exceeded quota: {quota['metadata']['name']}"
            for title, amounts in (("requested", requested), ("used", used), ("limited", hard)):
                text += f", {title}: {','.join(f'{name}={amounts[name]}' for name in exceeded_names)}"
            return text
    return ""


def _missing_requests(used: Iterable[str], spec: PodSpec) -> Iterator[str]:
    """Yield the resources that a quota requires and a container does not declare, such as `cpu for: main`."""
    if spec.resources is not None:
        return
    for name in sorted(_REQUIRED.intersection(used)):
        side, _, resource = name.rpartition(".")
        containers = {
            container.name
            for container in _containers(spec)
            if resource not in (getattr(container.resources, side or "requests") or {})
        }
        if containers:
            yield f"{name} for: {','.join(sorted(containers))}"


def with_pod_usage(quota: Json, pod: Pod, times: int = 1) -> Json:
    """Return a quota with the usage of `times` equal pods added; unchanged if the quota does not apply."""
    if not _applies(quota, pod):
        return quota
    used = {**quota["status"]["used"]}
    for name, amount in usage(pod).items():
        if name in used:
            notation = used[name] if rounded_up(used[name], _MILLI) else amount  # 0 has no suffix to follow
            total_amount = rounded_up(used[name], _MILLI) + times * rounded_up(amount, _MILLI)
            used[name] = _quantity(total_amount, is_binary=str(notation).endswith("i"))
    return {**quota, "metadata": {**quota["metadata"]}, "status": {**quota["status"], "used": used}}


def with_usage(quota: Json, pods: Iterable[Pod]) -> Json:
    """Return a quota with a new status: its limits, and the usage by these pods."""
    hard = {
        name: _quantity(rounded_down(amount, _MILLI), is_binary=str(amount).endswith("i"))
        for name, amount in (value_at(quota, ("spec", "hard")) or {}).items()
    }
    status = {"hard": hard, "used": {name: "0" for name in hard if is_counted(name)}}
    quota = {**quota, "metadata": {**quota["metadata"]}, "status": status}
    for pod in pods:
        quota = with_pod_usage(quota, pod)
    return quota


def admit(store: Store, pod: Json, is_dry_run: bool) -> None:
    """Add a new pod to the usage of its quotas, unless the request is a dry run.

    Raises:
        BeyondQuota: The pod would exceed a quota.
    """
    meta = pod["metadata"]
    quotas = store.all(RESOURCE_QUOTAS, meta["namespace"])
    if not quotas:
        return
    new_pod = typed(pod, Pod)
    if reason := refusal(quotas, new_pod):
        raise BeyondQuota(meta["name"], reason)
    for quota in quotas:
        changed_quota = with_pod_usage(quota, new_pod)
        if changed_quota is not quota and not is_dry_run:
            store.put(RESOURCE_QUOTAS, changed_quota)


def recount(store: Store, namespace: str) -> None:
    """Count the usage of a namespace's quotas again, after pods ended or a quota changed."""
    with store:
        quotas = store.all(RESOURCE_QUOTAS, namespace)
        pods = [typed(pod, Pod) for pod in store.all(PODS, namespace)] if quotas else []
        for quota in quotas:
            current_quota = with_usage(quota, pods)
            if current_quota != quota:
                store.put(RESOURCE_QUOTAS, current_quota)
