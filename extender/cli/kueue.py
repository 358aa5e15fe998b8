"""Conversion of Kueue's objects and of jobs to Muster's objects.

Fields without a counterpart become comments.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from functools import cached_property
from typing import Any, NamedTuple

import yaml

from extender.api import keys
from extender.api.units import BadQuantity, rounded_up
from extender.api.workloads.children import SHAPE_ERRORS, kind_of
from extender.api.workloads.shape import POD, Json, items_at, runtime_named_by, value_at
from extender.domain.model.resources import offered, quantities, total
from extender.files.offspring import find_among

GROUP = "kueue.x-k8s.io"
_PODS, _NOMINAL_QUOTA, _LIMITS = "pods", "nominalQuota", ("borrowingLimit", "lendingLimit")
_UNSUPPORTED_FIELDS = {
    "tolerations": "; pods need the tolerations themselves, and jobs of these files have them",
    "topologyName": "; a Topology counts on all nodes",
}
_UNSUPPORTED_KINDS = ("AdmissionCheck", "Configuration", "MultiKueueCluster", "MultiKueueConfig")
_NO_NAMESPACE = {"key": "kubernetes.io/metadata.name", "operator": "DoesNotExist"}
_MAX_LEVELS = 8  # maximum levels of Muster's Topology
Amounts = dict[str, str]


class Migrated(NamedTuple):
    """Converted object, if Muster has a counterpart, and comments on each lost or different field."""

    comments: list[str]
    object: Json | None = None


def migrate_objects(objects: Iterable[Json]) -> Iterator[Migrated]:
    """Yield the converted objects: flavors first, each queue after its parent, and workloads last.

    Objects of other projects stay unchanged; objects that make pods come last. If no object or label is of
    Kueue, nothing is yielded.
    """
    objects_by_kind: defaultdict[str, dict[str, Json]] = defaultdict(dict)
    others = []
    for obj in objects:
        group, meta = str(obj.get("apiVersion")).partition("/")[0], obj.get("metadata") or {}
        if not group.endswith(GROUP):
            others.append(obj)
            continue
        name = "/".join(filter(None, (meta.get("namespace"), meta["name"])))
        objects_by_kind[str(obj.get("kind"))][name] = obj
    tree = _QuotaTree(objects_by_kind)
    queues = [*tree.cohorts()]
    queues += [tree.cluster_queue(name, obj) for name, obj in objects_by_kind["ClusterQueue"].items()]
    workloads = _Workloads(others, tree)
    if not (workloads.has_queued_object or any(objects_by_kind.values())):
        return
    yield from (Migrated([], obj) for obj in others if not _makes_pods(obj))
    yield from (tree.resource_flavor(name) for name in sorted(objects_by_kind["ResourceFlavor"]))
    yield from (_topology(name, obj) for name, obj in objects_by_kind["Topology"].items())
    yield from queues
    yield from (_local_queue(obj) for obj in objects_by_kind["LocalQueue"].values())
    old_names = [value_at(obj, ("metadata", "name")) for obj in others if obj.get("kind") == "PriorityClass"]
    for obj in objects_by_kind["WorkloadPriorityClass"].values():
        name = obj["metadata"]["name"]
        head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        fields: Json = {field: obj[field] for field in ("value", "description") if field in obj}
        comment = f"WorkloadPriorityClass {name}: pods name it by priorityClassName"
        yield Migrated([comment], None if name in old_names else {**head, **fields})
    for kind in _UNSUPPORTED_KINDS:
        for name in objects_by_kind[kind]:
            if not (kind == "AdmissionCheck" and tree.provisioning(name)):
                yield Migrated([f"{kind} {name}: Muster has nothing like it"])
    yield from workloads.convert()


def first_malformed(objects: Iterable[Json]) -> str:
    """Return the kind, the name and the fault of the first object that cannot be converted by itself."""
    for obj in objects:
        try:
            list(migrate_objects([obj]))
        except SHAPE_ERRORS as fault:
            name = value_at(obj, ("metadata", "name")) or "without a name"
            return f"{obj.get('kind')} {name} has a form that is not known: {fault!r}"
    return "the objects of Kueue do not fit together"


def as_yaml(obj: Json) -> str:
    """Return an object as YAML without aliases."""
    text = yaml.dump(obj, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return text.removesuffix("\n")


class _Dumper(yaml.SafeDumper):
    """Dumper that writes a text with several lines as a block."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def _text(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _Dumper._text)


