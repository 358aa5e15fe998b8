"""Conversion of Kueue's objects to Muster's, with comments on fields without a counterpart."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from extender.api.keys import LOWER_PRIORITY
from extender.api.units import BadQuantity, at_least
from extender.api.workloads.shape import Json, value_at
from extender.domain.model.resources import offered, quantities, total

GROUP = "kueue.x-k8s.io"
_PODS = "pods"
_LOST_OF_FLAVORS = {
    "tolerations": "; pods need the tolerations themselves",
    "topologyName": "",
}
_NO_NAMESPACE = {"key": "kubernetes.io/metadata.name", "operator": "DoesNotExist"}
Amounts = dict[str, str]


class Migrated(NamedTuple):
    """Object of Muster, if there is a counterpart, and a line for each lost or different field."""

    comments: list[str]
    object: Json | None = None


def migrated(objects: Iterable[Json]) -> Iterator[Migrated]:
    """Yield the new objects: flavors first, and each queue after its parent.

    Objects that are not Kueue's are skipped.
    """
    found: defaultdict[str, dict[str, Json]] = defaultdict(dict)
    for obj in objects:
        if str(obj.get("apiVersion")).partition("/")[0] == GROUP:
            meta = obj.get("metadata") or {}
            name = "/".join(filter(None, (meta.get("namespace"), meta.get("name"))))
            found[str(obj.get("kind"))][name] = obj
    tree = _QuotaTree(found)
    queues = [
        *tree.cohorts(),
        *(tree.cluster_queue(name, obj) for name, obj in found["ClusterQueue"].items()),
    ]
    yield from map(_resource_flavor, (found["ResourceFlavor"][name] for name in sorted(tree.flavors)))
    yield from queues
    yield from (_local_queue(obj) for obj in found["LocalQueue"].values())
    for obj in found["WorkloadPriorityClass"].values():
        name = obj["metadata"]["name"]
        instead = f"pods name it by priorityClassName; the label {GROUP}/priority-class is not read"
        head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        retained: Json = {field: obj[field] for field in ("value", "description") if field in obj}
        yield Migrated([f"WorkloadPriorityClass {name}: {instead}"], {**head, **retained})
    for kind in ("AdmissionCheck", "Topology", "MultiKueueConfig", "MultiKueueCluster"):
        for name in found[kind]:
            if not (kind == "AdmissionCheck" and tree.provisioning(name)):
                yield Migrated([f"{kind} {name}: Muster has nothing like it"])


def _resource_flavor(obj: Json) -> Migrated:
    spec = obj.get("spec") or {}
    retained = {field: spec[field] for field in ("nodeLabels", "nodeTaints") if spec.get(field)}
    head = {"apiVersion": "kube-muster.io/v1alpha1", "kind": "ResourceFlavor"}
    return Migrated([], {**head, "metadata": {"name": obj["metadata"]["name"]}, "spec": retained})


def _local_queue(obj: Json) -> Migrated:
    meta, spec = obj["metadata"], obj.get("spec") or {}
    name, namespace = meta["name"], meta.get("namespace") or "default"
    made = {
        "apiVersion": "kube-muster.io/v1alpha1",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"queue": spec.get("clusterQueue", "")} | _stopped(spec),
    }
    return Migrated(_unsupported(f"LocalQueue {namespace}/{name}", spec, "clusterQueue", "stopPolicy"), made)


def _queue(name: str, spec: Json) -> Json:
    head = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
    return {**head, "spec": _without_empty_fields(spec)}


def _stopped(spec: Json) -> Json:
    return {"stopPolicy": spec["stopPolicy"]} if spec.get("stopPolicy") not in (None, "None") else {}


def _unsupported(name: str, spec: Json, *known: str) -> list[str]:
    lost = [field for field, value in spec.items() if field not in known and value not in (None, {}, [])]
    return [f"{name}: spec.{field} has no counterpart" for field in lost]


# ---- quotas


class _QuotaTree:
    """ClusterQueues and Cohorts, by kind and name."""

    def __init__(self, found: Mapping[str, Mapping[str, Json]]) -> None:
        self._found = found
        self._queues = found["ClusterQueue"]
        self.flavors: set[str] = set()  # that queues name, and that there are
        children = [*self._queues.values(), *found["Cohort"].values()]
        named: dict[str, Json] = {parent: {} for obj in children if (parent := _parent(obj))}
        self._cohorts = {**named, **found["Cohort"]}  # one that only its children name has no object

    def provisioning(self, check: str) -> Json:
        """Return the provisioning of a queue with this admission check; empty for another check."""
        spec = (self._found["AdmissionCheck"].get(check) or {}).get("spec") or {}
        config = self._found["ProvisioningRequestConfig"].get(str(value_at(spec, ("parameters", "name"))))
        given = (config or {}).get("spec") or {}
        if not spec.get("controllerName", "").endswith("provisioning-request") or not given:
            return {}
        more = {"parameters": given["parameters"]} if given.get("parameters") else {}
        return {"className": given.get("provisioningClassName", ""), **more}

    # ---- cohorts

    def cohorts(self) -> Iterator[Migrated]:
        for name in sorted(self._cohorts, key=lambda name: (self._depth(name), name)):
            obj = self._cohorts[name]
            spec, parent = obj.get("spec") or {}, _parent(obj)
            queue, subtree = self._queue_of(name), self._subtree(name, frozenset())
            retained: Json = {"parent": self._queue_of(parent)} if parent else {"capability": {**subtree}}
            retained |= {"deserved": subtree} | (_limits(spec) if parent else {}) | _weight(spec)
            known = ("parent", "parentName", "fairSharing", "resourceGroups")
            comments = _unsupported(f"Cohort {name}", spec, *known)
            if any(self._flavors(each, bounded=True)[0] for each in self._specs_below(name, frozenset())):
                retained |= self._flavors(self._limits_of_cohort(name), bounded=not parent)[0]
            if queue != name:
                comments.append(f"Cohort {name}: called {queue}, as a ClusterQueue has its name")
            yield Migrated(comments, _queue(queue, retained))

    def _queue_of(self, cohort: str) -> str:
        return f"{cohort}-cohort" if cohort in self._queues or cohort in ("root", "default") else cohort

    def _depth(self, name: str, seen: frozenset[str] = frozenset()) -> int:
        parent = _parent(self._cohorts[name])
        return 1 + self._depth(parent, seen | {name}) if parent and parent not in seen else 0

    def _subtree(self, cohort: str, seen: frozenset[str]) -> Amounts:
        """Return the sum of the quotas of a cohort and of all below it."""
        parts = [obj for obj in self._queues.values() if _parent(obj) == cohort] + [self._cohorts[cohort]]
        below = {name for name, obj in self._cohorts.items() if _parent(obj) == cohort} - seen
        return _sum([*map(_nominal, parts), *(self._subtree(name, seen | {cohort}) for name in below)])

    def _specs_below(self, cohort: str, seen: frozenset[str]) -> Iterator[Json]:
        """Yield the specs of a cohort and of all below it."""
        yield from (obj.get("spec") or {} for obj in self._queues.values() if _parent(obj) == cohort)
        yield self._cohorts[cohort].get("spec") or {}
        below = {name for name, obj in self._cohorts.items() if _parent(obj) == cohort} - seen
        for name in sorted(below):
            yield from self._specs_below(name, seen | {cohort})

    def _limits_of_cohort(self, cohort: str) -> Json:
        """Return the limits of flavors of a cohort, and the quotas of all below it."""
        quotas: dict[str, list[Amounts]] = {}
        for spec in self._specs_below(cohort, frozenset()):
            for flavor in _flavors_of(spec):
                quotas.setdefault(flavor["name"], []).extend(map(_quota, flavor.get("resources") or ()))
        own = {flavor["name"]: flavor for flavor in _flavors_of(self._cohorts[cohort].get("spec") or {})}
        limits = {
            name: {each["name"]: each for each in it.get("resources") or ()} for name, it in own.items()
        }
        flavors = [
            {
                "name": name,
                "resources": [
                    {**limits.get(name, {}).get(resource, {}), "name": resource, "nominalQuota": amount}
                    for resource, amount in _sum(amounts).items()
                ],
            }
            for name, amounts in quotas.items()
        ]
        return {"resourceGroups": [{"flavors": flavors}]}

    # ---- ClusterQueues

    def cluster_queue(self, name: str, obj: Json) -> Migrated:
        spec, cohort, said = obj.get("spec") or {}, _parent(obj), f"ClusterQueue {name}"
        nominal = _nominal(obj)
        retained: Json = {"parent": self._queue_of(cohort)} if cohort else {"capability": {**nominal}}
        retained |= {"deserved": nominal} | (_limits(spec) if cohort else {}) | _weight(spec) | _stopped(spec)
        if not cohort and (pods := _nominal(obj, pods=True)):
            retained["limits"] = {"pods": int(pods[_PODS])}
        if spec.get("queueingStrategy") == "StrictFIFO":
            retained["dequeueStrategy"] = "fifo"
        if (selector := spec.get("namespaceSelector")) != {}:
            retained["namespaceSelector"] = selector or {"matchExpressions": [_NO_NAMESPACE]}
        comments = _unsupported(
            said, spec, "cohort", "cohortName", "resourceGroups", "namespaceSelector", "queueingStrategy",
            "stopPolicy", "fairSharing", "preemption", "admissionChecks", "admissionChecksStrategy",
        )  # fmt: skip
        for add, more in (self._flavors(spec, not cohort), _preemption(spec, cohort), self._checks(spec)):
            retained |= add
            comments += [f"{said}: {comment}" for comment in more]
        return Migrated(comments, _queue(name, retained))

    def _flavors(self, spec: Json, bounded: bool) -> tuple[Json, list[str]]:
        """`bounded`: nothing can be borrowed."""
        groups = spec.get("resourceGroups") or []
        named = _flavors_of(spec)
        known = {
            flavor["name"]: value_at(self._found["ResourceFlavor"].get(flavor["name"]), ("spec",)) or {}
            for flavor in named
        }
        comments = [
            f"flavor {name}: spec.{field} has no counterpart{why}"
            for name, flavor in known.items()
            for field, why in _LOST_OF_FLAVORS.items()
            if flavor.get(field)
        ]
        if len(named) < 2 and not any(flavor.get("nodeLabels") for flavor in known.values()):
            return {}, comments
        if len(groups) > 1:
            return {}, [*comments, "several groups of resources have flavors; the amounts are sums"]
        made = []
        for flavor in named:
            quotas = [each for each in flavor.get("resources") or () if each["name"] != _PODS]
            nominal = {each["name"]: str(each.get("nominalQuota", 0)) for each in quotas}
            parts: Json = {"deserved": nominal}
            if flavor["name"] in self._found["ResourceFlavor"]:
                parts["resourceFlavor"] = flavor["name"]
                self.flavors.add(flavor["name"])
            for field in ("borrowingLimit", "lendingLimit"):
                limits = {each["name"]: str(each[field]) for each in quotas if each.get(field) is not None}
                parts |= {} if bounded else {field: limits}
            parts |= {"capability": nominal} if bounded else {}
            made.append({"name": flavor["name"], **_without_empty_fields(parts)})
        return {"flavors": made}, comments

    def _checks(self, spec: Json) -> tuple[Json, list[str]]:
        rules = value_at(spec, ("admissionChecksStrategy", "admissionChecks")) or []
        names = [*(spec.get("admissionChecks") or []), *(str(rule.get("name")) for rule in rules)]
        found = {name: self.provisioning(name) for name in names}
        asked = [way for way in found.values() if way]
        lost = [f"admission check {name} has no counterpart" for name, way in found.items() if not way]
        return ({"provisioning": asked[0]} if asked else {}), lost


def _parent(obj: Json) -> str:
    spec = obj.get("spec") or {}
    names = ("parentName", "parent") if obj.get("kind") == "Cohort" else ("cohortName", "cohort")
    return str(next((spec[name] for name in names if spec.get(name)), ""))


def _preemption(spec: Json, cohort: str) -> tuple[Json, list[str]]:
    """Return the rules of preemption. By default, Kueue reclaims nothing, Muster the deserved share."""
    given = spec.get("preemption") or {}
    within = given.get("withinClusterQueue", "Never")
    comments = []
    if within == "LowerOrNewerEqualPriority":
        comments.append("preemption.withinClusterQueue: only groups of lower priority are preempted")
    if cohort and given.get("reclaimWithinCohort", "Never") == "Never":
        comments.append(
            "preemption.reclaimWithinCohort is Never; in Muster each queue reclaims its deserved share,"
            " except from queues with reclaimable: false"
        )
    rules: Json = {} if within == "Never" else {"withinQueue": LOWER_PRIORITY}
    if value_at(given, ("borrowWithinCohort", "policy")) not in (None, "Never"):
        rules["borrowWithinCohort"] = given["borrowWithinCohort"]
    return ({"preemption": rules} if rules else {}), comments


def _weight(spec: Json) -> Json:
    """Return the weight, a whole number in Muster."""
    given = value_at(spec, ("fairSharing", "weight"))
    try:
        return {} if given is None else {"weight": max(math.ceil(at_least(given, 1000) / 1000), 1)}
    except BadQuantity:
        return {}


def _limits(spec: Json) -> Json:
    """Return the limits of resources that have one in every flavor."""
    parts, found = _quotas_by_resource(spec), {}
    for field in ("borrowingLimit", "lendingLimit"):
        free = {each["name"] for each in parts if each.get(field) is None}
        found[field] = _sum({each["name"]: str(each[field])} for each in parts if each["name"] not in free)
    return found


def _quotas_by_resource(spec: Json) -> list[Json]:
    """Return the quotas of each resource, over all flavors."""
    return [each for flavor in _flavors_of(spec) for each in flavor.get("resources") or ()]


def _flavors_of(spec: Json) -> list[Json]:
    return [flavor for group in spec.get("resourceGroups") or () for flavor in group.get("flavors") or ()]


def _quota(resource: Json) -> Amounts:
    return {resource["name"]: str(resource.get("nominalQuota") or 0)}


def _nominal(obj: Json, pods: bool = False) -> Amounts:
    """Return the nominal quota by resource.

    Args:
        obj: The ClusterQueue or Cohort.
        pods: Only the number of pods, which is no amount of a queue.
    """
    parts = [each for each in _quotas_by_resource(obj.get("spec") or {}) if (each["name"] == _PODS) is pods]
    return _sum(map(_quota, parts))


def _sum(amounts: Iterable[Mapping[str, str]]) -> Amounts:
    """Return the sum by resource, in the unit of the amounts if they have the same one."""
    lists: defaultdict[str, list[str]] = defaultdict(list)
    for part in amounts:
        for name, amount in part.items():
            lists[name].append(amount)
    sums = {}
    for name, several in lists.items():
        split = [re.fullmatch(r"(\d+)([A-Za-z]*)", amount) for amount in several if amount != "0"]
        podgroups = {found[2] for found in split if found}
        if all(split) and len(podgroups) == 1:
            sums[name] = f"{sum(int(found[1]) for found in split if found)}{podgroups.pop()}"
        else:
            sums |= quantities(total(offered({name: amount}) for amount in several)) or {name: "0"}
    return sums


def _without_empty_fields(spec: Json) -> Json:
    return {name: value for name, value in spec.items() if value not in ({}, [])}