def _topology(name: str, obj: Json) -> Migrated:
    spec = obj.get("spec") or {}
    if (count := len(spec.get("levels") or ())) > _MAX_LEVELS:
        return Migrated([f"Topology {name}: it has {count} levels; at most {_MAX_LEVELS} are allowed"])
    head = {"apiVersion": "kube-muster.io/v1alpha1", "kind": "Topology", "metadata": {"name": name}}
    return Migrated([], {**head, "spec": {"levels": spec.get("levels") or []}})


def _local_queue(obj: Json) -> Migrated:
    (namespace, name), spec = _namespace_and_name(obj), obj.get("spec") or {}
    new = {
        "apiVersion": "kube-muster.io/v1alpha1",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"queue": spec.get("clusterQueue", "")} | _stop_policy(spec),
    }
    return Migrated(_lost_comments(f"LocalQueue {namespace}/{name}", spec, "clusterQueue", "stopPolicy"), new)


def _queue(name: str, spec: Json) -> Json:
    head = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
    return {**head, "spec": _without_empty_fields(spec)}


def _stop_policy(spec: Json) -> Json:
    return {"stopPolicy": spec["stopPolicy"]} if spec.get("stopPolicy") not in (None, "None") else {}


def _lost_comments(name: str, spec: Json, *supported: str) -> list[str]:
    lost = [field for field, value in spec.items() if field not in supported and value not in (None, {}, [])]
    return [f"{name}: spec.{field} has no counterpart" for field in lost]


# ---- quotas


class _QuotaTree:
    """Tree of Kueue's ClusterQueues and Cohorts, with the flavors and admission checks that they name."""

    def __init__(self, by_kind: Mapping[str, Mapping[str, Json]]) -> None:
        self._by_kind = by_kind
        self._queues = by_kind["ClusterQueue"]
        self._used_flavors: set[str] = set()  # flavors that the new queues use
        children = [*self._queues.values(), *by_kind["Cohort"].values()]
        implicit_cohorts: dict[str, Json] = {parent: {} for obj in children if (parent := _parent(obj))}
        self._cohorts = {**implicit_cohorts, **by_kind["Cohort"]}  # a cohort may exist without an object

    def provisioning(self, check: str) -> Json:
        """Return the provisioning that replaces an admission check; empty if the check requests no nodes."""
        spec = (self._by_kind["AdmissionCheck"].get(check) or {}).get("spec") or {}
        config = self._by_kind["ProvisioningRequestConfig"].get(str(value_at(spec, ("parameters", "name"))))
        settings = (config or {}).get("spec") or {}
        if not spec.get("controllerName", "").endswith("provisioning-request") or not settings:
            return {}
        parameters = {"parameters": settings["parameters"]} if settings.get("parameters") else {}
        return {"className": settings.get("provisioningClassName", ""), **parameters}

    # ---- flavors

    def resource_flavor(self, name: str) -> Migrated:
        """Return a converted flavor.

        If queues of Kueue name the flavor, but no converted queue uses it, the result has only comments.
        """
        spec = self._flavor(name)
        lost = [(field, text) for field, text in _UNSUPPORTED_FIELDS.items() if spec.get(field)]
        comments = [f"ResourceFlavor {name}: spec.{field} has no counterpart{text}" for field, text in lost]
        specs = [obj.get("spec") or {} for obj in (*self._queues.values(), *self._cohorts.values())]
        if name in {flavor["name"] for spec in specs for flavor in _flavors_of(spec)} - self._used_flavors:
            return Migrated(comments)
        fields = {field: spec[field] for field in ("nodeLabels", "nodeTaints") if spec.get(field)}
        head = {"apiVersion": "kube-muster.io/v1alpha1", "kind": "ResourceFlavor"}
        return Migrated(comments, {**head, "metadata": {"name": name}, "spec": fields})

    def _flavor(self, name: str) -> Json:
        return value_at(self._by_kind["ResourceFlavor"].get(name), ("spec",)) or {}

    def tolerations(self, local_queue: str) -> list[Json]:
        """Return the tolerations that the flavors behind a LocalQueue (NAMESPACE/NAME) add to pods."""
        local = self.local_queues.get(local_queue)
        queue = self._queues.get(str(value_at(local, ("spec", "clusterQueue")))) or {}
        names = [flavor["name"] for flavor in _flavors_of(queue.get("spec") or {})]
        return [toleration for name in names for toleration in self._flavor(name).get("tolerations") or ()]

    @cached_property
    def local_queues(self) -> dict[str, Json]:
        return {"/".join(_namespace_and_name(obj)): obj for obj in self._by_kind["LocalQueue"].values()}

    # ---- cohorts

    def cohorts(self) -> Iterator[Migrated]:
        """Yield a queue for each Cohort. Parents come first."""
        for name in sorted(self._cohorts, key=lambda name: (self._depth(name), name)):
            obj = self._cohorts[name]
            spec, parent = obj.get("spec") or {}, _parent(obj)
            queue_name, specs_below = self._queue_name(name), [*self._specs_below(name, frozenset())]
            subtree = _sum(_nominal_quotas(spec_below) for spec_below in specs_below)
            new_spec: Json = {"parent": self._queue_name(parent)} if parent else {"capability": {**subtree}}
            new_spec |= {"deserved": subtree} | _weight(spec)
            new_spec |= _limits_of(_merge_quotas(_all_quotas(spec))) if parent else {}
            known_fields = ("parent", "parentName", "fairSharing", "resourceGroups")
            comments = _lost_comments(f"Cohort {name}", spec, *known_fields)
            if any(self._flavors(spec_below, is_bounded=True)[0] for spec_below in specs_below):
                new_spec |= self._flavors(self._limits_of_cohort(name), is_bounded=not parent)[0]
            if queue_name != name:
                comments.append(f"Cohort {name}: called {queue_name}, as a ClusterQueue has its name")
            yield Migrated(comments, _queue(queue_name, new_spec))

    def _queue_name(self, cohort: str) -> str:
        return f"{cohort}-cohort" if cohort in self._queues or cohort in ("root", "default") else cohort

    def _depth(self, name: str, path: frozenset[str] = frozenset()) -> int:
        parent = _parent(self._cohorts[name])
        return 1 + self._depth(parent, path | {name}) if parent and parent not in path else 0

    def _specs_below(self, cohort: str, path: frozenset[str]) -> Iterator[Json]:
        """Yield the specs of a cohort and of all ClusterQueues and Cohorts below it."""
        yield from (obj.get("spec") or {} for obj in self._queues.values() if _parent(obj) == cohort)
        yield self._cohorts[cohort].get("spec") or {}
        child_names = {name for name, obj in self._cohorts.items() if _parent(obj) == cohort} - path
        for name in sorted(child_names):
            yield from self._specs_below(name, path | {cohort})

    def _limits_of_cohort(self, cohort: str) -> Json:
        """Return a cohort's spec with its limits of flavors, and the quotas of all specs below it."""
        quotas: defaultdict[str, list[Json]] = defaultdict(list)
        own_spec = self._cohorts[cohort].get("spec")
        for spec in self._specs_below(cohort, frozenset()):
            no_limits = {} if spec is own_spec else dict.fromkeys(_LIMITS)
            for flavor in _flavors_of(spec):
                quotas[flavor["name"]] += ({**quota, **no_limits} for quota in flavor.get("resources") or ())
        flavors = [{"name": name, "resources": _merge_quotas(merged, any)} for name, merged in quotas.items()]
        return {"resourceGroups": [{"flavors": flavors}]}

    # ---- ClusterQueues

    def cluster_queue(self, name: str, obj: Json) -> Migrated:
        """Return the queue for a ClusterQueue."""
        spec, cohort, title = obj.get("spec") or {}, _parent(obj), f"ClusterQueue {name}"
        nominal = _nominal_quotas(spec)
        new_spec: Json = {"parent": self._queue_name(cohort)} if cohort else {"capability": {**nominal}}
        new_spec |= {"deserved": nominal} | _weight(spec) | _stop_policy(spec)
        new_spec |= _limits_of(_merge_quotas(_all_quotas(spec))) if cohort else {}
        pods = {} if cohort else _nominal_quotas(spec, only_pods=True)
        if pods:
            new_spec["limits"] = {"pods": int(pods[_PODS])}
        if spec.get("queueingStrategy") == "StrictFIFO":
            new_spec["dequeueStrategy"] = "fifo"
        if (selector := spec.get("namespaceSelector")) != {}:
            new_spec["namespaceSelector"] = selector or {"matchExpressions": [_NO_NAMESPACE]}
        comments = _lost_comments(
            title, spec, "cohort", "cohortName", "resourceGroups", "namespaceSelector", "queueingStrategy",
            "stopPolicy", "fairSharing", "preemption", "admissionChecks", "admissionChecksStrategy",
        )  # fmt: skip
        parts = (self._flavors(spec, is_bounded=not cohort), _preemption(spec, cohort), self._checks(spec))
        for fields, remarks in parts:
            new_spec |= fields
            comments += [f"{title}: {comment}" for comment in remarks]
        return Migrated(comments, _queue(name, new_spec))

    def _flavors(self, spec: Json, is_bounded: bool) -> tuple[Json, list[str]]:
        """Return the field `flavors` of a queue, and comments.

        `is_bounded` means that nothing can be borrowed.
        """
        quota_flavors = _flavors_of(spec)
        names = [str(flavor["name"]) for flavor in quota_flavors]
        missing = [name for name in names if name not in self._by_kind["ResourceFlavor"]]
        comments = [f"ResourceFlavor {name} is in no file: its amounts are on all nodes" for name in missing]
        flavors_by_nodes: defaultdict[str, list[Json]] = defaultdict(list)
        for flavor in quota_flavors:
            labels = self._flavor(flavor["name"]).get("nodeLabels") or {}
            flavors_by_nodes[str(sorted(labels.items()))].append(flavor)
        by_name = {self._name_of(flavors): flavors for flavors in flavors_by_nodes.values()}
        shared = ([flavor["name"] for flavor in flavors] for flavors in by_name.values() if len(flavors) > 1)
        sharing = "have the same nodes; their amounts are one sum"
        comments += [f"flavors {', '.join(names)} {sharing}" for names in shared]
        if len(by_name) < 2 and not any(self._flavor(name).get("nodeLabels") for name in by_name):
            return {}, comments
        if len(by_name) > 1 and len(spec["resourceGroups"]) > 1:
            return {}, [*comments, "several groups of resources have flavors; the amounts are sums"]
        specs = []
        for name, flavors in by_name.items():
            quotas = _merge_quotas(quota for quota in _quotas_of(flavors) if quota["name"] != _PODS)
            nominal = {quota["name"]: quota[_NOMINAL_QUOTA] for quota in quotas}
            fields: Json = {"deserved": nominal}
            if name in self._by_kind["ResourceFlavor"]:
                fields["resourceFlavor"] = name
                self._used_flavors.add(name)
            fields |= {"capability": nominal} if is_bounded else _limits_of(quotas)
            specs.append({"name": name, **_without_empty_fields(fields)})
        return {"flavors": specs}, comments

    def _name_of(self, flavors: list[Json]) -> str:
        """Return a name for flavors of equal nodes: the first flavor without taints, else the first."""
        names = [str(flavor["name"]) for flavor in flavors]
        return next((name for name in names if not self._flavor(name).get("nodeTaints")), names[0])

    def _checks(self, spec: Json) -> tuple[Json, list[str]]:
        """Return the field `provisioning` of a queue, and comments on other admission checks."""
        check_rules = value_at(spec, ("admissionChecksStrategy", "admissionChecks")) or []
        names = [*(spec.get("admissionChecks") or []), *(str(rule.get("name")) for rule in check_rules)]
        specs = {name: self.provisioning(name) for name in names}
        provisioning = [spec for spec in specs.values() if spec]
        comments = [f"admission check {name} has no counterpart" for name, spec in specs.items() if not spec]
        return ({"provisioning": provisioning[0]} if provisioning else {}), comments


def _parent(obj: Json) -> str:
    spec = obj.get("spec") or {}
    names = ("parentName", "parent") if obj.get("kind") == "Cohort" else ("cohortName", "cohort")
    return str(next((spec[name] for name in names if spec.get(name)), ""))


def _preemption(spec: Json, cohort: str) -> tuple[Json, list[str]]:
    """Return the preemption rules of a queue, and comments.

    By default, Kueue reclaims nothing, while Muster reclaims the deserved share.
    """
    preemption = spec.get("preemption") or {}
    policy = preemption.get("withinClusterQueue", "Never")
    comments = []
    if policy == "LowerOrNewerEqualPriority":
        comments.append("preemption.withinClusterQueue: only groups of lower priority are preempted")
    if cohort and preemption.get("reclaimWithinCohort", "Never") == "Never":
        comments.append(
            "preemption.reclaimWithinCohort is Never; in Muster each queue reclaims its deserved share,"
            " except from queues with reclaimable: false"
        )
    rules: Json = {} if policy == "Never" else {"withinQueue": keys.LOWER_PRIORITY}
    if value_at(preemption, ("borrowWithinCohort", "policy")) not in (None, "Never"):
        rules["borrowWithinCohort"] = preemption["borrowWithinCohort"]
    return ({"preemption": rules} if rules else {}), comments


def _weight(spec: Json) -> Json:
    """Return the weight of a queue, which must be a whole number in Muster."""
    weight = value_at(spec, ("fairSharing", "weight"))
    try:
        return {} if weight is None else {"weight": max(math.ceil(rounded_up(weight, 1000) / 1000), 1)}
    except BadQuantity:
        return {}


def _limits_of(quotas: list[Json]) -> Json:
    return {limit: {quota["name"]: quota[limit] for quota in quotas if limit in quota} for limit in _LIMITS}


def _all_quotas(spec: Json) -> list[Json]:
    """Return the quotas of all flavors in a spec."""
    return _quotas_of(_flavors_of(spec))


def _quotas_of(flavors: list[Json]) -> list[Json]:
    return [quota for flavor in flavors for quota in flavor.get("resources") or ()]


def _flavors_of(spec: Json) -> list[Json]:
    return [flavor for group in spec.get("resourceGroups") or () for flavor in group.get("flavors") or ()]


def _nominal_quotas(spec: Json, only_pods: bool = False) -> Amounts:
    """Return the nominal quota by resource, summed over all flavors.

    Args:
        spec: The spec of a ClusterQueue or Cohort.
        only_pods: Whether to return the quota of the resource `pods` only, else the quotas of all other
            resources. Muster's queues do not limit the number of pods by amounts.
    """
    quotas = _merge_quotas(quota for quota in _all_quotas(spec) if (quota["name"] == _PODS) is only_pods)
    return {quota["name"]: quota[_NOMINAL_QUOTA] for quota in quotas}


def _merge_quotas(quotas: Iterable[Json], quantifier: Callable[[Iterable[bool]], bool] = all) -> list[Json]:
    """Return the sum of the quotas of each resource.

    With the quantifier `all`, the sum has a limit if all quotas of the resource have this limit. With `any`,
    the sum has a limit if at least one quota has this limit.
    """
    quotas_by_name: defaultdict[str, list[Json]] = defaultdict(list)
    for quota in quotas:
        quotas_by_name[quota["name"]].append(quota)
    merged_quotas = []
    for name, same_name in quotas_by_name.items():
        limits = [limit for limit in _LIMITS if quantifier(each.get(limit) is not None for each in same_name)]
        sums: Json = {}
        for field in (_NOMINAL_QUOTA, *limits):
            sums[field] = _sum({name: str(quota.get(field) or 0)} for quota in same_name)[name]
        merged_quotas.append({"name": name, **sums})
    return merged_quotas


def _sum(amounts: Iterable[Mapping[str, str]]) -> Amounts:
    """Return the sum by resource.

    If all amounts of a resource have the same unit, the sum has this unit, too.
    """
    amounts_by_name: defaultdict[str, list[str]] = defaultdict(list)
    for part in amounts:
        for name, amount in part.items():
            amounts_by_name[name].append(amount)
    sums = {}
    for name, same_name in amounts_by_name.items():
        matches = [re.fullmatch(r"(\d+)([A-Za-z]*)", amount) for amount in same_name if amount != "0"]
        units = {match[2] for match in matches if match}
        if all(matches) and len(units) == 1:
            sums[name] = f"{sum(int(match[1]) for match in matches if match)}{units.pop()}"
        else:
            sums |= quantities(total(offered({name: amount}) for amount in same_name)) or {name: "0"}
    return sums


def _without_empty_fields(spec: Json) -> Json:
    return {name: value for name, value in spec.items() if value not in ({}, [])}


def _namespace_and_name(obj: Json) -> tuple[str, str]:
    meta = obj["metadata"]
    return meta.get("namespace") or "default", str(meta.get("name") or meta.get("generateName"))


# ---- workloads

_PRIORITY_LABEL, _POD_GROUP_LABEL = f"{GROUP}/priority-class", f"{GROUP}/pod-group-name"
_POD_COUNT = f"{GROUP}/pod-group-total-count"
_EFFECTIVE_KEYS = (
    *(keys.KUEUE_MIN_PARALLELISM, keys.KUEUE_REQUIRED_TOPOLOGY, keys.KUEUE_PREFERRED_TOPOLOGY),
    *(_PRIORITY_LABEL, f"{GROUP}/podset-unconstrained-topology"),
)
_MUSTER, _SPARK = "muster", "SparkApplication"
_FIELDS_OF_PODS = {_SPARK: (("spec", "driver"), ("spec", "executor")), "Workflow": (("spec",),)}


class _Workloads:
    """Objects that make pods, and pods, with their LocalQueues."""

    def __init__(self, others: list[Json], tree: _QuotaTree) -> None:
        self._tree = tree
        self._workloads = [(obj, self._local_queue_of(obj)) for obj in others if _makes_pods(obj)]
        self.has_queued_object = any(queue for _, queue in self._workloads)
        self._find = find_among(obj for obj, _ in self._workloads)
        self._runtimes = [self._runtime_of(obj) for obj, queue in self._workloads if queue]

    def _runtime_of(self, obj: Json) -> Json | None:
        """Return the runtime with the templates of a TrainJob, if the runtime is among the objects."""
        row = kind_of(obj)
        name = runtime_named_by(row, obj) if row else None
        return self._find(name) if name else None

    def _local_queue_of(self, obj: Json) -> str:
        """Return the LocalQueue of an object.

        As in Kueue, the LocalQueue of an object without a label is `default`, if the namespace has one.
        """
        default = f"{_namespace_and_name(obj)[0]}/default" if kind_of(obj) else ""
        return _label(obj, keys.KUEUE_QUEUE) or ("default" if default in self._tree.local_queues else "")

    def convert(self) -> Iterator[Migrated]:
        yield from self._pod_groups()
        for obj, queue in self._workloads:
            is_converted = queue or any(obj is runtime for runtime in self._runtimes)
            yield self._convert(deepcopy(obj), queue) if is_converted else Migrated([], obj)

    def _pod_groups(self) -> Iterator[Migrated]:
        groups: dict[tuple[str, str], Json] = {}
        for obj, queue in self._workloads:
            name = _pod_group(obj) if queue else ""
            if name:
                namespace = _namespace_and_name(obj)[0]
                count = value_at(obj, ("metadata", "annotations", _POD_COUNT))
                meta = {"name": name, "namespace": namespace, "labels": {keys.LOCAL_QUEUE: queue}}
                head = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
                groups[namespace, name] = {**head, "metadata": meta, "spec": {"minMember": int(count or 1)}}
        yield from (Migrated([], group) for group in groups.values())

    def _convert(self, obj: Json, queue: str) -> Migrated:
        """Return a converted workload, which names Muster's scheduler, the LocalQueue and the priority."""
        namespace, row, comments = _namespace_and_name(obj)[0], kind_of(obj), list[str]()
        if queue and not _label(obj, keys.KUEUE_QUEUE):
            _set_meta(obj, "labels", keys.LOCAL_QUEUE, queue)
        if group := _pod_group(obj):
            _set_meta(obj, "annotations", keys.GROUP_ANNOTATION, group)
        if row is None or row.runtime is None:
            comments += _set_pod_fields(obj, self._tree.tolerations(f"{namespace}/{queue}"))
        elif self._runtime_of(obj) is None:
            location = getattr(runtime_named_by(row, obj), "display_name", "its runtime")
            comments.append(f"it needs schedulerName: {_MUSTER} in {location}, or an adopted namespace")
        if row is None and queue and obj["kind"] != POD[1]:
            templates = _templates(obj)
            todo = f"its pods need schedulerName: {_MUSTER}, or an adopted namespace"
            comments.append(f"its kind is not known; {'its pods name the queue' if templates else todo}")
            for template in templates:
                _set_meta(template, "labels", keys.LOCAL_QUEUE, queue)
        spark_roles = _fields_of_pods(obj) if obj["kind"] == _SPARK else []  # a pod owns the executors
        for role in spark_roles:
            role["labels"] = {**(role.get("labels") or {}), keys.LOCAL_QUEUE: queue}
        comments += _clear_kueue_fields(obj)
        name = f"{obj['kind']} {'/'.join(_namespace_and_name(obj))}"
        return Migrated([f"{name}: {comment}" for comment in dict.fromkeys(comments)], obj)


def _set_pod_fields(obj: Json, tolerations: list[Json]) -> Iterator[str]:
    """Set the scheduler, priority and missing tolerations in the pods of an object.

    Yield a comment on each scheduler that was replaced.
    """
    priority = _label(obj, _PRIORITY_LABEL)
    for pods in (*_fields_of_pods(obj), *(template["spec"] for template in _templates(obj))):
        if (scheduler := pods.get("schedulerName", _MUSTER)) not in (_MUSTER, keys.DEFAULT_SCHEDULER):
            yield f"schedulerName {scheduler} became {_MUSTER}"
        pods["schedulerName"] = _MUSTER
        for template in items_at(pods, "templates") or [pods]:
            if priority:
                template.setdefault("priorityClassName", priority)
        old_ones = pods.get("tolerations") or []
        if new_ones := [toleration for toleration in tolerations if toleration not in old_ones]:
            pods["tolerations"] = [*old_ones, *new_ones]


def _clear_kueue_fields(obj: Json) -> Iterator[str]:
    """Replace Kueue's labels of queues by Muster's, and remove Kueue's `managedBy`.

    Yield comments on removed fields, and on labels and annotations of Kueue that have no effect in Muster.
    """
    for labels in _metadata_maps(obj, "labels", "matchLabels"):
        if keys.KUEUE_QUEUE in labels:
            labels.setdefault(keys.LOCAL_QUEUE, labels.pop(keys.KUEUE_QUEUE))
    for mapping in _mappings(obj):
        if str(mapping.get("managedBy")).startswith(f"{GROUP}/"):
            yield f"managedBy: {mapping.pop('managedBy')} is left out"
    effective_keys = (*_EFFECTIVE_KEYS, *((_POD_GROUP_LABEL, _POD_COUNT) if _pod_group(obj) else ()))
    names = (key for part in _metadata_maps(obj, "labels", "annotations") for key in part)
    unused_keys = (key for key in names if f"{GROUP}/" in key and key not in effective_keys)
    yield from (f"{key} has no effect yet" for key in unused_keys)


def _mappings(part: Any) -> Iterator[Json]:
    """Yield the mappings in a value, and the value itself if it is a mapping. Outer mappings come first."""
    if isinstance(part, dict):
        yield part
        part = [*part.values()]
    if isinstance(part, list):
        for inner in [*part]:
            yield from _mappings(inner)


def _label(obj: Json, key: str) -> str:
    """Return the first label `key` of an object or of a template in the object; empty if there is none."""
    return next((str(labels[key]) for labels in _metadata_maps(obj, "labels") if key in labels), "")


def _metadata_maps(obj: Json, *fields: str) -> Iterator[Json]:
    values = (node.get(field) for node in _mappings(obj) for field in fields)
    return (mapping for mapping in values if isinstance(mapping, dict))


def _fields_of_pods(obj: Json) -> list[Json]:
    """Return the parts of an object that have fields of pods, for kinds without templates."""
    return [part for path in _FIELDS_OF_PODS.get(obj["kind"], ()) if (part := value_at(obj, path))]


def _templates(obj: Json) -> list[Json]:
    """Return the pod templates in an object, or the object itself if it is a pod."""
    inner = (node for node in _mappings(obj) if node is not obj or obj.get("kind") == POD[1])
    return [node for node in inner if isinstance(value_at(node, ("spec", "containers")), list)]


def _makes_pods(obj: Json) -> bool:
    """Return whether an object makes pods or is a pod. An unknown kind counts if it names a queue."""
    group = str(obj.get("apiVersion")).partition("/")[0]
    is_unknown = "." in group and not group.endswith(".k8s.io")
    return bool(kind_of(obj) or _templates(obj) or (is_unknown and _label(obj, keys.KUEUE_QUEUE)))


def _set_meta(obj: Json, field: str, key: str, text: str) -> None:
    meta = obj["metadata"] = obj.get("metadata") or {}
    meta[field] = {**(meta.get(field) or {}), key: text}


def _pod_group(obj: Json) -> str:
    is_pod = (obj.get("apiVersion"), obj.get("kind")) == POD
    return str(value_at(obj, ("metadata", "labels", _POD_GROUP_LABEL)) or "") if is_pod else ""
